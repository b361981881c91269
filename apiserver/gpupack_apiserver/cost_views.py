# SPDX-License-Identifier: Apache-2.0
"""Usage and cost, in the form of answers: JSON and CSV."""

import csv
import datetime as dt
import io
from typing import Final

import msgspec

from gpupack_cost import Line

DIGITS: Final = 6
"""Digits of GPU-hours: a hundredth of a second of one GPU."""

_FORMULA_STARTS: Final = ("=", "+", "-", "@", "\t", "\r")
"""First characters that make a spreadsheet evaluate a cell."""


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
    rows: list[CostRow]
    total: CostRow
    unheld: list[UnheldRow] | None = None
    next: str = ""


COLUMNS: Final = CostRow.__struct_fields__


def cost_row(line: Line) -> CostRow:
    """Return a row with rounded values."""
    amounts = line.amounts
    return CostRow(
        namespace=line.tenant,
        cohort=line.cohort,
        job=line.job,
        model=line.model,
        allocated_gpu_hours=round(amounts.allocated_hours, DIGITS),
        used_gpu_hours=rounded(amounts.used_hours),
        idle_gpu_hours=rounded(amounts.idle_hours),
        unknown_gpu_hours=round(amounts.unknown_hours, DIGITS),
        energy_kwh=rounded(amounts.energy_kwh),
        cost=rounded(line.cost),
    )


def cost_csv(costs: Costs) -> bytes:
    """Return the rows as CSV, without a sum; unknown values are empty cells."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow((*COLUMNS, "currency"))
    for row in costs.rows:
        writer.writerow((*map(_cell, msgspec.structs.astuple(row)), _cell(costs.currency)))
    return text.getvalue().encode()


def rounded(number: float | None) -> float | None:
    """Return the rounded number; None stays None."""
    return None if number is None else round(number, DIGITS)


def _cell(value: str | float | None) -> str | float:
    """Return a cell; a user's name must not become a formula in a spreadsheet."""
    if value is None:
        return ""
    if isinstance(value, str) and value.startswith(_FORMULA_STARTS):
        return f"'{value}"
    return value
