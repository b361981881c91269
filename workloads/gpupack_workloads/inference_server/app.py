# SPDX-License-Identifier: Apache-2.0
"""The server's calls: completions, the model, health, metrics."""

import asyncio
import contextlib
import math
import secrets
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request as Call
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from gpupack_workloads.inference_server.access import Authenticated
from gpupack_workloads.inference_server.batch import QueueFull, Request, Sequence
from gpupack_workloads.inference_server.callers import (
    Caller,
    Delivery,
    arrived_tokens,
    collected,
    hung_up,
)
from gpupack_workloads.inference_server.engine import FAILED, Engine, Event
from gpupack_workloads.inference_server.metrics import Metrics
from gpupack_workloads.inference_server.options import MODEL
from gpupack_workloads.inference_server.protocol import (
    DONE,
    Answer,
    Limits,
    Refused,
    answered,
    event,
    parsed,
    refusal,
)
from gpupack_workloads.results import Scalar

MAX_BODY_BYTES = 2**20
BODY_SECONDS = 10
MAX_RETRY_SECONDS = 60
# The engine's thread lets the one that sends tokens run after so long: 5 ms, as Python has it, may
# be longer than a step.
SWITCH_SECONDS = 0.0005
JSON_TYPE = "application/json"


class Service:
    """Handlers of the routes.

    Args:
        engine: not started; the application starts and closes it.
        delivery: what the engine publishes by.
        limits: limits of requests.
        device: facts about it, by name.
    """

    def __init__(
        self, engine: Engine, delivery: Delivery, limits: Limits, *, device: Mapping[str, Scalar]
    ) -> None:
        self.engine, self.limits, self._device = engine, limits, device
        self.metrics = Metrics(lambda: engine.load)
        self.draining = False
        self.under_way = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self.answered = 0
        self.tokens = 0
        self._delivery = delivery
        delivery.take = self._take

    @contextlib.asynccontextmanager
    async def lifespan(self, _: object) -> AsyncIterator[None]:
        """Run the engine while the application runs."""
        self._delivery.loop = asyncio.get_running_loop()
        usual = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_SECONDS)
        self.engine.start()
        try:
            yield
        finally:
            await asyncio.to_thread(self.engine.close)
            sys.setswitchinterval(usual)

    async def idle(self) -> None:
        """Wait until no request is under way."""
        await self._idle.wait()

    async def complete(self, call: Call) -> Response:
        """Answer a prompt."""
        arrived = time.monotonic()
        try:
            body, wanted = parsed(await body_of(call), self.limits)
            caller = Caller(arrived)
            sequence = self._submitted(wanted, caller)
        except Refused as refused:
            outcomes = {429: "rejected", 503: "unavailable"}
            self.metrics.requests.labels(outcomes.get(refused.status, "invalid")).inc()
            raise
        answer = Answer(
            name=f"cmpl-{secrets.token_hex(12)}",
            created=int(time.time()),
            prompt_tokens=len(wanted.prompt),
        )
        if body.stream:
            usage = body.stream_options is not None and body.stream_options.include_usage
            pieces = self._pieces(caller, answer, usage=usage)
            return Stream(pieces, lambda: self._left(sequence, caller))
        try:
            return await self._whole(call, caller, answer)
        finally:
            self._left(sequence, caller)

    def _submitted(self, wanted: Request, caller: Caller) -> Sequence:
        if self.draining:
            raise Refused(503, "this server is about to end", headers={"Retry-After": "1"})
        try:
            sequence = self.engine.submit(wanted, caller)
        except QueueFull:
            seconds = min(MAX_RETRY_SECONDS, max(1, math.ceil(self.engine.seconds_ahead)))
            raise Refused(
                429,
                f"as many requests wait as may: try again in {seconds} s",
                code="queue_full",
                headers={"Retry-After": str(seconds)},
            ) from None
        except ValueError as error:
            raise Refused(400, str(error), "max_tokens", "context_length_exceeded") from error
        except RuntimeError as error:
            raise Refused(503, str(error), headers={"Retry-After": "5"}) from error
        self.under_way += 1
        self._idle.clear()
        self.metrics.tokens.labels("prompt").inc(len(wanted.prompt))
        return sequence

    def _take(self, events: list[Event]) -> None:
        """Give each event to its caller."""
        now = time.monotonic()
        for each in events:
            caller: Caller = each.sequence.listener
            if each.token is not None:
                if caller.last:
                    self.metrics.between_tokens.observe(now - caller.last)
                else:
                    self.metrics.first_token.observe(now - caller.arrived)
                caller.last = now
                self.tokens += 1
                self.metrics.tokens.labels("output").inc()
            if each.finished and not caller.ended:
                caller.ended = True
                self.answered += each.finished != FAILED
                self.metrics.requests.labels(each.finished).inc()
            caller.events.put_nowait(each)

    def _left(self, sequence: Sequence, caller: Caller) -> None:
        """Free what a caller had, whether it has its answer or went away."""
        self.under_way -= 1
        if not self.under_way:
            self._idle.set()
        self.engine.cancel(sequence)
        if not caller.ended:
            caller.ended = True
            self.metrics.requests.labels("cancelled").inc()

    async def _pieces(self, caller: Caller, answer: Answer, *, usage: bool) -> AsyncIterator[bytes]:
        count, finished = 0, None
        while finished is None:
            tokens, finished = await arrived_tokens(caller)
            if finished == FAILED:
                yield event({"error": {"message": "the engine has failed", "type": "server_error"}})
                return
            count += len(tokens)
            yield answer.piece(tokens, finished)
        if usage:
            yield answer.usage(count)
        yield DONE

    async def _whole(self, call: Call, caller: Caller, answer: Answer) -> Response:
        collecting = asyncio.ensure_future(collected(caller))
        leaving = asyncio.ensure_future(hung_up(call.receive))
        try:
            await asyncio.wait({collecting, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not collecting.done():
                return Response(status_code=499)  # no client is left to read it
            tokens, finished = collecting.result()
        finally:
            collecting.cancel()
            leaving.cancel()
        if finished == FAILED:
            raise Refused(503, "the engine has failed", headers={"Retry-After": "5"})
        return answered(answer.whole(tokens, finished))

    async def models(self, _: Call) -> Response:
        """Tell what there is, and the limits of requests."""
        model: dict[str, Scalar] = {
            "id": MODEL,
            "object": "model",
            "owned_by": "gpupack",
            "vocabulary": self.limits.vocabulary,
            "max_length": self.limits.max_length,
            **self._device,
        }
        return answered({"object": "list", "data": [model]})

    async def healthz(self, _: Call) -> Response:
        """Tell whether it lives: a failed engine needs a new process."""
        return health("the engine has failed" if self.engine.failure else None)

    async def readyz(self, _: Call) -> Response:
        """Tell whether it takes requests."""
        if self.draining:
            return health("draining")
        return await self.healthz(_)

    async def measured(self, _: Call) -> Response:
        """Tell the metrics."""
        return Response(self.metrics.written(), media_type="text/plain; version=0.0.4")


class Stream(StreamingResponse):
    """Events as they come; `on_end` is called at the end, also if the caller disconnects."""

    def __init__(self, content: AsyncIterator[bytes], on_end: Callable[[], None]) -> None:
        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        super().__init__(content, media_type="text/event-stream", headers=headers)
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._on_end()


def application(service: Service, token: str | None) -> ASGIApp:
    """Return the ASGI application; with a token, all but health needs it."""
    app = Starlette(
        routes=[
            Route("/v1/completions", service.complete, methods=["POST"]),
            Route("/v1/models", service.models),
            Route("/healthz", service.healthz),
            Route("/readyz", service.readyz),
            Route("/metrics", service.measured),
        ],
        lifespan=service.lifespan,
        exception_handlers={Refused: on_refused, HTTPException: on_http},  # type: ignore[dict-item]
    )
    return Authenticated(app, token)


async def on_refused(_: Call, refused: Refused) -> Response:
    """Say why a call is not served."""
    return refusal(refused)


async def on_http(_: Call, error: HTTPException) -> Response:
    """Say the same of what has no route."""
    return refusal(Refused(error.status_code, error.detail, headers=error.headers or {}))


async def body_of(call: Call) -> bytes:
    """Return a call's body.

    Raises:
        Refused: its content type is not JSON, it is too long, or it does not arrive.
    """
    kind = call.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != JSON_TYPE:
        raise Refused(415, f"the body must be {JSON_TYPE}, as its Content-Type says")
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in call.stream():
                body += chunk
                if len(body) > MAX_BODY_BYTES:
                    raise Refused(413, f"the body is longer than {MAX_BODY_BYTES} bytes")
    except TimeoutError:
        raise Refused(408, f"the body did not come within {BODY_SECONDS} s") from None
    return bytes(body)


def health(trouble: str | None) -> Response:
    """Return 200, or 503 with what is wrong."""
    return PlainTextResponse(trouble or "ok", 503 if trouble else 200)
