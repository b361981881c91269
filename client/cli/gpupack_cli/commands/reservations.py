# SPDX-License-Identifier: Apache-2.0
"""`gpupack reservations`."""

from typing import Any, Final

import click
import msgspec

from gpupack_cli.listing import list_objects
from gpupack_cli.namespaces import require_namespace
from gpupack_cli.notes import note
from gpupack_cli.options import Output, all_namespaces, output_option, session_options
from gpupack_cli.output import Column, show_document, show_table
from gpupack_cli.session import Session, run
from gpupack_crds.kinds import GPURESERVATIONS, GpuReservation

COLUMNS: Final = (
    Column("namespace"),
    Column("name"),
    Column("model", min_width=70),
    Column("gpus", right=True),
    Column("phase"),
    Column("from"),
    Column("to"),
    Column("used", right=True),
    Column("held", right=True),
    Column("missing", right=True),
    Column("recurrence", wide=True),
    Column("problem", min_width=100, rest=True),
)


class ReservationRow(msgspec.Struct, frozen=True, rename={"start": "from", "end": "to"}):
    """A time-window reservation with its current or next window."""

    namespace: str
    name: str
    model: str
    gpus: str
    phase: str
    start: str
    end: str
    used: str
    held: str
    missing: str
    recurrence: str
    problem: str

    def cells(self) -> tuple[Any, ...]:
        """Return the cells in the order of COLUMNS."""
        return tuple(getattr(self, name) for name in self.__struct_fields__)


@click.command(name="reservations")
@session_options()
@all_namespaces
@output_option
def command(session: Session, *, everywhere: bool, output: Output) -> None:
    """List time-window reservations and their current or next window."""
    run(lambda: _show(session, everywhere=everywhere, output=output))


async def _show(session: Session, *, everywhere: bool, output: Output) -> None:
    async with session.kubernetes() as api:
        namespace = "" if everywhere else await session.current_namespace(api)
        found = await list_objects(api, GPURESERVATIONS, namespace=namespace)
        if not found:
            await require_namespace(api, namespace)
    rows = [row_of(item) for item in found]
    if output.document:
        show_document({"reservations": rows}, output)
        return
    if not rows:
        note("no reservation here")
        return
    show_table(COLUMNS, (row.cells() for row in rows), output)


def row_of(item: GpuReservation) -> ReservationRow:
    """Return the row of a reservation."""
    spec, status = item.spec, item.status
    return ReservationRow(
        namespace=item.metadata.namespace,
        name=item.metadata.name,
        model=spec.model,
        gpus=status.gpus or str(spec.total_gpus),
        phase=status.phase,
        start=status.window_start or "",
        end=status.window_end or "",
        used=status.used,
        held=status.held,
        missing=status.missing,
        recurrence=spec.recurrence or "",
        problem=status.problem,
    )
