# SPDX-License-Identifier: Apache-2.0
"""The position of each pending job and standalone pod, among all of the cluster."""

import time
from collections.abc import Callable, Mapping
from typing import Final

from gpupack_queue import JobId, Queue
from gpupack_scheduler.queueing.read_only_queue import ReadOnlyQueue

CACHE_SECONDS: Final = 1.0
"""Seconds for which the order stays valid: sorting ten thousand takes some 50 ms."""


class Positions:
    """Positions in the read-only queue."""

    def __init__(
        self, queue_copy: ReadOnlyQueue, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._queue_copy, self._clock = queue_copy, clock
        self._found: Mapping[JobId, int] = {}
        self._source: Queue | None = None
        self._valid_until = 0.0

    def by_job(self) -> Mapping[JobId, int]:
        """Return positions by the queue's names; 1 is the first."""
        self._queue_copy.follow()
        queue = self._queue_copy.observed.queue
        is_same = queue is self._source and len(queue) == len(self._found)
        if not is_same or self._clock() >= self._valid_until:
            self._source, self._valid_until = queue, self._clock() + CACHE_SECONDS
            self._found = {job: at for at, job in enumerate(queue.ordered_ids(), 1)}
        return self._found
