# SPDX-License-Identifier: Apache-2.0
"""The conversion of a Node and its GPUNode into one node of placement."""

import dataclasses
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from gpupack_crds import names, quantity
from gpupack_crds.acceptance import Acceptance
from gpupack_crds.devices import BYTES_PER_MIB
from gpupack_crds.errors import QuantityInvalid
from gpupack_crds.gpunode import GpuDevice, Phase
from gpupack_crds.kinds import GpuNode
from gpupack_kubeclient import objects
from gpupack_placement import (
    MAX_AMOUNT,
    REPLICA,
    USUAL_SPEED,
    Amounts,
    Device,
    DeviceUuid,
    Effect,
    Health,
    Invalid,
    MiB,
    MilliCpu,
    Node,
    NodeName,
    Taint,
    amounts,
)
from gpupack_scheduler.errors import InventoryInvalid
from gpupack_scheduler.gpu_replicas import replicas_of_a_gpu
from gpupack_scheduler.limits import MAX_GPU_MEMORY, MAX_GPUS, MAX_PODS, believed
from gpupack_scheduler.requests.needs import is_extended

ACCEPTANCE: Final = "acceptance"
"""Placement's name for GPUs that only burn-ins get. Kubelets see the usual resource."""

MAX_NAMES_PER_NODE: Final = 64
"""Maximum number of extended resources of one node that are counted; the rest is ignored."""

_UNKNOWN = ("unknown", 1)
"""Model and MiB of GPUs that gpupack's agent cannot see."""

_HEALTH = {
    "Healthy": Health.HEALTHY,
    "Degraded": Health.DEGRADED,
    "Cordoned": Health.CORDONED,
    "Failed": Health.FAILED,
}


def core_node(
    node: objects.Node,
    gpus: GpuNode,
    observed: Collection[str],
    acceptance: Acceptance | None = None,
    *,
    speeds: Mapping[str, int] = MappingProxyType({}),
) -> Node:
    """Join the Node and the GPUNode of a node; `speeds`: as in Speeds, per mille by UUID.

    Raises:
        InventoryInvalid: two devices have one UUID, a model is empty and the like; or GPUs belong
            to a resource that is not observed.
    """
    allocatable = node.status.allocatable
    resources = _observed(gpus, observed)
    try:
        memory = quantity.whole(allocatable.get("memory", 0)) // BYTES_PER_MIB
        return Node(
            name=NodeName(node.metadata.name),
            devices=_counted_as_decided(node, gpus, resources, acceptance, speeds),
            cpu=MilliCpu(believed(quantity.milli_cpu(allocatable.get("cpu", 0)))),
            memory=MiB(believed(memory)),
            pods=min(quantity.count(allocatable.get("pods", 0)), MAX_PODS),
            extended=_extended(allocatable, {*observed, *gpus.status.resources}),
            labels=node.metadata.labels,
            taints=tuple(map(_taint, node.spec.taints)),
            ready=_is_ready(node) and _hands_out_tickets(node, gpus, resources),
            cordoned=node.spec.unschedulable,
        )
    except (Invalid, QuantityInvalid, ValueError, ArithmeticError) as error:
        raise InventoryInvalid(f"its inventory is wrong: {error}") from error


def _extended(allocatable: Mapping[str, str | int], gpu_resources: set[str]) -> Amounts:
    """Return the resources that are counted by name; at most 1 less than the maximum of a pod."""
    there = (name for name in sorted(allocatable) if is_extended(name, gpu_resources))
    return amounts(
        {
            name: min(quantity.whole(allocatable[name]), MAX_AMOUNT - 1)
            for name in itertools.islice(there, MAX_NAMES_PER_NODE)
        }
    )


def _counted_as_decided(
    node: objects.Node,
    gpus: GpuNode,
    resources: tuple[str, ...],
    acceptance: Acceptance | None,
    speeds: Mapping[str, int],
) -> tuple[Device, ...]:
    if resources:
        return _decided(_counted(node, gpus, resources), gpus, {})
    phases = _phases(gpus, acceptance)
    return tuple(
        dataclasses.replace(device, resource=ACCEPTANCE)
        if phases.get(device.parent or device.uuid) == "Acceptance"
        else device
        for device in _decided(_named(gpus, speeds), gpus, phases)
    )


def _phases(gpus: GpuNode, acceptance: Acceptance | None) -> Mapping[str, Phase]:
    """Return the phases of GPUs that have one, or that are new and get a burn-in before use."""
    decided = {each.gpu: each.phase for each in gpus.spec.quarantine}
    if acceptance is None:
        # No burn-in can test it here: the operator is about to let time decide.
        untried = (gpu for gpu, phase in decided.items() if phase == "Acceptance")
        return decided | dict.fromkeys(untried, "Probation")
    return decided | {each.uuid: "Quarantined" for each in acceptance.new(gpus)}


def _decided(
    devices: tuple[Device, ...], gpus: GpuNode, phases: Mapping[str, Phase]
) -> tuple[Device, ...]:
    """Apply maintenance and phases to the health of devices that have not failed.

    Slices that are about to be replaced by others are in maintenance too.
    """
    mode, entries = gpus.status.mode, gpus.spec.maintenance
    changing = {each.gpu for each in gpus.status.mig_gpus if each.changing}

    def health(device: Device) -> Health:
        if device.health is Health.FAILED:
            return device.health
        # The phase belongs to the slice's GPU. Maintenance can cover a slice by itself.
        gpu = device.parent or device.uuid
        if device.parent in changing:
            return Health.MAINTENANCE
        if any(entry.covers(uuid, mode) for entry in entries for uuid in (device.uuid, gpu)):
            return Health.MAINTENANCE
        match phases.get(gpu):
            case "Quarantined":
                return Health.CORDONED
            case "Probation" | "Slow":
                return max(device.health, Health.DEGRADED)
            case _:
                return device.health

    return tuple(
        dataclasses.replace(device, health=found)
        if (found := health(device)) is not device.health
        else device
        for device in devices
    )


def _observed(gpus: GpuNode, observed: Collection[str]) -> tuple[str, ...]:
    """Return the names under which other plugins hand out the node's GPUs; empty: gpupack does.

    Names that are no longer observed are left out: no job can request them.
    """
    if gpus.status.mode == "owned":
        return ()
    resources = tuple(name for name in dict.fromkeys(gpus.status.resources) if name in observed)
    if not resources:
        raise InventoryInvalid(
            f"its GPUs are {', '.join(gpus.status.resources)}, which is none of the observed "
            f"resources ({', '.join(observed) or 'there are none'})"
        )
    return resources


def _named(gpus: GpuNode, speeds: Mapping[str, int]) -> tuple[Device, ...]:
    """Return the GPUs and MIG slices, numbered here in the driver's order.

    The driver's own numbers are no identity: a GPU that is gone keeps its last number in the
    status, and the driver may have given that number to another GPU since.
    """
    devices = gpus.status.devices
    ours = [*_whole_gpus(devices), *_slices(devices)]
    ordered = sorted(ours, key=lambda each: (each.index, each.uuid))
    return tuple(
        _device(device, index, speeds.get(device.uuid, USUAL_SPEED))
        for index, device in enumerate(ordered)
    )


def _counted(node: objects.Node, gpus: GpuNode, resources: Iterable[str]) -> tuple[Device, ...]:
    """Return as many devices as the kubelet hands out under these names, in no known order.

    Their health is up to the other plugins, which remove unhealthy devices from allocatable.
    """
    of_each = (_of_resource(node, gpus, resource) for resource in resources)
    found = itertools.islice(itertools.chain.from_iterable(of_each), MAX_GPUS)
    return tuple(dataclasses.replace(device, index=index) for index, device in enumerate(found))


def _of_resource(node: objects.Node, gpus: GpuNode, resource: str) -> Iterator[Device]:
    number = min(quantity.count(node.status.allocatable.get(resource, 0)), MAX_GPUS)
    theirs = [each for each in _whole_gpus(gpus.status.devices) if each.resource == resource]
    kinds = [(each.model, each.memory_mib) for each in theirs] or [_UNKNOWN]
    replicas = replicas_of_a_gpu(node.metadata.labels, resource, number=number, gpus=len(theirs))
    if replicas is not None:
        yield from _replicas(node, resource, kinds, number, replicas)
        return
    for index, (model, memory) in zip(range(number), itertools.cycle(kinds), strict=False):
        yield Device(
            uuid=DeviceUuid(f"{node.metadata.name}/{resource}/{index}"),
            index=index,
            model=model,
            memory=MiB(memory),
            max_shares=0,
            resource=resource,
        )


def _replicas(
    node: objects.Node,
    resource: str,
    kinds: list[tuple[str, int]],
    number: int,
    replicas: int,
) -> Iterator[Device]:
    """Yield replicas of GPUs. The GPU of a replica is unknown, so they are assigned in order."""
    of = f"{node.metadata.name}/{resource}"
    for index in range(number):
        gpu = index // replicas
        model, memory = kinds[gpu % len(kinds)]
        yield Device(
            uuid=DeviceUuid(f"{of}/{index}"),
            index=index,
            model=model,
            memory=MiB(max(memory // replicas, 1)),
            max_shares=0,
            profile=REPLICA,
            parent=DeviceUuid(f"{of}/gpu-{gpu}"),
            resource=resource,
        )


def _whole_gpus(devices: tuple[GpuDevice, ...]) -> list[GpuDevice]:
    """Return devices usable as whole GPUs: no MIG slices, and no GPUs that have slices."""
    parents = {device.mig_parent for device in devices}
    return [each for each in devices if not each.mig_parent and each.uuid not in parents]


def _slices(devices: tuple[GpuDevice, ...]) -> list[GpuDevice]:
    """Return the slices that the kubelet can hand out under a resource of their profile."""
    return [
        each
        for each in devices
        if each.mig_parent and names.mig_profile(names.mig_resource(each.mig_profile))
    ]


def _device(device: GpuDevice, index: int, speed: int) -> Device:
    if device.memory_mib > MAX_GPU_MEMORY:
        raise InventoryInvalid(f"{device.uuid} has {device.memory_mib} MiB; no GPU has")
    if "/" in device.uuid:
        raise InventoryInvalid(f"{device.uuid} is no GPU's UUID but as one of an observed node")
    return Device(
        uuid=DeviceUuid(device.uuid),
        index=index,
        model=device.model,
        memory=MiB(device.memory_mib),
        numa_node=device.numa_node,
        clique=device.nvlink_clique,
        health=_HEALTH[device.health],
        max_shares=0 if device.mig_parent else names.SHARE_SLOTS_PER_GPU,
        profile=device.mig_profile if device.mig_parent else "",
        parent=DeviceUuid(device.mig_parent),
        limits=device.limits != "None",
        speed=speed,
    )


def _taint(taint: objects.Taint) -> Taint:
    return Taint(taint.key, taint.value, Effect(taint.effect))


def _hands_out_tickets(node: objects.Node, gpus: GpuNode, observed: Collection[str]) -> bool:
    """Tell whether the kubelet counts device tokens of every gpupack plugin, or an observed one.

    While a plugin is away the kubelet counts none, and would reject each pod that is bound there
    for good. An observed plugin that is away has no devices, so no pod is bound there for them.
    """
    expected = observed or _tickets(gpus.status.devices)
    counts = [quantity.count(node.status.allocatable.get(name, 0)) > 0 for name in expected]
    return any(counts) if observed else all(counts)


def _tickets(devices: tuple[GpuDevice, ...]) -> set[str]:
    """Return the names under which gpupack's agent hands out these devices.

    A profile whose slices have all failed is left out.
    """
    cut = _slices(devices)
    of_slices = {names.mig_resource(each.mig_profile) for each in cut if each.health != "Failed"}
    whole = _whole_gpus(devices) or not cut
    return of_slices | ({names.GPU, names.GPU_SHARE} if whole else set())


def _is_ready(node: objects.Node) -> bool:
    return any(c.type == "Ready" and c.status == "True" for c in node.status.conditions)
