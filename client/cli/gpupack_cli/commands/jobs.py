# SPDX-License-Identifier: Apache-2.0
"""`gpupack jobs`."""

import datetime as dt
from typing import Final, get_args

import click

from gpupack_cli.job_rows import JOB_COLUMNS, cells, row_from_object
from gpupack_cli.listing import list_objects
from gpupack_cli.namespaces import require_namespace
from gpupack_cli.notes import note
from gpupack_cli.options import Output, all_namespaces, output_option, session_options
from gpupack_cli.output import show_document, show_table
from gpupack_cli.session import Session, run
from gpupack_crds.gpujob_status import Phase
from gpupack_crds.kinds import GPUJOBS

PHASES: Final = get_args(Phase)


@click.command(name="jobs")
@session_options()
@all_namespaces
@click.option(
    "--phase", type=click.Choice(PHASES, case_sensitive=False), help="Show only jobs in this phase."
)
@output_option
def command(session: Session, *, everywhere: bool, phase: str | None, output: Output) -> None:
    """List GPUJobs."""
    run(lambda: _show(session, everywhere=everywhere, phase=phase, output=output))


async def _show(session: Session, *, everywhere: bool, phase: str | None, output: Output) -> None:
    async with session.kubernetes() as api:
        namespace = "" if everywhere else await session.current_namespace(api)
        found = await list_objects(api, GPUJOBS, namespace=namespace)
        if not found:
            await require_namespace(api, namespace)
    rows = [row_from_object(job) for job in found if phase in {None, job.status.phase}]
    if output.document:
        show_document({"jobs": rows}, output)
        return
    if not rows:
        note(empty_text(namespace, phase, others=len(found)))
        return
    now = dt.datetime.now(dt.UTC)
    show_table(JOB_COLUMNS, (cells(row, now) for row in rows), output)


def empty_text(namespace: str, phase: str | None, *, others: int) -> str:
    """Return what does not exist, and how many jobs there are in other phases."""
    where = f"namespace {namespace}" if namespace else "the cluster"
    if phase is None:
        return f"no GPUJobs in {where}"
    has = f"; {others} in other phases" if others else ""
    return f"no GPUJobs in phase {phase} in {where}{has}"
