# SPDX-License-Identifier: Apache-2.0
"""One place and its claimant."""

import dataclasses
import enum
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Self

import msgspec

from gpupack_crds import devices
from gpupack_placement import (
    DeviceUuid,
    Grant,
    MiB,
    MilliCpu,
    MilliGpu,
    NodeName,
    Placement,
    amounts,
)
from gpupack_queue import NO_USER, User
from gpupack_scheduler.ledger.workers import WorkerKey
from gpupack_scheduler.limits import believed_on_gpu
from gpupack_scheduler.requests import sharing
from gpupack_scheduler.requests.gpu_request import MILLI_PER_PERCENT
from gpupack_scheduler.requests.needs import Needs
from gpupack_scheduler.requests.pod_groups import GangKey, GroupKey, Membership
from gpupack_scheduler.requests.pod_request import PodRequest

DeviceTokens = Mapping[str, int]


class State(enum.StrEnum):
    """The origin of a claim, which determines how it ends."""

    PLANNED = "planned"
    """The plan API returned the place. It ends when known to be unwritten, or becomes written."""
    WRITTEN = "written"
    """The place is in a GPUJob's status. It ends with the attempt."""
    ASSUMED = "assumed"
    """filter returned the place. It ends at its deadline, or becomes binding."""
    BINDING = "binding"
    """A Binding is being sent. The state ends when its result is known."""
    UNANSWERED = "unanswered"
    """A Binding was sent and not answered. The state ends when its result is known."""
    LANDED = "landed"
    """The Binding was written; the watch has not shown it yet."""
    BOUND = "bound"
    """The API shows the pod bound. The claim ends when the pod is terminal or gone."""
    FINISHED = "finished"
    """The API shows the pod as finished, and its kubelet has not reported the end of its
    containers. The claim ends at its deadline: by then the node's agent has listed the pod, if
    processes of it still run."""


@dataclasses.dataclass(frozen=True, slots=True)
class Allocation:
    """Resources that are held on a node.

    `tickets`: the number of GPUs that the kubelet counts there beyond the devices of the placement,
    by resource name. Nothing else is known of a pod's GPUs where another device plugin hands them
    out, or where another scheduler bound the pod.
    """

    placement: Placement
    tokens: DeviceTokens = dataclasses.field(default_factory=dict)

    @property
    def node(self) -> NodeName:
        """Return the node of the placement."""
        return self.placement.node


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WorkerClaim:
    """The place of a worker, planned or written."""

    worker: WorkerKey
    allocation: Allocation
    state: State
    since: float = 0.0
    """Time at which the plan API last returned the claim; ledger's clock, seconds."""
    deadline: float = math.inf
    """Time by which a planned claim should be written; ledger's clock, seconds."""
    version: str = ""
    """The GPUJob's resourceVersion of a planned claim, the precondition of the write that makes it
    written; empty: not known."""
    pod_index: int | None = None
    """Index of the first worker of the pod, for a written claim of a worker that shares its pod;
    None: the worker has a pod to itself."""

    @property
    def pod(self) -> WorkerKey:
        """Return the first worker of this worker's pod, whose labels the pod has."""
        return self.worker if self.pod_index is None else self.worker.peer(self.pod_index)

    @property
    def placement(self) -> Placement:
        """Return the node, and the devices that are known."""
        return self.allocation.placement


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PodClaim:
    """The place of a pod."""

    uid: str
    namespace: str
    name: str
    allocation: Allocation
    state: State
    worker: WorkerKey | None = None
    deadline: float = math.inf
    """Deadline of an assumed claim or of a finished pod's claim; ledger's clock, seconds."""
    since: float = 0.0
    """Time at which the claim came into its state; ledger's clock."""
    may_have_landed: bool = False
    """True if a Binding was sent earlier and not answered: it may still land."""
    priority: int = 0
    created: float = 0.0
    """Creation time of the pod, seconds since the epoch."""
    duration: float | None = None
    """Seconds that the pod runs at most; infinity: it has no end; None: unknown."""
    grace: float = 0.0
    """Seconds that the pod may take to end."""
    user: User = NO_USER
    """The user that created the pod; empty: unknown."""
    leaves: bool = False
    """True if the pod is being deleted."""
    begun: float | None = None
    """Time at which the kubelet accepted the pod, seconds since the epoch."""
    checkpointed: float | None = None
    """Time at which the pod last saved its work, by its annotation, seconds since the epoch."""
    reservation: str | None = None
    """Name of the time-window reservation that the pod may use, by its annotation."""
    member: Membership | None = None
    """The gang of a pod group that the pod belongs to; None: it is no member."""

    @classmethod
    def of(
        cls,
        ask: PodRequest,
        allocation: Allocation,
        state: State,
        *,
        begun: float | None = None,
        checkpointed: float | None = None,
        leaves: bool = False,
    ) -> Self:
        """Return the claim of a pod on what it holds."""
        return cls(
            uid=ask.uid,
            namespace=ask.namespace,
            name=ask.name,
            allocation=allocation,
            state=state,
            worker=ask.worker,
            priority=ask.priority,
            created=ask.created,
            duration=ask.duration,
            grace=ask.grace,
            user=ask.user,
            reservation=ask.reservation,
            member=ask.member,
            begun=begun,
            checkpointed=checkpointed,
            leaves=leaves,
        )

    @property
    def placement(self) -> Placement:
        """Return the node, and the devices that are known."""
        return self.allocation.placement

    @property
    def gang(self) -> GangKey | None:
        """Return the gang of a pod group that it belongs to; None: it is no member."""
        if self.member is None or self.worker is not None:
            return None
        group = GroupKey(self.namespace, self.member.source, self.member.name)
        return GangKey(group, self.member.gang)


def together(parts: Sequence[Allocation]) -> Allocation:
    """Add up what the workers of one pod hold, on one node, in their order; at least one part."""
    if len(parts) == 1:
        return parts[0]
    placed = [part.placement for part in parts]
    extended, tickets = Counter[str](), Counter[str]()
    for part in parts:
        extended.update(dict(part.placement.extended))
        tickets.update(part.tokens)
    placement = Placement(
        placed[0].node,
        tuple(grant for each in placed for grant in each.devices),
        MilliCpu(sum(each.cpu for each in placed)),
        MiB(sum(each.memory for each in placed)),
        1,
        amounts(extended),
    )
    return Allocation(placement, dict(tickets))


def shares(placement: Placement) -> tuple[devices.DeviceShare, ...]:
    """Convert a placement's devices into their form in annotation and status."""
    return tuple(map(_share, placement.devices))


def _share(grant: Grant) -> devices.DeviceShare:
    isolation, exclusive_to_namespace = sharing.held_as(grant.group)
    return devices.DeviceShare(
        uuid=grant.uuid,
        percent=grant.milli // MILLI_PER_PERCENT,
        memory_mib=grant.memory,
        isolation=isolation,
        exclusive_to_namespace=exclusive_to_namespace,
    )


def believed(held: tuple[devices.DeviceShare, ...]) -> tuple[devices.DeviceShare, ...]:
    """Return the devices of a status, each once and no larger than any GPU.

    The status may be wrong. To omit an implausible device would give the device away.
    """
    once = {share.uuid: share for share in held}
    return tuple(
        msgspec.structs.replace(share, memory_mib=believed_on_gpu(MiB(share.memory_mib)))
        for share in once.values()
    )


def placement(
    node: str,
    held: tuple[devices.DeviceShare, ...],
    *,
    needs: Needs,
    pods: int = 1,
) -> Placement:
    """Convert devices from annotation or status into a placement."""
    grants = tuple(
        Grant(
            DeviceUuid(share.uuid),
            MilliGpu(share.percent * MILLI_PER_PERCENT),
            MiB(share.memory_mib),
            sharing.group_of(share),
        )
        for share in held
    )
    return Placement(NodeName(node), grants, needs.cpu, needs.memory, pods, needs.extended)
