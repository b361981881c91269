# SPDX-License-Identifier: Apache-2.0
"""One pass over one GPUJob: observe, decide, write the status, act, and set the next pass."""

import asyncio
import dataclasses
import datetime as dt
import logging

from gpupack_crds.gpujob_status import GpuJobStatus
from gpupack_crds.kinds import GpuJob
from gpupack_kubeclient import errors
from gpupack_kubeclient.client import Api
from gpupack_operator.actions import Actor
from gpupack_operator.cache import READABLE_GPUJOBS, Cache, CachedGpuJob
from gpupack_operator.creation_backoff import CreationBackoff
from gpupack_operator.decision import attempts, results, stalls, waiting
from gpupack_operator.decision.conditions import Writer
from gpupack_operator.decision.decide import decide
from gpupack_operator.decision.model import (
    Answer,
    ApiWrite,
    Decision,
    GrowthPlan,
    Limits,
    NoPlan,
    Observation,
    Patch,
    Plan,
    PlannerBusy,
    PlanPending,
    RequestGrowth,
    RequestPlan,
)
from gpupack_operator.decision.nodes import (
    CreateNodesRequest,
    DeleteNodesRequest,
    NodesAction,
    ReserveNodesRequest,
)
from gpupack_operator.decision.notices import Notice, notices
from gpupack_operator.decision.workers import is_given_up, is_overdue
from gpupack_operator.fencing import Fence
from gpupack_operator.manifests.pod import has_our_images
from gpupack_operator.metrics import Metrics
from gpupack_operator.nodes_limits import NodesRequestLimiter
from gpupack_operator.nodes_requests import NodesRequests
from gpupack_operator.nvlink_cliques import NvlinkCliques
from gpupack_operator.preemptions import Preemptions
from gpupack_operator.priorities import Priorities, Priority
from gpupack_operator.run_limits import RunLimits
from gpupack_operator.unwatched_objects import find_unwatched_jobs, find_unwatched_pods
from gpupack_operator.waiting_jobs import Key, TurnOrder, WaitingJobs

log = logging.getLogger(__name__)

MAX_RETRY_SECONDS = 15.0
"""Longest time between two passes of which the first has failed."""


@dataclasses.dataclass(frozen=True, slots=True)
class Sources:
    """Sources of what the cache does not contain, and the metrics."""

    fence: Fence
    priorities: Priorities
    preemptions: Preemptions
    nodes: NodesRequests
    nodes_limiter: NodesRequestLimiter
    metrics: Metrics
    cliques: NvlinkCliques = dataclasses.field(default_factory=NvlinkCliques)
    run_limits: RunLimits = dataclasses.field(default_factory=RunLimits)
    pull_secrets: tuple[str, ...] = ()
    """Names of the pull secrets of pods with an image of gpupack's."""


class Reconciler:
    """Reconciler that brings GPUJobs closer to their specs, one pass at a time."""

    def __init__(
        self,
        api: Api,
        actor: Actor,
        cache: Cache,
        waiting_jobs: WaitingJobs,
        limits: Limits,
        sources: Sources,
    ) -> None:
        self._api = api
        self._metrics = sources.metrics
        self._actor = actor
        self._cache = cache
        self._fence = sources.fence
        self._priorities = sources.priorities
        self._preemptions = sources.preemptions
        self._nodes = sources.nodes
        self._nodes_limiter = sources.nodes_limiter
        self._cliques = sources.cliques
        self._run_limits = sources.run_limits
        self._waiting_jobs = waiting_jobs
        self._limits, self._pull_secrets = limits, sources.pull_secrets
        self._creation = CreationBackoff()
        self._refetch: set[Key] = set()

    async def reconcile(self, key: Key) -> float | None:
        """Run one pass; return the seconds until the next one, or None if none is needed.

        Raises:
            KubeError: a read or a write failed; try again later.
        """
        try:
            return await self._pass(key)
        finally:
            self._waiting_jobs.end_pass(key)

    async def _pass(self, key: Key) -> float | None:
        if key in self._refetch:
            await self._refresh(key)
        seen = self._cache.gpujob(key)
        if seen is None:
            self._waiting_jobs.remove(key)
            self._creation.record_deletion(key)
            return None
        try:
            again_at = await self._steps(key, seen)
            await self._clear_failure(key)
            newest = self._cache.gpujob(key)
            if newest is not None:
                self._nodes_limiter.settle(newest.job, self._now())
        except errors.KubeError:
            self._refetch.add(key)
            self._waiting_jobs.discard_answer(key)
            raise
        return None if again_at is None else (again_at - self._now()).total_seconds()

    async def report_failure(self, key: Key, error: Exception, *, failures: int) -> None:
        """Report in the status that passes fail, if the error is worth a message."""
        if not stalls.is_worth_reporting(error, failures=failures):
            return
        try:
            if key in self._refetch:
                await self._refresh(key)
            if seen := self._cache.gpujob(key):
                write = self._writer(seen.job)
                status = stalls.with_stalled(
                    seen.job.status, error, retry_seconds=MAX_RETRY_SECONDS, write=write
                )
                await self._write_message(seen, status)
        except errors.KubeError as trouble:
            log.warning("%s/%s: cannot write that passes fail: %s", *key, trouble)

    async def _clear_failure(self, key: Key) -> None:
        seen = self._cache.gpujob(key)
        if seen and stalls.is_stalled(seen.job.status):
            await self._write_message(
                seen, stalls.without_stalled(seen.job.status, self._writer(seen.job))
            )

    async def _write_message(self, seen: CachedGpuJob, status: GpuJobStatus) -> None:
        """Write a status that follows from no decision, if it contains anything new."""
        if status == seen.job.status:
            return
        written = await self._actor.write_status(seen.job, status)
        self._cache.record_write(seen.with_job(written))
        await self._report(written, list(notices(seen.job, status)))

    def _writer(self, job: GpuJob) -> Writer:
        return Writer(now=self._now(), generation=job.metadata.generation)

    def _now(self) -> dt.datetime:
        """Return the API server's time: that clock wrote the times with which it is compared."""
        return self._api.clock.now()

    async def _steps(self, key: Key, seen: CachedGpuJob) -> dt.datetime | None:
        observation = await self._observe(key, seen)
        priority = await self._priority(seen.job)
        news: list[Notice] = []
        try:
            while True:
                decision = decide(observation)
                job = await self._write(observation, decision.status, seen)
                self._metrics.count_attempts(observation.job.status, job.status)
                self._creation.record(job, observation)
                news += notices(observation.job, job.status)
                self._update_waiting_jobs(key, observation, decision)
                newest = seen.with_job(job)
                if decision.logs is not None:
                    await self._actor.save_logs(job, decision.logs)
                answer = await self._act(newest, decision, priority)
                if answer is None:
                    return decision.again_at
                observation = self._with_answer(observation, job, answer, priority)
        finally:
            await self._report(seen.job, news)

    def _with_answer(
        self, observation: Observation, job: GpuJob, answer: Answer, priority: Priority
    ) -> Observation:
        """Return the observation with the answer, and record when to request a plan again."""
        key, now = Key(*job.key), self._now()
        match answer:
            case PlannerBusy():
                created = job.metadata.creation_timestamp or now
                self._waiting_jobs.enqueue(TurnOrder(-priority.value, created, key))
            case PlanPending():
                self._waiting_jobs.record_answer(key, generation=job.metadata.generation, now=now)
            case NoPlan():
                self._waiting_jobs.record_failure(key)
            case Plan():
                self._waiting_jobs.discard_answer(key)
        return dataclasses.replace(
            observation,
            job=job,
            answer=answer,
            now=now,
            request_failures=self._waiting_jobs.failures(key),
            next_request_at=self._next_request_at(job),
            wait_message=self._waiting_jobs.wait_message(key),
        )

    def _next_request_at(self, job: GpuJob) -> dt.datetime | None:
        return self._waiting_jobs.next_request_at(Key(*job.key), generation=job.metadata.generation)

    async def _observe(self, key: Key, seen: CachedGpuJob) -> Observation:
        jobs = self._cache.jobs_of(seen.job)
        jobs += await find_unwatched_jobs(self._api, seen.job, jobs)
        pods = self._cache.pods_of(seen.job, jobs)
        pods += await find_unwatched_pods(self._api, seen.job, jobs, pods)
        doubtful = (pod for pod in pods if is_given_up(pod) or is_overdue(pod, self._now()))
        silent_nodes = await self._fence.silent_nodes(
            sorted({pod.spec.node_name for pod in doubtful} - {""})
        )
        return Observation(
            job=seen.job,
            jobs=jobs,
            pods=pods,
            now=self._now(),
            limits=self._limits,
            pull_secrets=self._pull_secrets if has_our_images(seen.job.spec) else None,
            silent_nodes=silent_nodes,
            request_failures=self._waiting_jobs.failures(key),
            next_request_at=self._next_request_at(seen.job),
            wait_message=self._waiting_jobs.wait_message(key),
            preemption=self._preemptions.preemption_of(seen.job, seen.job.status.attempt),
            move=self._preemptions.move_of(seen.job, seen.job.status.attempt),
            provisioning=self._nodes.settings,
            nodes=await self._nodes.observe(seen.job),
            extra_preemptions=self._preemptions.extra_preemptions(
                seen.job, seen.job.status.attempt
            ),
            may_grow=self._preemptions.may_grow(seen.job, seen.job.status.attempt),
            cliques=self._cliques.of(seen.job.status.placement),
            run_limit=self._run_limits.of(key.namespace),
        )

    async def _write(
        self, observation: Observation, status: GpuJobStatus, seen: CachedGpuJob
    ) -> GpuJob:
        """Write the status in time; a plan written after it expired may give away others' GPUs."""
        job, answer = observation.job, observation.answer
        if status == job.status:
            return job
        seconds = answer.seconds if isinstance(answer, Plan | PlanPending | GrowthPlan) else None
        if observation.move is not None and status.moves > job.status.moves:
            seconds = (observation.move.until - observation.now).total_seconds()
        try:
            async with asyncio.timeout(seconds):
                written = await self._written(job, status)
        except TimeoutError as error:
            message = f"the plan expired after {seconds:.1f} s, before the status was written"
            raise errors.Unreachable(message) from error
        self._cache.record_write(seen.with_job(written))
        return written

    async def _written(self, job: GpuJob, status: GpuJobStatus) -> GpuJob:
        """Write a status.

        It omits the results if the API server refuses these, so that GPUs are freed.
        """
        try:
            return await self._actor.write_status(job, status)
        except errors.Refused as error:
            refused = isinstance(error, errors.Invalid) or error.is_too_large
            if not refused or results.all_of(status) == results.all_of(job.status):
                raise
            bare = results.without_results(status, error, self._writer(job))
            return await self._actor.write_status(job, bare)

    async def _report(self, job: GpuJob, news: list[Notice]) -> None:
        """Log and post events, only after the status is written."""
        for notice in news:
            log.info("%s/%s: %s: %s", *job.key, notice.reason, notice.note)
        await self._actor.post_events(job, news)

    async def _priority(self, job: GpuJob) -> Priority:
        """Return the priority, which matters only while the job waits."""
        waits = not job.status.finished and attempts.current(job.status) is None
        return await self._priorities.of(job.spec) if waits else Priority(0)

    async def _act(
        self,
        seen: CachedGpuJob,
        decision: Decision,
        priority: Priority,
    ) -> Answer | None:
        patches = [action for action in decision.actions if isinstance(action, Patch)]
        await self._actor.patch(seen.job, patches)
        for action in decision.actions:
            if isinstance(action, Patch):
                continue
            if isinstance(action, RequestPlan):
                return priority.problem or await self._plan(seen, action, priority)
            if isinstance(action, RequestGrowth):
                return await self._actor.planner.grow(seen, action)
            if answer := await self._carry_out(seen, action):
                return answer
        return None

    async def _carry_out(self, seen: CachedGpuJob, action: ApiWrite | NodesAction) -> Answer | None:
        match action:
            case ReserveNodesRequest():
                return self._nodes_limiter.reserve(seen.job, action, self._now())
            case CreateNodesRequest():
                return await self._nodes.create(seen, action)
            case DeleteNodesRequest():
                return await self._nodes.delete(seen.job, action)
        return await self._actor.act(seen, action)

    async def _plan(self, seen: CachedGpuJob, action: RequestPlan, priority: Priority) -> Answer:
        self._waiting_jobs.record_request(Key(*seen.job.key))
        if no := self._creation.pause(seen.job):
            return no
        is_quota_uncertain = self._creation.is_quota_uncertain(seen.job.metadata.namespace)
        return await self._actor.planner.plan(
            seen, action, priority=priority.value, is_quota_uncertain=is_quota_uncertain
        )

    def _update_waiting_jobs(self, key: Key, observation: Observation, decision: Decision) -> None:
        """Update the waiting jobs: whether the job waits for a plan, and what its status says."""
        before, status = observation.job.status, decision.status
        if status.phase != "Pending" or _is_being_deleted(observation.job):
            self._waiting_jobs.remove(key)
        elif (status.reason, status.message) != (before.reason, before.message):
            self._waiting_jobs.set_wait_message(key, waiting.wait_message(observation))

    async def _refresh(self, key: Key) -> None:
        """Read the GPUJob past the watch: another client wrote it, or a write had no answer."""
        seen = self._cache.gpujob(key)
        try:
            found = await self._api.get(READABLE_GPUJOBS, key.name, namespace=key.namespace)
        except errors.NotFound:
            if seen:
                self._cache.mark_deleted(seen.job.metadata.uid)
        else:
            self._cache.record_write(found.cached)
        self._refetch.discard(key)


def _is_being_deleted(job: GpuJob) -> bool:
    """Tell whether it is being deleted: other components' finalizers may take their time."""
    return job.metadata.deletion_timestamp is not None
