# SPDX-License-Identifier: Apache-2.0
"""A Node and its GPUNode as one node of core."""

import dataclasses
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

import gpupack_core as core
from gpupack_crds import names, quantity
from gpupack_crds.acceptance import Acceptance
from gpupack_crds.devices import BYTES_PER_MIB
from gpupack_crds.errors import QuantityInvalid
from gpupack_crds.gpunode import GpuDevice, Phase
from gpupack_crds.kinds import GpuNode
from gpupack_kube import objects
from gpupack_scheduling.asks.needs import is_extended
from gpupack_scheduling.errors import InventoryInvalid
from gpupack_scheduling.gpu_replicas import replicas_of_a_gpu
from gpupack_scheduling.limits import MAX_GPU_MEMORY, MAX_GPUS, MAX_PODS, believed

ACCEPTANCE: Final = "acceptance"
"""How core calls the resource of GPUs that burn-ins alone get; to kubelets it is as of others."""

MAX_NAMES_PER_NODE: Final = 64
"""Extended resources of one node that are counted; of others it has none."""

_UNKNOWN = ("unknown", 1)
"""Model and MiB of GPUs that our agent cannot look at."""

_HEALTH = {
    "Healthy": core.Health.HEALTHY,
    "Degraded": core.Health.DEGRADED,
    "Draining": core.Health.DRAINING,
    "Failed": core.Health.FAILED,
}


def core_node(
    node: objects.Node,
    gpus: GpuNode,
    observed: Collection[str],
    acceptance: Acceptance | None = None,
    *,
    speeds: Mapping[str, int] = MappingProxyType({}),
) -> core.Node:
    """Join what Kubernetes and what our agent know of a node; `speeds`: as Speeds tells them.

    Raises:
        InventoryInvalid: two devices of one UUID, an empty model and the like; or GPUs of a
            resource that is not observed.
    """
    allocatable = node.status.allocatable
    resources = _observed(gpus, observed)
    try:
        memory = quantity.whole(allocatable.get("memory", 0)) // BYTES_PER_MIB
        return core.Node(
            name=core.NodeName(node.metadata.name),
            devices=_counted_as_decided(node, gpus, resources, acceptance, speeds),
            cpu=core.MilliCpu(believed(quantity.milli_cpu(allocatable.get("cpu", 0)))),
            memory=core.MiB(believed(memory)),
            pods=min(quantity.count(allocatable.get("pods", 0)), MAX_PODS),
            extended=_extended(allocatable, {*observed, *gpus.status.resources}),
            labels=node.metadata.labels,
            taints=tuple(map(_taint, node.spec.taints)),
            ready=_is_ready(node) and _hands_out_tickets(node, gpus, resources),
            cordoned=node.spec.unschedulable,
        )
    except (core.Invalid, QuantityInvalid, ValueError, ArithmeticError) as error:
        raise InventoryInvalid(f"its inventory is wrong: {error}") from error


def _extended(allocatable: Mapping[str, str | int], gpu_resources: set[str]) -> core.Amounts:
    """What the node has that is counted by its name alone; the most is less than any pod's most."""
    there = (name for name in sorted(allocatable) if is_extended(name, gpu_resources))
    return core.amounts(
        {
            name: min(quantity.whole(allocatable[name]), core.MAX_AMOUNT - 1)
            for name in itertools.islice(there, MAX_NAMES_PER_NODE)
        }
    )


def _counted_as_decided(
    node: objects.Node,
    gpus: GpuNode,
    resources: tuple[str, ...],
    acceptance: Acceptance | None,
    speeds: Mapping[str, int],
) -> tuple[core.Device, ...]:
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
    """Of each GPU that was decided about, or that is new and to be tried before it is used."""
    decided = {each.gpu: each.phase for each in gpus.spec.quarantine}
    if acceptance is None:
        # Nobody tries it: the operator is about to have time decide.
        untried = (gpu for gpu, phase in decided.items() if phase == "Acceptance")
        return decided | dict.fromkeys(untried, "Probation")
    return decided | {each.uuid: "Quarantined" for each in acceptance.new(gpus)}


def _decided(
    devices: tuple[core.Device, ...], gpus: GpuNode, phases: Mapping[str, Phase]
) -> tuple[core.Device, ...]:
    """What works is in maintenance where an administrator says so, else as its phase has it.

    So are slices that are about to be replaced by others.
    """
    mode, entries = gpus.status.mode, gpus.spec.maintenance
    changing = {each.gpu for each in gpus.status.mig_gpus if each.changing}

    def health(device: core.Device) -> core.Health:
        if device.health is core.Health.FAILED:
            return device.health
        # Of a slice it is its GPU that was decided about; in maintenance it can be by itself.
        gpu = device.parent or device.uuid
        if device.parent in changing:
            return core.Health.MAINTENANCE
        if any(entry.covers(uuid, mode) for entry in entries for uuid in (device.uuid, gpu)):
            return core.Health.MAINTENANCE
        match phases.get(gpu):
            case "Quarantined":
                return core.Health.DRAINING
            case "Probation" | "Slow":
                return max(device.health, core.Health.DEGRADED)
            case _:
                return device.health

    return tuple(
        dataclasses.replace(device, health=found)
        if (found := health(device)) is not device.health
        else device
        for device in devices
    )


def _observed(gpus: GpuNode, observed: Collection[str]) -> tuple[str, ...]:
    """By which names other plugins hand out the node's GPUs; empty: we do.

    Those that are not observed any more stay out: nobody can ask for them.
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


def _named(gpus: GpuNode, speeds: Mapping[str, int]) -> tuple[core.Device, ...]:
    """The GPUs and MIG slices, counted anew in the driver's order.

    Its own numbers are no identity: a GPU that is gone keeps the one that it had, and the driver
    may have given that to another since.
    """
    devices = gpus.status.devices
    ours = [*_whole_gpus(devices), *_slices(devices)]
    ordered = sorted(ours, key=lambda each: (each.index, each.uuid))
    return tuple(
        _device(device, index, speeds.get(device.uuid, core.USUAL_SPEED))
        for index, device in enumerate(ordered)
    )


def _counted(
    node: objects.Node, gpus: GpuNode, resources: Iterable[str]
) -> tuple[core.Device, ...]:
    """As many devices as the kubelet hands out by these names; which is which, nobody knows.

    Their health is the other plugins' business: they take sick ones out of allocatable.
    """
    of_each = (_of_resource(node, gpus, resource) for resource in resources)
    found = itertools.islice(itertools.chain.from_iterable(of_each), MAX_GPUS)
    return tuple(dataclasses.replace(device, index=index) for index, device in enumerate(found))


def _of_resource(node: objects.Node, gpus: GpuNode, resource: str) -> Iterator[core.Device]:
    number = min(quantity.count(node.status.allocatable.get(resource, 0)), MAX_GPUS)
    theirs = [each for each in _whole_gpus(gpus.status.devices) if each.resource == resource]
    kinds = [(each.model, each.memory_mib) for each in theirs] or [_UNKNOWN]
    replicas = replicas_of_a_gpu(node.metadata.labels, resource, number=number, gpus=len(theirs))
    if replicas is not None:
        yield from _replicas(node, resource, kinds, number, replicas)
        return
    for index, (model, memory) in zip(range(number), itertools.cycle(kinds), strict=False):
        yield core.Device(
            uuid=core.DeviceUuid(f"{node.metadata.name}/{resource}/{index}"),
            index=index,
            model=model,
            memory=core.MiB(memory),
            max_shares=0,
            resource=resource,
        )


def _replicas(
    node: objects.Node,
    resource: str,
    kinds: list[tuple[str, int]],
    number: int,
    replicas: int,
) -> Iterator[core.Device]:
    """Yield replicas of GPUs; which is of which GPU is not known, so they count as if in order."""
    of = f"{node.metadata.name}/{resource}"
    for index in range(number):
        gpu = index // replicas
        model, memory = kinds[gpu % len(kinds)]
        yield core.Device(
            uuid=core.DeviceUuid(f"{of}/{index}"),
            index=index,
            model=model,
            memory=core.MiB(max(memory // replicas, 1)),
            max_shares=0,
            profile=core.REPLICA,
            parent=core.DeviceUuid(f"{of}/gpu-{gpu}"),
            resource=resource,
        )


def _whole_gpus(devices: tuple[GpuDevice, ...]) -> list[GpuDevice]:
    """Devices that may be handed out as whole GPUs: no MIG slice, and no GPU cut into slices."""
    parents = {device.mig_parent for device in devices}
    return [each for each in devices if not each.mig_parent and each.uuid not in parents]


def _slices(devices: tuple[GpuDevice, ...]) -> list[GpuDevice]:
    """Those that the kubelet can hand out by a resource of their profile's."""
    return [
        each
        for each in devices
        if each.mig_parent and names.mig_profile(names.mig_resource(each.mig_profile))
    ]


def _device(device: GpuDevice, index: int, speed: int) -> core.Device:
    if device.memory_mib > MAX_GPU_MEMORY:
        raise InventoryInvalid(f"{device.uuid} has {device.memory_mib} MiB; no GPU has")
    if "/" in device.uuid:
        raise InventoryInvalid(f"{device.uuid} is no GPU's UUID but as one of an observed node")
    return core.Device(
        uuid=core.DeviceUuid(device.uuid),
        index=index,
        model=device.model,
        memory=core.MiB(device.memory_mib),
        numa_node=device.numa_node,
        clique=device.nvlink_clique,
        health=_HEALTH[device.health],
        max_shares=0 if device.mig_parent else names.SHARE_SLOTS_PER_GPU,
        profile=device.mig_profile if device.mig_parent else "",
        parent=core.DeviceUuid(device.mig_parent),
        limits=device.limits != "None",
        speed=speed,
    )


def _taint(taint: objects.Taint) -> core.Taint:
    return core.Taint(taint.key, taint.value, core.Effect(taint.effect))


def _hands_out_tickets(node: objects.Node, gpus: GpuNode, observed: Collection[str]) -> bool:
    """Whether the kubelet counts tickets of all our device plugins, or of any observed one.

    While a plugin is away it counts none, and would fail for good every pod that is bound there. Of
    an observed plugin that is away there are no devices, so nobody is bound there for them.
    """
    expected = observed or _tickets(gpus.status.devices)
    counts = [quantity.count(node.status.allocatable.get(name, 0)) > 0 for name in expected]
    return any(counts) if observed else all(counts)


def _tickets(devices: tuple[GpuDevice, ...]) -> set[str]:
    """By which names our agent hands out these; of a profile all of whose slices failed none is."""
    cut = _slices(devices)
    of_slices = {names.mig_resource(each.mig_profile) for each in cut if each.health != "Failed"}
    whole = _whole_gpus(devices) or not cut
    return of_slices | ({names.GPU, names.GPU_SHARE} if whole else set())


def _is_ready(node: objects.Node) -> bool:
    return any(c.type == "Ready" and c.status == "True" for c in node.status.conditions)
