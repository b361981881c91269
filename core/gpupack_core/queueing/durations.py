# SPDX-License-Identifier: Apache-2.0
"""How long jobs of a name will take, from those of the same tenant that ended.

    learn(tenant, name, seconds, ended) ─► the last of each name ─► estimate(tenant, name)

The estimate is a high quantile of the last durations, once there are a few. What did not run to
its end (it was stopped, or failed) says only that it would have taken longer: it counts where it
took longer than was expected, so that nobody looks short for ever by never ending. A tenant may
make many names: the one that was not heard of for longest is forgotten.
"""

import re
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from math import isfinite
from typing import Final

import numpy as np

from gpupack_core.queueing.job import Tenant

QUANTILE: Final = 0.9
LEAST: Final = 5
"""Durations below which nothing is said."""
KEPT: Final = 20
"""Durations of a name."""
NAMES: Final = 64
"""Of a tenant."""
TENANTS: Final = 1024


_RANDOM: Final = re.compile("-[bcdfghjklmnpqrstvwxz2456789]{5}$")
"""What Kubernetes appends to a generateName."""


_RERUN: Final = re.compile("-rerun-[0-9a-f]{1,8}$")
"""What `gpupack rerun` appends."""


def kind_of(name: str) -> str:
    """What jobs that are submitted again and again have in common: «train-17» and «train-18» do.

    The name without what was appended to tell one from the other: numbers, dates, a random suffix,
    and of a rerun that it is one.
    """
    name = _RERUN.sub("", name) or name
    return _RANDOM.sub("", name).rstrip("0123456789-._") or name


@dataclass(slots=True)
class Sample:
    """The last durations of one name, in seconds, and their quantile."""

    seconds: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))
    estimate: float | None = None

    def add(self, seconds: float) -> None:
        """One more."""
        self.seconds.append(seconds)
        if len(self.seconds) >= LEAST:
            self.estimate = float(np.quantile(self.seconds, QUANTILE, method="higher"))


class Durations:
    """Mutable, and bounded."""

    def __init__(self) -> None:
        self._of: OrderedDict[Tenant, OrderedDict[str, Sample]] = OrderedDict()

    def __len__(self) -> int:
        """Names of all tenants."""
        return sum(map(len, self._of.values()))

    def learn(self, tenant: Tenant, name: str, seconds: float, *, ended: bool = True) -> None:
        """A job of this name took so long; `ended` False: it did not run to its end."""
        if not (isfinite(seconds) and seconds > 0):
            return
        known = self.estimate(tenant, name)
        if not ended and (known is None or seconds <= known):
            return
        names = self._of.setdefault(tenant, OrderedDict())
        sample = names.setdefault(name, Sample())
        names.move_to_end(name)
        self._of.move_to_end(tenant)
        sample.add(seconds)
        if len(names) > NAMES:
            names.popitem(last=False)
        if len(self._of) > TENANTS:
            self._of.popitem(last=False)

    def estimate(self, tenant: Tenant, name: str) -> float | None:
        """Seconds that hardly any job of the name exceeds; None: too few have ended."""
        names = self._of.get(tenant)
        sample = names.get(name) if names else None
        return None if sample is None else sample.estimate
