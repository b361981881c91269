# SPDX-License-Identifier: Apache-2.0
"""kopf's connection to the API server, through which no tenant's object can end the operator.

kopf reads whole lines of a watch, of any length, with Python's own JSON parser, which fails for an
object that is nested some hundred levels deep; the failure ends kopf. So objects that are too long
or too deep are removed from the stream before kopf reads it. Its lists would need the same, and
would be held page by page: kopf streams them as well (`handlers.settings`).

Errors that the API server sends within a watch end kopf as well, all but 410 Gone, after which it
waits `watching.reconnect_backoff` seconds and lists again. So every error is presented as 410 Gone.
To end the stream would not suffice: kopf reconnects at once after an interrupted watch, endlessly
if necessary.
"""

import datetime as dt
import logging
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import aiohttp
import kopf
import msgspec

from gpupack_kubeclient import lines, transport
from gpupack_kubeclient.kubeconfig.presented import Presented
from gpupack_kubeclient.kubeconfig.target import Target
from gpupack_operator.cache import MAX_GPUJOB_BYTES, MAX_GPUJOB_LEVELS

log = logging.getLogger(__name__)

EVENT_BYTES = MAX_GPUJOB_BYTES + 64
"""A line contains the GPUJob's JSON and the event's, which names the event's type."""

EVENT_LEVELS = MAX_GPUJOB_LEVELS + 1
"""A line is an event, which contains the GPUJob one level down."""

GONE = 410
LIST_AGAIN = msgspec.json.encode({"type": "ERROR", "object": {"kind": "Status", "code": GONE}})

MAX_SKIPPED = 10_000
"""Largest number of skipped GPUJobs to remember, the most recently skipped ones."""

FILE_CREDENTIALS_LIFETIME: Final = dt.timedelta(minutes=5)
"""Time for which a session uses credentials from files. kopf signs in again before its next
request after that, and ends no watch for it. By itself it does so only after a 401: a replaced CA
or client certificate fails in TLS, before there is an answer.
"""

_ERROR = re.compile(rb'\s*\{\s*"type"\s*:\s*"ERROR"')


class _StatusError(msgspec.Struct):
    """Part of the Status with which the API server ends a watch."""

    code: int = 0
    message: str = ""


class _ErrorEvent(msgspec.Struct):
    """Event that ends a watch."""

    object: _StatusError


class GpuJobStream:
    """State of kopf's watch of GPUJobs that the operator records.

    Attributes:
        unreadable: how many times a GPUJob could not be read.
        skipped: GPUJobs that could not be read in their latest version, as namespace and name.
    """

    def __init__(self) -> None:
        self.unreadable = 0
        self.skipped: dict[str, None] = {}

    def log_watch_end(self, line: bytes) -> None:
        """Log why the API server ended the watch, unless its version expired."""
        try:
            trouble = msgspec.json.decode(line, type=_ErrorEvent).object
        except msgspec.MsgspecError as error:
            trouble = _StatusError(message=f"a line that cannot be read: {error}")
        if trouble.code != GONE:
            log.warning("the watch of GPUJobs ended: %d %s", trouble.code, trouble.message)

    def skip(self, title: str, reason: str) -> None:
        """Record and log a skipped GPUJob; `title` is its namespace and name."""
        self.unreadable += 1
        self.skipped.pop(title, None)
        self.skipped[title] = None
        if len(self.skipped) > MAX_SKIPPED:
            del self.skipped[next(iter(self.skipped))]
        log.error("GPUJob %s is skipped: %s", title, reason)

    def record_read(self, title: str) -> None:
        """Record that a GPUJob's newest version could be read, or that it is deleted."""
        self.skipped.pop(title, None)


class ReadableLines:
    """Stream that passes only readable lines to kopf; the rest is the original stream."""

    def __init__(self, content: aiohttp.StreamReader, stream: GpuJobStream) -> None:
        self._content = content
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    async def iter_chunked(self, _: int) -> AsyncIterator[bytes]:
        """Yield whole lines, whatever chunk size is requested."""
        async for line in lines.lines(self._content.iter_any(), max_bytes=EVENT_BYTES):
            if isinstance(line, lines.LongLine):
                self._stream.skip(_title(line.head), f"it takes {line.size} bytes")
            elif _ERROR.match(line):
                self._stream.log_watch_end(line)
                yield LIST_AGAIN + b"\n"
                return
            elif not lines.is_shallow(line, levels=EVENT_LEVELS):
                title = _title(line[: lines.HEAD_BYTES])
                self._stream.skip(title, f"more than {MAX_GPUJOB_LEVELS} levels of fields")
            else:
                yield line + b"\n"


def readable_response(stream: GpuJobStream) -> type[aiohttp.ClientResponse]:
    """Return a class of responses whose lines are all readable."""

    class ReadableResponse(aiohttp.ClientResponse):
        async def start(self, connection: Any) -> aiohttp.ClientResponse:
            await super().start(connection)
            self.content = ReadableLines(self.content, stream)  # type: ignore[assignment]
            return self

    return ReadableResponse


async def session(environ: Mapping[str, str], stream: GpuJobStream) -> kopf.AiohttpSession:
    """Connect as all other requests do.

    The caller, kopf, closes it, and requests another when credentials end.
    """
    target, presented, made = await transport.signed_in(
        environ,
        headers={"User-Agent": "gpupack", "Accept-Encoding": "identity"},
        response_class=readable_response(stream),
    )
    return kopf.AiohttpSession(
        server=target.server,
        default_namespace=target.namespace,
        expiration=_until(target, presented),
        aiohttp_session=made,
    )


def _until(target: Target, presented: Presented) -> dt.datetime | None:
    """Return until when a session can be used; None: until the API server answers 401."""
    if not target.uses_files:
        return presented.until
    due = dt.datetime.now(dt.UTC) + FILE_CREDENTIALS_LIFETIME
    return due if presented.until is None else min(due, presented.until)


def _title(head: bytes) -> str:
    texts = lines.texts(head)
    return "/".join(
        texts.get(("object", "metadata", part), "unknown") for part in ("namespace", "name")
    )
