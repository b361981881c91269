# SPDX-License-Identifier: Apache-2.0
"""One place and who claims it."""

import dataclasses
import enum
import math
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

import gpupack_core as core
from gpupack_crds import devices
from gpupack_scheduling.asks import sharing
from gpupack_scheduling.asks.gpu_ask import MILLI_PER_PERCENT
from gpupack_scheduling.asks.needs import Needs
from gpupack_scheduling.ledger.workers import WorkerKey
from gpupack_scheduling.limits import believed_on_gpu

Tickets = Mapping[str, int]


class State(enum.StrEnum):
    """How a claim came about, which decides how it ends."""

    PLANNED = "planned"
    """The plan API answered it. Ends when it is known that nobody wrote it, or becomes written."""
    WRITTEN = "written"
    """It stands in a GPUJob's status. Ends with the attempt."""
    ASSUMED = "assumed"
    """filter answered it. Ends at its deadline, or becomes binding."""
    BINDING = "binding"
    """A Binding is on its way. Ends when it is known what became of it."""
    UNANSWERED = "unanswered"
    """A Binding was sent and not answered. Ends when it is known what became of it."""
    LANDED = "landed"
    """The Binding was written; the watch has not shown it yet."""
    BOUND = "bound"
    """The API shows the pod bound. Ends when the pod is terminal or gone."""
    FINISHED = "finished"
    """The API calls the pod finished while its kubelet has not said that its containers ended. Ends
    at its deadline: by then the node's agent has listed the pod, if processes of it still run."""


@dataclasses.dataclass(frozen=True, slots=True)
class Allocation:
    """What is held on a node.

    `tickets`: what the kubelet counts there beyond the devices of the placement, by resource name.
    They are all that is known of a pod's GPUs where another device plugin hands them out, or where
    somebody else bound the pod.
    """

    placement: core.Placement
    tickets: Tickets = dataclasses.field(default_factory=dict)

    @property
    def node(self) -> core.NodeName:
        """Where it is."""
        return self.placement.node


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WorkerClaim:
    """The place of a worker, planned or written."""

    worker: WorkerKey
    allocation: Allocation
    state: State
    since: float = 0.0
    """When the plan API last answered it, ledger's clock, seconds."""
    deadline: float = math.inf
    """Of a planned claim: by then it should be written. Ledger's clock, seconds."""
    version: str = ""
    """Of a planned claim: the GPUJob's resourceVersion, the precondition of the write that makes it
    written; empty: not known."""
    pod_index: int | None = None
    """Of a written claim: index of the first worker of the pod in which the worker runs with
    others; None: it has a pod to itself."""

    @property
    def pod(self) -> WorkerKey:
        """The worker whose labels the worker's pod has: the first of those that run in it."""
        return self.worker if self.pod_index is None else self.worker.peer(self.pod_index)

    @property
    def placement(self) -> core.Placement:
        """The node, and the devices that are known."""
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
    """Ledger's clock, seconds; of an assumed claim, or of a finished pod's."""
    since: float = 0.0
    """When the claim came into its state, ledger's clock."""
    may_have_landed: bool = False
    """A Binding was sent earlier and not answered: it may still land."""
    priority: int = 0
    created: float = 0.0
    """Of the pod, seconds since the epoch."""
    leaves: bool = False
    """It is being deleted."""
    begun: float | None = None
    """When its kubelet took it, likewise."""

    @property
    def placement(self) -> core.Placement:
        """The node, and the devices that are known."""
        return self.allocation.placement


def together(parts: Sequence[Allocation]) -> Allocation:
    """Add up what the workers of one pod hold, on one node and in their order; one at least."""
    if len(parts) == 1:
        return parts[0]
    placed = [part.placement for part in parts]
    extended, tickets = Counter[str](), Counter[str]()
    for part in parts:
        extended.update(dict(part.placement.extended))
        tickets.update(part.tickets)
    placement = core.Placement(
        placed[0].node,
        tuple(grant for each in placed for grant in each.devices),
        core.MilliCpu(sum(each.cpu for each in placed)),
        core.MiB(sum(each.memory for each in placed)),
        1,
        core.amounts(extended),
    )
    return Allocation(placement, dict(tickets))


def shares(placement: core.Placement) -> tuple[devices.DeviceShare, ...]:
    """A placement's devices as annotation and status spell them."""
    return tuple(map(_share, placement.devices))


def _share(grant: core.Grant) -> devices.DeviceShare:
    isolation, only_with = sharing.held_as(grant.group)
    return devices.DeviceShare(
        uuid=grant.uuid,
        percent=grant.milli // MILLI_PER_PERCENT,
        memory_mib=grant.memory,
        isolation=isolation,
        only_with=only_with,
    )


def believed(held: tuple[devices.DeviceShare, ...]) -> tuple[devices.DeviceShare, ...]:
    """Devices that a status names, each once and no larger than any GPU, whoever wrote it.

    To leave out what cannot be right would give the device away.
    """
    once = {share.uuid: share for share in held}
    return tuple(
        msgspec.structs.replace(share, memory_mib=believed_on_gpu(core.MiB(share.memory_mib)))
        for share in once.values()
    )


def placement(
    node: str,
    held: tuple[devices.DeviceShare, ...],
    *,
    needs: Needs,
    pods: int = 1,
) -> core.Placement:
    """Devices as annotation and status spell them, as a placement."""
    grants = tuple(
        core.Grant(
            core.DeviceUuid(share.uuid),
            core.MilliGpu(share.percent * MILLI_PER_PERCENT),
            core.MiB(share.memory_mib),
            sharing.group_of(share),
        )
        for share in held
    )
    return core.Placement(
        core.NodeName(node), grants, needs.cpu, needs.memory, pods, needs.extended
    )
