# SPDX-License-Identifier: Apache-2.0
"""Errors of the Kubernetes API, named by what a caller does about them.

    KubeError
    ├── Unreachable       no answer; the write may or may not have happened
    ├── LeaseLost         another candidate may work now
    ├── NotSignedIn       there are no credentials: a command issued none, a file is not there
    ├── Oversized         an answer is larger, or nested deeper, than is read
    └── Refused           the server answered with an error status
        ├── NotFound      404
        ├── Conflict      409: a precondition failed, or the object exists
        │   └── AlreadyExists
        ├── Expired       410: the watch is too old, list anew
        ├── Invalid       400, 422: the object is wrong, retrying will not help
        └── Forbidden     401, 403: the service account lacks a right

The official client's and the HTTP library's errors never leave this package.
"""

import http
from typing import Final

import msgspec


class KubeError(Exception):
    """Root of all errors that talking to the Kubernetes API can raise."""


class Unreachable(KubeError):
    """The API server gave no answer. A write may have happened: read before deciding.

    Attributes:
        sent: False: nothing reached it, since there was no connection.
    """

    def __init__(self, message: str, *, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent


class LeaseLost(KubeError):
    """Another candidate for a Lease may work now: stop writing."""


class NotSignedIn(KubeError):
    """There are no credentials to call with; the text says from where they were to come."""


class Oversized(KubeError):
    """An answer is larger, or nested deeper, than is read. A write has happened all the same."""


class Refused(KubeError):
    """The API server answered with an error status.

    Attributes:
        status: the HTTP status code.
        reason: the `reason` of the Status object, such as `AlreadyExists`, or empty.
        said: the server's message alone, for people who do not know of the call.
        causes: what is wrong with which field, where the server says so.
        retry_after_seconds: when the server asks to be called again; None: it does not ask.
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
        """Whether the object is larger than the API server or its etcd takes."""
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
    """The resourceVersion is too old to watch from: list anew."""


class Invalid(Refused):
    """The object was judged wrong; the message names the field."""


class Forbidden(Refused):
    """The caller is unknown or lacks a right."""


_TOO_LARGE: Final = ("request is too large", "message larger than max")
"""Said with status 500: etcd does not take the object, or it cannot be sent there."""

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
    """What is wrong with one field of an object."""

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
    """Name the error of an HTTP answer.

    Args:
        status: HTTP status code, 400 or more.
        body: the answer's body; a Status object, or anything at all from a proxy.
        call: method and path, for the message.
        retry_after: the header; seconds, or anything else, which does not count.
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
