# SPDX-License-Identifier: Apache-2.0
"""`gpupack cost`."""

import datetime as dt
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

import click
import msgspec

from gpupack_cli.errors import UsageInvalid
from gpupack_cli.figures import figure
from gpupack_cli.namespaces import require_namespace
from gpupack_cli.options import Output, all_namespaces, output_option, session_options
from gpupack_cli.output import Column, show_document, show_table
from gpupack_cli.rest import Rest
from gpupack_cli.rest_pages import csv_pages, pages
from gpupack_cli.session import Session, run
from gpupack_restapi.cost import CostRow, Costs

COST_DIGITS: Final = 2
PAGE_SIZE: Final = 20_000
GROUPS: Final = ("namespace", "job", "cohort", "model")
UNITS: Final = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}


@click.command(name="cost")
@session_options(rest=True)
@all_namespaces
@click.option(
    "--since", default="", help="Start: a time, or an age such as 24h, 7d or 2w (default: 30d)."
)
@click.option("--until", default="", help="End: a time or an age (default: now).")
@click.option(
    "--by", type=click.Choice(GROUPS), default="namespace", show_default=True, help="Grouping."
)
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@output_option
def command(  # noqa: PLR0913 - an argument for each option
    session: Session,
    *,
    everywhere: bool,
    since: str,
    until: str,
    by: str,
    as_csv: bool,
    output: Output,
) -> None:
    """List allocated GPU-hours, energy and costs.

    GPU hours are the sum of used, idle and not measured hours.
    """
    now = dt.datetime.now(dt.UTC)
    query = {
        "since": parse_time(since, now) if since else "",
        "until": parse_time(until, now) if until else "",
        "group_by": by,
    }
    run(lambda: _show(session, query, everywhere=everywhere, as_csv=as_csv, output=output))


async def _show(
    session: Session, query: dict[str, str], *, everywhere: bool, as_csv: bool, output: Output
) -> None:
    async with session.kubernetes() as api, session.rest(api) as rest:
        namespace = "" if everywhere else await session.current_namespace(api)
        params = {name: text for name, text in {**query, "namespace": namespace}.items() if text}
        if as_csv:
            async for text in csv_pages(rest, "cost", format="csv", limit=str(PAGE_SIZE), **params):
                click.echo(text.decode(errors="replace"), nl=False)
            return
        answer = await read_all(rest, params)
        if not answer.rows:
            await require_namespace(api, namespace)
    if output.document:
        show_document(answer, output)
        return
    by = query["group_by"]
    columns = (
        Column("namespace") if by == "job" else Column(by),
        *((Column("job"),) if by == "job" else ()),
        Column("GPU hours", right=True),
        Column("used", right=True),
        Column("idle", right=True),
        Column("not measured", right=True),
        Column("kWh", right=True),
        Column(f"cost {answer.currency}".strip(), right=True),
    )
    rows = [cells(row, by) for row in answer.rows]
    show_table(columns, [*rows, ("total", *cells(answer.total, by)[1:])], output)


async def read_all(rest: Rest, params: dict[str, str]) -> Costs:
    """Read all pages of one period; the total is the sum of the rows. Raises CliError."""
    first = await rest.get("cost", Costs, **params, limit=PAGE_SIZE)
    if not first.next:
        return first
    # An hour that starts between two pages must not lengthen the period of the later ones.
    period = params | {"since": first.since.isoformat(), "until": first.until.isoformat()}
    rows = list(first.rows)
    async for page in pages(rest, "cost", Costs, first.next, **period, limit=PAGE_SIZE):
        rows += page.rows
    # Running jobs cost more on the last page than on the first: only the sum matches the rows.
    return msgspec.structs.replace(first, rows=tuple(rows), total=total(rows), next="")


def total(rows: Sequence[CostRow]) -> CostRow:
    """Return the sum of rows by the server's rules.

    A cost is unknown where one row's is, a measurement where all rows' are.
    """
    costs = [row.cost for row in rows if row.cost is not None]
    return CostRow(
        namespace="",
        cohort="",
        job="",
        model="",
        allocated_gpu_hours=math.fsum(row.allocated_gpu_hours for row in rows),
        used_gpu_hours=_known(row.used_gpu_hours for row in rows),
        idle_gpu_hours=_known(row.idle_gpu_hours for row in rows),
        unknown_gpu_hours=math.fsum(row.unknown_gpu_hours for row in rows),
        energy_kwh=_known(row.energy_kwh for row in rows),
        cost=math.fsum(costs) if len(costs) == len(rows) else None,
    )


def _known(figures: Iterable[float | None]) -> float | None:
    known = [each for each in figures if each is not None]
    return math.fsum(known) if known else None


def cells(row: CostRow, by: str) -> tuple[Any, ...]:
    """Return a row's cells; figures without measurement, and costs without a price, are unknown."""
    names = (row.namespace, row.job) if by == "job" else (getattr(row, by) or "-",)
    hours = (
        row.allocated_gpu_hours,
        row.used_gpu_hours,
        row.idle_gpu_hours,
        row.unknown_gpu_hours,
        row.energy_kwh,
    )
    return (*names, *map(figure, hours), figure(row.cost, COST_DIGITS))


def parse_time(text: str, now: dt.datetime) -> str:
    """Return a time, or a time ago, in RFC 3339.

    Raises:
        UsageInvalid: it is neither.
    """
    try:
        if ago := re.fullmatch(r"([0-9]{1,6})([mhdw])", text):
            return (now - dt.timedelta(seconds=int(ago[1]) * UNITS[ago[2]])).isoformat()
        at = dt.datetime.fromisoformat(text)
    except (ValueError, OverflowError) as error:
        raise UsageInvalid(
            f"{text!r} is not a time; write an age such as 24h, 7d or 2w, or a time such as "
            "2026-11-01T00:00:00Z"
        ) from error
    return (at if at.tzinfo else at.replace(tzinfo=dt.UTC)).isoformat()
