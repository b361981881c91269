# SPDX-License-Identifier: Apache-2.0
"""`gpupack quota`."""

from typing import Any, Final

import click
import msgspec

from gpupack_cli.listing import list_objects
from gpupack_cli.namespaces import require_namespace
from gpupack_cli.notes import note
from gpupack_cli.options import Output, all_namespaces, output_option, session_options
from gpupack_cli.output import Column, show_document, show_table
from gpupack_cli.session import Session, run
from gpupack_crds.kinds import GPUCOHORTS, GPUQUOTAS, GpuCohort, GpuQuota

COLUMNS: Final = (
    Column("namespace"),
    Column("cohort"),
    Column("model", min_width=70),
    Column("nominal", right=True),
    Column("used", right=True),
    Column("borrowed", right=True),
    Column("lent", right=True),
    Column("share", right=True, wide=True),
    Column("running", right=True, min_width=90),
    Column("waiting", right=True),
    Column("max run", right=True, wide=True),
    Column("order", wide=True),
    Column("problem", min_width=100, rest=True),
)


class QuotaRow(msgspec.Struct, frozen=True):
    """Nominal and used GPUs of a namespace or cohort; for one model, or `all`."""

    namespace: str
    cohort: str
    model: str
    nominal: str
    used: str
    borrowed: str
    lent: str
    share: str = ""
    running: int | None = None
    waiting: int | None = None
    max_run_seconds: int | None = None
    job_order: str = ""
    problem: str = ""

    def cells(self) -> tuple[Any, ...]:
        """Return the cells in the order of COLUMNS."""
        return tuple(getattr(self, name) for name in self.__struct_fields__)


@click.command(name="quota")
@session_options()
@all_namespaces
@click.option("--cohorts", is_flag=True, help="List GPUCohorts instead.")
@output_option
def command(session: Session, *, everywhere: bool, cohorts: bool, output: Output) -> None:
    """List quotas and their usage."""
    run(lambda: _show(session, everywhere=everywhere, cohorts=cohorts, output=output))


async def _show(session: Session, *, everywhere: bool, cohorts: bool, output: Output) -> None:
    found: list[GpuQuota] | list[GpuCohort]
    async with session.kubernetes() as api:
        if cohorts:
            found = await list_objects(api, GPUCOHORTS)
        else:
            namespace = "" if everywhere else await session.current_namespace(api)
            found = await list_objects(api, GPUQUOTAS, namespace=namespace)
            if not found:
                await require_namespace(api, namespace)
    rows = [row for item in found for row in rows_of(item)]
    if output.document:
        show_document({"quotas": rows}, output)
        return
    if not rows:
        note("no quota here: jobs can borrow idle GPUs, and none are guaranteed")
        return
    show_table(COLUMNS, (row.cells() for row in rows), output)


def rows_of(item: GpuQuota | GpuCohort) -> list[QuotaRow]:
    """Return rows of a quota: as a whole, and then by model."""
    status = item.status
    is_quota = isinstance(item, GpuQuota)
    cohort = (item.spec.cohort or "") if isinstance(item, GpuQuota) else item.metadata.name
    whole = QuotaRow(
        namespace=item.metadata.namespace if is_quota else "",
        cohort=cohort,
        model="all",
        nominal=status.nominal,
        used=status.used,
        borrowed=status.borrowed,
        lent=status.lent,
        share=status.share,
        running=status.running,
        waiting=status.waiting,
        max_run_seconds=None if isinstance(item, GpuQuota) else item.spec.max_run_seconds,
        job_order=item.spec.job_order if isinstance(item, GpuQuota) else "",
        problem="; ".join(filter(None, (status.problem, status.capacity_warning))),
    )
    models = [
        QuotaRow(
            namespace=whole.namespace,
            cohort=cohort,
            model=each.model,
            nominal=each.nominal,
            used=each.used,
            borrowed=each.borrowed,
            lent=each.lent,
        )
        for each in status.models
    ]
    return [whole, *models]
