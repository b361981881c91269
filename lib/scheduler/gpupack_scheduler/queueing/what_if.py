# SPDX-License-Identifier: Apache-2.0
"""Questions about the queue: what would become of a GPUJob, and why a pending job waits.

    Onlooker, on its event loop ─► Prepared ─► answered, in a thread ─► Onlooker remembers

The questions use a copy: no question changes anything.
"""

import dataclasses
from collections.abc import Collection, Mapping
from typing import Self

from gpupack_crds.gpujob_status import RunLimit
from gpupack_crds.gpuquota import QUOTA_NAME, GpuQuotaSpec
from gpupack_crds.kinds import GpuQuota
from gpupack_kubeclient import objects
from gpupack_placement import Cluster, NodeName
from gpupack_queue import Job, JobId, Planner, PredictedStart, Queue, Quotas, Wait, WhatIf
from gpupack_queue.state.queue_state import Findings
from gpupack_scheduler.decisions import Decisions
from gpupack_scheduler.queueing.pending.request import POD_NAME, GangRequest, job_id
from gpupack_scheduler.queueing.quotas.quota_stores import QuotaStores
from gpupack_scheduler.queueing.read_only_queue import ReadOnlyQueue


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Changes that a question assumes.

    Attributes:
        without_nodes: nodes that take no new work.
        quotas: GPUQuotas, by namespace, instead of the existing ones.
    """

    without_nodes: Collection[NodeName] = ()
    quotas: Mapping[str, GpuQuotaSpec] = dataclasses.field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.without_nodes or self.quotas)

    def run_limit(self, namespace: str, quotas: QuotaStores) -> RunLimit | None:
        """Return the maximum run time of a namespace's jobs with these changes."""
        return _with(quotas, self.quotas).run_limit(namespace)


@dataclasses.dataclass(frozen=True, slots=True)
class Other:
    """Another job than the one in question; `name`: of the GPUJob, or of the pod if `is_pod`."""

    namespace: str
    name: str
    is_pod: bool

    @classmethod
    def of(cls, job: Job) -> Self:
        """Convert a job of the queue."""
        pod = job.name.removeprefix(POD_NAME)
        return cls(job.tenant, pod, is_pod=pod != job.name)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer to one question.

    Attributes:
        starts: where the job starts; None: it waits.
        wait: why it waits; None: it starts.
        stopped: jobs that would be preempted or moved before.
        position: position of a pending job as the queue shows it, before due decisions are made.
        waiting: number of pending jobs, including this one.
        ahead: pending jobs that go before it.
        fits_now: whether it fits, regardless of other pending jobs and of quotas.
        findings: what the read-only queue can remember.
    """

    starts: PredictedStart | None = None
    wait: Wait | None = None
    stopped: tuple[Other, ...] = ()
    position: int | None = None
    waiting: int = 0
    ahead: tuple[Other, ...] = ()
    fits_now: bool = False
    findings: Findings | None = None


@dataclasses.dataclass(slots=True, kw_only=True)
class Prepared:
    """A copy of queue and cluster for one question, in any thread.

    Attributes:
        cluster: the free resources.
    """

    queue: Queue
    cluster: Cluster
    plan: Planner
    now: float
    changes: Changes = Changes()
    quotas: Quotas | None = None

    def what_if(self, job: Job) -> Answer:
        """Return what would become of one more job."""
        question, findings = self._settled()
        found = question.answer(job)
        if isinstance(found, PredictedStart):
            running = self.queue.state.running
            ends = [one.job for each in found.victims if (one := running.get(each.job))]
            return Answer(
                starts=found,
                stopped=tuple(map(Other.of, ends)),
                waiting=len(self.queue) - 1,
                findings=findings,
            )
        return Answer(wait=found, waiting=found.pending, findings=findings)

    def explain(self, job_id: JobId) -> Answer:
        """Return why a job waits; no reason if its turn has just come."""
        place = self._place(job_id)
        question, findings = self._settled()
        entry = self.queue.state.pending.get(job_id)
        if entry is None:
            return dataclasses.replace(place, fits_now=True, findings=findings)
        return dataclasses.replace(
            place,
            wait=question.explain(job_id),
            fits_now=self.plan(self.cluster, entry.job) is not None,
            findings=findings,
        )

    def _place(self, job_id: JobId) -> Answer:
        """Return the job's position in the present queue."""
        waiting = len(self.queue)
        if job_id not in self.queue.state.pending:
            return Answer(waiting=waiting)
        ahead = tuple(map(Other.of, self.queue.jobs_before(job_id)))
        return Answer(position=len(ahead) + 1, waiting=waiting, ahead=ahead)

    def _settled(self) -> tuple[WhatIf, Findings | None]:
        self._change()
        question = WhatIf(self.queue, self.cluster, self.plan, self.now)
        found = question.settle(thorough=bool(self.changes))
        return question, None if self.changes else found

    def _change(self) -> None:
        for name in self.changes.without_nodes:
            node = self.cluster.node(name)
            if node is not None:
                self.cluster.set_node(dataclasses.replace(node, cordoned=True))
                self.queue.record_node_change(name, self.cluster)
        if self.quotas is not None:
            self.queue.configure(self.quotas, self.cluster, self.now)


def prepare_what_if(
    onlooker: ReadOnlyQueue,
    ask: GangRequest,
    changes: Changes,
    *,
    quotas: QuotaStores,
    decisions: Decisions,
) -> Prepared:
    """Copy queue and cluster on the read-only queue's event loop, for a what-if question."""
    changed = None
    if changes.quotas:
        changed = _with(quotas, changes.quotas).read(decisions.queue.default).quotas
    return _prepared(onlooker, {job_id(ask.attempt): ask.policy}, changes, changed)


def prepare_explain(onlooker: ReadOnlyQueue) -> Prepared:
    """Copy queue and cluster on the read-only queue's event loop, to explain pending jobs."""
    return _prepared(onlooker, {}, Changes(), None)


def _prepared(
    onlooker: ReadOnlyQueue,
    policies: Mapping[JobId, str | None],
    changes: Changes,
    quotas: Quotas | None,
) -> Prepared:
    onlooker.follow()
    queue, cluster = onlooker.observed.copy()
    return Prepared(
        queue=queue,
        cluster=cluster,
        plan=onlooker.observed.planner(policies),
        now=onlooker.observed.now(),
        changes=changes,
        quotas=quotas,
    )


def _with(quotas: QuotaStores, others: Mapping[str, GpuQuotaSpec]) -> QuotaStores:
    made = QuotaStores()
    made.reservations.items = quotas.reservations.items
    made.cohorts.items, made.quotas.items = quotas.cohorts.items, dict(quotas.quotas.items)
    for namespace, spec in others.items():
        meta = objects.ObjectMeta(name=QUOTA_NAME, namespace=namespace)
        made.quotas.items[namespace, QUOTA_NAME] = GpuQuota(metadata=meta, spec=spec)
    return made
