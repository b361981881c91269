# SPDX-License-Identifier: Apache-2.0
"""The position of each pending job and standalone pod, among all of the cluster."""

import time
from collections.abc import Callable, Mapping
from typing import Final

from gpupack_queue import JobId, Queue
from gpupack_scheduler.queueing.read_only_queue import ReadOnlyQueue

STAND_SECONDS: Final = 1.0
"""Seconds for which the order stays valid: sorting ten thousand takes some 50 ms."""


class Positions:
    """Positions in the read-only queue."""

    def __init__(
        self, onlooker: ReadOnlyQueue, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._onlooker, self._clock = onlooker, clock
        self._found: Mapping[JobId, int] = {}
        self._of: Queue | None = None
        self._stand_until = 0.0

    def now(self) -> Mapping[JobId, int]:
        """Return positions by the queue's names; 1 is the first."""
        self._onlooker.follow()
        queue = self._onlooker.admissions.queue
        is_same = queue is self._of and len(queue) == len(self._found)
        if not is_same or self._clock() >= self._stand_until:
            self._of, self._stand_until = queue, self._clock() + STAND_SECONDS
            self._found = {job: at for at, job in enumerate(queue.ordered_ids(), 1)}
        return self._found
