# SPDX-License-Identifier: Apache-2.0
"""Maximum run times of GPUJobs by their cohorts: two reflectors' stores."""

from collections.abc import Callable
from typing import Generic, TypeVar

from gpupack_crds.cohort_rules import run_limit
from gpupack_crds.gpucohort import GpuCohortSpec
from gpupack_crds.gpujob_status import RunLimit
from gpupack_crds.gpuquota import QUOTA_NAME
from gpupack_crds.kinds import GpuCohort, GpuQuota
from gpupack_kubeclient.objects import Object

Q = TypeVar("Q", bound=Object)
V = TypeVar("V")


class SpecStore(Generic[Q, V]):
    """One value of each object's spec, by the object's key.

    `changed` is called when a value changes, and not when a status does: the extender writes these
    every few seconds.
    """

    def __init__(self, pick: Callable[[Q], V], changed: Callable[[], None]) -> None:
        self._pick, self._changed = pick, changed
        self.values: dict[tuple[str, str], V] = {}

    def replace(self, items: list[Q]) -> None:
        """Replace all objects by these."""
        self._set({item.key: self._pick(item) for item in items})

    def upsert(self, item: Q) -> None:
        """Add or update an object."""
        value = self._pick(item)
        if item.key not in self.values or self.values[item.key] != value:
            self._set(self.values | {item.key: value})

    def remove(self, item: Q) -> None:
        """Remove a deleted object."""
        self._set({key: value for key, value in self.values.items() if key != item.key})

    def _set(self, values: dict[tuple[str, str], V]) -> None:
        if values != self.values:
            self.values = values
            self._changed()


class RunLimits:
    """Maximum run times by namespace."""

    def __init__(self) -> None:
        self.on_change: Callable[[], None] = lambda: None
        """Function that is called when a limit may have changed."""
        self.quotas = SpecStore[GpuQuota, str | None](
            lambda quota: quota.spec.cohort, self._changed
        )
        self.cohorts = SpecStore[GpuCohort, GpuCohortSpec](
            lambda cohort: cohort.spec, self._changed
        )

    def of(self, namespace: str) -> RunLimit | None:
        """Return the maximum run time of the namespace's jobs; None: there is none."""
        cohort = self.quotas.values.get((namespace, QUOTA_NAME))
        return run_limit(cohort, lambda name: self.cohorts.values.get(("", name)))

    def _changed(self) -> None:
        self.on_change()
