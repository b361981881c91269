# SPDX-License-Identifier: Apache-2.0
"""Routing of events to keys in the work queue."""

from gpupack_crds import names
from gpupack_crds.plan import TurnsResponse
from gpupack_kubeclient.objects import Job, Pod
from gpupack_operator.cache import Cache, CachedGpuJob
from gpupack_operator.nodes_bounds import NodesBounds
from gpupack_operator.plan_line import Key, PlanLine
from gpupack_operator.preemptions import Preemptions
from gpupack_operator.work_queue import WorkQueue


class EventRouter:
    """Router that knows to which GPUJobs an event belongs."""

    def __init__(
        self,
        queue: WorkQueue[Key],
        cache: Cache,
        line: PlanLine,
        preemptions: Preemptions,
        bounds: NodesBounds,
    ) -> None:
        self._queue = queue
        self._cache = cache
        self._line = line
        self._preemptions = preemptions
        self._bounds = bounds

    def gpujob(self, seen: CachedGpuJob, *, gone: bool) -> None:
        """Queue a changed GPUJob; the echo of the operator's own write is ignored."""
        meta = seen.job.metadata
        key = Key(meta.namespace, meta.name)
        if gone or not self._cache.is_echo(key, meta.resource_version):
            self._queue.add(key)
        self._bounds.saw(seen.job, gone=gone)
        for victim in self._preemptions.saw(seen.job, gone=gone):
            self._queue.add(victim)
        if gone:
            self._line.leave(key)

    def orders(self, heard: TurnsResponse) -> None:
        """Queue the attempts that must end, move or grow according to the extender."""
        told = self._preemptions.told(heard.stops, heard.drained, heard.moves, heard.grows)
        for key in told:
            self._queue.add(key)

    def job(self, job: Job, *, gone: bool) -> None:
        """Queue the GPUJob of a changed Job."""
        if gone:
            self._cache.job_gone(job)
        self._child(job)

    def pod(self, pod: Pod, *, gone: bool) -> None:
        """Queue the GPUJob of a changed pod."""
        if gone:
            self._cache.pod_gone(pod)
        self._child(pod)

    def _child(self, item: Job | Pod) -> None:
        if name := item.metadata.labels.get(names.JOB_LABEL):
            self._queue.add(Key(item.metadata.namespace, name))
