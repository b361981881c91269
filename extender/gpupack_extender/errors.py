# SPDX-License-Identifier: Apache-2.0
"""Errors of the extender, named by what the caller is told.

ExtenderError
├── CallInvalid          the HTTP call is malformed; answered 4xx, nothing changed
│   ├── CallTooLarge     413
│   └── MediaTypeInvalid 415
├── Denied               the caller is unknown (401), lacks the right (403) or asks too often (429)
├── AskInvalid           a pod or a job asks for something that cannot be read or served
├── BindRefused          the ledger does not give this pod this node
│   └── AskMismatch      the pod asks for other GPUs than its worker's place has
├── InventoryInvalid     a GPUNode contradicts itself or another; the node gets no work
├── NotReady             not the leader, or what is known is too old to decide on
└── TaskEnded            an essential task ended by itself; the process ends non-zero
"""

import http


class ExtenderError(Exception):
    """Root of all errors of the extender."""


class CallInvalid(ExtenderError):
    """The HTTP call is malformed; nothing has changed."""

    status = http.HTTPStatus.BAD_REQUEST


class CallTooLarge(CallInvalid):
    """The body is larger than any real call."""

    status = http.HTTPStatus.REQUEST_ENTITY_TOO_LARGE


class MediaTypeInvalid(CallInvalid):
    """The body is not sent as plain JSON."""

    status = http.HTTPStatus.UNSUPPORTED_MEDIA_TYPE


class Denied(ExtenderError):
    """The caller is unknown, lacks the right, or was unknown too often.

    Attributes:
        status: 401, 403 or 429.
    """

    def __init__(self, message: str, *, status: http.HTTPStatus) -> None:
        super().__init__(message)
        self.status = status


class AskInvalid(ExtenderError, ValueError):
    """A pod or a job asks for something that cannot be read or served."""


class BindRefused(ExtenderError):
    """The ledger does not give this pod this node."""


class AskMismatch(BindRefused):
    """The pod asks for other GPUs than its worker's place has."""


class InventoryInvalid(ExtenderError, ValueError):
    """A GPUNode contradicts itself or another."""


class QueueFull(ExtenderError):
    """A namespace has more in the queue than it may."""


class NotReady(ExtenderError):
    """Not the leader, or what is known is too old to decide on."""


class TaskEnded(ExtenderError):
    """An essential task ended by itself."""
