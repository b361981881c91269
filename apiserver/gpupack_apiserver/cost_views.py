# SPDX-License-Identifier: Apache-2.0
"""Usage and cost, in the form of answers: JSON and CSV."""

import csv
import io
from typing import Final

import msgspec

from gpupack_cost import Line
from gpupack_restapi.cost import CostRow, Costs

DIGITS: Final = 6
"""Digits of GPU-hours: a hundredth of a second of one GPU."""

_FORMULA_STARTS: Final = ("=", "+", "-", "@", "\t", "\r")
"""First characters that make a spreadsheet evaluate a cell."""


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
