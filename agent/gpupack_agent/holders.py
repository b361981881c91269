# SPDX-License-Identifier: Apache-2.0
"""Who holds which device on this node, and who stands in the way of a container start. Pure.

A pod holds devices from the moment we wrote its CDI spec, which is the record of it, until it is
dead. It is dead when

* the API shows it finished, or does not know it any more (deleted, perhaps by force), and
* no process is left in its cgroup.

The folder of the cgroup says nothing: the kubelet removes it seconds after the pod is gone. While a
pod can still come back to life its sandbox runs, and that is a process too.

A pod that is bound but never passed through us holds nothing yet: if the scheduler ever gave one
device to two pods, the first to start wins and the other is told who has it. The exception is a pod
that the API shows as started although a container of it has no record: the record may be lost, the
hold is not. Then the pod holds all of its annotation.

A pod with several containers has a record of each. Its devices stay its own until all of it is
dead, as the kubelet keeps the tickets of a container that has ended until its pod has.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence

from gpupack_agent.cgroups import CgroupState
from gpupack_agent.pods import PodView
from gpupack_crds.devices import WHOLE_PERCENT, DeviceShare, decode_devices
from gpupack_crds.errors import DevicesAnnotationInvalid
from gpupack_crds.gpunode import GpuDevice, GpuHolder

SANDBOX_SECONDS = 5.0
"""The kubelet takes one or two to end the sandbox of a pod that has finished."""


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """What a container was given: the content of its CDI spec.

    Attributes:
        cdi_name: the CDI device, named after the tickets.
        tickets: ids that the kubelet handed out.
        peers: devices of other workers in the same pod, which it can open for NVLink.
        gang: whose pods on this node have one /dev/shm; empty: the pod has its own.
        memory_of: UID of the pod whose /dev/shm it has, which may be this one; empty: no gang.
    """

    cdi_name: str
    tickets: frozenset[str]
    uid: str
    namespace: str
    name: str
    container: str
    devices: tuple[DeviceShare, ...]
    peers: tuple[DeviceShare, ...] = ()
    gang: str = ""
    memory_of: str = ""

    @property
    def title(self) -> str:
        """How messages name the pod."""
        return f"{self.namespace}/{self.name}"


@dataclasses.dataclass(frozen=True, slots=True)
class Holder:
    """A live pod and what it holds."""

    uid: str
    title: str
    devices: tuple[DeviceShare, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Obstacle:
    """What stands in the way of a container.

    Attributes:
        reason: without names: a tenant reads it.
        pods: titles of those who hold what is wanted, for the log.
    """

    reason: str
    pods: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class NodeView:
    """Everything that the agent knows at one moment; `now` is of the monotonic clock, seconds."""

    records: tuple[Record, ...]
    pods: Mapping[str, PodView]
    cgroup: Callable[[str], CgroupState]
    devices: Mapping[str, GpuDevice]
    now: float = 0.0


def is_live(uid: str, node: NodeView) -> bool:
    """Whether a pod may still have a process on this node."""
    pod = node.pods.get(uid)
    awaited = pod is not None and not pod.finished
    return awaited or node.cgroup(uid) is CgroupState.POPULATED


def live_records(node: NodeView) -> tuple[Record, ...]:
    """The records of pods that are not dead."""
    return tuple(record for record in node.records if is_live(record.uid, node))


def lingering(node: NodeView) -> tuple[GpuHolder, ...]:
    """Pods that are over for the API and not for the node: their processes still run.

    They were deleted by force, or are called finished, as by who gives up a node whose kubelet is
    dead. A pod that ends in the normal way leaves a process for a moment, too: the one of its
    sandbox. It is not listed before SANDBOX_SECONDS are over.
    """
    over = [record for record in live_records(node) if _is_over(record.uid, node)]
    return tuple(
        GpuHolder(
            namespace=theirs[0].namespace,
            name=theirs[0].name,
            uid=uid,
            devices=_opened(theirs),
        )
        for uid, theirs in sorted(_by_pod(over).items())
    )


def _by_pod(records: Iterable[Record]) -> dict[str, list[Record]]:
    """Group records by the UIDs of their pods, in an order that does not change."""
    found: dict[str, list[Record]] = {}
    for record in sorted(records, key=lambda record: record.cdi_name):
        found.setdefault(record.uid, []).append(record)
    return found


def _is_over(uid: str, node: NodeView) -> bool:
    pod = node.pods.get(uid)
    return pod is None or (pod.finished and node.now - pod.finished_at >= SANDBOX_SECONDS)


def holders(node: NodeView) -> tuple[Holder, ...]:
    """All live pods that hold devices."""
    recorded = _by_pod(node.records)
    found = [_holder(theirs, node.pods.get(uid)) for uid, theirs in recorded.items()]
    found += [
        Holder(uid=pod.uid, title=pod.title, devices=annotated(pod))
        for pod in node.pods.values()
        if pod.started and pod.uid not in recorded
    ]
    return tuple(holder for holder in found if is_live(holder.uid, node))


def _holder(records: Sequence[Record], pod: PodView | None) -> Holder:
    """A pod with records; where some are missing it holds what its annotation adds, too."""
    devices = _opened(records)
    if pod and pod.started and len(records) < len(pod.asks):
        known = {share.uuid for share in devices}
        devices += tuple(share for share in annotated(pod) if share.uuid not in known)
    return Holder(uid=records[0].uid, title=records[0].title, devices=devices)


def _opened(records: Iterable[Record]) -> tuple[DeviceShare, ...]:
    """Return what containers of a pod have or can open, each device once.

    A container can open its peers' GPUs, so it holds them too, whether or not these have started.
    """
    found = [share for record in records for share in (*record.devices, *record.peers)]
    return tuple({share.uuid: share for share in found}.values())


def obstacle(uid: str, wanted: Iterable[DeviceShare], node: NodeView) -> Obstacle | None:
    """Say why pod `uid` cannot have these devices now; None when it can.

    Whole GPUs are shared with nobody; shares of one GPU may sum up to 100 percent and to its
    memory, and never stand beside a whole one.
    """
    others = [holder for holder in holders(node) if holder.uid != uid]
    found = [each for share in wanted if (each := _blocked(share, others, node.devices))]
    if not found:
        return None
    return Obstacle(
        reason="; ".join(each.reason for each in found),
        pods=tuple(sorted({title for each in found for title in each.pods})),
    )


def _blocked(
    wanted: DeviceShare, others: Iterable[Holder], devices: Mapping[str, GpuDevice]
) -> Obstacle | None:
    beside = [
        (holder, held) for holder in others for held in holder.devices if held.uuid == wanted.uuid
    ]
    if not beside:
        return None
    reason = _excess(wanted, [held for _, held in beside], devices[wanted.uuid].memory_mib)
    titles = tuple(sorted({holder.title for holder, _ in beside}))
    return Obstacle(reason, titles) if reason else None


def _excess(wanted: DeviceShare, held: list[DeviceShare], memory_mib: int) -> str:
    """What would be too much of a device that others hold like this; empty where nothing is."""
    if wanted.whole or any(share.whole for share in held):
        return f"device {wanted.uuid} is held by another pod"
    if any(_kept_apart(share) != _kept_apart(wanted) for share in held):
        return f"other pods share device {wanted.uuid}, and their shares do not go with this one"
    percent = sum(share.percent for share in held)
    if percent + wanted.percent > WHOLE_PERCENT:
        return f"{percent}% of device {wanted.uuid} is held by other pods; {wanted.percent}% asked"
    memory = sum(share.memory_mib for share in held)
    if memory + wanted.memory_mib > memory_mib:
        return (
            f"{memory} MiB of {memory_mib} MiB of device {wanted.uuid} are held by other pods; "
            f"{wanted.memory_mib} MiB asked"
        )
    return ""


def _kept_apart(share: DeviceShare) -> tuple[str, str]:
    return share.isolation, share.only_with


def annotated(pod: PodView) -> tuple[DeviceShare, ...]:
    """What a pod's annotation says that it holds; nothing where it cannot be read."""
    try:
        return decode_devices(pod.annotation or "")
    except DevicesAnnotationInvalid:
        return ()
