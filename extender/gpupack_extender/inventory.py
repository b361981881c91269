# SPDX-License-Identifier: Apache-2.0
"""A Node and its GPUNode as one node of core."""

import gpupack_core as core
from gpupack_crds import names, quantity
from gpupack_crds.errors import QuantityInvalid
from gpupack_crds.gpunode import GpuDevice
from gpupack_crds.kinds import GpuNode
from gpupack_extender.errors import InventoryInvalid
from gpupack_extender.limits import MOST_GPU_MEMORY, believed
from gpupack_kube import objects

_HEALTH = {
    "Healthy": core.Health.HEALTHY,
    "Degraded": core.Health.DEGRADED,
    "Failed": core.Health.FAILED,
}


def core_node(node: objects.Node, gpus: GpuNode) -> core.Node:
    """Join what Kubernetes and what our agent know of a node.

    Raises:
        InventoryInvalid: two devices of one index or UUID, an empty model and the like.
    """
    allocatable = node.status.allocatable
    try:
        return core.Node(
            name=core.NodeName(node.metadata.name),
            devices=tuple(map(_device, _whole_gpus(gpus.status.devices))),
            cpu=core.MilliCpu(believed(quantity.milli_cpu(allocatable.get("cpu", 0)))),
            memory=core.MiB(believed(quantity.mebibytes(allocatable.get("memory", 0)))),
            labels=node.metadata.labels,
            taints=tuple(map(_taint, node.spec.taints)),
            ready=_is_ready(node) and _hands_out_tickets(node),
            cordoned=node.spec.unschedulable,
        )
    except (core.Invalid, QuantityInvalid, ValueError, ArithmeticError) as error:
        raise InventoryInvalid(
            f"node {node.metadata.name} gets no work, its inventory is wrong: {error}"
        ) from error


def _whole_gpus(devices: tuple[GpuDevice, ...]) -> list[GpuDevice]:
    """Devices that may be handed out as whole GPUs: no MIG slice, and no GPU cut into slices."""
    parents = {device.mig_parent for device in devices}
    return [each for each in devices if not each.mig_parent and each.uuid not in parents]


def _device(device: GpuDevice) -> core.Device:
    if device.memory_mib > MOST_GPU_MEMORY:
        raise InventoryInvalid(f"{device.uuid} has {device.memory_mib} MiB; no GPU has")
    return core.Device(
        uuid=core.DeviceUuid(device.uuid),
        index=device.index,
        model=device.model,
        memory=core.MiB(device.memory_mib),
        numa_node=device.numa_node,
        clique=device.nvlink_clique,
        health=_HEALTH[device.health],
    )


def _taint(taint: objects.Taint) -> core.Taint:
    return core.Taint(taint.key, taint.value, core.Effect(taint.effect))


def _hands_out_tickets(node: objects.Node) -> bool:
    """Whether the kubelet counts any ticket of our device plugin.

    While the agent is away it counts none, and would fail for good every pod that is bound there.
    """
    return quantity.count(node.status.allocatable.get(names.GPU, 0)) > 0


def _is_ready(node: objects.Node) -> bool:
    return any(c.type == "Ready" and c.status == "True" for c in node.status.conditions)
