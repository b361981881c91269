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

from gpupack_apiserver.errors import CallInvalid, PermissionLost
from gpupack_apiserver.events.feed import Feed
from gpupack_apiserver.events.frames import NO_TICK, Frame, Frames, deflated, event
from gpupack_apiserver.events.limits import StreamSlot
from gpupack_apiserver.events.visibility import Visibility
from gpupack_httpserver.errors import Denied
from gpupack_kubeclient.errors import KubeError
from gpupack_restapi.events import StreamEnd

RECHECK_SECONDS: Final = 60.0
"""Seconds between two checks of the listener's permissions."""

MAX_FAILED_CHECKS: Final = 3
"""Checks without an answer of the API server until the permissions count as unknown."""

KEEPALIVE_SECONDS: Final = 15.0
"""Seconds without an event until a comment is sent: proxies close silent connections."""

KEEPALIVE: Final = b":\n\n"

GZIP_HEAD: Final = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
LAST_BLOCK: Final = b"\x03\x00"
UINT32_RANGE: Final = 1 << 32


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
        self._recheck_at = time.monotonic() + RECHECK_SECONDS
        self._failed_checks = 0

    async def pieces(self) -> AsyncGenerator[tuple[Frame, int] | bytes]:
        """Yield pieces of frames, by their numbers, and other text."""
        seen, sent_at = self._feed.join(), time.monotonic()
        if self._full:
            seen = NO_TICK
        try:
            while (end := await self._end()) is None:
                try:
                    frame, number = await self._next(seen)
                except CallInvalid as error:
                    end = StreamEnd("TooManyNamespaces", str(error))
                    break
                if frame is None:
                    end = StreamEnd("TooSlow", "nothing was read for too long")
                    break
                for piece in range(len(frame)):
                    yield frame, piece
                    sent_at = time.monotonic()
                seen = number
                await self._feed.wait(seen, seconds=self._seconds_to_next_action(sent_at))
                if time.monotonic() - sent_at >= KEEPALIVE_SECONDS:
                    yield KEEPALIVE
                    sent_at = time.monotonic()
            yield event("bye", msgspec.json.encode(end))
        finally:
            self._feed.leave()

    async def _next(self, seen: int) -> tuple[Frame | None, int]:
        """Return the next frame, and its last tick."""
        added: frozenset[str] = frozenset()
        while True:
            number = self._feed.number
            tick = self._feed.changes_since(number if seen == NO_TICK else seen)
            if tick is None:
                return None, number
            added |= await self._visibility.check_new(key[0] for key in tick.jobs)
            if number == self._feed.number:
                return self._frames.frame_for(self._visibility.scope, seen, added=added), number

    async def _end(self) -> StreamEnd | None:
        """Return why the stream ends; None: it continues."""
        if self._feed.end_reason:
            return StreamEnd("Stopping", self._feed.end_reason)
        if missing := self._missing():
            return StreamEnd("Stale", f"the cluster's state is not known: {missing}")
        now = time.monotonic()
        if now >= self._ends:
            return StreamEnd("Over", "the requested time has passed")
        return await self._recheck() if now >= self._recheck_at else None

    async def _recheck(self) -> StreamEnd | None:
        self._recheck_at = time.monotonic() + RECHECK_SECONDS
        try:
            await self._visibility.recheck()
        except Denied as error:
            return StreamEnd("TokenExpired", str(error))
        except PermissionLost as error:
            return StreamEnd("RightsTaken", str(error))
        except KubeError as error:
            self._failed_checks += 1
            return (
                StreamEnd("Unknown", str(error))
                if self._failed_checks >= MAX_FAILED_CHECKS
                else None
            )
        self._failed_checks = 0
        return None

    def _seconds_to_next_action(self, sent_at: float) -> float:
        """Return the seconds until the next action that needs no tick."""
        due = min(sent_at + KEEPALIVE_SECONDS, self._recheck_at, self._ends)
        return max(due - time.monotonic(), 0.0)


class EventStream:
    """A sender of a listener's events; an ASGI application for one call.

    Args:
        events: content of the stream.
        gzip: whether to compress it.
        slot: its slot in the limits; released at the end of the stream.
    """

    def __init__(self, events: Events, slot: StreamSlot, *, gzip: bool) -> None:
        self._events, self._slot = events, slot
        self._encode: Plain | Gzip = Gzip() if gzip else Plain()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the stream ends or the listener has left."""
        del scope
        sending = asyncio.create_task(self._send_pieces(send))
        leaving = asyncio.create_task(_wait_for_disconnect(receive))
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._slot.release()
            leaving.cancel()
            sending.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await sending

    async def _send_pieces(self, send: Send) -> None:
        await send(self._start())
        async with contextlib.aclosing(self._events.pieces()) as pieces:
            async for piece in pieces:
                await send(_body(self._encode.piece(piece)))
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
        self._sum, self._bytes = (
            zlib.crc32(text, self._sum),
            (self._bytes + len(text)) % UINT32_RANGE,
        )
        head, self._head = self._head, b""
        return head + blocks

    def end(self) -> bytes:
        """Return the last bytes."""
        return self._head + LAST_BLOCK + _word(self._sum) + _word(self._bytes)


def _word(number: int) -> bytes:
    return number.to_bytes(4, "little")


def _body(body: bytes, *, more: bool = True) -> Any:
    return {"type": "http.response.body", "body": body, "more_body": more}


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
