# SPDX-License-Identifier: Apache-2.0
"""`gpupack nodes`."""

from typing import Final

import click

from gpupack_cli.listing import list_objects
from gpupack_cli.node_rows import NODE_COLUMNS, NodeRow
from gpupack_cli.notes import note
from gpupack_cli.options import Output, output_option, session_options
from gpupack_cli.output import show_document, show_table
from gpupack_cli.rest import Rest
from gpupack_cli.rest_nodes import all_nodes, read_with_fallback
from gpupack_cli.session import Session, run
from gpupack_crds.kinds import GPUNODES
from gpupack_kubeclient.client import Api

NO_NODES: Final = "no agent reports GPUs; run `gpupack doctor` to find the cause"


@click.command(name="nodes")
@session_options(rest=True, namespaced=False)
@output_option
def command(session: Session, *, output: Output) -> None:
    """List nodes with GPUs, as their agents report them.

    Without permission to list GPUNodes, the data comes from the REST API, without drivers, agents
    and the reasons of maintenance.
    """
    run(lambda: _show(session, output=output))


async def _show(session: Session, *, output: Output) -> None:
    async with session.kubernetes() as api:
        rows = await read_with_fallback(session, api, lambda: _read_gpunodes(api), _read_rest)
    if output.document:
        show_document({"nodes": rows}, output)
        return
    if not rows:
        note(NO_NODES)
        return
    show_table(NODE_COLUMNS, (row.cells() for row in rows), output)


async def _read_gpunodes(api: Api) -> list[NodeRow]:
    return [NodeRow.from_object(node) for node in await list_objects(api, GPUNODES)]


async def _read_rest(rest: Rest) -> list[NodeRow]:
    return [NodeRow.from_rest(node) for node in await all_nodes(rest)]
