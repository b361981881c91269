# SPDX-License-Identifier: Apache-2.0
"""`gpupack queue`."""

import datetime as dt

import click

from gpupack.jobs import sort_queue
from gpupack_cli.errors import PermissionDenied, RestUnavailable
from gpupack_cli.listing import list_objects
from gpupack_cli.namespaces import require_namespace
from gpupack_cli.notes import note
from gpupack_cli.options import Output, all_namespaces, output_option, session_options
from gpupack_cli.output import show_document, show_table
from gpupack_cli.queue_rows import QUEUE_COLUMNS, cells, row_from_object
from gpupack_cli.rest_pages import pages
from gpupack_cli.session import Session, run
from gpupack_crds.kinds import GPUJOBS
from gpupack_kubeclient.client import Api
from gpupack_restapi.jobs import Queue, QueueRow

PAGE_SIZE = 5000


@click.command(name="queue")
@session_options(rest=True)
@all_namespaces
@output_option
def command(session: Session, *, everywhere: bool, output: Output) -> None:
    """List pending GPUJobs and standalone pods, and why they wait.

    They are listed in the order in which they are admitted. Positions count all pending jobs and
    pods of the cluster, including namespaces that you may not list.
    """
    run(lambda: _show(session, everywhere=everywhere, output=output))


async def _show(session: Session, *, everywhere: bool, output: Output) -> None:
    async with session.kubernetes() as api:
        namespace = "" if everywhere else await session.current_namespace(api)
        try:
            rows = await _read_rest(session, api, namespace)
        except (RestUnavailable, PermissionDenied) as error:
            note(f"positions and pods are not available, GPUJobs are by priority and age: {error}")
            rows = await _read_gpujobs(api, namespace)
        if not rows:
            await require_namespace(api, namespace)
    rows = sort_queue(rows)
    if output.document:
        show_document({"waiting": rows, "total": len(rows)}, output)
        return
    if not rows:
        where = f"namespace {namespace}; -A lists all namespaces" if namespace else "the cluster"
        note(f"no pending jobs or pods in {where}")
        return
    now = dt.datetime.now(dt.UTC)
    show_table(QUEUE_COLUMNS, (cells(row, now) for row in rows), output)


async def _read_rest(session: Session, api: Api, namespace: str) -> list[QueueRow]:
    """Return the REST API's rows; a row that moves between two pages is listed once."""
    async with session.rest(api) as rest:
        found = {
            (row.kind, row.namespace, row.name): row
            async for page in pages(rest, "queue", Queue, namespace=namespace, limit=PAGE_SIZE)
            for row in page.waiting
        }
    return list(found.values())


async def _read_gpujobs(api: Api, namespace: str) -> list[QueueRow]:
    found = await list_objects(api, GPUJOBS, namespace=namespace)
    return [row_from_object(job) for job in found if job.status.phase == "Pending"]
