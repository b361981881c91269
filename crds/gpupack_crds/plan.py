# SPDX-License-Identifier: Apache-2.0
"""The messages of the plan API: the operator asks, the extender's queue and ledger answer.

POST /v1alpha1/namespaces/NAMESPACE/plan
     PlanRequest ─► 200 PlanResponse: every worker has a place, held for now
                    409 PlanRefusal: not now; it waits in the queue from now on, and nothing is held
                    400, 401, 403, 413, 429, 503 Problem
GET  /v1alpha1/turns?queue=ID&number=N
                ─► 200 TurnsResponse: whose turn has come since; waits for the first

The caller's right is asked for by the path's namespace, before a byte of the body is read.
"""

from typing import Annotated

import msgspec

from gpupack_crds.gpujob import GpuJobSpec
from gpupack_crds.gpujob_status import ATTEMPTS_KEPT, Ground, Preemption
from gpupack_crds.placement import NodePlacement
from gpupack_crds.wire import Timestamp, Wire

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=253)]


class PlanRequest(Wire, frozen=True, forbid_unknown_fields=True):
    """Places for all workers of one attempt, or none.

    Asking again for the same uid and attempt gives the same places while they are held.

    Attributes:
        namespace: the path's.
        spec: the job's spec, without its template; the scheduling part decides.
        pod_spec: the PodSpec that the workers will have: its CPU and memory requests, node
            selector, required node affinity and tolerations decide too, so that a plan does not
            die in kube-scheduler's own filters. As JSON: of a PodSpec only these parts are decoded.
        avoid: nodes on which it broke of late; it goes there only if it fits nowhere else.
        resource_version: the GPUJob's, under which the plan will be written: no other version takes
            the write, so that it is known when a plan cannot be written any more.
        held_since: since when the job has the GPUs that are kept for it, over its revisions.
        waits_since: since when it waits for its turn; time in which it was suspended is not part
            of that. Its place in the order is by `submitted_at`.
        grows: the attempt runs; asked for are the places of its workers, old and new. Nothing of
            it waits where there are none.
    """

    namespace: Name
    name: Name
    uid: Name
    attempt: Annotated[int, msgspec.Meta(ge=1)]
    spec: GpuJobSpec
    pod_spec: msgspec.Raw
    avoid: Annotated[tuple[Name, ...], msgspec.Meta(max_length=ATTEMPTS_KEPT)] = ()
    resource_version: str = ""
    grows: bool = False
    priority: int = 0
    submitted_at: Timestamp | None = None
    waits_since: Timestamp | None = None
    seconds_left: Annotated[float, msgspec.Meta(gt=0)] | None = None
    held_since: Timestamp | None = None


class PlanResponse(Wire, frozen=True):
    """A place for every worker."""

    placement: tuple[NodePlacement, ...]
    expires_seconds: float


class LacksRoom(Wire, frozen=True):
    """Of a job that its quota allows, and for which there is no room on the nodes that there are.

    Attributes:
        starts_in_seconds: when it starts at the latest, where that is foreseen.
        quota_gpus: how many GPUs its quota allows its namespace beyond what is used;
            absent: without bound.
    """

    starts_in_seconds: float | None = None
    quota_gpus: float | None = None


class PlanRefusal(Wire, frozen=True):
    """Why there is no plan now.

    Attributes:
        reason: a typed reason of the queue's, such as `BorrowingLimit`; where room is lacking the
            one that most nodes gave, such as `TooFewFreeGpus`.
        message: for people.
        counts: where room is lacking, nodes by typed reason.
        never: it would not fit if the cluster were empty and all of it healthy.
        position: in the queue, 1 for the first.
        waiting: how many wait.
        lasting: the message without its position and without times; empty: it has none.
        preemption: whom to stop for it. It is to be written into the GPUJob's status before anybody
            is stopped.
        expires_seconds: within what that is to be written.
        lacks_room: where nothing but room is lacking.
        queued: it waits in the queue; False: the queue has decided nothing about it, so what its
            status reserves stands.
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
    lacks_room: LacksRoom | None = None
    queued: bool = True


class JobName(Wire, frozen=True):
    """A GPUJob."""

    namespace: str
    name: str


class Stop(Wire, frozen=True):
    """An attempt that is to end for a pod of its own, whose annotation says so.

    Attributes:
        attempt: as UID/NUMBER, or as UID/NUMBER+WORKER one of its workers beyond the least.
        ground: with which right.
        namespace: of the pod.
        pod: its name.
    """

    attempt: str
    ground: Ground
    namespace: str
    pod: str


class Drained(Wire, frozen=True):
    """An attempt that is to end since GPUs of it are in maintenance, or failed.

    Attributes:
        attempt: as in `Stop`.
        node: on which these are.
        why: the administrator's reason; or which GPU failed, and how.
        failed: whether one failed.
    """

    attempt: str
    node: str
    why: str
    failed: bool = False


class MoveOrder(Wire, frozen=True):
    """An attempt that is to end and start again elsewhere, at places that are kept for it.

    Attributes:
        attempt: as UID/NUMBER.
        node: which it leaves.
        why: the administrator's reason; of a consolidation, who has room then.
        until: by then it is to be written into the GPUJob's status, in the write that ends the
            attempt, or it is over.
        preemption: what is to be written.
    """

    attempt: str
    node: str
    why: str
    until: Timestamp
    preemption: Preemption


class TurnsResponse(Wire, frozen=True):
    """Whose turn has come: these ask for their plan, which is held for them.

    Attributes:
        queue: changes whenever the queue begins anew.
        number: of the last turn; to be said when asked again.
        jobs: in order.
        anew: too much was missed, or the queue begins anew: all who wait ask.
        stops: all attempts that are to end for pods; a change of them is a turn, too.
        drained: those that are to end for a maintenance or as a GPU failed, likewise.
        moves: those that are to go on elsewhere, likewise.
        grows: those for which places of more workers are held, as UID/NUMBER, likewise.
    """

    queue: str
    number: int
    jobs: tuple[JobName, ...] = ()
    anew: bool = False
    stops: tuple[Stop, ...] = ()
    drained: tuple[Drained, ...] = ()
    moves: tuple[MoveOrder, ...] = ()
    grows: tuple[str, ...] = ()


class Problem(Wire, frozen=True):
    """Why a call was not answered."""

    reason: str
    message: str
