# SPDX-License-Identifier: Apache-2.0
"""The messages of the plan API: the operator asks, the extender's queue and ledger answer.

POST /v1beta1/namespaces/NAMESPACE/plan
    PlanRequest ─► 200 PlanResponse: every worker has a place, held for now
                   409 PlanRefusal: not now; it waits in the queue from now on, and nothing is held
                   400, 401, 403, 413, 429, 503 Problem
GET  /v1beta1/turns?queue=ID&number=N
                ─► 200 TurnsResponse: jobs that can be admitted since; waits for the first

The caller is authorized by the path's namespace before a byte of the body is read.
"""

from typing import Annotated

import msgspec

from gpupack_crds.gpujob import MAX_ROLES, GpuJobSpec
from gpupack_crds.gpujob_status import ATTEMPTS_KEPT, Preemption, PreemptionReason
from gpupack_crds.placement import NodePlacement
from gpupack_crds.wire import Timestamp, Wire

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=253)]


class PlanRequest(Wire, frozen=True, forbid_unknown_fields=True):
    """A request for places for all workers of one attempt, or none.

    A repeated request for the same uid and attempt gets the same places while they are held.

    Attributes:
        namespace: the path's namespace.
        spec: the job's spec without its templates; the scheduling part decides.
        pod_spec: the workers' PodSpec as JSON. Its CPU and memory requests, node selector, required
            node affinity and tolerations decide too, so that kube-scheduler's own filters do not
            refuse a plan. Only these parts are decoded. Of a job with roles it is empty.
        role_pods: the PodSpec of each role, in the order of the roles.
        avoid: nodes on which the job failed recently; it goes there only if it fits nowhere else.
        resource_version: the GPUJob's version under which the plan is written. No other version
            accepts the write, so that it is known when a plan can no longer be written.
        held_since: since when the job has the GPUs that are kept for it across its revisions.
        waits_since: since when the job waits for its turn, without time in which it was suspended.
            Its place in the order is by `submitted_at`.
        created_by: the user that created the job; empty: unknown.
        grows: the attempt runs; the request is for the places of its old and new workers. Nothing
            waits where there are none.
    """

    namespace: Name
    name: Name
    uid: Name
    attempt: Annotated[int, msgspec.Meta(ge=1)]
    spec: GpuJobSpec
    pod_spec: msgspec.Raw
    role_pods: Annotated[tuple[msgspec.Raw, ...], msgspec.Meta(max_length=MAX_ROLES)] = ()
    avoid: Annotated[tuple[Name, ...], msgspec.Meta(max_length=ATTEMPTS_KEPT)] = ()
    resource_version: str = ""
    grows: bool = False
    priority: int = 0
    submitted_at: Timestamp | None = None
    waits_since: Timestamp | None = None
    seconds_left: Annotated[float, msgspec.Meta(gt=0)] | None = None
    held_since: Timestamp | None = None
    created_by: str = ""


class PlanResponse(Wire, frozen=True):
    """A plan with a place for every worker."""

    placement: tuple[NodePlacement, ...]
    expires_seconds: float


class GpuShortage(Wire, frozen=True):
    """A job that its quota allows and that lacks free GPUs on the existing nodes.

    Attributes:
        starts_in_seconds: latest start, where there is an estimate.
        quota_gpus: GPUs that the quota allows its namespace beyond its usage; absent: without
            limit.
    """

    starts_in_seconds: float | None = None
    quota_gpus: float | None = None


class PlanRefusal(Wire, frozen=True):
    """The reason why there is no plan now.

    Attributes:
        reason: a typed reason of the queue, such as `BorrowingLimitExceeded`; where GPUs are
            lacking, the reason that most nodes gave, such as `TooFewFreeGpus`.
        message: text for users.
        counts: where GPUs are lacking, nodes by typed reason.
        never: the job would not fit into an empty cluster whose GPUs are all healthy.
        position: position in the queue, 1 for the first.
        waiting: number of pending jobs.
        lasting: the message without its position and without times; empty: it has none.
        preemption: the victims of the job. It has to be written into the GPUJob's status before any
            victim is stopped.
        expires_seconds: time limit for that write.
        lacks_gpus: set where only free GPUs are lacking.
        queued: the job waits in the queue; False: the queue has decided nothing about it, so the
            reservation in its status remains.
    """

    reason: str
    message: str
    counts: dict[str, int] = {}
    never: bool = False
    position: int = 0
    waiting: int = 0
    lasting: str = ""
    preemption: Preemption | None = None
    expires_seconds: float = 0.0
    gpu_shortage: GpuShortage | None = None
    queued: bool = True


class JobName(Wire, frozen=True):
    """A GPUJob by namespace and name."""

    namespace: str
    name: str


class Stop(Wire, frozen=True):
    """An attempt that has to end for a standalone pod, whose annotation names it, or for a window.

    Attributes:
        attempt: UID/NUMBER, or UID/NUMBER+WORKER for one extra worker.
        reason: reason of the preemption.
        namespace: namespace of the pod or of the reservation.
        pod: name of the pod or of the reservation.
    """

    attempt: str
    reason: PreemptionReason
    namespace: str
    pod: str


class Drained(Wire, frozen=True):
    """An attempt that has to end because GPUs of it are in maintenance, or failed.

    Attributes:
        attempt: as in `Stop`.
        node: node of these GPUs.
        why: the administrator's reason; or which GPU failed, and how.
        failed: whether a GPU failed.
    """

    attempt: str
    node: str
    cause: str
    failed: bool = False


class MoveOrder(Wire, frozen=True):
    """An attempt that has to end and restart elsewhere, at places that are reserved for it.

    Attributes:
        attempt: UID/NUMBER.
        node: node that it leaves.
        why: the administrator's reason; for a consolidation, the job that can then start.
        until: deadline for writing it into the GPUJob's status, in the write that ends the attempt;
            after it the order is void.
        preemption: the value to write.
    """

    attempt: str
    node: str
    cause: str
    until: Timestamp
    preemption: Preemption


class TurnsResponse(Wire, frozen=True):
    """The jobs that can be admitted now: each requests its plan, which is held for it.

    Attributes:
        queue: changes whenever the queue restarts.
        number: number of the last turn, for the next request.
        jobs: the jobs in order.
        all_jobs: whether all pending jobs request a plan, because too many turns were missed or
            the queue restarted.
        stops: all attempts that have to end for pods; a change of them is a turn, too.
        drained: attempts that have to end for a maintenance or a failed GPU; a change is a turn,
            too.
        moves: attempts that have to move; a change is a turn, too.
        grows: attempts, as UID/NUMBER, with places held for more workers; a change is a turn, too.
    """

    queue: str
    number: int
    jobs: tuple[JobName, ...] = ()
    all_jobs: bool = False
    stops: tuple[Stop, ...] = ()
    drained: tuple[Drained, ...] = ()
    moves: tuple[MoveOrder, ...] = ()
    grows: tuple[str, ...] = ()


class Problem(Wire, frozen=True):
    """The reason why a call was refused."""

    reason: str
    message: str
