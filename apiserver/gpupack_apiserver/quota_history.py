# SPDX-License-Identifier: Apache-2.0
"""Nominal, used and borrowed GPUs of each quota in the last hour."""

import array
import collections
import datetime as dt
import itertools
import math
from collections.abc import Callable, Iterable
from typing import Final

from gpupack_apiserver.history import KEPT_SECONDS, sleep_interval
from gpupack_crds.kinds import GpuQuota

MAX_QUOTAS: Final = 1024
"""Maximum quotas with figures; of more, the first by name."""

MAX_SAMPLES: Final = 720
"""Maximum samples of each quota: with the maximum of quotas they take nine megabytes."""

UNKNOWN: Final = math.nan


class Series:
    """One quota's figures, with one entry for each time."""

    __slots__ = ("borrowed", "nominal", "used")

    def __init__(self, length: int) -> None:
        self.nominal, self.used, self.borrowed = (
            array.array("f", itertools.repeat(UNKNOWN, length)) for _ in range(3)
        )

    def add(self, nominal: float, used: float, borrowed: float) -> None:
        """Add the figures of one more time."""
        self.nominal.append(nominal)
        self.used.append(used)
        self.borrowed.append(borrowed)

    def forget_first(self) -> None:
        """Remove the figures of the earliest time."""
        for each in (self.nominal, self.used, self.borrowed):
            del each[0]


class QuotaHistory:
    """The history of quotas in one process; each process starts its own.

    Args:
        read: returns the present quotas; None: they are not known.
        seconds: interval; longer where the hour would have more than MAX_SAMPLES.
    """

    def __init__(self, read: Callable[[], Iterable[GpuQuota] | None], *, seconds: float) -> None:
        self._read = read
        self.set_interval(seconds)
        self.timestamps: collections.deque[dt.datetime] = collections.deque()
        self.by_namespace: dict[str, Series] = {}

    def set_interval(self, seconds: float) -> None:
        """Set the interval of samples."""
        self.seconds = max(seconds, KEPT_SECONDS / MAX_SAMPLES)

    async def run(self) -> None:
        """Take samples without end."""
        while True:
            if (quotas := self._read()) is not None:
                self.add(dt.datetime.now(dt.UTC), quotas)
            await sleep_interval(lambda: self.seconds)

    def add(self, moment: dt.datetime, quotas: Iterable[GpuQuota]) -> None:
        """Add the present figures of the quotas; remove quotas that no longer exist."""
        known = {each.metadata.namespace: each for each in quotas}
        now = {name: known[name] for name in sorted(known)[:MAX_QUOTAS]}
        self.by_namespace = {
            name: self.by_namespace.get(name) or Series(len(self.timestamps)) for name in now
        }
        self.timestamps.append(moment)
        for name, series in self.by_namespace.items():
            status = now[name].status
            series.add(_gpus(status.nominal), _gpus(status.used), _gpus(status.borrowed))
        while len(self.timestamps) > max(int(KEPT_SECONDS / self.seconds), 1):
            self.timestamps.popleft()
            for series in self.by_namespace.values():
                series.forget_first()


def _gpus(written: str) -> float:
    """Parse a figure of a status, such as 2.5; a new quota has none."""
    try:
        return float(written)
    except ValueError:
        return UNKNOWN
