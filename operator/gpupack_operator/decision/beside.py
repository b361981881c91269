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
from gpupack_kubeclient.objects import Job
from gpupack_operator.decision import attempts, gpus, outcome, times
from gpupack_operator.decision.cleanup import deletion
from gpupack_operator.decision.conditions import clipped
from gpupack_operator.decision.model import (
    Action,
    AskGrowth,
    CreateBeside,
    Grown,
    NotCreatedBeside,
    NotGrown,
    NotYet,
    Observation,
    PlanLater,
)
from gpupack_operator.decision.preempted import preempted
from gpupack_operator.decision.reasons import JobReason
from gpupack_operator.decision.view import AttemptView, view_beside
from gpupack_operator.manifests.owner import attempt_of, index_of, is_beside

NAME_SECONDS = 1.0
"""Delay until the next check whether a deleted Job is gone."""
BUSY_SECONDS = 1.0
"""Delay until the next request if another job is being planned."""
AGAIN_SECONDS = 5.0
"""Delay until the next request if there was no answer."""
MESSAGE_CHARACTERS = 1024


@dataclasses.dataclass(frozen=True, slots=True)
class Why:
    """Reason for the end of an extra worker."""

    reason: str
    message: str


@dataclasses.dataclass(frozen=True, slots=True)
class Beside:
    """What to do about extra workers; the fields are those of a Decision."""

    status: GpuJobStatus
    actions: tuple[Action, ...] = ()
    again_at: dt.datetime | None = None


def decide(observation: Observation, status: GpuJobStatus, gang: AttemptView) -> Beside:
    """Decide which extra workers start and end while a gang continues."""
    spec = observation.job.spec
    if not spec.extra:
        return Beside(status)
    jobs = {index_of(job): job for job in jobs_of(observation, gang.number)}
    gone, look_at = _gone(observation, status, gang, jobs)
    status = _shrunk(observation, status, gone)
    if isinstance(observation.answer, Grown):
        status = _grown(observation, status, observation.answer)
    placed = placed_beside(spec, status)
    actions = [a for index, job in jobs.items() if index not in placed for a in deletion(job)]
    lacking = [] if isinstance(observation.answer, NotYet) else placed.keys() - jobs.keys()
    actions += [
        CreateBeside(attempt=gang.number, worker=index, node=placed[index].node)
        for index in sorted(lacking)
    ]
    if observation.grows and observation.answer is None:
        actions.append(AskGrowth(attempt=gang.number))
    leaving = [index for index in placed.keys() & jobs.keys() if _is_leaving(jobs[index])]
    again_at = times.earliest(look_at, _asks_again(observation, leaving=leaving))
    return Beside(status, tuple(actions), again_at)


def jobs_of(observation: Observation, attempt: int) -> list[Job]:
    """Return the Jobs of an attempt's extra workers."""
    return [
        job
        for job in observation.jobs
        if attempt_of(job) == attempt and is_beside(job, observation.job)
    ]


def placed_beside(spec: GpuJobSpec, status: GpuJobStatus) -> dict[int, WorkerPlacement]:
    """Return the extra workers that have places, by index."""
    return {
        placed.worker: placed
        for placed in by_worker(status.placement)
        if placed.worker >= spec.least
    }


def widened(
    spec: GpuJobSpec, status: GpuJobStatus, *, why: Why | None = None, at: dt.datetime | None = None
) -> GpuJobStatus:
    """Return the status with the width of an elastic gang, computed from its placement."""
    if not spec.extra:
        return status
    workers = len(by_worker(status.placement))
    width = Width(
        workers=workers,
        column=f"{workers} of {spec.least}-{spec.workers}",
        resized_at=times.write(at) if at else None,
        reason=why.reason if why else "",
        message=clipped(why.message, MESSAGE_CHARACTERS) if why else "",
    )
    return structs.replace(
        status,
        width=width,
        nodes=attempts.shortened(nodes_of(status.placement)),
        gpus=gpus.column(spec, workers=workers),
    )


def _gone(
    observation: Observation,
    status: GpuJobStatus,
    gang: AttemptView,
    jobs: Mapping[int, Job],
) -> tuple[dict[int, Why], dt.datetime | None]:
    """Return the extra workers that must end or have ended, and when to look again."""
    gone: dict[int, Why] = {}
    looks: list[dt.datetime | None] = []
    placed, answer = placed_beside(observation.job.spec, status), observation.answer
    if isinstance(answer, NotCreatedBeside):
        # What is forbidden for one extra worker is forbidden for all: they are alike.
        why = Why(answer.reason, answer.message)
        gone |= {index: why for index in placed if index not in jobs}
    for index in placed:
        if by := observation.shrinks.get(index):
            verdict = preempted(observation, by)
            gone[index] = Why(verdict.reason, verdict.message)
        elif job := jobs.get(index):
            found, look_at = outcome.judge(view_beside(observation, gang, job))
            looks.append(look_at)
            if found is not None and not _is_leaving(job):
                gone[index] = Why(found.reason, found.message)
    return gone, times.earliest(*looks)


def _shrunk(
    observation: Observation, status: GpuJobStatus, gone: Mapping[int, Why]
) -> GpuJobStatus:
    placed = by_worker(status.placement)
    ended = [each.worker for each in placed if each.worker in gone]
    if not ended:
        return status
    left = by_node(each for each in placed if each.worker not in gone)
    by_why: dict[Why, list[int]] = defaultdict(list)
    for index in ended:
        by_why[gone[index]].append(index)
    texts = [f"{_workers(of)} ended: {why.message}" for why, of in by_why.items()]
    why = Why(gone[ended[0]].reason, "; ".join(texts))
    left_status = structs.replace(status, placement=left)
    return widened(observation.job.spec, left_status, why=why, at=observation.now)


def _grown(observation: Observation, status: GpuJobStatus, answer: Grown) -> GpuJobStatus:
    """Add the offered workers that need not end at once; no other worker's place changes."""
    spec = observation.job.spec
    placed = {each.worker: each for each in by_worker(status.placement)}
    offered = {each.worker: each for each in by_worker(answer.placement)}
    beside = range(spec.least, spec.least + spec.extra)
    new = sorted(offered.keys() & set(beside) - placed.keys() - observation.shrinks.keys())
    if not new:
        return status
    more = by_node((*placed.values(), *(offered[index] for index in new)))
    message = f"{_workers(new)} began: nobody else who waits could use their GPUs"
    why = Why(JobReason.SCALED_UP, message)
    grown = structs.replace(status, placement=more)
    return widened(spec, grown, why=why, at=observation.now)


def _asks_again(observation: Observation, *, leaving: Collection[int]) -> dt.datetime | None:
    match observation.answer:
        case NotYet():
            seconds = NAME_SECONDS
        case PlanLater():
            seconds = BUSY_SECONDS
        case NotGrown():
            seconds = AGAIN_SECONDS
        case _ if leaving:
            seconds = NAME_SECONDS
        case _:
            return None
    return times.after(observation.now, seconds)


def _is_leaving(job: Job) -> bool:
    return job.metadata.deletion_timestamp is not None


def _workers(indices: Iterable[int]) -> str:
    named = attempts.shortened(tuple(map(str, indices)))
    return f"worker {named}" if "," not in named and "+" not in named else f"workers {named}"
