# SPDX-License-Identifier: Apache-2.0
"""The decision whether a container may start with these device tokens, and with which devices.

It is pure. The result is one of three: the record to write; a reason to wait, which may disappear;
a refusal, whose reason cannot disappear. Devices come only from the annotation that the Binding
wrote.
"""

import dataclasses
from collections.abc import Mapping

from gpupack_agent import container_devices, holders
from gpupack_agent.cgroups import CgroupState
from gpupack_agent.device_tokens import cdi_name, devices_of
from gpupack_agent.errors import StartRefused
from gpupack_agent.gang_memory import memory_owner
from gpupack_agent.holders import NodeView, Record
from gpupack_agent.pods import PodView, Start
from gpupack_crds import names
from gpupack_crds.devices import DeviceShare, decode_devices
from gpupack_crds.errors import DevicesAnnotationInvalid
from gpupack_crds.gpunode import GpuDevice


@dataclasses.dataclass(frozen=True, slots=True)
class Wait:
    """The reason why a container must wait.

    Attributes:
        reason: the text that a user reads if the wait is too long; like that of an AgentError, it
            names no pod.
        pods: the pods that it concerns, for the log.
        is_held: whether another pod still holds a device of this pod.
    """

    reason: str
    pods: tuple[str, ...] = ()
    is_held: bool = False


def admit(start: Start, node: NodeView) -> Record | Wait:
    """Decide on one container start.

    Raises:
        StartRefused: the container can never start like this.
    """
    pod = start.pod
    if node.cgroup(pod.uid) is CgroupState.ABSENT:
        return Wait(
            "the pod has no cgroup on this node: another pod of the same name is starting, or "
            "GPUPACK_CGROUP_DIR is not the folder of the node's cgroups",
            pods=(f"{pod.title} (uid {pod.uid})",),
        )
    record = _record(start, node)
    if wait := _wait_for_token_holder(record, node):
        return wait
    obstacle = holders.obstacle(pod.uid, (*record.devices, *record.peers), node)
    if obstacle:
        return Wait(obstacle.reason, (pod.title, *obstacle.pods), is_held=True)
    return record


def _record(start: Start, node: NodeView) -> Record:
    pod = start.pod
    parts = container_devices.split_by_container(pod, _annotated_devices(pod))
    devices = parts.get(start.container, ())
    _check_kind(start, devices)
    peers = container_devices.peers(pod, parts, start.container)
    for share in (*devices, *peers):
        _check_device(share, node.devices.get(share.uuid), start.resource)
    _check_unchanged(pod, parts, node)
    return Record(
        cdi_name=cdi_name(start.tokens),
        tokens=start.tokens,
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        container=start.container,
        devices=devices,
        peers=peers,
        gang=pod.gang,
        memory_owner_uid=memory_owner(pod, node),
    )


def _annotated_devices(pod: PodView) -> tuple[DeviceShare, ...]:
    if pod.annotation is None:
        raise StartRefused(
            f"the pod has no annotation {names.DEVICES_ANNOTATION}: it was not bound by gpupack. "
            f"Set schedulerName: {names.SCHEDULER_NAME} and no nodeName. If the pod has that, "
            "another component bound it: check which accounts may create pods/binding",
            pods=(pod.title,),
        )
    try:
        return decode_devices(pod.annotation)
    except DevicesAnnotationInvalid as error:
        raise StartRefused(str(error), pods=(pod.title,)) from error


def _check_kind(start: Start, devices: tuple[DeviceShare, ...]) -> None:
    """Check that number and kind of the devices match the device tokens.

    Tokens of GPUs or slices need as many whole devices. Tokens of shares need as many shares.

    Raises:
        StartRefused: they do not match.
    """
    whole = start.resource != names.GPU_SHARE
    if len(devices) != len(start.tokens) or any(share.whole != whole for share in devices):
        pod = start.pod
        raise StartRefused(
            f"container {start.container} has {len(start.tokens)} device tokens of "
            f"{start.resource}, and the pod's annotation {names.DEVICES_ANNOTATION} "
            f"({pod.annotation}) gives it {len(devices)} devices: their number and kind must be "
            "the same",
            pods=(pod.title,),
        )


def _check_device(share: DeviceShare, device: GpuDevice | None, resource: str) -> None:
    if device is None or device not in devices_of((device,), resource):
        raise StartRefused(f"this node has no device {share.uuid} of resource {resource}")
    if device.health == "Failed":
        raise StartRefused(f"device {share.uuid} failed: {device.cause}")
    if share.memory_mib > device.memory_mib:
        raise StartRefused(
            f"{share.memory_mib} MiB of device {share.uuid} requested; "
            f"it has {device.memory_mib} MiB"
        )


def _check_unchanged(
    pod: PodView, parts: Mapping[str, tuple[DeviceShare, ...]], node: NodeView
) -> None:
    """Check that each recorded container of the pod still has the devices that it was given.

    So a changed annotation gives no container other devices, and gives a new container no device
    of another one.

    Raises:
        StartRefused: the annotation was changed after the pod's first start.
    """
    for record in node.records:
        if record.uid == pod.uid and record.devices != parts.get(record.container):
            raise StartRefused(
                f"annotation {names.DEVICES_ANNOTATION} was changed after the pod's first start; "
                "delete the pod",
                pods=(pod.title,),
            )


def _wait_for_token_holder(record: Record, node: NodeView) -> Wait | None:
    """Return a Wait if another live container has the same device tokens.

    After a forced deletion the kubelet hands device tokens out again while their last holder lives.
    The spec of that holder must stay until it is dead: it records the devices that it holds.
    """
    for other in holders.live_records(node):
        if other.cdi_name == record.cdi_name and _container_key(other) != _container_key(record):
            return Wait(
                "another pod or container, which has not ended, still has these device tokens",
                (record.title, other.title),
                is_held=True,
            )
    return None


def _container_key(record: Record) -> tuple[str, str]:
    return record.uid, record.container
