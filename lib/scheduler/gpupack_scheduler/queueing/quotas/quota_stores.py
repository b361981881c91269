# SPDX-License-Identifier: Apache-2.0
"""GPUQuotas and GPUCohorts from the watch, converted into the queue's quotas.

What administrators wrote counts as far as it makes sense. A cohort that is above itself loses its
parent. Of several spellings of one model the first in alphabetical order is its name. The status
says what does not count.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Final, Generic, TypeVar

import msgspec

from gpupack_crds.cohort_rules import nearest_rule, run_limit
from gpupack_crds.gpucohort import CLUSTER_NAME, GpuCohortSpec
from gpupack_crds.gpujob_status import RunLimit
from gpupack_crds.gpuquota import QUOTA_NAME
from gpupack_crds.kinds import GpuCohort, GpuQuota, GpuReservation
from gpupack_crds.quota import ANY_MODEL, MAX_MODELS, ModelLimit, Weight
from gpupack_crds.wire import Wire
from gpupack_devices.models import matches_model, words
from gpupack_devices.units import WHOLE_GPU
from gpupack_queue import (
    ANY,
    MAX_LEVELS,
    ROOT,
    Cohort,
    CohortName,
    Limit,
    ModelKey,
    OrderPolicy,
    Quota,
    Quotas,
    Tenant,
)

Q = TypeVar("Q", GpuQuota, GpuCohort, GpuReservation)
R = TypeVar("R")

ORDERS: Final = {"Strict": OrderPolicy.STRICT, "BestEffort": OrderPolicy.BEST_EFFORT}


class DefaultQuota(Wire, frozen=True, forbid_unknown_fields=True):
    """The quota of namespaces without a GPUQuota.

    It has no nominal quota: any user could multiply that with more namespaces.
    """

    weight: Weight = 1
    gpus: Annotated[tuple[ModelLimit, ...], msgspec.Meta(max_length=MAX_MODELS)] = ()

    def __post_init__(self) -> None:
        """Refuse nominal quota.

        Raises:
            ValueError: a model has nominal GPUs.
        """
        if any(limit.nominal for limit in self.gpus):
            raise ValueError("queue.default cannot promise GPUs; remove nominal")


class ObservedStore(Generic[Q]):
    """A reflector's store of one kind; `changed` is called when effective values change."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self.items: dict[tuple[str, str], Q] = {}

    def upsert(self, item: Q) -> None:
        """Add or update an object; a status written by gpupack changes nothing."""
        before = self.items.get(item.key)
        self.items[item.key] = item
        if before is None or before.spec != item.spec:
            self._changed()

    def remove(self, item: Q) -> None:
        """Remove an object."""
        self.items.pop(item.key, None)
        self._changed()

    def replace(self, items: list[Q]) -> None:
        """Replace all objects by these."""
        self.items = {item.key: item for item in items}
        self._changed()


@dataclasses.dataclass(frozen=True, slots=True)
class QuotaReading:
    """The effective quotas.

    Attributes:
        quotas: the quotas in the queue's types.
        problems: by namespace (empty: a cohort) and name, what does not count, and why.
    """

    quotas: Quotas
    problems: dict[tuple[str, str], str]


class QuotaStores:
    """The stores of quotas, cohorts and reservations.

    Attributes:
        changes: number of changes of effective values.
        on_change: function that is called at each change.
    """

    def __init__(self) -> None:
        self.changes = 0
        self.on_change: Callable[[], None] = lambda: None
        self.quotas: ObservedStore[GpuQuota] = ObservedStore(self._changed)
        self.cohorts: ObservedStore[GpuCohort] = ObservedStore(self._changed)
        self.reservations: ObservedStore[GpuReservation] = ObservedStore(self._changed)

    def _changed(self) -> None:
        self.changes += 1
        self.on_change()

    def rule_for(
        self, namespace: str, pick: Callable[[GpuCohortSpec], R | None]
    ) -> tuple[str, R] | None:
        """Return the rule of the nearest cohort above a namespace, with the cohort's name."""
        quota = self.quotas.items.get((namespace, QUOTA_NAME))
        return nearest_rule(quota.spec.cohort if quota else None, self._cohort_spec, pick)

    def run_limit(self, namespace: str) -> RunLimit | None:
        """Return the maximum run time of a namespace's jobs and pods; None: there is none."""
        quota = self.quotas.items.get((namespace, QUOTA_NAME))
        return run_limit(quota.spec.cohort if quota else None, self._cohort_spec)

    @property
    def has_run_limits(self) -> bool:
        """Tell whether any cohort has a maximum run time."""
        return any(each.spec.max_run_seconds for each in self.cohorts.items.values())

    def _cohort_spec(self, name: str) -> GpuCohortSpec | None:
        cohort = self.cohorts.items.get(("", name))
        return cohort.spec if cohort else None

    def read(self, default: DefaultQuota) -> QuotaReading:
        """Convert all quotas and cohorts."""
        quotas = [each for each in self.quotas.items.values() if each.metadata.name == QUOTA_NAME]
        cohorts = {
            each.metadata.name: each
            for each in self.cohorts.items.values()
            if each.metadata.name != CLUSTER_NAME
        }
        given = [default.gpus]
        given += [each.spec.gpus for each in quotas]
        given += [each.spec.gpus for each in cohorts.values()]
        models = _Models(limit.model for gpus in given for limit in gpus)
        problems: dict[tuple[str, str], str] = {}
        parents = {name: _above(each.spec.parent) for name, each in cohorts.items()}
        problems |= _cut(parents)
        named = {("", name): parent for name, parent in parents.items()}
        named |= {each.key: _above(each.spec.cohort) for each in quotas}
        for key, cohort in named.items():
            if cohort and cohort not in cohorts:
                problems[key] = f"there is no GPUCohort {cohort}; one without limits counts instead"
        limits = {each.key: each.spec.gpus for each in quotas}
        limits |= {each.key: each.spec.gpus for each in cohorts.values()}
        for key, gpus in limits.items():
            if problem := models.problem(limit.model for limit in gpus):
                problems.setdefault(key, problem)
        return QuotaReading(
            Quotas(
                tuple(_quota(each, models) for each in quotas),
                tuple(_cohort(each, parents, models) for each in cohorts.values()),
                Quota(Tenant(""), _limits(default.gpus, models), weight=float(default.weight)),
            ),
            problems,
        )


class _Models:
    """One name for each model, for all spellings."""

    def __init__(self, spelled: Iterable[str]) -> None:
        self._names: dict[tuple[str, ...], ModelKey] = {}
        for name in sorted(set(spelled)):
            self._names.setdefault(tuple(words(name)), ModelKey(name))

    def problem(self, models: Iterable[str]) -> str:
        """Return which of these limits do not count; empty if all do."""
        seen: set[ModelKey] = set()
        for model in models:
            key = self.key(model)
            if key in seen:
                return f"{model} is limited twice: what stands first counts"
            seen.add(key)
            longer = [name for name in self._names.values() if name != key]
            if key != ANY and (over := [name for name in longer if matches_model(key, name)]):
                return f"GPUs of {over[0]} do not count as {model}: a quota has that longer name"
        return ""

    def key(self, model: str) -> ModelKey:
        """Return the name under which a model counts."""
        if model == ANY_MODEL or not words(model):
            return ANY
        return self._names.get(tuple(words(model)), ModelKey(model))


def _limits(given: Iterable[ModelLimit], models: _Models) -> dict[ModelKey, Limit]:
    """Return the limits in milli-GPU; of several for one model the first counts."""
    found: dict[ModelKey, Limit] = {}
    for each in given:
        limit = Limit(
            each.nominal * WHOLE_GPU, _milli(each.lending_limit), _milli(each.borrowing_limit)
        )
        found.setdefault(models.key(each.model), limit)
    return found


def _milli(gpus: int | None) -> int | None:
    return None if gpus is None else gpus * WHOLE_GPU


def _above(cohort: str | None) -> CohortName:
    """Return the cohort that a spec names."""
    return ROOT if not cohort or cohort == CLUSTER_NAME else CohortName(cohort)


def _quota(shown: GpuQuota, models: _Models) -> Quota:
    return Quota(
        Tenant(shown.metadata.namespace),
        _limits(shown.spec.gpus, models),
        _above(shown.spec.cohort),
        float(shown.spec.weight),
        shown.spec.job_order == "UserFairShare",
    )


def _cohort(shown: GpuCohort, parents: Mapping[str, CohortName], models: _Models) -> Cohort:
    spec, name = shown.spec, shown.metadata.name
    return Cohort(
        CohortName(name),
        CohortName(parents[name]),
        _limits(spec.gpus, models),
        float(spec.weight),
        ORDERS[spec.order] if spec.order else None,
        None if spec.min_run_seconds is None else float(spec.min_run_seconds),
    )


def _cut(parents: dict[str, CohortName]) -> dict[tuple[str, str], str]:
    """Remove parents that do not form a tree; return the reasons by cohort."""
    problems: dict[tuple[str, str], str] = {}
    for name in sorted(parents):
        if _is_above_itself(name, parents):
            problems["", name] = f"it is above itself by its parent {parents[name]}"
    for name in sorted(parents):
        if _is_above_itself(name, parents):
            parents[name] = ROOT
    for name in sorted(parents):
        if _levels_above(name, parents) > MAX_LEVELS:
            problems["", name] = f"more than {MAX_LEVELS} cohorts are above it"
            parents[name] = ROOT
    return problems


def _is_above_itself(name: str, parents: Mapping[str, str]) -> bool:
    seen, above = {name}, parents[name]
    while above and above not in seen:
        seen.add(above)
        above = parents.get(above, "")
    return above == name


def _levels_above(name: str, parents: Mapping[str, str]) -> int:
    """Count the levels above a cohort, without loops, up to one more than allowed."""
    levels, above = 0, parents[name]
    while above and levels <= MAX_LEVELS:
        levels, above = levels + 1, parents.get(above, "")
    return levels
