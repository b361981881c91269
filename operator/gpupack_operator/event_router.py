# SPDX-License-Identifier: Apache-2.0
"""From events to keys in the work queue."""

from gpupack_crds import names
from gpupack_kube.objects import Job, Pod
from gpupack_operator.cache import Cache, CachedGpuJob
from gpupack_operator.waitlist import Key, Waitlist
from gpupack_operator.work_queue import WorkQueue


class EventRouter:
    """Knows which GPUJob an event is about, and whether it may have freed something."""

    def __init__(self, queue: WorkQueue[Key], cache: Cache, waitlist: Waitlist) -> None:
        self._queue = queue
        self._cache = cache
        self._waitlist = waitlist

    def gpujob(self, seen: CachedGpuJob, *, gone: bool) -> None:
        """A GPUJob changed; the echo of our own write is nothing new."""
        meta = seen.job.metadata
        key = Key(meta.namespace, meta.name)
        if gone or not self._cache.is_echo(key, meta.resource_version):
            self._queue.add(key)
        if gone:
            self._waitlist.leave(key)
            self.freed()

    def job(self, job: Job, *, gone: bool) -> None:  # noqa: ARG002 - a callback's argument
        """A Job changed."""
        self._child(job)

    def pod(self, pod: Pod, *, gone: bool) -> None:
        """A pod changed; one that ended gives its devices back."""
        self._child(pod)
        if gone or pod.finished:
            self.freed()

    def freed(self) -> None:
        """Something may have been freed: whoever waits asks again, in order."""
        self._waitlist.freed()

    def _child(self, item: Job | Pod) -> None:
        if name := item.metadata.labels.get(names.JOB_LABEL):
            self._queue.add(Key(item.metadata.namespace, name))
