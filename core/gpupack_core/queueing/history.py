# SPDX-License-Identifier: Apache-2.0
"""What tenants used of late: averages in which an instant counts half as much a half-life later.

    average(t) = average(s) · d + used · (1 - d),   d = 2^-((t - s) / half-life)

    felt = (average + used) / 2

What is felt decides who goes next: it is what the average will be one half-life from now if all
that runs goes on. The average alone would give everything that comes free to whoever had least
yesterday, until its average has caught up; what is used now alone forgets yesterday. With a
half-life of 0 only what is used now counts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from gpupack_core.errors import InvalidQuota
from gpupack_core.queueing.charge import Charge, Key
from gpupack_core.queueing.job import Tenant

_NOTHING = 0.5
"""Milli-GPU; an average below it is forgotten, so that tenants who are gone cost nothing."""


@dataclass(slots=True)
class History:
    """Averages in milli-GPU, mutable; `half_life` in seconds."""

    half_life: float = 0.0
    at: float = 0.0
    averages: dict[Tenant, dict[Key, float]] = field(default_factory=dict)

    def pass_time(self, now: float, used: Mapping[Tenant, Charge]) -> None:
        """So much was used from the last call until now."""
        passed, self.at = max(now - self.at, 0.0), max(now, self.at)
        if not self.half_life or not passed:
            return
        decay = 0.5 ** (passed / self.half_life)
        for tenant in [*self.averages, *(tenant for tenant in used if tenant not in self.averages)]:
            before, now_used = self.averages.get(tenant, {}), used.get(tenant, {})
            after = {
                key: before.get(key, 0.0) * decay + now_used.get(key, 0) * (1 - decay)
                for key in {**before, **now_used}
            }
            kept = {key: value for key, value in after.items() if value >= _NOTHING}
            if kept:
                self.averages[tenant] = kept
            else:
                self.averages.pop(tenant, None)

    def felt(self, tenant: Tenant, used: Charge) -> dict[Key, float]:
        """What counts for the order."""
        if not self.half_life:
            return dict(used)
        average = self.averages.get(tenant, {})
        return {key: (average.get(key, 0) + used.get(key, 0)) / 2 for key in {**average, **used}}

    @property
    def weight_of_now(self) -> float:
        """How much of what is admitted now is felt at once."""
        return 0.5 if self.half_life else 1.0

    def document(self) -> dict[str, dict[str, int]]:
        """For keeping across restarts: milli-GPU by tenant and key."""
        return {
            str(tenant): {str(key): round(value) for key, value in sorted(by_key.items())}
            for tenant, by_key in sorted(self.averages.items())
        }

    @classmethod
    def of(cls, document: Mapping[str, Mapping[str, int]], *, half_life: float, at: float) -> Self:
        """As it was kept; `at`: when that was."""
        if half_life < 0:
            raise InvalidQuota(f"a half-life of {half_life:g} s is negative; 0: only now counts")
        averages = {
            Tenant(tenant): {Key(key): float(value) for key, value in by_key.items()}
            for tenant, by_key in document.items()
        }
        return cls(half_life, at, averages)
