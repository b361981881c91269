# SPDX-License-Identifier: Apache-2.0
"""One place and who claims it."""

import dataclasses
import enum
import math
from collections.abc import Mapping

import msgspec

import gpupack_core as core
from gpupack_crds import devices
from gpupack_extender.gpu_ask import MILLI_PER_PERCENT
from gpupack_extender.ledger.workers import Worker
from gpupack_extender.limits import believed_on_gpu

Tickets = Mapping[str, int]


class State(enum.StrEnum):
    """How a claim came about, which decides how it ends."""

    PLANNED = "planned"
    """The plan API answered it. Ends at its deadline, or becomes written."""
    WRITTEN = "written"
    """It stands in a GPUJob's status. Ends with the attempt."""
    ASSUMED = "assumed"
    """filter answered it. Ends at its deadline, or becomes binding."""
    BINDING = "binding"
    """A Binding is on its way. Ends when it is known what became of it."""
    DOUBTFUL = "doubtful"
    """A Binding was sent and not answered. Ends when it is known what became of it."""
    LANDED = "landed"
    """The Binding was written; the watch has not shown it yet."""
    BOUND = "bound"
    """The API shows the pod bound. Ends when the pod is terminal or gone."""


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
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

    worker: Worker
    place: Place
    state: State
    deadline: float = math.inf
    """Ledger's clock, seconds."""

    @property
    def placement(self) -> core.Placement:
        """The node, and the devices that are known."""
        return self.place.placement


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PodClaim:
    """The place of a pod."""

    uid: str
    namespace: str
    name: str
    place: Place
    state: State
    worker: Worker | None = None
    deadline: float = math.inf
    """Ledger's clock, seconds; of an assumed claim."""
    since: float = 0.0
    """When the claim came into its state, ledger's clock."""
    in_doubt: bool = False
    """A Binding was sent earlier and not answered: it may still land."""

    @property
    def placement(self) -> core.Placement:
        """The node, and the devices that are known."""
        return self.place.placement


def shares(placement: core.Placement) -> tuple[devices.DeviceShare, ...]:
    """A placement's devices as annotation and status spell them."""
    return tuple(
        devices.DeviceShare(
            uuid=grant.uuid, percent=grant.milli // MILLI_PER_PERCENT, memory_mib=grant.memory
        )
        for grant in placement.devices
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
    cpu: core.MilliCpu,
    memory: core.MiB,
) -> core.Placement:
    """Devices as annotation and status spell them, as a placement."""
    grants = tuple(
        core.Grant(
            core.DeviceUuid(share.uuid),
            core.MilliGpu(share.percent * MILLI_PER_PERCENT),
            core.MiB(share.memory_mib),
        )
        for share in held
    )
    return core.Placement(core.NodeName(node), grants, cpu, memory)
