# SPDX-License-Identifier: Apache-2.0
"""The vocabulary: what goes into a decision and what comes out."""

import dataclasses
import datetime as dt
from collections.abc import Mapping
from typing import Literal

from gpupack_crds.gpujob_status import GpuJobStatus, Ground, PlannedPod, Preemption
from gpupack_crds.kinds import GpuJob
from gpupack_crds.placement import NodePlacement
from gpupack_crds.plan import LacksRoom
from gpupack_kube.objects import Job, Pod
from gpupack_operator.decision.nodes import NodesAction, NodesAnswer, Provisioning, SeenRequest
from gpupack_operator.decision.reasons import JobReason

CREATED_PER_SECOND = 20
"""Pods, by kube-controller-manager's default --kube-api-qps."""


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """How long the operator waits before it gives an attempt up.

    Attributes:
        create_seconds: since the Job controller began, or last created a pod, until there are pods
            for all workers.
        bind_seconds: from admission until all workers are bound, for a gang of no size.
        bind_workers_per_second: for every so many workers a second is added. 20 pods a second are
            what kube-controller-manager creates (--kube-api-qps), kube-scheduler binds 10 to 100.
        start_seconds: from a pod's binding until its containers can be created.
        image_seconds: from a pod's binding until its image can be pulled. Both begin anew when an
            init container ends.
        avoid_seconds: for so long after an attempt broke on a node the next ones rather go
            elsewhere.
    """

    create_seconds: float = 10
    bind_seconds: float = 60
    bind_workers_per_second: int = 10
    start_seconds: float = 60
    image_seconds: float = 120
    avoid_seconds: float = 600

    def create_seconds_of(self, workers: int) -> float:
        """Since the last pod was created until the others of so many are given up.

        kube-controller-manager pauses after each 500 pods, and for a change of its leader, which is
        the likelier the longer it creates.
        """
        return self.create_seconds + workers // CREATED_PER_SECOND

    def bind_seconds_of(self, workers: int) -> float:
        """From admission until all of so many workers are bound."""
        return self.bind_seconds + workers // self.bind_workers_per_second


@dataclasses.dataclass(frozen=True, slots=True)
class Planned:
    """The plan API gave every worker a place.

    Attributes:
        placement: as the status has it.
        seconds: how long the places are still held for certain; by then they must be written.
        priority: by which they were given.
        planned_pod: what they were asked for with; None: the template.
        shares_pods: whether workers on one node share a pod.
        separate: why each has a pod, where the spec leaves it open and they could share.
    """

    placement: tuple[NodePlacement, ...]
    seconds: float
    priority: int = 0
    planned_pod: PlannedPod | None = None
    shares_pods: bool = False
    separate: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Waits:
    """It stands in the extender's queue, which says when its turn has come.

    Attributes:
        reason: the extender's, as is the message.
        lasting: the message without its position and without times.
        position: in the queue, 1 for the first; 0: it is not known.
        preemption: who is stopped for it.
        seconds: how long that still stands for certain; by then it must be written.
        lacks_room: where nothing but room is lacking.
        queued: False: the queue has decided nothing about it, and says when to ask again.
        planned_pod: as which its workers stand in the queue; None: as the template.
    """

    reason: str
    message: str
    lasting: str = ""
    position: int = 0
    preemption: Preemption | None = None
    seconds: float | None = None
    lacks_room: LacksRoom | None = None
    queued: bool = True
    planned_pod: PlannedPod | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class NotPlanned:
    """It could not be asked for, or there was no answer.

    Attributes:
        reason: why.
        message: in a sentence.
        for_good: what the job asks for cannot be read; no plan will ever be made.
        retry_seconds: when asking again may give another answer; None: soon, then later each time.
    """

    reason: str
    message: str
    for_good: bool = False
    retry_seconds: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class PlanLater:
    """Another job is being planned just now."""


@dataclasses.dataclass(frozen=True, slots=True)
class NotCreated:
    """The API server refused the Service or the Job of an attempt.

    Attributes:
        reason: typed cause.
        message: what the API server said.
        for_good: the same object will never be accepted: it is wrong.
    """

    reason: JobReason
    message: str
    for_good: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Grown:
    """More workers of the attempt have places.

    Attributes:
        placement: of all its workers, as the status will have it.
        seconds: how long the new places are still held for certain; by then they must be written.
    """

    placement: tuple[NodePlacement, ...]
    seconds: float


@dataclasses.dataclass(frozen=True, slots=True)
class NotGrown:
    """There are no places of more workers, or no answer."""


@dataclasses.dataclass(frozen=True, slots=True)
class NotCreatedBeside:
    """The API server refused the Job of a worker beyond the least.

    Attributes:
        reason: typed cause.
        message: what the API server said.
    """

    reason: JobReason
    message: str


@dataclasses.dataclass(frozen=True, slots=True)
class NotYet:
    """A child's name is free in a moment: what has it is on its way out."""


Answer = (
    Planned
    | Waits
    | NotPlanned
    | PlanLater
    | NotCreated
    | NotYet
    | NodesAnswer
    | Grown
    | NotGrown
    | NotCreatedBeside
)
"""What came of the action of an earlier step of the same pass."""


@dataclasses.dataclass(frozen=True, slots=True)
class Preempted:
    """The attempt is to end for another GPUJob or a pod of its own, or for what its node is like.

    Attributes:
        ground: with which right.
        beneficiary: namespace and name.
        kind: of the beneficiary; node: it is in maintenance, or a GPU of it failed.
        why: of a maintenance, as the administrator says it; of a GPU, which, and how it failed.
    """

    ground: Ground
    beneficiary: tuple[str, str]
    kind: Literal["GPUJob", "pod", "node"] = "GPUJob"
    why: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Moved:
    """The attempt is to end and start again elsewhere.

    Attributes:
        node: which it leaves.
        why: the administrator's reason; of a consolidation, who has room then.
        until: by then it is to be written, or it is over.
        preemption: what the status is to say: where its places are kept.
    """

    node: str
    why: str
    until: dt.datetime
    preemption: Preemption


@dataclasses.dataclass(frozen=True, slots=True)
class Told:
    """What the status says of why the job waits, where this operator wrote it.

    Attributes:
        at: when that was written.
        lasting: as in `Waits`; the message itself where it is no such answer.
        position: as in `Waits`.
    """

    at: dt.datetime
    lasting: str = ""
    position: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Observation:
    """All that a decision is made from.

    Attributes:
        job: the GPUJob.
        jobs: its Jobs, of any attempt. That any of the current attempt is missing was confirmed.
        pods: its pods, of any attempt.
        silent: of the nodes whose pods are overdue, those that have fallen silent altogether.
        now: the time.
        limits: how long to wait for things.
        pull_secrets: that its pods have by the chart's values; None: no image is of ours.
        refusals: how often in a row it could not ask for a plan, or had no answer.
        asked_until: until then nothing is asked, for the queue knows the job as it is.
        told: what the status says of why the job waits; None: another operator wrote it.
        preempted: for whom the current attempt is to end.
        moved: where the current attempt is to go on.
        provisioning: how nodes are asked for; None: not at all.
        nodes: of the open request for nodes, as it is now; None: it was not looked at.
        shrinks: workers of it that are to end, by index, and for whom.
        grows: places are held for more workers of it.
        cliques: of its placement's nodes, by node: NVLink cliques by GPU; nodes without are left
            out.
        answer: of an action earlier in this pass.
    """

    job: GpuJob
    jobs: tuple[Job, ...]
    pods: tuple[Pod, ...]
    now: dt.datetime
    limits: Limits = Limits()
    pull_secrets: tuple[str, ...] | None = None
    silent: frozenset[str] = frozenset()
    refusals: int = 0
    asked_until: dt.datetime | None = None
    told: Told | None = None
    preempted: Preempted | None = None
    moved: Moved | None = None
    provisioning: Provisioning | None = None
    nodes: SeenRequest | None = None
    shrinks: Mapping[int, Preempted] = dataclasses.field(default_factory=dict)
    grows: bool = False
    cliques: Mapping[str, Mapping[str, int]] = dataclasses.field(default_factory=dict)
    answer: Answer | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class AskPlan:
    """Ask the plan API for places for all workers of an attempt.

    Attributes:
        attempt: its number.
        avoid: nodes to which it goes only if it fits nowhere else.
        separate: why each worker is to have a pod, by the attempts before; empty: they may share.
    """

    attempt: int
    avoid: tuple[str, ...] = ()
    separate: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class AskGrowth:
    """Ask the plan API for the places of all workers of an attempt that runs."""

    attempt: int


@dataclasses.dataclass(frozen=True, slots=True)
class CreateBeside:
    """Create the Job of a worker beyond the least.

    Attributes:
        attempt: its number.
        worker: its index.
        node: where its place is.
    """

    attempt: int
    worker: int
    node: str


@dataclasses.dataclass(frozen=True, slots=True)
class CreateChildren:
    """Create the Service and the Jobs of an attempt."""

    attempt: int
    deadline_seconds: int | None


@dataclasses.dataclass(frozen=True, slots=True)
class DeleteJob:
    """Delete a Job and its pods, and the key of the attempt that it belongs to."""

    name: str
    uid: str
    attempt: int


@dataclasses.dataclass(frozen=True, slots=True)
class StopJob:
    """Stop a Job's running pods and keep the others, for their logs."""

    name: str


@dataclasses.dataclass(frozen=True, slots=True)
class EndPod:
    """End all containers of a pod and keep it, for their logs."""

    name: str
    uid: str


@dataclasses.dataclass(frozen=True, slots=True)
class SetDeadline:
    """Bring a Job's own deadline in line with an edited GPUJob."""

    name: str
    seconds: int | None


@dataclasses.dataclass(frozen=True, slots=True)
class DeleteGpuJob:
    """The time to live after the end is over."""


Patch = DeleteJob | StopJob | EndPod | SetDeadline
"""What has no answer, so that the order of several does not matter."""

ApiWrite = CreateChildren | CreateBeside | Patch | DeleteGpuJob
"""What is written to the API server."""

Action = AskPlan | AskGrowth | ApiWrite | NodesAction


@dataclasses.dataclass(frozen=True, slots=True)
class LogSource:
    """The log of a worker.

    Attributes:
        worker: its index.
        pod: name of its pod.
        container: that has the GPUs.
    """

    worker: int
    pod: str
    container: str


@dataclasses.dataclass(frozen=True, slots=True)
class SaveLogs:
    """Save the last lines of workers whose pods are about to go.

    Attributes:
        attempt: its number.
        sources: their logs.
        waits: until the logs are open nothing else is done.
    """

    attempt: int
    sources: tuple[LogSource, ...]
    waits: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class Decision:
    """What to do: write the status, save logs, then act, then look again.

    Attributes:
        status: the status that the GPUJob should have, written first and only if it differs.
        actions: in order.
        again_at: when to look again even if nothing happens; None: only when something does.
        logs: to save before pods are deleted.
    """

    status: GpuJobStatus
    actions: tuple[Action, ...] = ()
    again_at: dt.datetime | None = None
    logs: SaveLogs | None = None
