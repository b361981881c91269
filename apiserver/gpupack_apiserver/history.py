# SPDX-License-Identifier: Apache-2.0
"""Figures of the last hour, one every few seconds."""

import asyncio
import collections
import datetime as dt
import time
from collections.abc import Callable
from typing import Final

from gpupack_apiserver.node_views import Totals
from gpupack_restapi.nodes import Sample

KEPT_SECONDS: Final = 3600.0
MAX_SLEEP_SECONDS: Final = 1.0


def sample_of(totals: Totals, *, running_jobs: int, waiting_jobs: int) -> Sample:
    """Return a sample of now from the figures of all nodes."""
    return Sample(
        timestamp=dt.datetime.now(dt.UTC),
        gpus=totals.gpus,
        available_gpus=totals.available_gpus,
        gpu_utilization=totals.gpu_utilization,
        gpu_memory_usage=totals.gpu_memory_usage,
        running_jobs=running_jobs,
        waiting_jobs=waiting_jobs,
        fragmentation=totals.fragmentation,
    )


class History:
    """The history of one process; each process starts its own.

    Args:
        read: returns the present figures; None: they are not known.
        seconds: interval of samples.
    """

    def __init__(self, read: Callable[[], Sample | None], *, seconds: float) -> None:
        self._read = read
        self.samples: collections.deque[Sample] = collections.deque()
        self.set_interval(seconds)

    def set_interval(self, seconds: float) -> None:
        """Set the interval of samples."""
        self.seconds = seconds
        self.samples = collections.deque(self.samples, maxlen=max(int(KEPT_SECONDS / seconds), 1))

    async def run(self) -> None:
        """Take samples without end."""
        while True:
            if (sample := self._read()) is not None:
                self.samples.append(sample)
            await sleep_interval(lambda: self.seconds)


async def sleep_interval(seconds: Callable[[], float]) -> None:
    """Wait until the given time has passed; its length may change during the wait."""
    began = time.monotonic()
    while (left := began + seconds() - time.monotonic()) > 0:  # noqa: ASYNC110 - of a clock
        await asyncio.sleep(min(left, MAX_SLEEP_SECONDS))
