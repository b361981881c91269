# SPDX-License-Identifier: Apache-2.0
"""Errors of the API.

ApiError
├── CallWrong     a field of the call is wrong; answered 400 with field, value and fix
│   └── ConfigInvalid   the same of the configuration file; 422
├── StoreUnusable the file with what was used cannot be opened, or is not ours
├── Missing       there is no such object; 404
├── ClusterNeeded  the call is one that one machine cannot answer; 501
├── TokenNeeded   the caller is known, and the call takes a token all the same; 401
├── TokenUnusable  the file with one machine's token cannot be used; the process does not start
├── RightLost     what a stream rests on is not allowed any more; the stream ends
└── PageInvalid   the folder of the dashboard holds none; the process does not start
"""


class ApiError(Exception):
    """Root of the API's errors."""


class CallWrong(ApiError):
    """A field of the call is wrong.

    Attributes:
        field: its name.
        value: what was sent, shortened.
        fix: what to send instead.
    """

    def __init__(self, field: str, value: object, fix: str) -> None:
        self.field, self.value, self.fix = field, str(value)[:128], fix
        super().__init__(f"{field} is {self.value!r}: {fix}")


class ConfigInvalid(CallWrong):
    """The configuration file cannot be used; `field` is empty where it is the file as a whole."""


class Missing(ApiError):
    """There is no such object, or none that may be seen."""


def no_allocation(namespace: str, name: str) -> Missing:
    """There is none of that name, or what has it is something else."""
    return Missing(f"there is no allocation {namespace}/{name}")


class ClusterNeeded(ApiError):
    """The server is one machine's, and the call is about what only a cluster has."""


class TokenNeeded(ApiError):
    """The caller is known by a certificate, and the call takes his token: it is passed on."""


class TokenUnusable(ApiError):
    """The file with the token of one machine's server cannot be read or made, or others read it."""


class RightLost(ApiError):
    """A right was taken away on which a stream rests."""


class PageInvalid(ApiError):
    """The folder that is to hold the dashboard holds none."""


class StoreUnusable(ApiError):
    """The file with what was used cannot be opened, is another process's, or is not ours."""
