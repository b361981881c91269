# SPDX-License-Identifier: Apache-2.0
"""`gpupack queue`."""

import datetime as dt

import click

from gpupack.job_views import QueuePage, QueueRow, in_order
from gpupack_cli.errors import NotAllowed, ServiceAway
from gpupack_cli.listing import listed
from gpupack_cli.namespaces import require_namespace
from gpupack_cli.notes import note
from gpupack_cli.options import Output, all_namespaces, output_option, session_options
from gpupack_cli.output import show_document, show_table
from gpupack_cli.queue_rows import QUEUE_COLUMNS, cells, row_of
from gpupack_cli.rest_pages import pages
from gpupack_cli.session import Session, run
from gpupack_crds.kinds import GPUJOBS
from gpupack_kubeclient.client import Api

PAGE = 5000


@click.command(name="queue")
@session_options(rest=True)
@all_namespaces
@output_option
def command(session: Session, *, everywhere: bool, output: Output) -> None:
    """List GPUJobs and standalone pods that wait for GPUs, and why.

    They stand in the order in which they are admitted. Their numbers count all that wait in the
    cluster, those of namespaces that you may not list among them.
    """
    run(lambda: _show(session, everywhere=everywhere, output=output))


async def _show(session: Session, *, everywhere: bool, output: Output) -> None:
    async with session.kubernetes() as api:
        namespace = "" if everywhere else await session.here(api)
        try:
            rows = await _asked(session, api, namespace)
        except (ServiceAway, NotAllowed) as error:
            note(f"without positions and pods, GPUJobs by priority and age: {error}")
            rows = await _read(api, namespace)
        if not rows:
            await require_namespace(api, namespace)
    rows = in_order(rows)
    if output.document:
        show_document({"waiting": rows, "total": len(rows)}, output)
        return
    if not rows:
        where = f"namespace {namespace}; -A looks in all" if namespace else "the cluster"
        note(f"nothing waits in {where}")
        return
    now = dt.datetime.now(dt.UTC)
    show_table(QUEUE_COLUMNS, (cells(row, now) for row in rows), output)


async def _asked(session: Session, api: Api, namespace: str) -> list[QueueRow]:
    """Return the REST API's rows; a row that moves between two pages is listed once."""
    async with session.rest(api) as rest:
        found = {
            (row.kind, row.namespace, row.name): row
            async for page in pages(rest, "queue", QueuePage, namespace=namespace, limit=PAGE)
            for row in page.waiting
        }
    return list(found.values())


async def _read(api: Api, namespace: str) -> list[QueueRow]:
    found = await listed(api, GPUJOBS, namespace=namespace)
    return [row_of(job) for job in found if job.status.phase == "Pending"]
