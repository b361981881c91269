# SPDX-License-Identifier: Apache-2.0
"""From events to keys in the work queue."""

from gpupack_crds import names
from gpupack_kube.objects import Job, Pod
from gpupack_operator.waitlist import Key, Waitlist
from gpupack_operator.work import WorkQueue
from gpupack_operator.world import Seen, World


class Ear:
    """Knows which GPUJob an event is about, and whether it may have freed something."""

    def __init__(self, queue: WorkQueue[Key], world: World, waitlist: Waitlist) -> None:
        self._queue = queue
        self._world = world
        self._waitlist = waitlist

    def gpujob(self, seen: Seen, *, gone: bool) -> None:
        """A GPUJob changed; the echo of our own write is nothing new."""
        meta = seen.job.metadata
        key = Key(meta.namespace, meta.name)
        if not self._world.is_echo(key, meta.resource_version):
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
        for key in self._waitlist.freed():
            self._queue.add(key)

    def _child(self, item: Job | Pod) -> None:
        if name := item.metadata.labels.get(names.JOB_LABEL):
            self._queue.add(Key(item.metadata.namespace, name))
