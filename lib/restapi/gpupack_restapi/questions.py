# SPDX-License-Identifier: Apache-2.0
"""Why a job waits, and what would happen to a hypothetical one.

The query of what-if is defined in the server: it holds specs of a GPUJob and of GPUQuotas, which
clients send as the user wrote them.
"""

import datetime as dt
from typing import Annotated

import msgspec

from gpupack_restapi.holders import HolderView
from gpupack_restapi.jobs import Kind, WorkerView
from gpupack_restapi.patterns import values

StartKind = Annotated[str, values("Now", "At", "WhenReleased", "Never", "Unknown")]


class JobRef(msgspec.Struct, frozen=True):
    """The name of a GPUJob or a standalone pod."""

    namespace: str
    name: str
    kind: Kind = "GPUJob"

    @property
    def text(self) -> str:
        """«team/train», «team/pod/notebook»."""
        return f"{self.namespace}/{'pod/' if self.kind == 'Pod' else ''}{self.name}"


class StartView(msgspec.Struct, frozen=True):
    """When a job or pod starts.

    Attributes:
        kind: Now: in the next scheduling cycle. At: at `at` or before. WhenReleased: when holders
            have released what it needs. Never: not with the present cluster and quota. Unknown: not
            computed.
        at: its latest start, where that is known.
        certain: whether no other waiting job can delay it beyond `at`; a later job that goes before
            it can.
        preemption_at: when preemption for it begins, where there is one.
        holders: WhenReleased: number of jobs and pods that it waits for, where they are known.
    """

    kind: StartKind
    at: dt.datetime | None = None
    certain: bool = False
    preemption_at: dt.datetime | None = None
    holders: int = 0


class ModelsView(msgspec.Struct, frozen=True):
    """The GPU models that a job with an order of preference may use.

    Attributes:
        permitted: models that it may use now, the preferred one first.
        following: models that it may use in addition from `following_at` on.
        following_at: time of the next step; null: all models are permitted.
        skipped: permitted models on which it can never start, so that it does not wait for them.
    """

    permitted: tuple[str, ...]
    following: tuple[str, ...] = ()
    following_at: dt.datetime | None = None
    skipped: tuple[str, ...] = ()


class Explanation(msgspec.Struct, frozen=True):
    """Why a GPUJob or a standalone pod waits.

    Attributes:
        phase: its phase; Scheduled: a pod that has a node.
        reason: why it waits, computed now where it is in the queue; else from its status.
        message: the reason in words.
        position: position among all jobs and standalone pods that wait in the cluster, in the order
            in which they are admitted; the first is 1; null: it is not in the queue.
        waiting: number of jobs and pods that wait in the cluster.
        start: when it starts; null: it is not in the queue.
        ahead: jobs and pods before it that may be named.
        ahead_hidden: number of others before it.
        estimated_wait_seconds: time to its latest start, where there is an estimate.
        fits_now: whether it fits, whatever else waits and whatever quotas allow; null: it is not in
            the queue.
        would_help: changes that would let it start; their further effects are not computed.
        node: node of a bound pod; empty: it waits. A GPUJob's own call has its nodes.
        holds: the GPUs that this pod holds, in the form of `GET holders`.
        models: the models that it may use; null: it has no order of models, or is not in the queue.
    """

    phase: str
    reason: str
    message: str
    position: int | None = None
    waiting: int = 0
    ahead: list[JobRef] = []
    ahead_hidden: int = 0
    estimated_wait_seconds: float | None = None
    fits_now: bool | None = None
    would_help: list[str] = []
    start: StartView | None = None
    node: str = ""
    holds: list[HolderView] = []
    models: ModelsView | None = None


class Outcome(msgspec.Struct, frozen=True):
    """The outcome for the job of a what-if query if it were created now.

    Attributes:
        outcome: Starts: it has places, once those in `preempts` have ended. Waits. Never: the
            present cluster could not run it, or it would fail at once.
        reason: the reason that its status would have: Admitted or PreemptionPending if it starts.
        message: the reason in words.
        workers: places of its workers.
        position: position among all jobs and standalone pods that wait in the cluster, in the order
            in which they are admitted; the first is 1; null: it starts, or is not in the queue.
        waiting: number of jobs and pods that wait in the cluster, including this job where it
            waits.
        start: when it starts; null: now, or it is not in the queue.
        estimated_wait_seconds: time to its latest start, where there is an estimate.
        preempts: jobs and pods that would be preempted or moved for it and that may be named.
        preempts_hidden: number of others.
        would_help: changes that would let it start; their further effects are not computed.
        models: the models that it may use at first, where it waits and has an order of models.
    """

    outcome: Annotated[str, values("Starts", "Waits", "Never")]
    reason: str
    message: str
    workers: tuple[WorkerView, ...]
    position: int | None
    waiting: int
    estimated_wait_seconds: float | None
    preempts: tuple[JobRef, ...]
    preempts_hidden: int
    would_help: tuple[str, ...]
    start: StartView | None = None
    models: ModelsView | None = None
