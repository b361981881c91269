# SPDX-License-Identifier: Apache-2.0
"""Usage and cost of GPUs."""

import datetime as dt

import msgspec


class CostRow(msgspec.Struct, frozen=True):
    """One namespace, job, cohort or model; fields that the query does not group by are empty.

    `allocated` is the sum of `used`, `idle` and `unknown`: used and idle are null where none of it
    was measured. Energy covers the time in which power was measured; null: never. Cost is for what
    is allocated; null: a part of it has no price. The job «» has the hours of jobs that are not
    kept by name.
    """

    namespace: str
    cohort: str
    job: str
    model: str
    allocated_gpu_hours: float
    used_gpu_hours: float | None
    idle_gpu_hours: float | None
    unknown_gpu_hours: float
    energy_kwh: float | None
    cost: float | None


class UnheldRow(msgspec.Struct, frozen=True):
    """GPUs of a model that were not held while the cost service measured.

    `unusable` ones were not available: failed, in maintenance, not ready. `cost` is the price of
    both together.
    """

    model: str
    unheld_gpu_hours: float
    unusable_gpu_hours: float
    energy_kwh: float | None
    cost: float | None


class Costs(msgspec.Struct, frozen=True):
    """Costs of the whole hours (UTC), for jobs of the whole days, that contain `since` and `until`.

    `total` covers all rows, shown or not. `unheld` is null for callers that may not list GPUJobs in
    all namespaces. `next` is `after` of the next call; empty: there are no more rows.
    """

    currency: str
    since: dt.datetime
    until: dt.datetime
    group_by: str
    rows: tuple[CostRow, ...]
    total: CostRow
    unheld: tuple[UnheldRow, ...] | None = None
    next: str = ""
