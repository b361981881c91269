# SPDX-License-Identifier: Apache-2.0
"""Past usage of tenants: averages that decay exponentially with a half-life.

    average(t) = average(s) · d + used · (1 - d),   d = 2^-((t - s) / half-life)

    felt = (average + used) / 2

The mean `felt` decides the order. It is what the average will be one half-life from now, if all
running jobs go on. The average alone would give all free GPUs to the tenant that used least
yesterday, until its average has caught up. Current usage alone forgets yesterday. With a half-life
of 0 only current usage counts.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from gpupack_devices.units import WHOLE_GPU
from gpupack_queue.charge import Charge, ModelKey
from gpupack_queue.job import Tenant

MAX_TENANTS: Final = 1000
"""The maximum number of tenants with an average.

A tenant that is forgotten for this reason used less recently than the capacity divided by this
number, however many namespaces a user creates.
"""

_MIN_AVERAGE: Final = 0.5
"""Milli-GPU. An average is forgotten that is below this and below what one GPU-second adds."""

Averages = Mapping[ModelKey, float]


@dataclass(slots=True)
class UsageHistory:
    """Averages in milli-GPU at the moment `at`; mutable; `half_life` in seconds."""

    half_life: float = 0.0
    at: float = 0.0
    averages: dict[Tenant, dict[ModelKey, float]] = field(default_factory=dict)

    def copy(self) -> "UsageHistory":
        """Return an independent copy."""
        averages = {tenant: by_key.copy() for tenant, by_key in self.averages.items()}
        return UsageHistory(self.half_life, self.at, averages)

    def advance(self, now: float, used: Mapping[Tenant, Charge]) -> None:
        """Record that `used` was used from the last call until now."""
        passed, self.at = max(now - self.at, 0.0), max(now, self.at)
        if not self.half_life or not passed:
            return
        decay = 0.5 ** (passed / self.half_life)
        for tenant in [*self.averages, *(tenant for tenant in used if tenant not in self.averages)]:
            self._set(tenant, self.averages.get(tenant, {}), used.get(tenant, {}), decay)
        self._forget_smallest()

    def restore(
        self, stored: Mapping[Tenant, Averages], at: float, used: Mapping[Tenant, Charge]
    ) -> None:
        """Take over averages as of `at`; what is used now was used ever since.

        The averages of other tenants do not change.
        """
        if not self.half_life:
            return
        decay = 0.5 ** (max(self.at - at, 0.0) / self.half_life)
        for tenant, averages in stored.items():
            self._set(tenant, averages, used.get(tenant, {}), decay)
        self._forget_smallest()

    def rename(self, name: Callable[[ModelKey], ModelKey]) -> None:
        """Rename the keys; amounts of keys that become one are added."""
        for tenant, averages in self.averages.items():
            renamed: dict[ModelKey, float] = {}
            for key, value in averages.items():
                renamed[name(key)] = renamed.get(name(key), 0.0) + value
            self.averages[tenant] = renamed

    def effective(self, tenant: Tenant, used: Charge) -> dict[ModelKey, float]:
        """Return the usage that decides the order."""
        if not self.half_life:
            return dict(used)
        average = self.averages.get(tenant, {})
        return {key: (average.get(key, 0) + used.get(key, 0)) / 2 for key in {**average, **used}}

    @property
    def weight_of_current(self) -> float:
        """Return the part of newly admitted usage that counts in `felt` at once."""
        return 0.5 if self.half_life else 1.0

    def _set(self, tenant: Tenant, before: Averages, used: Charge, decay: float) -> None:
        after = {
            key: before.get(key, 0.0) * decay + used.get(key, 0) * (1 - decay)
            for key in {**before, **used}
        }
        least = min(_MIN_AVERAGE, WHOLE_GPU * (1 - 0.5 ** (1 / self.half_life)))
        kept = {key: value for key, value in after.items() if key in used or value >= least}
        if kept:
            self.averages[tenant] = kept
        else:
            self.averages.pop(tenant, None)

    def _forget_smallest(self) -> None:
        """Forget the tenants that used least."""
        if len(self.averages) > MAX_TENANTS:
            by_use = sorted(self.averages, key=lambda of: (-sum(self.averages[of].values()), of))
            for tenant in by_use[MAX_TENANTS:]:
                del self.averages[tenant]
