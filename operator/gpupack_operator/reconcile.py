# SPDX-License-Identifier: Apache-2.0
"""One pass over one GPUJob: observe, decide, write the status, act, and say when to look again."""

import asyncio
import dataclasses
import datetime as dt
import logging

from gpupack_crds import names
from gpupack_crds.gpujob_status import GpuJobStatus
from gpupack_crds.kinds import GpuJob
from gpupack_kube import errors
from gpupack_kube.client import Api
from gpupack_kube.objects import Job, Json
from gpupack_kube.resources import JOBS
from gpupack_operator.actions import Actor
from gpupack_operator.decision import attempts
from gpupack_operator.decision.decide import decide
from gpupack_operator.decision.model import (
    Answer,
    AskPlan,
    Behind,
    Decision,
    Limits,
    NotPlanned,
    Observation,
    PlanLater,
    Planned,
)
from gpupack_operator.decision.notices import Notice, notices
from gpupack_operator.decision.workers import is_overdue
from gpupack_operator.fencing import Fence
from gpupack_operator.manifests.owner import is_ours
from gpupack_operator.waitlist import Key, Rank, Waitlist
from gpupack_operator.world import READABLE_GPUJOBS, Seen, World

log = logging.getLogger(__name__)


class Reconciler:
    """Brings GPUJobs nearer to what they ask for, one pass at a time."""

    def __init__(
        self,
        api: Api,
        actor: Actor,
        world: World,
        waitlist: Waitlist,
        limits: Limits,
        fence: Fence,
    ) -> None:
        self._api = api
        self._actor = actor
        self._world = world
        self._fence = fence
        self._waitlist = waitlist
        self._limits = limits
        self._doubtful: set[Key] = set()

    async def reconcile(self, key: Key) -> float | None:
        """One pass; returns after how many seconds to look again, if at all.

        Raises:
            KubeError: something could not be read or written; try again later.
        """
        if key in self._doubtful:
            await self._refresh(key)
        seen = self._world.gpujob(key)
        if seen is None:
            self._waitlist.leave(key)
            return None
        try:
            again_at = await self._steps(key, seen)
        except errors.KubeError:
            self._doubtful.add(key)
            raise
        return None if again_at is None else (again_at - self._now()).total_seconds()

    def _now(self) -> dt.datetime:
        """By the API server's clock: what it is compared with was written by that clock."""
        return self._api.clock.now()

    async def _steps(self, key: Key, seen: Seen) -> dt.datetime | None:
        observation = await self._observe(key, seen)
        news: list[Notice] = []
        try:
            while True:
                decision = decide(observation)
                job = await self._write(observation, decision.status, seen.template)
                news += notices(observation.job.status, job.status)
                self._remember(key, observation, decision)
                newest = Seen(job=job, template=seen.template)
                answer = await self._act(newest, decision, _rank(observation))
                if answer is None:
                    return decision.again_at
                observation = self._answered(key, observation, job, answer)
        finally:
            await self._report(seen.job, news)

    def _answered(
        self, key: Key, observation: Observation, job: GpuJob, answer: Answer
    ) -> Observation:
        refusals = self._waitlist.refusals(key) + isinstance(answer, NotPlanned)
        return dataclasses.replace(
            observation, job=job, answer=answer, now=self._now(), refusals=refusals
        )

    async def _observe(self, key: Key, seen: Seen) -> Observation:
        jobs = self._world.jobs_of(seen.job)
        jobs += await self._overlooked(seen.job, jobs)
        pods = self._world.pods_of(seen.job, jobs)
        overdue = {pod.spec.node_name for pod in pods if is_overdue(pod, self._now())} - {""}
        silent = await self._fence.silent(sorted(overdue))
        return Observation(
            job=seen.job,
            jobs=jobs,
            pods=pods,
            now=self._now(),
            limits=self._limits,
            silent=silent,
            refusals=self._waitlist.refusals(key),
            told_at=self._waitlist.told_at(key),
        )

    async def _overlooked(self, job: GpuJob, jobs: tuple[Job, ...]) -> tuple[Job, ...]:
        """The current attempt's Job, where the watch does not show it: is it really missing?"""
        attempt = attempts.current(job.status)
        if attempt is None:
            return ()
        name = names.job_name(job.metadata.name, attempt=attempt.number)
        if any(found.metadata.name == name for found in jobs):
            return ()
        try:
            found = await self._api.get(JOBS, name, namespace=job.metadata.namespace)
        except errors.NotFound:
            return ()
        return (found,) if is_ours(found, job) else ()

    async def _write(
        self, observation: Observation, status: GpuJobStatus, template: Json
    ) -> GpuJob:
        """A plan that is written after it has expired may give away what others hold by then."""
        job, answer = observation.job, observation.answer
        if status == job.status:
            return job
        seconds = answer.seconds if isinstance(answer, Planned) else None
        try:
            async with asyncio.timeout(seconds):
                written = await self._actor.write_status(job, status)
        except TimeoutError as error:
            message = f"the plan's {seconds:.1f} s were over before the status was written"
            raise errors.Unreachable(message) from error
        self._world.wrote(Seen(job=written, template=template))
        return written

    async def _report(self, job: GpuJob, news: list[Notice]) -> None:
        """Tell what has been written, and no sooner."""
        for notice in news:
            log.info("%s/%s: %s: %s", *job.key, notice.reason, notice.note)
        await self._actor.post(job, news)

    async def _act(self, seen: Seen, decision: Decision, rank: Rank) -> Answer | None:
        for action in decision.actions:
            if isinstance(action, AskPlan) and (first := self._waitlist.ahead_of(rank)):
                return Behind(first)
            if answer := await self._actor.act(seen, action):
                return answer
        return None

    def _remember(self, key: Key, observation: Observation, decision: Decision) -> None:
        """Who got no plan waits for something to be freed."""
        waitlist, rank = self._waitlist, _rank(observation)
        match observation.answer:
            case PlanLater():
                waitlist.line_up(rank)
            case NotPlanned(lacks_room=lacks_room):
                waitlist.refused(rank, lacks_room=lacks_room)
            case Behind(job=first):
                waitlist.stand_behind(rank, Key(*first))
            case _ if decision.status.phase != "Pending" or _is_leaving(observation.job):
                waitlist.leave(key)
        if decision.status.phase == "Pending" and decision.status != observation.job.status:
            waitlist.told(key, observation.now)

    async def _refresh(self, key: Key) -> None:
        """Somebody else wrote, or a write of ours has had no answer: do not trust the watch."""
        seen = self._world.gpujob(key)
        try:
            found = await self._api.get(READABLE_GPUJOBS, key.name, namespace=key.namespace)
        except errors.NotFound:
            if seen:
                self._world.mark_gone(seen.job.metadata.uid)
        else:
            self._world.wrote(found.seen())
        self._doubtful.discard(key)


def _is_leaving(job: GpuJob) -> bool:
    """Whether it is being deleted: finalizers of others may take their time."""
    return job.metadata.deletion_timestamp is not None


def _rank(observation: Observation) -> Rank:
    job = observation.job
    created = job.metadata.creation_timestamp or observation.now
    return Rank(-job.spec.priority, created, Key(*job.key), job.spec.resource_name)
