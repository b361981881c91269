# SPDX-License-Identifier: Apache-2.0
"""Sends requests, each at its time, and records when tokens come.

The load is open: a request is sent when it is due, however many are under way. A client that waited
for answers would send fewer requests to a server that stalls, and measure its stalls too seldom
(«coordinated omission»). For the same reason times count from when a request was due, not from when
it was sent. How late it was sent is reported too, since the client causes it.

By aiohttp, which took a quarter of the time that httpx took for each request, and a ninth with
hundreds under way: what the client takes is measured as the server's.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import aiohttp
import msgspec

from gpupack_workloads.errors import BadArgument
from gpupack_workloads.inference_load.arrivals import Arrival
from gpupack_workloads.inference_server.options import MODEL

OK = 200
TOO_MANY, UNAVAILABLE = 429, 503
DATA, DONE = b"data: ", b"[DONE]"
CONNECT_SECONDS = 10.0
# Until the last token of the last request; what is not answered then has failed.
TIMEOUT_SECONDS = 120.0


@dataclass(frozen=True)
class Target:
    """A server.

    Attributes:
        url: without a path.
        token: that it wants to see, if any.
    """

    url: str
    token: str | None = None


class ModelInfo(msgspec.Struct):
    """A server's description of its model."""

    id: str
    vocabulary: int
    max_length: int
    device: str = ""
    simulated: bool = False


class Models(msgspec.Struct):
    """The models of a server."""

    data: list[ModelInfo]


class Choice(msgspec.Struct):
    """New tokens of an answer."""

    token_ids: list[int]
    finish_reason: str | None = None


class Piece(msgspec.Struct):
    """An event of a stream."""

    choices: list[Choice]


@dataclass
class Outcome:
    """Outcome of a request. Times are in seconds from the beginning of the load.

    Attributes:
        due: when it was to be sent.
        sent: when it was.
        status: status of HTTP; 0 where there was no answer.
        tokens: tokens of the answer.
        times: when each of them came.
        finished: why it ended, as the server said.
        trouble: what went wrong.
    """

    due: float
    sent: float = 0.0
    status: int = 0
    tokens: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    finished: str | None = None
    trouble: str | None = None

    @property
    def rejected(self) -> bool:
        """Whether the server refused it for being too busy."""
        return self.status in {TOO_MANY, UNAVAILABLE}

    @property
    def answered(self) -> bool:
        """Whether it has its whole answer."""
        return self.finished is not None and self.trouble is None


def headers_for(target: Target) -> dict[str, str]:
    """Return the headers by which the server knows us."""
    return {} if target.token is None else {"Authorization": f"Bearer {target.token}"}


def about(target: Target) -> ModelInfo:
    """Ask a server for its model.

    Raises:
        BadArgument: there is no such server, or it does not know us.
    """
    try:
        return msgspec.json.decode(asyncio.run(fetch_models(target)), type=Models).data[0]
    except (aiohttp.ClientError, TimeoutError, msgspec.DecodeError, IndexError) as error:
        raise BadArgument(
            f"{target.url} is no inference server that serves us: {error!r}"
        ) from error


async def fetch_models(target: Target) -> bytes:
    """Return a server's answer about its models."""
    async with (
        session_for(target) as session,
        session.get("/v1/models", raise_for_status=True) as reply,
    ):
        return await reply.read()


def session_for(target: Target) -> aiohttp.ClientSession:
    """Return a client of one server, with as many connections as are wanted."""
    return aiohttp.ClientSession(
        target.url,
        headers=headers_for(target),
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=TIMEOUT_SECONDS, sock_connect=CONNECT_SECONDS),
    )


def drive(target: Target, planned: Sequence[Arrival]) -> list[Outcome]:
    """Send all requests, each when it is due; return what became of each, in their order."""
    return asyncio.run(driven(target, planned))


async def driven(target: Target, planned: Sequence[Arrival]) -> list[Outcome]:
    """Do what `drive` does."""
    async with session_for(target) as session:
        began = time.monotonic()
        under_way = []
        for arrival in planned:
            await asyncio.sleep(began + arrival.due - time.monotonic())
            under_way.append(asyncio.create_task(ask(session, arrival, began)))
        return list(await asyncio.gather(*under_way))


async def ask(session: aiohttp.ClientSession, arrival: Arrival, began: float) -> Outcome:
    """Send one request and read its answer."""
    outcome = Outcome(arrival.due, sent=time.monotonic() - began)
    body = {
        "model": MODEL,
        "prompt": arrival.prompt,
        "max_tokens": arrival.output_tokens,
        "temperature": 0,
        "stream": True,
    }
    try:
        async with session.post(
            "/v1/completions",
            data=msgspec.json.encode(body),
            headers={"Content-Type": "application/json"},
        ) as reply:
            outcome.status = reply.status
            if reply.status == OK:
                await read(reply, outcome, began)
            else:
                outcome.trouble = (await reply.text(errors="replace"))[:500]
    except (aiohttp.ClientError, OSError, msgspec.DecodeError, TimeoutError, ValueError) as error:
        outcome.trouble = f"{type(error).__name__}: {error}"
    if outcome.trouble is None and len(outcome.tokens) != arrival.output_tokens:
        outcome.trouble = f"{len(outcome.tokens)} of {arrival.output_tokens} tokens came"
    return outcome


async def read(reply: aiohttp.ClientResponse, outcome: Outcome, began: float) -> None:
    """Note each event of a stream."""
    async for line in reply.content:
        if not line.startswith(DATA) or line.rstrip().endswith(DONE):
            continue
        now = time.monotonic() - began
        for choice in msgspec.json.decode(line[len(DATA) :], type=Piece).choices:
            outcome.tokens += choice.token_ids
            outcome.times += [now] * len(choice.token_ids)
            outcome.finished = choice.finish_reason or outcome.finished
