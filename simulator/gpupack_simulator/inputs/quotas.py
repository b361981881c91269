# SPDX-License-Identifier: Apache-2.0
"""The fields `queue`, `quotas` and `cohorts` of a scenario, in whole GPUs, and their conversion."""

from dataclasses import replace
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from gpupack_queue import (
    ANY,
    Cohort,
    CohortName,
    Limit,
    ModelKey,
    OrderPolicy,
    Quota,
    Tenant,
)
from gpupack_simulator.disciplines import Discipline, KnownDurations
from gpupack_simulator.inputs.specs import Name, Positive, Time

ANY_MODEL = "*"
"""The key of models that no quota names."""

_MILLI = 1000

Amount = Annotated[float, Meta(ge=0, le=1_000_000)]


class LimitSpec(Struct, rename="camel", forbid_unknown_fields=True):
    """The limits of one model; lending and borrowing are unlimited by default."""

    nominal: Amount = 0.0
    lending_limit: Amount | None = None
    borrowing_limit: Amount | None = None

    def __post_init__(self) -> None:
        """Refuse a contradictory limit, as the cluster does."""
        if self.lending_limit is not None and self.lending_limit > self.nominal:
            raise ValueError(
                f"lendingLimit {self.lending_limit:g} is of the {self.nominal:g} promised GPUs; "
                "set it to no more than nominal"
            )


class QuotaSpec(Struct, rename="camel", forbid_unknown_fields=True):
    """One entry of `quotas`."""

    tenant: Name
    cohort: str = ""
    weight: Annotated[float, Meta(ge=0)] = 1.0
    gpus: dict[Name, LimitSpec | Amount] = {}
    job_order: Literal["Age", "UserFairShare"] = "Age"


class CohortSpec(Struct, rename="camel", forbid_unknown_fields=True):
    """One entry of `cohorts`."""

    name: Name
    parent: str = ""
    weight: Annotated[float, Meta(ge=0)] = 1.0
    gpus: dict[Name, LimitSpec | Amount] = {}
    fifo: OrderPolicy | None = None
    min_runtime: Time | None = None
    max_runtime: Positive | None = None


class PreemptionSpec(Struct, rename="camel", forbid_unknown_fields=True):
    """The field `queue.preemption`; omitted fields are as in the queue's rules."""

    reclaim: bool | UnsetType = UNSET
    fair_share: bool | UnsetType = UNSET
    priority: bool | UnsetType = UNSET
    min_runtime: Time | UnsetType = UNSET
    victim_timeout: Time | UnsetType = UNSET
    retry: Time | UnsetType = UNSET
    grace: Time = 0.0


class ConsolidationSpec(Struct, rename="camel", forbid_unknown_fields=True):
    """The field `queue.consolidation`; omitted fields are as in the queue's rules."""

    ratio: Annotated[float, Meta(ge=0, le=1000)] | UnsetType = UNSET
    min_wait: Time | UnsetType = UNSET
    max_moves: Annotated[int, Meta(ge=0, le=1000)] | UnsetType = UNSET
    cooldown: Time | UnsetType = UNSET
    restart: Time | UnsetType = UNSET
    checkpoint: Time | UnsetType = UNSET
    horizon: Time | UnsetType = UNSET
    retry: Time | UnsetType = UNSET


class QueueSpec(Struct, rename="camel", forbid_unknown_fields=True):
    """The field `queue`: differences from the rules of the discipline."""

    by_priority: bool | UnsetType = UNSET
    by_share: bool | UnsetType = UNSET
    half_life: Time | UnsetType = UNSET
    fifo: OrderPolicy | UnsetType = UNSET
    reserve_after: Time | UnsetType = UNSET
    max_reservations: Annotated[int, Meta(ge=0, le=1000)] | UnsetType = UNSET
    max_backfill_delay: Time | UnsetType = UNSET
    grow_after: Time | UnsetType = UNSET
    durations: KnownDurations | UnsetType = UNSET
    preemption: PreemptionSpec = field(default_factory=PreemptionSpec)
    consolidation: ConsolidationSpec = field(default_factory=ConsolidationSpec)


def rules_of(spec: QueueSpec, discipline: Discipline) -> Discipline:
    """Return the discipline with the scenario's changes."""
    preemption = spec.preemption
    rules = replace(
        discipline.rules,
        **_given(
            spec,
            by_priority="by_priority",
            by_share="by_share",
            half_life="half_life_seconds",
            fifo="order",
            reserve_after="reserve_after_seconds",
            max_reservations="max_reservations",
            max_backfill_delay="max_backfill_delay_seconds",
            grow_after="grow_after_seconds",
        ),
        preemption=replace(
            discipline.rules.preemption,
            **_given(
                preemption,
                reclaim="reclaim",
                fair_share="fair_share",
                priority="priority",
                min_runtime="min_runtime_seconds",
                victim_timeout="victim_timeout_seconds",
                retry="retry_seconds",
            ),
        ),
        consolidation=replace(
            discipline.rules.consolidation,
            **_given(
                spec.consolidation,
                ratio="ratio",
                min_wait="min_wait_seconds",
                max_moves="max_moves",
                cooldown="cooldown_seconds",
                restart="restart_seconds",
                checkpoint="checkpoint_seconds",
                horizon="horizon_seconds",
                retry="retry_seconds",
            ),
        ),
    )
    return replace(discipline, rules=rules, **_given(spec, durations="durations"))


def quota_of(spec: QuotaSpec) -> Quota:
    """Convert the entry to the queue's type."""
    return Quota(
        Tenant(spec.tenant),
        _limits(spec.gpus),
        CohortName(spec.cohort),
        spec.weight,
        spec.job_order == "UserFairShare",
    )


def cohort_of(spec: CohortSpec) -> Cohort:
    """Convert the entry to the queue's type."""
    return Cohort(
        CohortName(spec.name),
        CohortName(spec.parent),
        _limits(spec.gpus),
        spec.weight,
        spec.fifo,
        spec.min_runtime,
        spec.max_runtime,
    )


def _given(spec: Struct, **fields: str) -> dict[str, Any]:
    """Return the values that are set, by the names of the rules; `fields`: rules by field."""
    values = ((name, getattr(spec, field)) for field, name in fields.items())
    return {name: value for name, value in values if value is not UNSET}


def _limits(gpus: dict[str, LimitSpec | float]) -> dict[ModelKey, Limit]:
    return {ANY if name == ANY_MODEL else ModelKey(name): _limit(of) for name, of in gpus.items()}


def _limit(of: LimitSpec | float) -> Limit:
    if not isinstance(of, LimitSpec):
        return Limit(_milli(of))
    lending, borrowing = of.lending_limit, of.borrowing_limit
    return Limit(
        _milli(of.nominal),
        None if lending is None else _milli(lending),
        None if borrowing is None else _milli(borrowing),
    )


def _milli(gpus: float) -> int:
    return round(gpus * _MILLI)
