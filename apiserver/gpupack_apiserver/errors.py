# SPDX-License-Identifier: Apache-2.0
"""Errors of the API.

ApiError
├── CallInvalid      a field of the call is not valid; answered 400 with field, value and fix
│   └── ConfigInvalid  the configuration file is not valid; 422
├── StoreUnusable    the file of the cost service cannot be opened, or belongs to another program
├── Missing          there is no such object; 404
├── ClusterNeeded    the call needs a cluster, and the server is one machine's; 501
├── TokenNeeded      the caller is known, and the call needs a token; 401
├── TokenUnusable    the file with one machine's token cannot be used; the process does not start
├── PermissionLost   a permission of a stream was removed; the stream ends
└── PageInvalid      the folder has no dashboard; the process does not start
"""


class ApiError(Exception):
    """Root of the API's errors."""


class CallInvalid(ApiError):
    """A field of the call is not valid.

    Attributes:
        field: its name.
        value: what was sent, shortened.
        fix: what to send instead.
    """

    def __init__(self, field: str, value: object, fix: str) -> None:
        self.field, self.value, self.fix = field, str(value)[:128], fix
        super().__init__(f"{field} is {self.value!r}: {fix}")


def invalid_cursor(after: str) -> CallInvalid:
    """Return the error for a cursor that is not `next` of an earlier answer."""
    return CallInvalid("after", after, "send `next` of the answer before, unchanged")


class ConfigInvalid(CallInvalid):
    """The configuration file is not valid; `field` is empty for an error of the whole file."""


class Missing(ApiError):
    """There is no such object, or none that the caller may see."""


def no_allocation(namespace: str, name: str) -> Missing:
    """Return the error for a missing allocation, or for another object of that name."""
    return Missing(f"there is no allocation {namespace}/{name}")


class ClusterNeeded(ApiError):
    """The server is one machine's, and the call is about objects of a cluster."""


class TokenNeeded(ApiError):
    """A certificate identifies the caller, and the call needs a token, which is passed on."""


class TokenUnusable(ApiError):
    """The file with one machine's token cannot be read or created, or other users can read it."""


class PermissionLost(ApiError):
    """A permission of a stream was removed."""


class PageInvalid(ApiError):
    """The folder of the dashboard does not contain it."""


class StoreUnusable(ApiError):
    """The cost service's file cannot be opened, is in use, or belongs to another program."""
