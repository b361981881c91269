# SPDX-License-Identifier: Apache-2.0
"""GPUNodes by name, and changes of their maintenance with concurrent writers."""

from collections.abc import Callable
from typing import Final

import msgspec

from gpupack_cli.errors import CliError
from gpupack_cli.listing import listed
from gpupack_cli.maintenance import Entries
from gpupack_cli.rest_nodes import no_node
from gpupack_crds.kinds import GPUNODES, GpuNode
from gpupack_kubeclient import conflicts
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.errors import Conflict, KubeError, NotFound

TRIES: Final = 8


async def node_named(api: Api, name: str) -> GpuNode:
    """Return the GPUNode; name the existing ones where there is none.

    Raises:
        NotThere: there is none of that name.
        KubeError: it may not be read, or there is no such kind.
    """
    try:
        return await api.get(GPUNODES, name)
    except NotFound as error:
        try:
            there = [node.metadata.name for node in await listed(api, GPUNODES)]
        except KubeError:
            # Without the kind, or the permission to list it, the first error says more.
            raise error from None
        raise no_node(name, there) from error


async def change(api: Api, name: str, entries: Callable[[GpuNode], Entries]) -> GpuNode:
    """Read the node, compute its entries, and write them; retry on conflicts.

    Raises:
        NotThere: there is no such node.
        KubeError: it may not be written.
        CliError: other writes came in between each time.
    """

    async def once() -> GpuNode:
        node = await node_named(api, name)
        wanted = [msgspec.to_builtins(each) for each in entries(node)]
        body = {
            "metadata": {"resourceVersion": node.metadata.resource_version},
            "spec": {"maintenance": wanted or None},
        }
        return await api.merge(GPUNODES, name, body)

    try:
        return await conflicts.retried(once, tries=TRIES)
    except Conflict as error:
        raise CliError(
            f"GPUNode {name} was written by others {TRIES} times in the meantime; try again"
        ) from error
