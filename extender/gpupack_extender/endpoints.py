# SPDX-License-Identifier: Apache-2.0
"""What all endpoints share: bounded bodies, JSON in and out, errors as answers."""

import http
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from gpupack_crds.plan import Problem
from gpupack_extender.errors import AskInvalid, CallInvalid, CallTooLarge, Denied, NotReady
from gpupack_kube.errors import KubeError

log = logging.getLogger(__name__)

T = TypeVar("T")
Endpoint = Callable[[Request], Awaitable[Response]]


async def read(request: Request, kind: type[T], *, limit_bytes: int) -> T:
    """Read and decode a body.

    Where a key stands twice the last one counts, as for Go.

    Raises:
        CallInvalid: the body is too large, or not what `kind` says; nothing is left behind.
    """
    return decode(await _body(request, limit_bytes), kind)


def decode(body: bytes, kind: type[T]) -> T:
    """Decode a body.

    Raises:
        CallInvalid: the body is not what `kind` says; the message says where.
    """
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise CallInvalid(f"the body is no {kind.__name__}: {error}") from error


def answer(body: Any, status: int = http.HTTPStatus.OK) -> Response:
    """Answer with JSON."""
    return Response(msgspec.json.encode(body), status, media_type="application/json")


def guarded(endpoint: Endpoint) -> Endpoint:
    """Turn the errors that callers must be told of into answers."""

    async def call(request: Request) -> Response:
        try:
            return await endpoint(request)
        except (CallInvalid, Denied) as error:
            return _problem(error, error.status)
        except AskInvalid as error:
            return _problem(error, http.HTTPStatus.BAD_REQUEST)
        except (NotReady, KubeError) as error:
            return _problem(error, http.HTTPStatus.SERVICE_UNAVAILABLE)

    return call


def _problem(error: Exception, status: int) -> Response:
    return answer(Problem(reason=type(error).__name__, message=str(error)), status)


async def _body(request: Request, limit_bytes: int) -> bytes:
    if int(request.headers.get("content-length", 0)) > limit_bytes:
        raise _too_large(limit_bytes)
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > limit_bytes:
                raise _too_large(limit_bytes)
    except ClientDisconnect as error:
        raise CallInvalid("the caller went away in the middle of the body") from error
    return bytes(body)


def _too_large(limit_bytes: int) -> CallTooLarge:
    return CallTooLarge(f"the body is larger than {limit_bytes} bytes; no real call is")
