# SPDX-License-Identifier: Apache-2.0
"""Input and output types of a decision."""

import dataclasses
import datetime as dt
from collections.abc import Mapping
from typing import Literal

from gpupack_crds.gpujob_status import (
    GpuJobStatus,
    Preemption,
    PreemptionReason,
    RunLimit,
)
from gpupack_crds.kinds import GpuJob
from gpupack_crds.placement import NodePlacement
from gpupack_crds.plan import GpuShortage
from gpupack_kubeclient.objects import Job, Pod
from gpupack_operator.decision.nodes import NodesAction, NodesAnswer, ObservedRequest, Provisioning
from gpupack_operator.decision.planned_pods import PlannedPods
from gpupack_operator.decision.reasons import JobReason

CREATED_PER_SECOND = 20
"""Pods that kube-controller-manager creates, by its default --kube-api-qps."""


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """Time limits after which the operator ends an attempt.

    Attributes:
        create_seconds: from the Job controller's start, or the last pod that it created, until
            there are pods for all workers.
        bind_seconds: from admission until all workers are bound, without the time for their number.
        bind_workers_per_second: for each such number of workers a second is added.
            kube-controller-manager creates 20 pods a second (--kube-api-qps), kube-scheduler binds
            10 to 100.
        start_seconds: from a pod's binding until its containers can be created.
        image_seconds: from a pod's binding until its image can be pulled. Both times start again
            when an init container ends.
        avoid_seconds: how long after an attempt failed on a node the next attempts prefer other
            nodes.
    """

    create_seconds: float = 10
    bind_seconds: float = 60
    bind_workers_per_second: int = 10
    start_seconds: float = 60
    image_seconds: float = 120
    avoid_seconds: float = 600

    def create_seconds_of(self, workers: int) -> float:
        """Return how long to wait for the next of so many workers' pods since the last was created.

        kube-controller-manager pauses after each 500 pods, and for a change of its leader, which is
        the likelier the longer it creates.
        """
        return self.create_seconds + workers // CREATED_PER_SECOND

    def bind_seconds_of(self, workers: int) -> float:
        """Return how long the binding of so many workers may take from admission."""
        return self.bind_seconds + workers // self.bind_workers_per_second


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """Plan: a place for every worker.

    Attributes:
        placement: the placement, as in the status.
        seconds: how long the places are certainly held; by then they must be written.
        priority: the priority with which the places were given.
        planned_pods: the pods of the request; None: that of the template.
        shares_pods: whether workers on one node share a pod.
        separate: why each worker has its own pod, if the spec leaves it open and they could share.
    """

    placement: tuple[NodePlacement, ...]
    seconds: float
    priority: int = 0
    planned_pods: PlannedPods = dataclasses.field(default_factory=dict)
    shares_pods: bool = False
    separate: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class PlanPending:
    """Answer that the job waits in the queue, which notifies the operator when it can be admitted.

    Attributes:
        reason: the extender's reason.
        lasting: the extender's message without its position and without times.
        position: the position in the queue, 1 for the first; 0: it is not known.
        preemption: the victims that are preempted for it.
        seconds: how long that certainly stays valid; by then it must be written.
        gpu_shortage: set if the job lacks only free GPUs.
        queued: False: the job is not in the queue; the message says why.
        planned_pods: the pods with which its workers are queued; None: that of the template.
    """

    reason: str
    message: str
    lasting: str = ""
    position: int = 0
    preemption: Preemption | None = None
    seconds: float | None = None
    gpu_shortage: GpuShortage | None = None
    queued: bool = True
    planned_pods: PlannedPods = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class NoPlan:
    """Failure to get a plan: it could not be requested, or there was no answer.

    Attributes:
        reason: the cause.
        message: the cause in a sentence.
        permanent: the job's request cannot be read; no plan will ever be made.
        retry_seconds: when a new request may get another answer; None: soon, then later each time.
    """

    reason: str
    message: str
    permanent: bool = False
    retry_seconds: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class PlannerBusy:
    """Answer that another job is being planned now."""


@dataclasses.dataclass(frozen=True, slots=True)
class CreationFailure:
    """Refusal of an attempt's Service or Job by the API server.

    Attributes:
        reason: the typed cause.
        message: the API server's message.
        permanent: the object is invalid and will never be accepted.
    """

    reason: JobReason
    message: str
    permanent: bool


@dataclasses.dataclass(frozen=True, slots=True)
class GrowthPlan:
    """Places for more workers of the attempt.

    Attributes:
        placement: the placement of all its workers, as the status will have it.
        seconds: how long the new places are certainly held; by then they must be written.
    """

    placement: tuple[NodePlacement, ...]
    seconds: float


@dataclasses.dataclass(frozen=True, slots=True)
class NoGrowth:
    """Answer that there are no places for more workers, or no answer."""


@dataclasses.dataclass(frozen=True, slots=True)
class ExtraWorkerCreationFailure:
    """Refusal of an extra worker's Job by the API server.

    Attributes:
        reason: the typed cause.
        message: the API server's message.
    """

    reason: JobReason
    message: str


@dataclasses.dataclass(frozen=True, slots=True)
class NameInUse:
    """Answer that a child's name is in use by an object that is being deleted."""


Answer = (
    Plan
    | PlanPending
    | NoPlan
    | PlannerBusy
    | CreationFailure
    | NameInUse
    | NodesAnswer
    | GrowthPlan
    | NoGrowth
    | ExtraWorkerCreationFailure
)
"""Result of the action of an earlier step of the same pass."""


@dataclasses.dataclass(frozen=True, slots=True)
class AttemptPreemption:
    """Request that the attempt end for another GPUJob, a pod, a reservation or its node's state.

    Attributes:
        reason: the preemption policy that applied.
        preemptor: the preemptor's namespace and name.
        kind: the preemptor's kind; node: it is in maintenance, or a GPU of it failed.
        why: the administrator's reason for the maintenance, or the GPU and how it failed.
    """

    reason: PreemptionReason
    preemptor: tuple[str, str]
    kind: Literal["GPUJob", "pod", "reservation", "node"] = "GPUJob"
    why: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class AttemptMove:
    """Request that the attempt end and start again on another node.

    Attributes:
        node: the node that it leaves.
        why: the administrator's reason, or the job for which a consolidation frees GPUs.
        until: the time by which the move must be written; after it the request is void.
        preemption: what the status will say, including where its new places are reserved.
    """

    node: str
    why: str
    until: dt.datetime
    preemption: Preemption


@dataclasses.dataclass(frozen=True, slots=True)
class WaitMessage:
    """Explanation in the status why the job waits, if this operator wrote it.

    Attributes:
        at: when it was written.
        lasting: as in `PlanPending`; the message itself if it came from another answer.
        position: as in `PlanPending`.
    """

    at: dt.datetime
    lasting: str = ""
    position: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Observation:
    """Input of a decision.

    Attributes:
        job: the GPUJob.
        jobs: its Jobs, of any attempt. If one of the current attempt is missing, that was
            confirmed.
        pods: its pods, of any attempt.
        silent_nodes: of the nodes whose pods are overdue, those that report nothing at all.
        now: the time.
        limits: limits of time.
        pull_secrets: pull secrets of its pods by the chart's values; None: no image is gpupack's.
        request_failures: number of consecutive requests for a plan that failed or had no answer.
        next_request_at: until then no plan is requested, because the queue knows the job as it is.
        wait_message: why the job waits, by its status; None: another operator wrote it.
        preemption: for what the current attempt must end.
        move: where the current attempt will continue.
        provisioning: how nodes are requested; None: not at all.
        nodes: the current state of the open request for nodes; None: it was not read.
        extra_preemptions: the attempt's extra workers that must end, by index, with the reason.
        may_grow: whether places are held for more workers of the attempt.
        cliques: by node of the placement: NVLink cliques by GPU; nodes without NVLink are omitted.
        run_limit: maximum run time by the job's cohort; None: there is none.
        answer: the answer to an action earlier in this pass.
    """

    job: GpuJob
    jobs: tuple[Job, ...]
    pods: tuple[Pod, ...]
    now: dt.datetime
    limits: Limits = Limits()
    pull_secrets: tuple[str, ...] | None = None
    silent_nodes: frozenset[str] = frozenset()
    request_failures: int = 0
    next_request_at: dt.datetime | None = None
    wait_message: WaitMessage | None = None
    preemption: AttemptPreemption | None = None
    move: AttemptMove | None = None
    provisioning: Provisioning | None = None
    nodes: ObservedRequest | None = None
    extra_preemptions: Mapping[int, AttemptPreemption] = dataclasses.field(default_factory=dict)
    may_grow: bool = False
    cliques: Mapping[str, Mapping[str, int]] = dataclasses.field(default_factory=dict)
    run_limit: RunLimit | None = None
    answer: Answer | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class RequestPlan:
    """Request to the plan API for places for all workers of an attempt.

    Attributes:
        attempt: the attempt's number.
        avoid: nodes to use only if the attempt fits on no others.
        separate: why earlier attempts require a pod for each worker; empty: workers may share.
    """

    attempt: int
    avoid: tuple[str, ...] = ()
    separate: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class RequestGrowth:
    """Request to the plan API for the places of all workers of an attempt that runs."""

    attempt: int


@dataclasses.dataclass(frozen=True, slots=True)
class CreateExtraWorker:
    """Creation of the Job of an extra worker.

    Attributes:
        attempt: the attempt's number.
        worker: the worker's index.
        node: the planned node.
    """

    attempt: int
    worker: int
    node: str


@dataclasses.dataclass(frozen=True, slots=True)
class CreateChildren:
    """Creation of the Service and the Jobs of an attempt."""

    attempt: int
    deadline_seconds: int | None


@dataclasses.dataclass(frozen=True, slots=True)
class DeleteJob:
    """Deletion of a Job, its pods, and the key of its attempt."""

    name: str
    uid: str
    attempt: int


@dataclasses.dataclass(frozen=True, slots=True)
class StopJob:
    """Stop of a Job's running pods; the others stay, for their logs."""

    name: str


@dataclasses.dataclass(frozen=True, slots=True)
class EndPod:
    """End of all containers of a pod, which stays for their logs."""

    name: str
    uid: str


@dataclasses.dataclass(frozen=True, slots=True)
class SetDeadline:
    """Update of a Job's own deadline to that of an edited GPUJob."""

    name: str
    seconds: int | None


@dataclasses.dataclass(frozen=True, slots=True)
class DeleteGpuJob:
    """Deletion of a GPUJob whose time to live after its end is over."""


Patch = DeleteJob | StopJob | EndPod | SetDeadline
"""Actions without an answer, so the order of several does not matter."""

ApiWrite = CreateChildren | CreateExtraWorker | Patch | DeleteGpuJob
"""Writes to the API server."""

Action = RequestPlan | RequestGrowth | ApiWrite | NodesAction


@dataclasses.dataclass(frozen=True, slots=True)
class LogSource:
    """Log of a worker.

    Attributes:
        worker: the worker's index.
        pod: the name of its pod.
        container: the container that has the GPUs.
    """

    worker: int
    pod: str
    container: str


@dataclasses.dataclass(frozen=True, slots=True)
class SaveLogs:
    """Request to save the last lines of workers whose pods are about to be deleted.

    Attributes:
        attempt: the attempt's number.
        sources: the workers' logs.
        waits: whether other actions wait until the logs are open.
    """

    attempt: int
    sources: tuple[LogSource, ...]
    waits: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class Decision:
    """Output of a decision: write the status, save logs, then act, then look again.

    Attributes:
        status: the status that the GPUJob should have, written first and only if it differs.
        actions: the actions, in order.
        again_at: when to look again even if nothing happens; None: only when something does.
        logs: logs to save before pods are deleted.
    """

    status: GpuJobStatus
    actions: tuple[Action, ...] = ()
    again_at: dt.datetime | None = None
    logs: SaveLogs | None = None
