# SPDX-License-Identifier: Apache-2.0
"""GPUNodes by name, and changes of their maintenance with concurrent writers."""

from collections.abc import Callable
from typing import Final

import msgspec

from gpupack_cli.errors import CliError
from gpupack_cli.listing import list_objects
from gpupack_cli.maintenance import Entries
from gpupack_cli.rest_nodes import node_not_found
from gpupack_crds.kinds import GPUNODES, GpuNode
from gpupack_kubeclient import conflicts
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.errors import Conflict, KubeError, NotFound

MAX_TRIES: Final = 8


async def get_node(api: Api, name: str) -> GpuNode:
    """Return the GPUNode; name the existing ones where there is none.

    Raises:
        ObjectNotFound: there is none of that name.
        KubeError: it may not be read, or there is no such kind.
    """
    try:
        return await api.get(GPUNODES, name)
    except NotFound as error:
        try:
            there = [node.metadata.name for node in await list_objects(api, GPUNODES)]
        except KubeError:
            # Without the kind, or the permission to list it, the first error says more.
            raise error from None
        raise node_not_found(name, there) from error


async def change_maintenance(api: Api, name: str, entries: Callable[[GpuNode], Entries]) -> GpuNode:
    """Read the node, compute its entries, and write them; retry on conflicts.

    Raises:
        ObjectNotFound: there is no such node.
        KubeError: it may not be written.
        CliError: other writes came in between each time.
    """

    async def once() -> GpuNode:
        node = await get_node(api, name)
        wanted = [msgspec.to_builtins(each) for each in entries(node)]
        body = {
            "metadata": {"resourceVersion": node.metadata.resource_version},
            "spec": {"maintenance": wanted or None},
        }
        return await api.merge(GPUNODES, name, body)

    try:
        return await conflicts.retried(once, tries=MAX_TRIES)
    except Conflict as error:
        raise CliError(
            f"other clients changed GPUNode {name} {MAX_TRIES} times at the same time; try again"
        ) from error
