# SPDX-License-Identifier: Apache-2.0
"""What the API server holds, as the watches and our own writes know it.

kopf's events and reflectors fill three indices. Three things they cannot know are added here:

* What we wrote ourselves a moment ago: the newest answer to a write wins over an older watch
  event, so that a pass never decides by a status that the one before has replaced.
* What is gone before the watch says so: `audit` and failing passes find them; a uid never
  comes back, so they are left out for as long as an index holds them, which for GPUJobs is until
  the next audit. Until one is found, a namesake that lives is told from it by its newer
  resourceVersion.
* How a worker ended whose pod is gone. A pod that was asked to end goes within a second of its
  end: the Job controller has counted it, and removes its finalizer. Its last state stays for as
  long as its Job is there, so that a pass never depends on having come in time.
"""

import dataclasses
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from gpupack_crds import names
from gpupack_crds.gpujob import MAX_WORKERS, GpuJobSpec
from gpupack_crds.gpujob_status import GpuJobStatus
from gpupack_crds.kinds import GPUJOBS, GpuJob
from gpupack_kube.objects import Job, Json, Object, Pod
from gpupack_kube.resources import Resource
from gpupack_operator.manifests import owner
from gpupack_operator.plan_line import Key

Lookup = Mapping[Any, Iterable[Any]]


@dataclasses.dataclass(frozen=True, slots=True)
class CachedGpuJob:
    """A GPUJob, and its pod template as it was written.

    The typed view of the template keeps only the fields that gpupack reads.
    """

    job: GpuJob
    template: Json


class ReadableGpuJob(Object, frozen=True):
    """A GPUJob as it was written. One that does not follow the CRD's schema cannot be read."""

    spec: Json = {}
    status: Json = {}

    def __post_init__(self) -> None:
        """Refuse where `cached` would."""
        self.cached()

    def cached(self) -> CachedGpuJob:
        """What is kept of it."""
        job = GpuJob(
            metadata=self.metadata,
            spec=msgspec.convert(self.spec, GpuJobSpec),
            status=msgspec.convert(self.status, GpuJobStatus),
        )
        return CachedGpuJob(job=job, template=self.spec.get("template") or {})


DEEPEST_LEVELS: Final = 100
"""Of fields, in a GPUJob that is read. The deepest field that Kubernetes itself has in a pod is 20
levels down. One rule for all readers: what kopf is not shown must not be missed by the audit."""

LARGEST_BYTES: Final = 4 << 20
"""Of a GPUJob that is read, likewise. etcd holds a custom resource as the JSON that is sent, and
takes 1.5 MiB where nobody has it take more."""

READABLE_GPUJOBS = Resource(
    GPUJOBS.prefix,
    GPUJOBS.plural,
    ReadableGpuJob,
    levels=DEEPEST_LEVELS,
    largest_bytes=LARGEST_BYTES,
)


@dataclasses.dataclass(slots=True)
class Cache:
    """Read access to everything that was observed."""

    gpujobs: Lookup = dataclasses.field(default_factory=dict)
    jobs: Lookup = dataclasses.field(default_factory=dict)
    pods: Lookup = dataclasses.field(default_factory=dict)
    _written: dict[Key, CachedGpuJob] = dataclasses.field(default_factory=dict)
    _deleted: set[str] = dataclasses.field(default_factory=set)
    _ended: dict[str, dict[int, Pod]] = dataclasses.field(default_factory=dict)
    """Finished pods that are gone, by UID of their Job and index."""

    def gpujob(self, key: Key) -> CachedGpuJob | None:
        """The newest state of a GPUJob; None where there is none."""
        living = self._living(self.gpujobs.get(key, ()))
        seen = max(living, key=lambda found: version(found.job), default=None)
        written = self._written.get(key)
        if seen and written and self._is_newer(written, seen):
            return written
        self._written.pop(key, None)
        return seen

    def jobs_of(self, job: GpuJob) -> tuple[Job, ...]:
        """The Jobs that a GPUJob controls."""
        labelled = self._present(self.jobs.get(job.metadata.uid, ()))
        return tuple(found for found in labelled if owner.is_ours(found, job))

    def pods_of(self, job: GpuJob, jobs: Collection[Job]) -> tuple[Pod, ...]:
        """The pods of a GPUJob's Jobs, those that ended and are gone, and those without a Job."""
        there = self._present(self.pods.get(job.metadata.uid, ()))
        gone = (pod for found in jobs for pod in self._ended.get(found.metadata.uid, {}).values())
        labelled = itertools.chain(there, gone)
        return tuple(pod for pod in labelled if owner.is_worker(pod, job, jobs))

    def all_gpujobs(self) -> Iterator[CachedGpuJob]:
        """The newest state of each."""
        return (seen for key in self.keys() if (seen := self.gpujob(key)) is not None)

    def keys(self) -> tuple[Key, ...]:
        """All GPUJobs."""
        return tuple(self.gpujobs)

    def wrote(self, seen: CachedGpuJob) -> None:
        """The API server's answer to a write, or to a read past the watch."""
        self._written[Key(*seen.job.key)] = seen

    def is_echo(self, key: Key, version: str) -> bool:
        """Whether a watch event only repeats our own newest write."""
        written = self._written.get(key)
        return written is not None and written.job.metadata.resource_version == version

    def pod_gone(self, pod: Pod) -> None:
        """A pod is gone; of one that had finished, how it ended stays.

        Labels and owner are what its author wrote: one of each worker of a Job that exists is kept,
        the first.
        """
        meta, index = pod.metadata, owner.index_of(pod)
        if not pod.finished or not 0 <= index < MAX_WORKERS:
            return
        for job in self._present(self.jobs.get(meta.labels.get(names.JOB_UID_LABEL), ())):
            near = job.metadata.namespace == meta.namespace
            if near and owner.is_controlled_by(pod, job):
                self._ended.setdefault(job.metadata.uid, {}).setdefault(index, pod)

    def job_gone(self, job: Job) -> None:
        """A Job is gone, and with it what its workers say."""
        self._ended.pop(job.metadata.uid, None)

    def mark_deleted(self, uid: str) -> None:
        """An object is gone although nobody was told."""
        self._deleted.add(uid)

    def forget_deleted(self) -> None:
        """Of what is gone, only what an index still holds has to be remembered."""
        indexed = {seen.job.metadata.uid for seen in _all(self.gpujobs)}
        indexed |= {item.metadata.uid for index in (self.jobs, self.pods) for item in _all(index)}
        indexed |= {seen.job.metadata.uid for seen in self._written.values()}
        self._deleted &= indexed

    def _living(self, found: Iterable[CachedGpuJob]) -> Iterator[CachedGpuJob]:
        return (seen for seen in found if seen.job.metadata.uid not in self._deleted)

    def _is_newer(self, written: CachedGpuJob, seen: CachedGpuJob) -> bool:
        gone = written.job.metadata.uid in self._deleted
        return not gone and version(written.job) > version(seen.job)

    def _present(self, found: Iterable[Any]) -> Iterator[Any]:
        return (item for item in found if item.metadata.uid not in self._deleted)


def _all(index: Lookup) -> Iterator[Any]:
    return (item for key in index for item in index[key])


def version(item: Object) -> int:
    """An object's resourceVersion; they are comparable within one kind."""
    return int(item.metadata.resource_version or 0)
