# SPDX-License-Identifier: Apache-2.0
"""Creates thousands of simulated nodes (kwok) of 8 GPUs for measurements.

They offer their GPUs twice: as gpupack's, and as an extended resource that any kube-scheduler
counts. One process sends all heartbeats. At the development cluster's interval those of a thousand
nodes would cost more than what is measured, so while the nodes exist kwok sends them seldom, and
kube-controller-manager waits longer for them.
"""

import asyncio
import contextlib
import dataclasses
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, TypeVar

from harness import Kube, wait_for

from gpupack_crds import names
from gpupack_crds.kinds import GPUNODES
from gpupack_devcluster import kwok
from gpupack_devcluster.cluster import Cluster
from gpupack_devcluster.driver import HostComponent
from gpupack_devcluster.settings import HOST
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.errors import NotFound
from gpupack_kubeclient.resources import LEASES, NODES

GPUS_PER_NODE, CORES_PER_GPU, GIB_PER_GPU = 8, 16, 128
EXTENDED_RESOURCE = "example.com/gpu"
"""Resource that a kube-scheduler without gpupack counts."""
SELECTOR = {"type": "kwok"}
TOLERATIONS = [
    {"key": key, "operator": "Exists"}
    for key in (kwok.ANNOTATION, "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
]
TIMEOUT_SECONDS = 600.0
AT_ONCE = 32
LEASE_SECONDS, GRACE_SECONDS = 3600, 7200
NODE_LEASES = "kube-node-lease"
COLLECTIONS = (GPUNODES.collection(), NODES.collection())

Json = dict[str, Any]
T = TypeVar("T")


@contextlib.contextmanager
def fleet(cluster: Cluster, kube: Kube, count: int) -> Iterator[None]:
    """Create nodes `kwok-1` and so on; delete them at the end and restore the cluster."""
    patient = dataclasses.replace(
        cluster.settings, node_lease_seconds=LEASE_SECONDS, node_grace_seconds=GRACE_SECONDS
    )
    before = cluster.running_units()
    with contextlib.ExitStack() as stack:
        stack.callback(_restart, cluster, with_kwok=HostComponent.KWOK in before)
        _restart(Cluster(patient), with_kwok=True)
        stack.callback(_remove, cluster, kube)
        _remove(cluster, kube)
        asyncio.run(_create(cluster, count))
        wait_for(
            lambda: _ready(kube) == count, seconds=TIMEOUT_SECONDS, what=f"{count} nodes Ready"
        )
        yield


def pod_spec(resource: str, gpus: int) -> Json:
    """Return the spec of a pod that only these nodes take, and that is deleted at once.

    It requests half of a node's CPU and memory per GPU.
    """
    limits = {
        resource: str(gpus),
        "cpu": str(gpus * CORES_PER_GPU // 2),
        "memory": f"{gpus * GIB_PER_GPU // 2}Gi",
    }
    return {
        "nodeSelector": SELECTOR,
        "tolerations": TOLERATIONS,
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "worker", "image": "none", "resources": {"limits": limits}}],
    }


def job_spec(workers: int, gpus: int) -> Json:
    """Return the spec of a GPUJob that only these nodes take; `gpus`: of each worker."""
    spec = pod_spec(names.GPU, gpus)
    for container in spec["containers"]:
        del container["resources"]["limits"][names.GPU]
    return {"workers": workers, "gpus": gpus, "template": {"spec": spec}}


def gpujob(name: str, workers: int, gpus: int) -> Json:
    """Return a GPUJob with such a spec."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": "GPUJob",
        "metadata": {"name": name},
        "spec": job_spec(workers, gpus),
    }


async def for_all(items: Iterable[T], act: Callable[[T], Awaitable[object]]) -> None:
    """Run `act` for each item, some at a time, in their order."""
    pending = iter(items)

    async def work() -> None:
        for item in pending:
            await act(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(work())


def delete_all(kube: Kube, collection: str, *, selector: str = "") -> None:
    """Delete a collection with the server's calls until it is empty.

    It also deletes owned objects: by default the server would keep the pods of Jobs.
    """
    chosen = f"labelSelector={selector}&" if selector else ""

    def is_empty() -> bool:
        kube.kubectl("delete", "--raw", f"{collection}?{chosen}propagationPolicy=Background")
        left = kube.insist("get", "--raw", f"{collection}?{chosen}limit=1")
        return '"items":[]' in left

    wait_for(is_empty, seconds=TIMEOUT_SECONDS, what=f"nothing is left of {collection}")


def _restart(cluster: Cluster, *, with_kwok: bool) -> None:
    """Restart kube-controller-manager and kwok with these settings."""
    running = cluster.running_units()
    for component in (HostComponent.CONTROLLER_MANAGER, HostComponent.KWOK):
        if component in running:
            cluster.kill(HOST, component)
        if component is not HostComponent.KWOK or with_kwok:
            cluster.start(HOST, component)


async def _create(cluster: Cluster, count: int) -> None:
    async with Api.connect({"KUBECONFIG": str(cluster.kubeconfig)}) as api:

        async def create(index: int) -> None:
            await api.create(NODES, _node(index))
            inventory = _gpu_node(index)
            await api.create(GPUNODES, inventory)
            status = {"status": inventory["status"]}
            await api.merge(GPUNODES, f"kwok-{index}", status, subresource="status")

        await for_all(range(1, count + 1), create)


def _remove(cluster: Cluster, kube: Kube) -> None:
    for collection in COLLECTIONS:
        delete_all(kube, collection, selector="type%3Dkwok")
    asyncio.run(_delete_leases(cluster))


async def _delete_leases(cluster: Cluster) -> None:
    """Delete the nodes' Leases: another kwok takes a node only after its Lease has expired."""
    async with Api.connect({"KUBECONFIG": str(cluster.kubeconfig)}) as api:

        async def delete(name: str) -> None:
            with contextlib.suppress(NotFound):
                await api.delete(LEASES, name, namespace=NODE_LEASES)

        _, leases = await api.page(LEASES, namespace=NODE_LEASES)
        found = (lease.metadata.name for lease in leases)
        await for_all((name for name in found if name.startswith("kwok-")), delete)


def _ready(kube: Kube) -> int:
    lines = kube.insist("get", "nodes", "-l", kwok.LABEL, "--no-headers").splitlines()
    return sum(line.split()[1] == "Ready" for line in lines)


def _node(index: int) -> Json:
    node = kwok.node(index)
    has = {
        "cpu": str(GPUS_PER_NODE * CORES_PER_GPU),
        "memory": f"{GPUS_PER_NODE * GIB_PER_GPU}Gi",
        names.GPU: str(GPUS_PER_NODE),
        names.GPU_SHARE: str(GPUS_PER_NODE * names.SHARE_SLOTS_PER_GPU),
        EXTENDED_RESOURCE: str(GPUS_PER_NODE),
    }
    resources = node["status"]["capacity"] | has
    return node | {"status": {"allocatable": resources, "capacity": resources}}


def _gpu_node(index: int) -> Json:
    """Return the GPUNode that an agent would write."""
    devices = [
        {
            "uuid": f"GPU-kwok-{index}-{number}",
            "index": number,
            "model": "simulated",
            "memoryMiB": 81920,
            "simulated": True,
        }
        for number in range(GPUS_PER_NODE)
    ]
    return {
        "apiVersion": names.API_VERSION,
        "kind": "GPUNode",
        "metadata": {"name": f"kwok-{index}", "labels": SELECTOR},
        "spec": {},
        "status": {"mode": "owned", "devices": devices, "simulated": True},
    }
