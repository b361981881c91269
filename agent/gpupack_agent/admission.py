# SPDX-License-Identifier: Apache-2.0
"""May this container start with these tickets, and with which devices? Pure.

The answer is one of three: the record to write; a reason to wait, which time may remove; a refusal,
which it cannot. Devices come from the annotation alone, as it was written by the Binding.
"""

import dataclasses

from gpupack_agent import holders
from gpupack_agent.cgroups import CgroupState
from gpupack_agent.errors import StartRefused
from gpupack_agent.gang_memory import memory_owner
from gpupack_agent.holders import NodeView, Record
from gpupack_agent.pods import Ask, PodView
from gpupack_agent.tickets import cdi_name, handed_out
from gpupack_crds import names
from gpupack_crds.devices import DeviceShare, decode_devices
from gpupack_crds.errors import DevicesAnnotationInvalid
from gpupack_crds.gpunode import GpuDevice


@dataclasses.dataclass(frozen=True, slots=True)
class Wait:
    """Not yet.

    Attributes:
        reason: what a user reads if it lasts too long; without names, as of an AgentError.
        pods: whom it is about, for the log.
        is_held: another pod, which is not gone, has what this one is to have.
    """

    reason: str
    pods: tuple[str, ...] = ()
    is_held: bool = False


def admit(pod: PodView, resource: str, tickets: frozenset[str], node: NodeView) -> Record | Wait:
    """Judge one container start.

    Raises:
        StartRefused: the pod can never start like this.
    """
    if node.cgroup(pod.uid) is CgroupState.ABSENT:
        return Wait(
            "the pod has no cgroup on this node: another pod of its name starts, or "
            "GPUPACK_CGROUP_DIR does not show the node's cgroups",
            pods=(f"{pod.title} (uid {pod.uid})",),
        )
    record = _record(pod, resource, tickets, node)
    if wait := _same_name(record, node):
        return wait
    obstacle = holders.obstacle(pod.uid, record.devices, node)
    if obstacle:
        return Wait(obstacle.reason, (pod.title, *obstacle.pods), is_held=True)
    return record


def _record(pod: PodView, resource: str, tickets: frozenset[str], node: NodeView) -> Record:
    ask = _only_ask(pod)
    devices = _annotated_devices(pod)
    _check_kind(pod, resource=resource, tickets=len(tickets), devices=devices)
    for share in devices:
        _check_device(share, node.devices.get(share.uuid), resource)
    _check_unchanged(pod, devices, node)
    return Record(
        cdi_name=cdi_name(tickets),
        tickets=tickets,
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        container=ask.container,
        devices=devices,
        gang=pod.gang,
        memory_of=memory_owner(pod, node),
    )


def _only_ask(pod: PodView) -> Ask:
    """One container may ask: the annotation does not say which container gets which device."""
    if len(pod.asks) != 1:
        asking = ", ".join(sorted({ask.container for ask in pod.asks}))
        raise StartRefused(
            f"the pod asks for devices {len(pod.asks)} times (containers {asking}); one container "
            "may ask, for one resource",
            pods=(pod.title,),
        )
    return pod.asks[0]


def _annotated_devices(pod: PodView) -> tuple[DeviceShare, ...]:
    if pod.annotation is None:
        raise StartRefused(
            f"the pod has no annotation {names.DEVICES_ANNOTATION}: it was not bound by gpupack. "
            f"Set schedulerName: {names.SCHEDULER_NAME} and no nodeName; if it has that, it was "
            "bound by somebody else: see who may create pods/binding",
            pods=(pod.title,),
        )
    try:
        return decode_devices(pod.annotation)
    except DevicesAnnotationInvalid as error:
        raise StartRefused(str(error), pods=(pod.title,)) from error


def _check_kind(
    pod: PodView, *, resource: str, tickets: int, devices: tuple[DeviceShare, ...]
) -> None:
    """Whole GPUs or slices for tickets of them, one share for one slot, as many as asked."""
    whole = resource != names.GPU_SHARE
    if len(devices) != tickets or any(share.whole != whole for share in devices):
        raise StartRefused(
            f"the pod was handed {tickets} tickets of {resource}, but its annotation "
            f"{names.DEVICES_ANNOTATION} reads {pod.annotation}: they must agree",
            pods=(pod.title,),
        )


def _check_device(share: DeviceShare, device: GpuDevice | None, resource: str) -> None:
    if device is None or device not in handed_out((device,), resource):
        raise StartRefused(
            f"device {share.uuid} is not among those that this node hands out as {resource}"
        )
    if device.health == "Failed":
        raise StartRefused(f"device {share.uuid} failed: {device.cause}")
    if share.memory_mib > device.memory_mib:
        raise StartRefused(
            f"{share.memory_mib} MiB of device {share.uuid} asked; it has {device.memory_mib} MiB"
        )


def _check_unchanged(pod: PodView, devices: tuple[DeviceShare, ...], node: NodeView) -> None:
    """A container that restarts gets what it had, whatever was written to its pod since."""
    for record in node.records:
        if record.uid == pod.uid and record.devices != devices:
            raise StartRefused(
                f"annotation {names.DEVICES_ANNOTATION} was changed after the pod's first start; "
                "delete the pod",
                pods=(pod.title,),
            )


def _same_name(record: Record, node: NodeView) -> Wait | None:
    """After a force delete the kubelet hands tickets out again while their last holder lives.

    Its spec must stay until then: it is the record of what it holds.
    """
    for other in holders.live_records(node):
        if other.cdi_name == record.cdi_name and other.uid != record.uid:
            return Wait(
                "the kubelet's tickets are still those of another pod, which is not gone",
                (record.title, other.title),
                is_held=True,
            )
    return None
