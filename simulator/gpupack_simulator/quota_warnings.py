# SPDX-License-Identifier: Apache-2.0
"""Warnings about quotas that can have no effect here, so that a mistyped name is noticed."""

from collections.abc import Collection, Iterator

from gpupack_devices.units import WHOLE_GPU
from gpupack_placement import Cluster
from gpupack_queue import ANY, ROOT, CohortName, Quotas
from gpupack_queue.charge import ModelKeys

_SHOWN = 5
"""Maximum number of names in one sentence; the rest are counted."""
_LONGEST = 60
"""Maximum length of a name."""


def quota_warnings(quotas: Quotas, tenants: Collection[str], cluster: Cluster) -> Iterator[str]:
    """Yield sentences; none if every name is known and the quotas are within the capacity.

    Args:
        quotas: the quotas to check.
        tenants: the tenants of the jobs.
        cluster: the cluster with the GPUs.
    """
    strangers = [str(quota.tenant) for quota in quotas.quotas if quota.tenant not in tenants]
    if strangers:
        yield f"there are no jobs of {_listed(strangers)}"
    yield from _of_cohorts(quotas)
    yield from _of_models(quotas, cluster)


def _of_cohorts(quotas: Quotas) -> Iterator[str]:
    known = {cohort.name for cohort in quotas.cohorts}
    named: dict[CohortName, None] = {quota.cohort: None for quota in quotas.quotas}
    named |= {cohort.parent: None for cohort in quotas.cohorts}
    missing = [name for name in named if name not in known and name != ROOT]
    if missing:
        yield f"there is no cohort {_listed(missing)}; one without limits counts instead"
    empty = [cohort.name for cohort in quotas.cohorts if cohort.name not in named]
    if empty:
        yield f"no namespace is in cohort {_listed(empty)}"


def _of_models(quotas: Quotas, cluster: Cluster) -> Iterator[str]:
    keys = ModelKeys(quotas.keys())
    capacity = keys.capacity(cluster)
    unknown = [key for key in keys.all() if key != ANY and not capacity.get(key)]
    if unknown:
        there = _listed(sorted({d.model for node in cluster.nodes() for d in node.devices}))
        yield f"no GPU counts as {_listed(unknown)}; there are {there or 'none'}"
    promised = dict.fromkeys(capacity, 0)
    limits = [quota.limits for quota in quotas.quotas]
    limits += [cohort.limits for cohort in quotas.cohorts]
    for key, limit in (pair for of in limits for pair in of.items()):
        if key in promised:
            promised[key] += limit.nominal
    for key, milli in promised.items():
        if milli > capacity[key]:
            of = key or "other models"
            gpus = f"{milli / WHOLE_GPU:,g} GPUs of {of} are promised"
            yield f"{gpus}, and there are {capacity[key] / WHOLE_GPU:,g}"


def _listed(names: Collection[str]) -> str:
    shown = [
        name if len(name) <= _LONGEST else f"{name[:_LONGEST]}…" for name in list(names)[:_SHOWN]
    ]
    hidden = len(names) - len(shown)
    return ", ".join(shown) + (f" and {hidden:,} more" if hidden else "")
