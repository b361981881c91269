# SPDX-License-Identifier: Apache-2.0
"""Saving of the last log lines of workers whose pods are deleted.

    attempt ends ─► streams are opened ─► pods are deleted ─► what they print until they have ended
                         at most 1 s                              └─► ConfigMap, one for a GPUJob

It is a best effort and delays nothing by more than OPEN_SECONDS: GPUs are freed whether or not a
log was saved, and an operator that ends during it saves none.

A tenant decides what its programs print, and how often its jobs are stopped. So a log takes at most
MAX_TAIL_BYTES, an endless log is read up to MAX_READ_BYTES, and each namespace has a limited number
of streams.
"""

import asyncio
import collections
import contextlib
import logging
from collections.abc import Callable
from typing import Final

from gpupack_crds import names
from gpupack_crds.kinds import GpuJob
from gpupack_kubeclient import errors, lines
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.resources import CONFIG_MAPS, PODS
from gpupack_operator.decision.model import LogSource, SaveLogs
from gpupack_operator.manifests.saved_log import saved_log

log = logging.getLogger(__name__)

MAX_TAIL_BYTES: Final = 64 << 10
MAX_SAVED_BYTES: Final = 128 << 10
"""Limit for all workers of an attempt."""
MAX_TAIL_LINES: Final = 1000
MAX_READ_BYTES: Final = 8 << 20
MAX_LINE_BYTES: Final = 4 << 10
MAX_STREAMS: Final = 24
"""Limit for the operator's connections to the API server that read logs."""
MAX_NAMESPACE_STREAMS: Final = 8
OPEN_SECONDS: Final = 1.0
END_SECONDS: Final = 300.0
"""How long workers may take to end; after that, what they have printed is saved."""


class Tail:
    """Last bytes of a log, in whole lines."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lines: collections.deque[bytes] = collections.deque()
        self._kept_bytes = self.read_bytes = 0
        self.opened = asyncio.Event()
        """Set by the first line, or when there will be no line."""

    def add(self, line: bytes | lines.LongLine) -> None:
        """Add a line; only the beginning of a long line is kept."""
        size = line.size if isinstance(line, lines.LongLine) else len(line)
        kept = line.head if isinstance(line, lines.LongLine) else line
        self.read_bytes += size + 1
        self._lines.append(kept[:MAX_LINE_BYTES])
        self._kept_bytes += len(self._lines[-1]) + 1
        while self._kept_bytes > self._max_bytes:
            self._kept_bytes -= len(self._lines.popleft()) + 1
        self.opened.set()

    @property
    def text(self) -> str:
        """Text of a ConfigMap's entry."""
        return "".join(f"{line.decode(errors='replace')}\n" for line in self._lines)


class LogTails:
    """Saver of logs for one operator.

    Args:
        api: the API server.
        count_unsaved: is called with the number of workers whose logs are not saved for lack of
            streams.
    """

    def __init__(self, api: Api, count_unsaved: Callable[[int], None]) -> None:
        self._api, self._count_unsaved = api, count_unsaved
        self._streams: collections.Counter[str] = collections.Counter()
        """Streams by namespace."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def save(self, job: GpuJob, request: SaveLogs) -> None:
        """Begin to save; return when the logs are open, or after OPEN_SECONDS."""
        namespace = job.metadata.namespace
        free = min(
            MAX_STREAMS - self._streams.total(), MAX_NAMESPACE_STREAMS - self._streams[namespace]
        )
        sources = request.sources[: max(free, 0)]
        if left_out := len(request.sources) - len(sources):
            self._count_unsaved(left_out)
            text = "%s/%s: too many logs are being saved: those of %d workers are not"
            log.info(text, *job.key, left_out)
        if not sources:
            return
        max_bytes = min(MAX_TAIL_BYTES, MAX_SAVED_BYTES // len(sources))
        tails = {each: Tail(max_bytes) for each in sources}
        self._streams[namespace] += len(sources)
        task = asyncio.create_task(self._save(job, request.attempt, tails), name="save logs")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if request.waits:
            opened = [tail.opened.wait() for tail in tails.values()]
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.gather(*opened), OPEN_SECONDS)

    async def _save(self, job: GpuJob, attempt: int, tails: dict[LogSource, Tail]) -> None:
        namespace = job.metadata.namespace
        try:
            await asyncio.gather(*(self._read(namespace, *each) for each in tails.items()))
        finally:
            self._streams[namespace] -= len(tails)
        texts = {source.worker: tail.text for source, tail in tails.items() if tail.text}
        if not texts:
            return
        try:
            await self._write(job, attempt, texts)
        except errors.KubeError as error:
            # A quota of ConfigMaps is one cause.
            log.info("%s/%s: the log of attempt %d is not saved: %s", *job.key, attempt, error)

    async def _read(self, namespace: str, source: LogSource, tail: Tail) -> None:
        """Read until the container has ended; lines before an error count."""
        path = PODS.path(source.pod, namespace=namespace, subresource="log")
        query = {"follow": "true", "tailLines": str(MAX_TAIL_LINES), "container": source.container}
        stream = self._api.follow(
            path, silence_seconds=END_SECONDS, line_bytes=MAX_LINE_BYTES, **query
        )
        try:
            async with asyncio.timeout(END_SECONDS), contextlib.aclosing(stream):
                async for line in stream:
                    tail.add(line)
                    if tail.read_bytes > MAX_READ_BYTES:
                        break
        except (errors.KubeError, TimeoutError) as error:
            log.debug("the log of %s/%s ends: %s", namespace, source.pod, error)
        finally:
            tail.opened.set()

    async def _write(self, job: GpuJob, attempt: int, texts: dict[int, str]) -> None:
        """Replace what an earlier attempt left."""
        namespace, name = job.metadata.namespace, names.saved_log(job.metadata.uid)
        with contextlib.suppress(errors.NotFound):
            await self._api.delete(CONFIG_MAPS, name, namespace=namespace)
        body = saved_log(job, attempt=attempt, tails=texts)
        await self._api.create(CONFIG_MAPS, body, namespace=namespace)
