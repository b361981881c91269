# SPDX-License-Identifier: Apache-2.0
"""Learned durations of jobs: estimates from earlier jobs of the same tenant and name.

    learn(tenant, name, seconds) ─► the last of each name ─► estimate(tenant, name)

The estimate is a high quantile of the last durations, once there are enough. A job that did not run
to its end (it was preempted, or failed) only shows that it would have taken longer. It counts where
it took longer than the estimate, so that no name keeps a short estimate because its jobs never end.
A tenant can create many names: the one that has learned nothing for the longest time is forgotten.
"""

import re
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from math import isfinite
from typing import Final

import numpy as np

from gpupack_queue.job import Tenant

QUANTILE: Final = 0.9
MIN_SAMPLES: Final = 5
"""The minimum number of durations for an estimate."""
MAX_SAMPLES: Final = 20
"""The maximum number of durations that are kept per name."""
MAX_NAMES: Final = 64
"""The maximum number of names per tenant."""
MAX_TENANTS: Final = 1024


_RANDOM: Final = re.compile("-[bcdfghjklmnpqrstvwxz2456789]{5}$")
"""The suffix that Kubernetes appends to a generateName."""


_RERUN: Final = re.compile("-rerun-[0-9a-f]{1,8}$")
"""The suffix that `gpupack rerun` appends."""


def common_name(name: str) -> str:
    """Return the common name of repeated jobs: «train-17» and «train-18» both give «train».

    The result lacks what distinguishes one job from the next: numbers, dates, a random suffix, and
    the mark of a rerun.
    """
    name = _RERUN.sub("", name) or name
    return _RANDOM.sub("", name).rstrip("0123456789-._") or name


@dataclass(slots=True)
class LastDurations:
    """The last durations of one name, in seconds, and their quantile."""

    seconds: deque[float] = field(default_factory=lambda: deque(maxlen=MAX_SAMPLES))
    estimate: float | None = None

    def add(self, seconds: float) -> None:
        """Add a duration."""
        self.seconds.append(seconds)
        if len(self.seconds) >= MIN_SAMPLES:
            self.estimate = float(np.quantile(self.seconds, QUANTILE, method="higher"))


class DurationEstimates:
    """Learned durations by tenant and name; mutable, and bounded."""

    def __init__(self) -> None:
        self._of: OrderedDict[Tenant, OrderedDict[str, LastDurations]] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of names of all tenants."""
        return sum(map(len, self._of.values()))

    def learn(self, tenant: Tenant, name: str, seconds: float, *, completed: bool = True) -> None:
        """Learn from a job of this name; `completed` False: it did not run to its end."""
        if not (isfinite(seconds) and seconds > 0):
            return
        known = self.estimate(tenant, name)
        if not completed and (known is None or seconds <= known):
            return
        names = self._of.setdefault(tenant, OrderedDict())
        sample = names.setdefault(name, LastDurations())
        names.move_to_end(name)
        self._of.move_to_end(tenant)
        sample.add(seconds)
        if len(names) > MAX_NAMES:
            names.popitem(last=False)
        if len(self._of) > MAX_TENANTS:
            self._of.popitem(last=False)

    def estimate(self, tenant: Tenant, name: str) -> float | None:
        """Return the seconds that few jobs of the name exceed; None: too few have ended."""
        names = self._of.get(tenant)
        sample = names.get(name) if names else None
        return None if sample is None else sample.estimate
