# SPDX-License-Identifier: Apache-2.0
"""The holders of each device on this node, and the obstacles to a container start. Pure.

A pod holds devices from the moment when the agent wrote its CDI spec, which is the record, until
the pod is dead. It is dead when both conditions hold:

* The API shows it as finished, or no longer knows it (deleted, perhaps by force).
* No process is left in its cgroup.

The existence of the cgroup's folder proves nothing: the kubelet removes it seconds after the pod is
gone. While the kubelet can still restart a pod, its sandbox runs, and that is a process too.

A bound pod whose start the agent did not prepare holds nothing yet. If the scheduler ever gave one
device to two pods, the first to start gets it, and the other is refused. There is one exception: a
pod that the API shows as started although a container of it has no record. The record may be lost,
but the pod still uses its devices. Then the pod holds all devices of its annotation.

A pod with several containers has a record for each. It holds its devices until the whole pod is
dead, because the kubelet keeps the device tokens of an ended container until its pod has ended.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence

from gpupack_agent.cgroups import CgroupState
from gpupack_agent.pods import PodView
from gpupack_crds.devices import WHOLE_PERCENT, DeviceShare, decode_devices
from gpupack_crds.errors import DevicesAnnotationInvalid
from gpupack_crds.gpunode import GpuDevice, GpuHolder

SANDBOX_SECONDS = 5.0
"""The kubelet takes one or two seconds to end the sandbox of a finished pod."""


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """The devices that a container was given: the content of its CDI spec.

    Attributes:
        cdi_name: the CDI device, named after the device tokens.
        tokens: IDs of the device tokens that the kubelet handed out.
        peers: devices of other workers in the same pod, which it can open for NVLink.
        gang: the gang whose pods on this node share one /dev/shm; empty: the pod has its own.
        memory_owner_uid: UID of the pod whose /dev/shm it uses, which may be this pod; empty: no
            gang.
    """

    cdi_name: str
    tokens: frozenset[str]
    uid: str
    namespace: str
    name: str
    container: str
    devices: tuple[DeviceShare, ...]
    peers: tuple[DeviceShare, ...] = ()
    gang: str = ""
    memory_owner_uid: str = ""

    @property
    def title(self) -> str:
        """Return the pod's name as messages show it."""
        return f"{self.namespace}/{self.name}"


@dataclasses.dataclass(frozen=True, slots=True)
class Holder:
    """A live pod and the devices that it holds."""

    uid: str
    title: str
    devices: tuple[DeviceShare, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Obstacle:
    """An obstacle to the start of a container.

    Attributes:
        reason: the reason, without names of pods, because a tenant reads it.
        pods: titles of the pods that hold the requested devices, for the log.
    """

    reason: str
    pods: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class NodeView:
    """The state of the node that the agent knows at one moment.

    Attributes:
        records: the devices that containers were given.
        pods: the pods of this node, by UID.
        cgroup: returns the state of a pod's cgroup from the pod's UID.
        devices: the GPUs and slices of this node, by UUID.
        now: the time of the monotonic clock, seconds.
    """

    records: tuple[Record, ...]
    pods: Mapping[str, PodView]
    cgroup: Callable[[str], CgroupState]
    devices: Mapping[str, GpuDevice]
    now: float = 0.0


def is_live(uid: str, node: NodeView) -> bool:
    """Tell whether a pod may still have a process on this node."""
    pod = node.pods.get(uid)
    awaited = pod is not None and not pod.finished
    return awaited or node.cgroup(uid) is CgroupState.POPULATED


def live_records(node: NodeView) -> tuple[Record, ...]:
    """Return the records of pods that are not dead."""
    return tuple(record for record in node.records if is_live(record.uid, node))


def terminating_holders(node: NodeView) -> tuple[GpuHolder, ...]:
    """Return the pods that have ended for the API and whose processes still run on the node.

    They were deleted by force, or a component marked them as finished because the node's kubelet
    seemed dead. The sandbox of a pod that ends normally also runs for a moment. Such a pod is not
    listed before SANDBOX_SECONDS have passed.
    """
    ended = [record for record in live_records(node) if _has_ended(record.uid, node)]
    return tuple(
        GpuHolder(
            namespace=of_pod[0].namespace,
            name=of_pod[0].name,
            uid=uid,
            devices=_accessible_devices(of_pod),
        )
        for uid, of_pod in sorted(_by_pod(ended).items())
    )


def _by_pod(records: Iterable[Record]) -> dict[str, list[Record]]:
    """Group records by the UIDs of their pods, in a stable order."""
    found: dict[str, list[Record]] = {}
    for record in sorted(records, key=lambda record: record.cdi_name):
        found.setdefault(record.uid, []).append(record)
    return found


def _has_ended(uid: str, node: NodeView) -> bool:
    pod = node.pods.get(uid)
    return pod is None or (pod.finished and node.now - pod.finished_at >= SANDBOX_SECONDS)


def holders(node: NodeView) -> tuple[Holder, ...]:
    """Return all live pods that hold devices."""
    recorded = _by_pod(node.records)
    found = [_holder(of_pod, node.pods.get(uid)) for uid, of_pod in recorded.items()]
    found += [
        Holder(uid=pod.uid, title=pod.title, devices=annotated_devices(pod))
        for pod in node.pods.values()
        if pod.started and pod.uid not in recorded
    ]
    return tuple(holder for holder in found if is_live(holder.uid, node))


def _holder(records: Sequence[Record], pod: PodView | None) -> Holder:
    """Return a pod with records as a holder.

    If records of its containers are missing, it also holds the other devices of its annotation.
    """
    devices = _accessible_devices(records)
    if pod and pod.started and len(records) < len(pod.requests):
        known = {share.uuid for share in devices}
        devices += tuple(share for share in annotated_devices(pod) if share.uuid not in known)
    return Holder(uid=records[0].uid, title=records[0].title, devices=devices)


def _accessible_devices(records: Iterable[Record]) -> tuple[DeviceShare, ...]:
    """Return the devices that containers of a pod have or can open, each device once.

    A container can open its peers' GPUs, so it holds them too, even before the peers start.
    """
    found = [share for record in records for share in (*record.devices, *record.peers)]
    return tuple({share.uuid: share for share in found}.values())


def obstacle(uid: str, wanted: Iterable[DeviceShare], node: NodeView) -> Obstacle | None:
    """Return the obstacle to giving pod `uid` these devices now; None if there is none.

    A whole GPU has one holder. Shares of one GPU may sum up to 100 percent and to its memory. A
    GPU never has shares and a whole holder at the same time.
    """
    others = [holder for holder in holders(node) if holder.uid != uid]
    found = [each for share in wanted if (each := _conflict(share, others, node.devices))]
    if not found:
        return None
    return Obstacle(
        reason="; ".join(each.reason for each in found),
        pods=tuple(sorted({title for each in found for title in each.pods})),
    )


def _conflict(
    wanted: DeviceShare, others: Iterable[Holder], devices: Mapping[str, GpuDevice]
) -> Obstacle | None:
    sharing = [
        (holder, held) for holder in others for held in holder.devices if held.uuid == wanted.uuid
    ]
    if not sharing:
        return None
    reason = _conflict_reason(
        wanted, [held for _, held in sharing], devices[wanted.uuid].memory_mib
    )
    titles = tuple(sorted({holder.title for holder, _ in sharing}))
    return Obstacle(reason, titles) if reason else None


def _conflict_reason(wanted: DeviceShare, held: list[DeviceShare], memory_mib: int) -> str:
    """Return why a device that other pods hold has not enough left; empty if it has."""
    if wanted.whole or any(share.whole for share in held):
        return f"device {wanted.uuid} is held by another pod"
    if any(_isolation_group(share) != _isolation_group(wanted) for share in held):
        return f"other pods have shares of device {wanted.uuid} that cannot run with this one"
    percent = sum(share.percent for share in held)
    if percent + wanted.percent > WHOLE_PERCENT:
        return (
            f"{percent}% of device {wanted.uuid} is held by other pods; {wanted.percent}% requested"
        )
    memory = sum(share.memory_mib for share in held)
    if memory + wanted.memory_mib > memory_mib:
        return (
            f"{memory} MiB of {memory_mib} MiB of device {wanted.uuid} are held by other pods; "
            f"{wanted.memory_mib} MiB requested"
        )
    return ""


def _isolation_group(share: DeviceShare) -> tuple[str, str]:
    return share.isolation, share.exclusive_to_namespace


def annotated_devices(pod: PodView) -> tuple[DeviceShare, ...]:
    """Return the devices of a pod's annotation; none if the annotation is invalid or missing."""
    try:
        return decode_devices(pod.annotation or "")
    except DevicesAnnotationInvalid:
        return ()
