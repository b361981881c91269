# SPDX-License-Identifier: Apache-2.0
"""Extra workers of an elastic gang: each has a place, and its own Job.

    places are held ─► written into the status ─► one Job each ─► one ends, or is preempted
                                                               └► out of the status ─► Job deleted

The attempt continues, whatever happens to its extra workers. The status names the extra workers
that should exist: after a restart the operator creates missing Jobs and deletes surplus ones. The
extender admits the next extra worker no sooner than the queue's growAfterSeconds after the last one
started or ended, so a worker that fails at once is retried at that interval.
"""

import dataclasses
import datetime as dt
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from msgspec import structs

from gpupack_crds.gpujob import GpuJobSpec
from gpupack_crds.gpujob_status import GpuJobStatus, Width
from gpupack_crds.placement import WorkerPlacement, by_node, by_worker, nodes_of
from gpupack_crds.times import format_time
from gpupack_kubeclient.objects import Job
from gpupack_operator.decision import attempts, gpus, outcome, times
from gpupack_operator.decision.cleanup import delete_job
from gpupack_operator.decision.conditions import clip
from gpupack_operator.decision.model import (
    Action,
    CreateExtraWorker,
    ExtraWorkerCreationFailure,
    GrowthPlan,
    NameInUse,
    NoGrowth,
    Observation,
    PlannerBusy,
    RequestGrowth,
)
from gpupack_operator.decision.preemption_verdicts import preemption_verdict
from gpupack_operator.decision.reasons import JobReason
from gpupack_operator.decision.view import AttemptView, extra_worker_view
from gpupack_operator.manifests.owner import attempt_of, index_of, is_extra_worker_job

NAME_SECONDS = 1.0
"""Delay until the next check whether a deleted Job is gone."""
BUSY_SECONDS = 1.0
"""Delay until the next request if another job is being planned."""
AGAIN_SECONDS = 5.0
"""Delay until the next request if there was no answer."""
MESSAGE_CHARACTERS = 1024


@dataclasses.dataclass(frozen=True, slots=True)
class EndReason:
    """Reason for the start or end of an extra worker."""

    reason: str
    message: str


@dataclasses.dataclass(frozen=True, slots=True)
class ExtraWorkersDecision:
    """What to do about extra workers; the fields are those of a Decision."""

    status: GpuJobStatus
    actions: tuple[Action, ...] = ()
    again_at: dt.datetime | None = None


def decide(
    observation: Observation, status: GpuJobStatus, gang: AttemptView
) -> ExtraWorkersDecision:
    """Decide which extra workers start and end while a gang continues."""
    spec = observation.job.spec
    if not spec.extra:
        return ExtraWorkersDecision(status)
    jobs = {index_of(job): job for job in jobs_of(observation, gang.number)}
    gone, look_at = _ending_workers(observation, status, gang, jobs)
    status = _without_ended(observation, status, gone)
    if isinstance(observation.answer, GrowthPlan):
        status = _with_growth(observation, status, observation.answer)
    placed = placed_extra_workers(spec, status)
    actions = [a for index, job in jobs.items() if index not in placed for a in delete_job(job)]
    lacking = [] if isinstance(observation.answer, NameInUse) else placed.keys() - jobs.keys()
    actions += [
        CreateExtraWorker(attempt=gang.number, worker=index, node=placed[index].node)
        for index in sorted(lacking)
    ]
    if observation.may_grow and observation.answer is None:
        actions.append(RequestGrowth(attempt=gang.number))
    leaving = [index for index in placed.keys() & jobs.keys() if _is_being_deleted(jobs[index])]
    again_at = times.earliest(look_at, _next_check(observation, leaving=leaving))
    return ExtraWorkersDecision(status, tuple(actions), again_at)


def jobs_of(observation: Observation, attempt: int) -> list[Job]:
    """Return the Jobs of an attempt's extra workers."""
    return [
        job
        for job in observation.jobs
        if attempt_of(job) == attempt and is_extra_worker_job(job, observation.job)
    ]


def placed_extra_workers(spec: GpuJobSpec, status: GpuJobStatus) -> dict[int, WorkerPlacement]:
    """Return the extra workers that have places, by index."""
    return {
        placed.worker: placed
        for placed in by_worker(status.placement)
        if placed.worker >= spec.least
    }


def with_width(
    spec: GpuJobSpec,
    status: GpuJobStatus,
    *,
    why: EndReason | None = None,
    at: dt.datetime | None = None,
) -> GpuJobStatus:
    """Return the status with the width of an elastic gang, computed from its placement."""
    if not spec.extra:
        return status
    workers = len(by_worker(status.placement))
    width = Width(
        workers=workers,
        column=f"{workers} of {spec.least}-{spec.workers}",
        resized_at=format_time(at) if at else None,
        reason=why.reason if why else "",
        message=clip(why.message, MESSAGE_CHARACTERS) if why else "",
    )
    return structs.replace(
        status,
        width=width,
        nodes=attempts.shorten_names(nodes_of(status.placement)),
        gpus=gpus.column(spec, workers=workers),
    )


def _ending_workers(
    observation: Observation,
    status: GpuJobStatus,
    gang: AttemptView,
    jobs: Mapping[int, Job],
) -> tuple[dict[int, EndReason], dt.datetime | None]:
    """Return the extra workers that must end or have ended, and when to look again."""
    gone: dict[int, EndReason] = {}
    looks: list[dt.datetime | None] = []
    placed, answer = placed_extra_workers(observation.job.spec, status), observation.answer
    if isinstance(answer, ExtraWorkerCreationFailure):
        # What is forbidden for one extra worker is forbidden for all: they are alike.
        why = EndReason(answer.reason, answer.message)
        gone |= {index: why for index in placed if index not in jobs}
    for index in placed:
        if by := observation.extra_preemptions.get(index):
            verdict = preemption_verdict(observation, by)
            gone[index] = EndReason(verdict.reason, verdict.message)
        elif job := jobs.get(index):
            found, look_at = outcome.judge(extra_worker_view(observation, gang, job))
            looks.append(look_at)
            if found is not None and not _is_being_deleted(job):
                gone[index] = EndReason(found.reason, found.message)
    return gone, times.earliest(*looks)


def _without_ended(
    observation: Observation, status: GpuJobStatus, gone: Mapping[int, EndReason]
) -> GpuJobStatus:
    placed = by_worker(status.placement)
    ended = [each.worker for each in placed if each.worker in gone]
    if not ended:
        return status
    left = by_node(each for each in placed if each.worker not in gone)
    by_why: dict[EndReason, list[int]] = defaultdict(list)
    for index in ended:
        by_why[gone[index]].append(index)
    texts = [f"{_name_workers(of)} ended: {why.message}" for why, of in by_why.items()]
    why = EndReason(gone[ended[0]].reason, "; ".join(texts))
    left_status = structs.replace(status, placement=left)
    return with_width(observation.job.spec, left_status, why=why, at=observation.now)


def _with_growth(
    observation: Observation, status: GpuJobStatus, answer: GrowthPlan
) -> GpuJobStatus:
    """Add the offered workers that need not end at once; no other worker's place changes."""
    spec = observation.job.spec
    placed = {each.worker: each for each in by_worker(status.placement)}
    offered = {each.worker: each for each in by_worker(answer.placement)}
    extra = range(spec.least, spec.least + spec.extra)
    new = sorted(offered.keys() & set(extra) - placed.keys() - observation.extra_preemptions.keys())
    if not new:
        return status
    more = by_node((*placed.values(), *(offered[index] for index in new)))
    message = f"{_name_workers(new)} started: no other waiting job could use their GPUs"
    why = EndReason(JobReason.SCALED_UP, message)
    grown = structs.replace(status, placement=more)
    return with_width(spec, grown, why=why, at=observation.now)


def _next_check(observation: Observation, *, leaving: Collection[int]) -> dt.datetime | None:
    match observation.answer:
        case NameInUse():
            seconds = NAME_SECONDS
        case PlannerBusy():
            seconds = BUSY_SECONDS
        case NoGrowth():
            seconds = AGAIN_SECONDS
        case _ if leaving:
            seconds = NAME_SECONDS
        case _:
            return None
    return times.after(observation.now, seconds)


def _is_being_deleted(job: Job) -> bool:
    return job.metadata.deletion_timestamp is not None


def _name_workers(indices: Iterable[int]) -> str:
    named = attempts.shorten_names(tuple(map(str, indices)))
    return f"worker {named}" if "," not in named and "+" not in named else f"workers {named}"
