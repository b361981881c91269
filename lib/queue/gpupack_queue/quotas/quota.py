# SPDX-License-Identifier: Apache-2.0
"""Quotas: what tenants are guaranteed, in a tree of cohorts.

    the cluster (ROOT) ─┬─ cohort research ─┬─ quota of namespace vision: 16 H100
                        │                   └─ quota of namespace speech: 8 H100
                        ├─ quota of namespace web: 4 of any model
                        └─ namespaces without a quota, by Quotas.default

A nominal amount is guaranteed: it is lent while its owner does not use it, and its owner gets it
back on request. What no quota guarantees belongs to the root, from which all tenants borrow.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NewType

from gpupack_queue.charge import ModelKey
from gpupack_queue.errors import InvalidQuota
from gpupack_queue.job import Tenant
from gpupack_queue.rules import OrderPolicy

CohortName = NewType("CohortName", str)

ROOT: Final = CohortName("")
"""The cluster itself, above all cohorts."""

MAX_LEVELS: Final = 32
"""The maximum number of cohorts above a cohort."""

MIN_WEIGHT, MAX_WEIGHT = 0.001, 1000.0
"""The bounds of weights other than 0; far outside, floats cannot distinguish shares."""


def _check_weight(whose: str, weight: float) -> None:
    if weight != 0 and not MIN_WEIGHT <= weight <= MAX_WEIGHT:
        raise InvalidQuota(
            f"{whose}: weight {weight:g} is neither 0 nor {MIN_WEIGHT:g} to {MAX_WEIGHT:g}"
        )


@dataclass(frozen=True, slots=True)
class Limit:
    """The limits of one model, in milli-GPU.

    `lending`: how much of the nominal amount others may use. `borrowing`: how much may be used
    beyond it. None: no limit.
    """

    nominal: int = 0
    lending: int | None = None
    borrowing: int | None = None

    def __post_init__(self) -> None:
        if min(self.nominal, self.lending or 0, self.borrowing or 0) < 0:
            raise InvalidQuota(f"amounts of a quota must not be negative: {self}")


@dataclass(frozen=True, slots=True)
class Quota:
    """The quota of one tenant; `weight`: its part of what is borrowed; 0: it comes last.

    `by_user`: among its jobs of equal priority, those of the user with the smallest usage go first.
    """

    tenant: Tenant
    limits: Mapping[ModelKey, Limit] = field(default_factory=dict)
    cohort: CohortName = ROOT
    weight: float = 1.0
    by_user: bool = False

    def __post_init__(self) -> None:
        _check_weight(f"the quota of {self.tenant}", self.weight)


@dataclass(frozen=True, slots=True)
class Cohort:
    """Quotas and cohorts that lend to each other first; its limits apply to all of them together.

    `order` and `min_runtime_seconds` are as in Rules, for all below it; None: as above it.
    `max_runtime_seconds`: the owner of the queue ends jobs below it that run for longer, and states
    durations accordingly; None: as above it, or no limit.
    """

    name: CohortName
    parent: CohortName = ROOT
    limits: Mapping[ModelKey, Limit] = field(default_factory=dict)
    weight: float = 1.0
    order: OrderPolicy | None = None
    min_runtime_seconds: float | None = None
    max_runtime_seconds: float | None = None

    def __post_init__(self) -> None:
        if self.name == ROOT:
            raise InvalidQuota("a cohort needs a name")
        _check_weight(f"cohort {self.name}", self.weight)


DEFAULT_QUOTA: Final = Quota(Tenant(""))
"""Tenants without a quota are guaranteed nothing and borrow what is free, with weight 1 each."""


@dataclass(frozen=True, slots=True)
class Quotas:
    """All quotas and cohorts. A cohort that is only named has no limits and is below the root.

    Raises:
        InvalidQuota: two have one name, a cohort is above itself, too many are above one another,
            or the default guarantees something.
    """

    quotas: tuple[Quota, ...] = ()
    cohorts: tuple[Cohort, ...] = ()
    default: Quota = DEFAULT_QUOTA

    def __post_init__(self) -> None:
        _check_distinct("quotas of namespace", (quota.tenant for quota in self.quotas))
        _check_distinct("cohorts", (cohort.name for cohort in self.cohorts))
        parents = {cohort.name: cohort.parent for cohort in self.cohorts}
        for cohort in self.cohorts:
            _check_no_loop(cohort.name, parents)
        if any(limit.nominal for limit in self.default.limits.values()):
            raise InvalidQuota(
                "a default quota cannot guarantee GPUs: every new namespace would add to the sum"
            )

    def keys(self) -> set[str]:
        """Return every model that is named."""
        limits = [quota.limits for quota in (*self.quotas, self.default)]
        limits += [cohort.limits for cohort in self.cohorts]
        return {key for by_key in limits for key in by_key}

    @property
    def is_trivial(self) -> bool:
        """Tell whether nothing is guaranteed and nothing limited."""
        return not self.keys()


def _check_distinct(what: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InvalidQuota(f"there are two {what} {name}")
        seen.add(name)


def _check_no_loop(start: CohortName, parents: Mapping[CohortName, CohortName]) -> None:
    above, seen = parents[start], [start]
    while above != ROOT:
        if above in seen:
            loop = " < ".join((*seen, above))
            raise InvalidQuota(f"a cohort is above itself: {loop}")
        if len(seen) > MAX_LEVELS:
            raise InvalidQuota(f"more than {MAX_LEVELS} cohorts are above cohort {start}")
        seen.append(above)
        above = parents.get(above, ROOT)
