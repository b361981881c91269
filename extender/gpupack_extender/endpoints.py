# SPDX-License-Identifier: Apache-2.0
"""Common parts of all endpoints: bounded bodies, JSON in and out, errors as answers."""

import asyncio
import http
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from gpupack_crds.plan import Problem
from gpupack_extender.call_body import CallBody
from gpupack_extender.errors import CallInvalid, CallTooLarge, MediaTypeInvalid
from gpupack_extender.unique_keys import require_unique_keys
from gpupack_httpserver import connections
from gpupack_httpserver.errors import Denied
from gpupack_kubeclient.errors import KubeError
from gpupack_scheduler.errors import NotReady, RequestInvalid

JSON: Final = "application/json"

LARGE_BYTES: Final = 256 << 10
"""Larger bodies are decoded in a thread, while other calls continue: a megabyte can take 0.1 s."""

CALLER_SECONDS: Final = 1.0
"""How often a long call checks whether its caller is still connected."""

T = TypeVar("T", bound=msgspec.Struct)
R = TypeVar("R")
Endpoint = Callable[[Request], Awaitable[Response]]


def application(routes: Sequence[Route]) -> Starlette:
    """Serve these routes, and say in JSON why any other call gets no answer."""
    app = Starlette(
        routes=routes,
        exception_handlers={HTTPException: _not_served, Exception: _failed},
    )
    app.router.redirect_slashes = False
    return app


async def read(request: Request, kind: type[T], *, limit_bytes: int) -> T:
    """Read and decode a body.

    Raises:
        CallInvalid: the body is too large, or does not match `kind`; it is discarded.
    """
    return await decoded(await read_body(request, limit_bytes), kind)


async def read_body(request: Request, limit_bytes: int) -> CallBody:
    """Read a body that is declared as JSON.

    Raises:
        CallInvalid: it is too large, or is declared as something else.
    """
    _require_json(request)
    return CallBody.of(await _body(request, limit_bytes))


async def decoded(body: CallBody, kind: type[T]) -> T:
    """Decode a body, a large one in a thread.

    Raises:
        CallInvalid: under the conditions of `decode`.
    """
    if len(body.whole) > LARGE_BYTES:
        return await asyncio.to_thread(decode, body, kind)
    return decode(body, kind)


def decode(body: CallBody, kind: type[T]) -> T:
    """Decode a body.

    Raises:
        CallInvalid: the body does not match `kind`, or an object has a key twice; the message says
        where.
        CallTooLarge: without its node names the body exceeds the limit; it was not decoded.
    """
    body.require_bounded()
    try:
        call = msgspec.json.decode(body.whole, type=kind)
        require_unique_keys(body, kind.__struct_encode_fields__)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise CallInvalid(f"the body is no {kind.__name__}: {error}") from error
    return call


async def unless_gone(request: Request, work: Coroutine[Any, Any, R]) -> R:
    """Run work that can take long, for as long as its caller waits for it.

    Raises:
        CallInvalid: the caller has disconnected.
    """
    task = asyncio.create_task(work)
    try:
        while not (await asyncio.wait({task}, timeout=CALLER_SECONDS))[0]:
            if await request.is_disconnected():
                raise CallInvalid("the caller went away before there was an answer")
        return await task
    finally:
        task.cancel()


def answer(body: Any, status: int = http.HTTPStatus.OK) -> Response:
    """Answer with JSON."""
    return Response(msgspec.json.encode(body), status, media_type=JSON)


def guarded(endpoint: Endpoint) -> Endpoint:
    """Turn errors that concern the caller into answers."""

    async def call(request: Request) -> Response:
        try:
            return await endpoint(request)
        except (CallInvalid, Denied) as error:
            return _problem(error, error.status)
        except RequestInvalid as error:
            return _problem(error, http.HTTPStatus.BAD_REQUEST)
        except (NotReady, KubeError) as error:
            return _problem(error, http.HTTPStatus.SERVICE_UNAVAILABLE)

    return call


def _require_json(request: Request) -> None:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    coding = request.headers.get("content-encoding", "identity").lower()
    if (media_type, coding) != (JSON, "identity"):
        raise MediaTypeInvalid(
            f"Content-Type is {media_type!r}, Content-Encoding {coding!r}; send plain {JSON}"
        )


async def _not_served(request: Request, error: Exception) -> Response:
    """Answer a call for another path or with another method."""
    assert isinstance(error, HTTPException)  # noqa: S101 - what it is registered for
    status = http.HTTPStatus(error.status_code)
    message = f"{request.method} {request.url.path}: {error.detail}"
    answered = answer(Problem(reason=connections.reason(status), message=message), status)
    answered.headers.update(error.headers or {})
    return answered


async def _failed(_: Request, error: Exception) -> Response:
    """Answer an internal error; Starlette then raises it again, and the connection ends."""
    answered = _problem(error, http.HTTPStatus.INTERNAL_SERVER_ERROR)
    answered.headers["connection"] = "close"
    return answered


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
