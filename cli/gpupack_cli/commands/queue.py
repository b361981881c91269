# SPDX-License-Identifier: Apache-2.0
"""`gpupack queue`."""

import datetime as dt

import click

from gpupack_cli.job_rows import QUEUE_COLUMNS, JobRow, waiting
from gpupack_cli.listing import listed
from gpupack_cli.notes import note
from gpupack_cli.options import Output, all_namespaces, output_option, session_options
from gpupack_cli.output import show_document, show_table
from gpupack_cli.session import Session, run
from gpupack_crds.kinds import GPUJOBS


@click.command(name="queue")
@session_options()
@all_namespaces
@output_option
def command(session: Session, *, everywhere: bool, output: Output) -> None:
    """List GPUJobs that wait for GPUs, and why.

    The highest priority stands first, then the oldest. Quotas decide beside that: `explain` tells a
    job's real position.
    """
    run(lambda: _show(session, everywhere=everywhere, output=output))


async def _show(session: Session, *, everywhere: bool, output: Output) -> None:
    async with session.kubernetes() as api:
        namespace = "" if everywhere else await session.here(api)
        found = await listed(api, GPUJOBS, namespace=namespace)
    rows = waiting([JobRow.of(job) for job in found])
    if output.document:
        show_document({"waiting": rows, "total": len(rows)}, output)
        return
    if not rows:
        where = f"namespace {namespace}; -A looks in all" if namespace else "the cluster"
        note(f"nobody waits in {where}")
        return
    if namespace:
        note(
            f"of namespace {namespace} alone, in their order: those of other namespaces wait "
            "between them; -A lists all, `explain` tells a job's number in the cluster"
        )
    now = dt.datetime.now(dt.UTC)
    show_table(QUEUE_COLUMNS, (row.queued(at, now) for at, row in enumerate(rows, 1)), output)
