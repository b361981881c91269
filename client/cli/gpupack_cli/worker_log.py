# SPDX-License-Identifier: Apache-2.0
"""The log of one worker's container, from its first line to its last.

    pod has a node ─► requested until its container has started ─► lines as they come
                          ▲                                           │
                          └── connection lost, or silent for a minute ┤
                                                                      ▼
                          the stream ended: has the container, too? it is read once more

The log is requested before the API server knows that the container runs: the kubelet knows sooner.
"""

import asyncio
import contextlib
import dataclasses
import enum
from collections.abc import Callable
from typing import Final

from gpupack_cli.log_position import LogPosition
from gpupack_cli.log_sink import LogSink
from gpupack_cli.notes import note
from gpupack_cli.worker import Worker
from gpupack_kubeclient import errors, lines, patience
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.resources import PODS

SILENCE_SECONDS: Final = 60.0
"""Seconds of silence until the log is requested again: its connection may be dead."""

START_PAUSE_SECONDS: Final = (0.05,) * 20 + (0.1,) * 40 + (0.5,) * 60
"""Seconds between two requests for a container that has not started; then LATE_PAUSE."""
LATE_PAUSE_SECONDS: Final = 2.0

LOST_PAUSE_SECONDS: Final = 1.0

TRANSIENT_ERRORS: Final = (errors.Unreachable, errors.Refused, errors.NotSignedIn)
"""Errors that a following command survives, if `require_passing` allows it."""


class Gone(enum.Enum):
    """The pod no longer exists."""

    GONE = enum.auto()


class WorkerLog:
    """A follower of one worker's log.

    Args:
        api: source of the log.
        worker: the worker.
        sink: gets its lines.
        prefix: prefix of each line.
        over: returns whether the container is known to have ended, or the pod to be gone.
        tail: number of last lines to start at; None: the first line.
    """

    def __init__(
        self,
        api: Api,
        worker: Worker,
        sink: LogSink,
        *,
        prefix: str,
        is_over: Callable[[], bool],
        tail: int | None = None,
    ) -> None:
        self._api, self._worker, self._sink, self._prefix = api, worker, sink, prefix
        self._is_over, self._tail = is_over, tail
        self._position = LogPosition()
        metadata = worker.pod.metadata
        self._path = PODS.path(metadata.name, namespace=metadata.namespace, subresource="log")

    async def follow(self) -> None:
        """Follow until the container has ended and its last line is written.

        Raises:
            KubeError: the log may not be read.
        """
        pauses, lost, ended = iter(START_PAUSE_SECONDS), 0, False
        while True:
            ended = ended or self._is_over()
            try:
                await self._read(follow=not ended)
                lost = 0
            except (errors.NotFound, errors.Invalid) as error:
                # Not found: the pod is gone, or its kubelet has not received it yet.
                if ended:
                    return
                await asyncio.sleep(next(pauses, LATE_PAUSE_SECONDS))
                ended = isinstance(error, errors.NotFound) and await self._has_ended()
                continue
            except TRANSIENT_ERRORS as error:
                raise_permanent(error)
                if isinstance(error.__cause__, TimeoutError) and await self._is_quiet():
                    lost = 0
                    continue
                lost += 1
                if lost == 1:
                    note("the connection was lost; retrying")
                await asyncio.sleep(LOST_PAUSE_SECONDS)
                continue
            if ended:
                return
            # For a container that ends while its log is opened, the kubelet may send nothing: the
            # log is read once more.
            ended = await self._has_ended()

    async def show(self) -> None:
        """Write the present log.

        Raises:
            KubeError: there is none yet, or it may not be read.
        """
        await self._read(follow=False)

    async def _read(self, *, follow: bool) -> None:
        begin = {} if self._tail is None else {"tailLines": str(self._tail)}
        query = {
            "container": self._worker.container,
            "timestamps": "true",
            **({"follow": "true"} if follow else {}),
            **(self._position.query or begin),
        }
        self._position.resume()
        stream = self._api.follow(
            self._path, silence_seconds=SILENCE_SECONDS, line_bytes=None, **query
        )
        async with contextlib.aclosing(stream):
            async for line in stream:
                text = line.head if isinstance(line, lines.LongLine) else line
                fresh = self._position.new_text(text)
                if fresh is None:
                    continue
                if isinstance(line, lines.LongLine):
                    fresh += f" … {line.size - len(line.head)} bytes more".encode()
                await self._sink.write(self._prefix, fresh)

    async def _has_ended(self) -> bool:
        """Return whether the stream ended because the container did."""
        now = await self._now()
        return now is Gone.GONE or (isinstance(now, Worker) and now.ended)

    async def _is_quiet(self) -> bool:
        """Return whether only the program is silent: the API server answers."""
        return await self._now() is not None

    async def _now(self) -> Worker | Gone | None:
        """Return the present worker; None: unknown, since the API server does not answer."""
        metadata = self._worker.pod.metadata
        try:
            pod = await self._api.get(PODS, metadata.name, namespace=metadata.namespace)
        except errors.NotFound:
            return Gone.GONE
        except TRANSIENT_ERRORS as error:
            raise_permanent(error)
            return None
        same = pod.metadata.uid == metadata.uid
        return dataclasses.replace(self._worker, pod=pod) if same else Gone.GONE


def is_transient(error: errors.KubeError) -> bool:
    """Return whether a retry may succeed."""
    if isinstance(error, errors.Refused):
        return error.status in patience.PASSING
    return isinstance(error, TRANSIENT_ERRORS)


def raise_permanent(error: errors.KubeError) -> None:
    """Raise the error again, unless a retry may succeed."""
    if not is_transient(error):
        raise error
