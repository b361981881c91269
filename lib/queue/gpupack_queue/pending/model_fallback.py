# SPDX-License-Identifier: Apache-2.0
"""Jobs with an order of preference among GPU models: which models they may use at which time.

    gpuModels       H300   H100   A100   T4        no node has an H300
    permitted       └── at once ┘   │     │
                         after one step   └ after two steps of waiting

A job waits for the first model on which it can start at all. Each step of waiting time permits one
more such model. A model on which the job can never start takes no step: it is permitted together
with the model before it, or at once. If the job can start on no model alone, all are permitted at
once, since a gang may use several. So the permitted models depend on the waiting time, the nodes
and the quotas only, and a queue that starts again finds the same ones.
"""

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from math import inf
from typing import Final

from gpupack_devices.models import matches_model
from gpupack_placement.cluster import Cluster
from gpupack_placement.request import Gang
from gpupack_queue.job import Job, JobId, Places, Tenant
from gpupack_queue.pending.pending_jobs import JobClass, PendingJobs, RequestClass
from gpupack_queue.planning import with_models
from gpupack_queue.start import Never

_MAX_STALE_STEPS: Final = 64
"""The number of steps of jobs that have left, beyond twice the number of jobs, that are kept."""


@dataclass(frozen=True, slots=True)
class PermittedModels:
    """The models that a pending job may use, in its order of preference.

    `following`: the models that are permitted in addition at `next_at`; infinity: none are.
    `skipped`: those of `models` on which it can never start. `later`: the times of all further
    steps, each with the number of models that are permitted from then on.
    """

    models: tuple[str, ...]
    following: tuple[str, ...] = ()
    next_at: float = inf
    skipped: tuple[str, ...] = ()
    later: tuple[tuple[float, int], ...] = ()


def permitted_models(
    models: tuple[str, ...],
    can_start: Sequence[bool],
    *,
    since: float,
    step_seconds: float,
    now: float,
) -> PermittedModels:
    """Return the models that a job may use which has waited since then.

    Args:
        models: all models, the preferred one first.
        can_start: for each model, whether the job can ever start on it alone.
        since: the start of its waiting time, seconds.
        step_seconds: the waiting time that permits one more model.
        now: seconds.
    """
    usable = [number for number, can in enumerate(can_start) if can]
    bounds = [*usable[1:], len(models)]
    steps = [(since + step * step_seconds, bound) for step, bound in enumerate(bounds)]
    number = max((bound for at, bound in steps if at <= now), default=bounds[0])
    later = tuple((at, bound) for at, bound in steps if at > now and bound > number)
    next_at, bound = later[0] if later else (inf, number)
    skipped = tuple(
        model for model, can in zip(models[:number], can_start, strict=False) if not can
    )
    return PermittedModels(models[:number], models[number:bound], next_at, skipped, later)


@dataclass(frozen=True, slots=True)
class _OrderedJob:
    """A pending job as it was submitted, with all models."""

    job: Job
    since: float
    permitted: PermittedModels


@dataclass(slots=True)
class _SingleModels:
    """The classes of jobs that request one of the models alone; `jobs`: how many refer to it."""

    classes: tuple[JobClass, ...]
    jobs: int = 0


class ModelFallbacks:
    """The pending jobs with an order of models; mutable."""

    def __init__(self) -> None:
        self._jobs: dict[JobId, _OrderedJob] = {}
        self._single: dict[tuple[Tenant, Gang], _SingleModels] = {}
        self._steps: list[tuple[float, JobId]] = []
        """A heap of the next steps; those of jobs that have left are dropped when they are due."""
        self._unchecked: dict[JobId, None] = {}
        """The jobs whose permitted models are to be computed."""
        self._basis: object = None

    def __bool__(self) -> bool:
        return bool(self._jobs)

    def copy(self) -> "ModelFallbacks":
        """Return an independent copy."""
        twin = ModelFallbacks()
        twin._jobs = self._jobs.copy()
        twin._single = {
            key: _SingleModels(tuple(map(_copy_class, single.classes)), single.jobs)
            for key, single in self._single.items()
        }
        twin._steps, twin._unchecked = self._steps.copy(), self._unchecked.copy()
        return twin

    def add(self, job: Job, since: float) -> Job:
        """Return the job as it waits at first; a job without an order stays as it is."""
        models = job.gang.roles[0].request.models
        if job.model_fallback_seconds is None or len(models) <= 1:
            return job
        key = job.tenant, job.gang
        if key not in self._single:
            self._single[key] = _SingleModels(
                tuple(
                    JobClass(job.tenant, RequestClass(with_models(job.gang, (model,))))
                    for model in models
                )
            )
        self._single[key].jobs += 1
        self._jobs[job.id] = _OrderedJob(job, since, PermittedModels(models[:1]))
        self._unchecked[job.id] = None
        return replace(job, gang=with_models(job.gang, models[:1]))

    def remove(self, job: JobId) -> None:
        """Remove a job that does not wait any more; no effect on other jobs."""
        ordered = self._jobs.pop(job, None)
        if ordered is None:
            return
        self._unchecked.pop(job, None)
        key = ordered.job.tenant, ordered.job.gang
        self._single[key].jobs -= 1
        if not self._single[key].jobs:
            del self._single[key]
        if not self._jobs or len(self._steps) > 2 * len(self._jobs) + _MAX_STALE_STEPS:
            self._steps = [step for step in self._steps if step[1] in self._jobs]
            heapify(self._steps)

    def permitted(self, job: JobId) -> PermittedModels | None:
        """Return the models that a pending job may use; None: it has no order."""
        ordered = self._jobs.get(job)
        return ordered.permitted if ordered else None

    def later_gangs(self, job: JobId) -> Iterable[tuple[float, Gang]]:
        """Yield the times of further steps, each with what the job requests from then on."""
        ordered = self._jobs.get(job)
        if ordered is None:
            return
        gang = ordered.job.gang
        for at, number in ordered.permitted.later:
            yield at, with_models(gang, gang.roles[0].request.models[:number])

    def update(
        self,
        pending: PendingJobs,
        never: Callable[[JobClass], Never | None],
        basis: object,
        now: float,
    ) -> bool:
        """Give pending jobs the models that they may use now; return whether any request changed.

        Args:
            pending: the jobs, whose requests change.
            never: returns why jobs of a class can never start.
            basis: an object that stands for the nodes and quotas on which `never` depends.
            now: seconds.
        """
        if basis is not self._basis:
            self._basis, self._steps = basis, []
            self._unchecked = dict.fromkeys(self._jobs)
        while self._steps and self._steps[0][0] <= now:
            job = heappop(self._steps)[1]
            if job in self._jobs:
                self._unchecked[job] = None
        unchecked, self._unchecked = self._unchecked, {}
        changed = [self._check(job, pending, never, now) for job in unchecked]
        return any(changed)

    @property
    def next_step(self) -> float:
        """Return the time at which the next model may be permitted; infinity: none will be."""
        return self._steps[0][0] if self._steps else inf

    def _check(
        self,
        job_id: JobId,
        pending: PendingJobs,
        never: Callable[[JobClass], Never | None],
        now: float,
    ) -> bool:
        ordered = self._jobs[job_id]
        job, single = ordered.job, self._single[ordered.job.tenant, ordered.job.gang]
        found = permitted_models(
            job.gang.roles[0].request.models,
            [never(of) is None for of in single.classes],
            since=ordered.since,
            step_seconds=job.model_fallback_seconds or inf,
            now=now,
        )
        self._jobs[job_id] = replace(ordered, permitted=found)
        if found.next_at < inf:
            heappush(self._steps, (found.next_at, job_id))
        return pending.change_gang(job_id, with_models(job.gang, found.models))


def without_unused_models(job: Job, cluster: Cluster, places: Places) -> Job:
    """Return a running job with the models up to the last one that it uses.

    A move or an extra worker gets no model for which the job has not waited.
    """
    if job.model_fallback_seconds is None or len(job.gang.roles[0].request.models) <= 1:
        return job
    used = job.gang.roles[0].request.models[: _models_in_use(job, cluster, places)]
    return replace(job, gang=with_models(job.gang, used))


def _models_in_use(job: Job, cluster: Cluster, places: Places) -> int:
    """Return the number of models up to the last one that is used; all if one is unknown."""
    models, last = job.gang.roles[0].request.models, 0
    for placement in places:
        node = cluster.node(placement.node)
        devices = {device.uuid: device for device in node.devices} if node else {}
        for grant in placement.devices:
            device = devices.get(grant.uuid)
            if device is None:
                return len(models)
            alike = (
                number
                for number, model in enumerate(models, start=1)
                if matches_model(model, device.model, device.memory)
            )
            last = max(last, next(alike, len(models)))
    return last or len(models)


def _copy_class(job_class: JobClass) -> JobClass:
    twin = copy(job_class)
    twin.request_class = copy(job_class.request_class)
    return twin
