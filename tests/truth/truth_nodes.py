# SPDX-License-Identifier: Apache-2.0
"""Makes the fleet real, as far as kwok does: Nodes that are Ready, GPUNodes, no kubelet."""

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from truth_fleet import Shape, gpu_node, node_metadata, node_status
from truth_simulated import snapshot_of

from gpupack_crds.kinds import GPUNODES
from gpupack_devcluster import kwok
from gpupack_devcluster.driver import ClusterDriver
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.errors import NotFound
from gpupack_kubeclient.resources import NODES

Json = dict[str, Any]


def connected(cluster: ClusterDriver) -> contextlib.AbstractAsyncContextManager[Api]:
    """As the administrator."""
    return Api.connect({"KUBECONFIG": str(cluster.kubeconfig)})


@contextlib.contextmanager
def simulated_nodes(cluster: ClusterDriver, shapes: Mapping[str, Shape]) -> Iterator[None]:
    """Add these nodes to those of the cluster."""
    cluster.up(nodes=len(cluster.nodes()), kwok_nodes=len(shapes))
    try:
        asyncio.run(_each(cluster, shapes, _equip))
        yield
    finally:
        asyncio.run(_each(cluster, shapes, _strip))
        cluster.up(nodes=len(cluster.nodes()), kwok_nodes=0)


async def state_of(api: Api) -> Json:
    """The simulated nodes now, as the simulator reads them."""
    _, nodes = await api.page(NODES, labelSelector=kwok.LABEL)
    _, gpu_nodes = await api.page(GPUNODES)
    return snapshot_of(nodes, gpu_nodes)


async def _each(cluster, shapes, act) -> None:
    async with connected(cluster) as api:
        for name, shape in shapes.items():
            await act(api, name, shape)


async def _equip(api: Api, name: str, shape: Shape) -> None:
    inventory = gpu_node(name, shape)
    await api.merge(NODES, name, node_metadata(shape))
    await api.merge(NODES, name, node_status(shape), subresource="status")
    await _strip(api, name, shape)
    await api.create(GPUNODES, inventory)
    status = {"status": inventory["status"]}
    await api.merge(GPUNODES, name, status, subresource="status")


async def _strip(api: Api, name: str, shape: Shape) -> None:
    with contextlib.suppress(NotFound):
        await api.delete(GPUNODES, name)
