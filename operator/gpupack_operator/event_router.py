# SPDX-License-Identifier: Apache-2.0
"""Routing of events to keys in the work queue."""

from gpupack_crds import names
from gpupack_crds.gpujob_status import RunLimit
from gpupack_crds.plan import TurnsResponse
from gpupack_kubeclient.objects import Job, Pod
from gpupack_operator.cache import Cache, CachedGpuJob
from gpupack_operator.decision import times
from gpupack_operator.nodes_limits import NodesRequestLimiter
from gpupack_operator.preemptions import Preemptions
from gpupack_operator.run_limits import RunLimits
from gpupack_operator.waiting_jobs import Key, WaitingJobs
from gpupack_operator.work_queue import WorkQueue


class EventRouter:
    """Router that knows to which GPUJobs an event belongs."""

    def __init__(
        self,
        queue: WorkQueue[Key],
        cache: Cache,
        waiting_jobs: WaitingJobs,
        preemptions: Preemptions,
        nodes_limiter: NodesRequestLimiter,
    ) -> None:
        self._queue = queue
        self._cache = cache
        self._waiting_jobs = waiting_jobs
        self._preemptions = preemptions
        self._nodes_limiter = nodes_limiter

    def on_gpujob(self, seen: CachedGpuJob, *, gone: bool) -> None:
        """Queue a changed GPUJob; the echo of the operator's own write is ignored."""
        meta = seen.job.metadata
        key = Key(meta.namespace, meta.name)
        if gone or not self._cache.is_echo(key, meta.resource_version):
            self._queue.add(key)
        self._nodes_limiter.record(seen.job, gone=gone)
        for victim in self._preemptions.record(seen.job, gone=gone):
            self._queue.add(victim)
        if gone:
            self._waiting_jobs.remove(key)

    def on_orders(self, orders: TurnsResponse) -> None:
        """Queue the attempts that must end, move or grow according to the extender."""
        changed = self._preemptions.replace_orders(
            orders.stops, orders.drained, orders.moves, orders.grows
        )
        for key in changed:
            self._queue.add(key)

    def on_run_limits(self, limits: RunLimits) -> None:
        """Queue the GPUJobs whose maximum run time has changed, by their statuses.

        A pending job requests its plan again, with its new deadline.
        """
        of_namespace: dict[str, RunLimit | None] = {}
        for seen in self._cache.all_gpujobs():
            job, key = seen.job, Key(*seen.job.key)
            if job.status.finished:
                continue
            if key.namespace not in of_namespace:
                of_namespace[key.namespace] = limits.of(key.namespace)
            if times.run_limit(job.spec, of_namespace[key.namespace]) != job.status.run_limit:
                self._waiting_jobs.discard_answer(key)
                self._queue.add(key)

    def on_job(self, job: Job, *, gone: bool) -> None:
        """Queue the GPUJob of a changed Job."""
        if gone:
            self._cache.on_job_deleted(job)
        self._child(job)

    def on_pod(self, pod: Pod, *, gone: bool) -> None:
        """Queue the GPUJob of a changed pod."""
        if gone:
            self._cache.on_pod_deleted(pod)
        self._child(pod)

    def _child(self, item: Job | Pod) -> None:
        if name := item.metadata.labels.get(names.JOB_LABEL):
            self._queue.add(Key(item.metadata.namespace, name))
