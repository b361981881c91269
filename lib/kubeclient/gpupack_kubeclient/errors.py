# SPDX-License-Identifier: Apache-2.0
"""Errors of the Kubernetes API, named by what a caller does about them.

    KubeError
    ├── Unreachable       no answer; the write may or may not have happened
    ├── LeaseLost         another candidate may work now
    ├── NotSignedIn       there are no credentials: a command issued none, a file is missing
    ├── Oversized         an answer is larger, or nested deeper, than the limit
    └── Refused           the server answered with an error status
        ├── NotFound      404
        ├── Conflict      409: a precondition failed, or the object exists
        │   └── AlreadyExists
        ├── Expired       410: the watch is too old, list again
        ├── Invalid       400, 422: the object is wrong, retrying will not help
        └── Forbidden     401, 403: the service account lacks a permission

Errors of the official client and of the HTTP library never leave this package.
"""

import http
from typing import Final

import msgspec


class KubeError(Exception):
    """Root of all errors that talking to the Kubernetes API can raise."""


class Unreachable(KubeError):
    """The API server gave no answer. A write may have happened: read before deciding.

    Attributes:
        sent: False: the request never reached the server, since there was no connection.
    """

    def __init__(self, message: str, *, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent


class LeaseLost(KubeError):
    """Another candidate for a Lease may work now; this one must stop writing."""


class NotSignedIn(KubeError):
    """There are no credentials for the call; the text names their expected source."""


class Oversized(KubeError):
    """An answer is larger, or nested deeper, than the limit. A write has happened all the same."""


class Refused(KubeError):
    """The API server answered with an error status.

    Attributes:
        status: the HTTP status code.
        reason: `reason` of the Status object, such as `AlreadyExists`, or empty.
        said: the server's message without the call, for users.
        causes: what is wrong with which field, where the server names it.
        retry_after_seconds: delay that the server requests before a retry; None: it requests none.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int,
        reason: str,
        said: str = "",
        causes: "tuple[Cause, ...]" = (),
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_seconds = retry_after_seconds
        self.reason = reason
        self.said = said or message
        self.causes = causes

    @property
    def is_too_large(self) -> bool:
        """Whether the object is larger than the API server or its etcd accepts."""
        if self.status == http.HTTPStatus.INTERNAL_SERVER_ERROR:
            return any(text in self.said for text in _TOO_LARGE)
        return self.status == http.HTTPStatus.REQUEST_ENTITY_TOO_LARGE


class NotFound(Refused):
    """There is no such object."""


class Conflict(Refused):
    """A precondition (resourceVersion, uid) failed, or the object's state forbids the call."""


class AlreadyExists(Conflict):
    """An object of that name exists."""


class Expired(Refused):
    """The resourceVersion is too old to watch from; list again."""


class Invalid(Refused):
    """The object is not valid; the message names the field."""


class Forbidden(Refused):
    """The caller is unknown or lacks a permission."""


_TOO_LARGE: Final = ("request is too large", "message larger than max")
"""Messages with status 500: etcd refuses the object, or it cannot be sent there."""

_BY_STATUS: dict[int, type[Refused]] = {
    http.HTTPStatus.BAD_REQUEST: Invalid,
    http.HTTPStatus.UNAUTHORIZED: Forbidden,
    http.HTTPStatus.FORBIDDEN: Forbidden,
    http.HTTPStatus.NOT_FOUND: NotFound,
    http.HTTPStatus.CONFLICT: Conflict,
    http.HTTPStatus.GONE: Expired,
    http.HTTPStatus.UNPROCESSABLE_ENTITY: Invalid,
}


class Cause(msgspec.Struct, frozen=True):
    """The error in one field of an object."""

    field: str = ""
    message: str = ""


class _Details(msgspec.Struct):
    causes: tuple[Cause, ...] | None = None


class _Status(msgspec.Struct):
    message: str = ""
    reason: str = ""
    code: int = 0
    details: _Details | None = None


def from_response(status: int, body: bytes, *, call: str, retry_after: str = "") -> Refused:
    """Return the error for an HTTP answer.

    Args:
        status: HTTP status code, 400 or more.
        body: body of the answer; a Status object, or any content from a proxy.
        call: method and path, for the message.
        retry_after: the header; seconds, or any other text, which is ignored.
    """
    try:
        answer = msgspec.json.decode(body, type=_Status)
    except (msgspec.MsgspecError, RecursionError):
        answer = _Status(message=body[:200].decode(errors="replace"))
    kind = _BY_STATUS.get(status, Refused)
    if answer.reason == "AlreadyExists":
        kind = AlreadyExists
    message = answer.message or http.HTTPStatus(status).phrase
    text = f"{call}: {status} {message}"
    causes = (answer.details and answer.details.causes) or ()
    return kind(
        text,
        status=status,
        reason=answer.reason,
        said=message,
        causes=causes,
        retry_after_seconds=float(retry_after) if retry_after.isdecimal() else None,
    )
