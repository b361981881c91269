# SPDX-License-Identifier: Apache-2.0
"""The costs of a run for its tenants, by the code that bills them on a cluster.

The utilization of a simulated GPU is unknown: only the held amount counts.
"""

import csv
import io
from collections.abc import Iterator, Sequence

from rich import box
from rich.table import Table

from gpupack_cost import (
    Amounts,
    Group,
    Holding,
    Line,
    Part,
    Tariffs,
    allocated,
    statement,
    total,
)
from gpupack_simulator.errors import InvalidParameter
from gpupack_simulator.record import Run, TimeUnit

COLUMNS = ("namespace", "job", "model", "allocated_gpu_hours", "cost")


def cost_lines(run: Run, by: Group, tariffs: Tariffs) -> list[Line]:
    """Return the costs of what was held from the beginning to the end of the run.

    Raises:
        InvalidParameter: the run's time is not in seconds.
    """
    if run.time_unit is not TimeUnit.SECOND:
        raise InvalidParameter(
            f"the run's time is in {run.time_unit}, which has no price; write timeUnit: s"
        )
    entries = (
        (key, Amounts(allocated=amount))
        for holding in _holdings(run)
        for key, amount in allocated(holding, tariffs).items()
    )
    return statement(entries, by, tariffs)


def cost_csv(lines: Sequence[Line]) -> str:
    """Return a CSV with one row per line, without a sum."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(_cells(line) for line in lines)
    return text.getvalue()


def cost_table(lines: Sequence[Line], by: Group, tariffs: Tariffs) -> Table:
    """Return a table for a terminal, with the sum below."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, show_footer=True)
    whole = total(lines)
    named = {Group.JOB: ("namespace", "job"), Group.MODEL: ("model",)}.get(by, ("namespace",))
    for name in named:
        table.add_column(name, footer="all" if name == named[0] else "")
    table.add_column("GPU-hours", justify="right", footer=f"{whole.amounts.allocated_hours:,.2f}")
    heading = " ".join(filter(None, ("cost", tariffs.currency)))
    table.add_column(heading, justify="right", footer=_money(whole.cost))
    for line in lines:
        cells = dict(zip(COLUMNS, _cells(line), strict=True))
        hours = f"{line.amounts.allocated_hours:,.2f}"
        table.add_row(*(str(cells[name]) for name in named), hours, _money(line.cost))
    return table


def _holdings(run: Run) -> Iterator[Holding]:
    tenants = {record.job.id: record.job.tenant for record in run.jobs}
    for held in run.occupancy:
        yield Holding(
            tenant=tenants.get(held.job, ""),
            cohort="",
            job=held.job,
            parts=(Part(held.model, held.charged),),
            start=held.start,
            end=run.ended if held.end is None else held.end,
        )


def _cells(line: Line) -> tuple[str, str, str, float, float | str]:
    cost = "" if line.cost is None else round(line.cost, 6)
    return line.tenant, line.job, line.model, round(line.amounts.allocated_hours, 6), cost


def _money(amount: float | None) -> str:
    return "no price" if amount is None else f"{amount:,.2f}"
