# SPDX-License-Identifier: Apache-2.0
"""`gpupack nodes`."""

from typing import Final

import click

from gpupack_cli.listing import listed
from gpupack_cli.node_rows import NODE_COLUMNS, NodeRow
from gpupack_cli.notes import note
from gpupack_cli.options import Output, output_option, session_options
from gpupack_cli.output import show_document, show_table
from gpupack_cli.rest import Rest
from gpupack_cli.rest_nodes import all_nodes, read_or_asked
from gpupack_cli.session import Session, run
from gpupack_crds.kinds import GPUNODES
from gpupack_kubeclient.client import Api

NO_NODES: Final = "no node has GPUs that an agent reports; `gpupack doctor` looks for the cause"


@click.command(name="nodes")
@session_options(rest=True, namespaced=False)
@output_option
def command(session: Session, *, output: Output) -> None:
    """List nodes with GPUs, as their agents report them.

    Without permission to list GPUNodes, the REST API answers, without drivers,
    agents and the reasons of maintenance.
    """
    run(lambda: _show(session, output=output))


async def _show(session: Session, *, output: Output) -> None:
    async with session.kubernetes() as api:
        rows = await read_or_asked(session, api, lambda: _read(api), _asked)
    if output.document:
        show_document({"nodes": rows}, output)
        return
    if not rows:
        note(NO_NODES)
        return
    show_table(NODE_COLUMNS, (row.cells() for row in rows), output)


async def _read(api: Api) -> list[NodeRow]:
    return [NodeRow.of(node) for node in await listed(api, GPUNODES)]


async def _asked(rest: Rest) -> list[NodeRow]:
    return [NodeRow.of_answer(node) for node in await all_nodes(rest)]
