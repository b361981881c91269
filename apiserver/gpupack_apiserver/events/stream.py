# SPDX-License-Identifier: Apache-2.0
"""One listener's stream of events, as an answer."""

import asyncio
import contextlib
import math
import time
import zlib
from collections.abc import AsyncGenerator, Callable
from typing import Any, Final

import msgspec
from litestar.types import Receive, Scope, Send

from gpupack_apiserver.errors import CallWrong, RightLost
from gpupack_apiserver.events.feed import Feed
from gpupack_apiserver.events.frames import NEVER, Frame, Frames, deflated, event
from gpupack_apiserver.events.limits import Place
from gpupack_apiserver.events.visibility import Visibility
from gpupack_httpserver.errors import Denied
from gpupack_kubeclient.errors import KubeError

AGAIN_SECONDS: Final = 60.0
"""Seconds between two checks of the listener's permissions."""

TRIES: Final = 3
"""Checks without an answer of the API server until the permissions count as unknown."""

BEAT_SECONDS: Final = 15.0
"""Seconds without an event until a comment is sent: proxies close silent connections."""

BEAT: Final = b":\n\n"

GZIP_HEAD: Final = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
LAST_BLOCK: Final = b"\x03\x00"
WORD: Final = 1 << 32


class Bye(msgspec.Struct, frozen=True):
    """The reason for the end of a stream.

    One of TokenExpired, RightsTaken, Stopping, Stale, TooSlow, Over, Unknown and TooManyNamespaces.
    """

    reason: str
    message: str


class Events:
    """The content of a listener's stream, in pieces.

    Args:
        feed: the changes.
        frames: the messages about them.
        visibility: what this listener may see; already determined.
        missing: returns what is missing of the cluster's state; empty: nothing.
        full: start with the complete state.
        seconds: when it ends by itself; 0: never.
    """

    def __init__(
        self,
        feed: Feed,
        frames: Frames,
        visibility: Visibility,
        missing: Callable[[], str],
        *,
        full: bool,
        seconds: float,
    ) -> None:
        self._feed, self._frames, self._visibility = feed, frames, visibility
        self._missing, self._full = missing, full
        self._ends = time.monotonic() + seconds if seconds else math.inf
        self._again_at = time.monotonic() + AGAIN_SECONDS
        self._unanswered = 0

    async def told(self) -> AsyncGenerator[tuple[Frame, int] | bytes]:
        """Yield pieces of frames, by their numbers, and other text."""
        seen, told_at = self._feed.join(), time.monotonic()
        if self._full:
            seen = NEVER
        try:
            while (bye := await self._bye()) is None:
                try:
                    frame, number = await self._next(seen)
                except CallWrong as error:
                    bye = Bye("TooManyNamespaces", str(error))
                    break
                if frame is None:
                    bye = Bye("TooSlow", "nothing was read for too long")
                    break
                for piece in range(len(frame)):
                    yield frame, piece
                    told_at = time.monotonic()
                seen = number
                await self._feed.wait(seen, seconds=self._patience(told_at))
                if time.monotonic() - told_at >= BEAT_SECONDS:
                    yield BEAT
                    told_at = time.monotonic()
            yield event("bye", msgspec.json.encode(bye))
        finally:
            self._feed.leave()

    async def _next(self, seen: int) -> tuple[Frame | None, int]:
        """Return the next frame, and its last tick."""
        added: frozenset[str] = frozenset()
        while True:
            number = self._feed.number
            tick = self._feed.since(number if seen == NEVER else seen)
            if tick is None:
                return None, number
            added |= await self._visibility.meet(key[0] for key in tick.jobs)
            if number == self._feed.number:
                return self._frames.of(self._visibility.scope, seen, added=added), number

    async def _bye(self) -> Bye | None:
        """Return why the stream ends; None: it continues."""
        if self._feed.over:
            return Bye("Stopping", self._feed.over)
        if missing := self._missing():
            return Bye("Stale", f"the cluster's state is not known: {missing}")
        now = time.monotonic()
        if now >= self._ends:
            return Bye("Over", "the requested time is over")
        return await self._look_again() if now >= self._again_at else None

    async def _look_again(self) -> Bye | None:
        self._again_at = time.monotonic() + AGAIN_SECONDS
        try:
            await self._visibility.again()
        except Denied as error:
            return Bye("TokenExpired", str(error))
        except RightLost as error:
            return Bye("RightsTaken", str(error))
        except KubeError as error:
            self._unanswered += 1
            return Bye("Unknown", str(error)) if self._unanswered >= TRIES else None
        self._unanswered = 0
        return None

    def _patience(self, told_at: float) -> float:
        """Return the seconds until the next action that needs no tick."""
        due = min(told_at + BEAT_SECONDS, self._again_at, self._ends)
        return max(due - time.monotonic(), 0.0)


class EventStream:
    """A sender of a listener's events; an ASGI application for one call.

    Args:
        events: content of the stream.
        gzip: whether to compress it.
        place: place among all streams; released at the end of this one.
    """

    def __init__(self, events: Events, place: Place, *, gzip: bool) -> None:
        self._events, self._place = events, place
        self._encode: Plain | Gzip = Gzip() if gzip else Plain()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the stream ends or the listener has left."""
        del scope
        telling = asyncio.create_task(self._tell(send))
        leaving = asyncio.create_task(_gone(receive))
        try:
            await asyncio.wait({telling, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._place.free()
            leaving.cancel()
            telling.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await telling

    async def _tell(self, send: Send) -> None:
        await send(self._start())
        async with contextlib.aclosing(self._events.told()) as told:
            async for what in told:
                await send(_body(self._encode.piece(what)))
        await send(_body(self._encode.end(), more=False))

    def _start(self) -> Any:
        headers = [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"x-accel-buffering", b"no"),
            (b"vary", b"Accept-Encoding"),
            *self._encode.headers,
        ]
        return {"type": "http.response.start", "status": 200, "headers": headers}


class Plain:
    """An encoder for uncompressed text."""

    headers: tuple[tuple[bytes, bytes], ...] = ()

    def piece(self, what: tuple[Frame, int] | bytes) -> bytes:
        """Return the bytes of a piece."""
        return what if isinstance(what, bytes) else what[0].text(what[1])

    def end(self) -> bytes:
        """Return the last bytes."""
        return b""


class Gzip:
    """An encoder for one gzip member whose blocks are separately compressed pieces."""

    headers: tuple[tuple[bytes, bytes], ...] = ((b"content-encoding", b"gzip"),)

    def __init__(self) -> None:
        self._head, self._sum, self._bytes = GZIP_HEAD, 0, 0

    def piece(self, what: tuple[Frame, int] | bytes) -> bytes:
        """Return the bytes of a piece."""
        if isinstance(what, bytes):
            text, blocks = what, deflated(what)
        else:
            frame, number = what
            text, blocks = frame.text(number), frame.deflated(number)
        self._sum, self._bytes = zlib.crc32(text, self._sum), (self._bytes + len(text)) % WORD
        head, self._head = self._head, b""
        return head + blocks

    def end(self) -> bytes:
        """Return the last bytes."""
        return self._head + LAST_BLOCK + _word(self._sum) + _word(self._bytes)


def _word(number: int) -> bytes:
    return number.to_bytes(4, "little")


def _body(body: bytes, *, more: bool = True) -> Any:
    return {"type": "http.response.body", "body": body, "more_body": more}


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
