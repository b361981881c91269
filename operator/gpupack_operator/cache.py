# SPDX-License-Identifier: Apache-2.0
"""Objects of the API server, as known from the watches and the operator's own writes.

kopf's events and reflectors fill three indices. This module adds three things that they lack:

* The operator's own recent writes: the newest answer to a write overrides an older watch event, so
  that a pass never decides by a status that the previous one has replaced.
* Deletions before the watch reports them: `audit` and failing passes find them. A UID is never used
  again, so these objects are ignored for as long as an index holds them, which for GPUJobs is until
  the next audit. Until a deletion is found, the newer resourceVersion identifies the living object
  among those of one name.
* The end of a worker whose pod is deleted. A pod that was requested to end disappears within a
  second of its end: the Job controller has counted it, and removes its finalizer. Its last state
  stays as long as its Job exists, so that a pass never depends on being in time.
"""

import dataclasses
import functools
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final, Protocol

import msgspec
from msgspec import structs

from gpupack_crds import names
from gpupack_crds.gpujob import MAX_WORKERS, GpuJobSpec
from gpupack_crds.gpujob_status import GpuJobStatus
from gpupack_crds.kinds import GPUJOBS, GpuJob
from gpupack_kubeclient.objects import Job, Json, Object, ObjectMeta, Pod
from gpupack_kubeclient.resources import Resource
from gpupack_operator.manifests import owner
from gpupack_operator.manifests.worker_kind import WorkerKind
from gpupack_operator.waiting_jobs import Key

Lookup = Mapping[Any, Iterable[Any]]


class Versioned(Protocol):
    """What an index keeps of an object."""

    @property
    def metadata(self) -> ObjectMeta:
        """Return the object's metadata."""


@dataclasses.dataclass(frozen=True, slots=True)
class CachedGpuJob:
    """GPUJob with its pod templates as they were written.

    The typed view of a template keeps only the fields that gpupack reads.
    """

    job: GpuJob
    template: Json
    role_templates: Mapping[str, Json] = dataclasses.field(default_factory=dict)
    """Templates by name of the role."""

    @property
    def metadata(self) -> ObjectMeta:
        """Return the GPUJob's metadata."""
        return self.job.metadata

    def with_job(self, job: GpuJob) -> "CachedGpuJob":
        """Return another version of the GPUJob with the same templates."""
        return dataclasses.replace(self, job=job)

    @property
    def kinds(self) -> "tuple[WorkerKind, ...]":
        """The kinds of its workers: of each role one, or one for all workers."""
        if not self.job.spec.roles:
            return (WorkerKind(self.job, self.template),)
        return tuple(
            WorkerKind(
                structs.replace(self.job, spec=self.job.spec.of_role(role)),
                self.role_templates.get(role.name, {}),
                role,
                indices.start,
            )
            for role, indices in self.job.spec.role_indices
        )


class ReadableGpuJob(Object, frozen=True, dict=True):
    """GPUJob as it was written. One that violates the CRD's schema cannot be read."""

    spec: Json = {}
    status: GpuJobStatus = GpuJobStatus()

    def __post_init__(self) -> None:
        """Convert the spec while the object is read, so that its errors are errors of reading."""
        _ = self.cached

    @functools.cached_property
    def cached(self) -> CachedGpuJob:
        """The part that the cache keeps."""
        spec = msgspec.convert(self.spec, GpuJobSpec)
        job = GpuJob(metadata=self.metadata, spec=spec, status=self.status)
        return CachedGpuJob(
            job=job,
            template=self.spec.get("template") or {},
            role_templates={
                role["name"]: role.get("template") or {} for role in self.spec.get("roles") or ()
            },
        )


MAX_GPUJOB_LEVELS: Final = 100
"""Largest number of nested levels of fields in a GPUJob that is read. The deepest field that
Kubernetes itself has in a pod is 20 levels down. All readers have the same limit: the audit must
not miss what kopf does not receive.
"""

MAX_GPUJOB_BYTES: Final = 4 << 20
"""Largest size of a GPUJob that is read. etcd stores a custom resource as the JSON that is sent,
and accepts 1.5 MiB unless it is configured to accept more.
"""

READABLE_GPUJOBS = Resource(
    GPUJOBS.prefix,
    GPUJOBS.plural,
    ReadableGpuJob,
    levels=MAX_GPUJOB_LEVELS,
    largest_bytes=MAX_GPUJOB_BYTES,
)


@dataclasses.dataclass(slots=True)
class Cache:
    """Read access to all observed objects."""

    gpujobs: Lookup = dataclasses.field(default_factory=dict)
    jobs: Lookup = dataclasses.field(default_factory=dict)
    pods: Lookup = dataclasses.field(default_factory=dict)
    _written: dict[Key, CachedGpuJob] = dataclasses.field(default_factory=dict)
    _deleted: set[str] = dataclasses.field(default_factory=set)
    _ended: dict[str, dict[int, Pod]] = dataclasses.field(default_factory=dict)
    """Finished pods that are deleted, by UID of their Job and index."""

    def gpujob(self, key: Key) -> CachedGpuJob | None:
        """Return the newest state of a GPUJob; None: it does not exist."""
        living = self._present(self.gpujobs.get(key, ()))
        seen: CachedGpuJob | None = max(living, key=version, default=None)
        written = self._written.get(key)
        if seen and written and self._is_newer(written, seen):
            return written
        self._written.pop(key, None)
        return seen

    def jobs_of(self, job: GpuJob) -> tuple[Job, ...]:
        """Return the Jobs that a GPUJob controls."""
        labelled = self._present(self.jobs.get(job.metadata.uid, ()))
        return tuple(found for found in labelled if owner.is_ours(found, job))

    def pods_of(self, job: GpuJob, jobs: Collection[Job]) -> tuple[Pod, ...]:
        """Return a GPUJob's pods, including deleted ones that ended and those without a Job."""
        there = self._present(self.pods.get(job.metadata.uid, ()))
        gone = (pod for found in jobs for pod in self._ended.get(found.metadata.uid, {}).values())
        labelled = itertools.chain(there, gone)
        return tuple(pod for pod in labelled if owner.is_worker(pod, job, jobs))

    def all_gpujobs(self) -> Iterator[CachedGpuJob]:
        """Yield the newest state of each GPUJob."""
        return (seen for key in self.keys() if (seen := self.gpujob(key)) is not None)

    def keys(self) -> tuple[Key, ...]:
        """Return the keys of all GPUJobs."""
        return tuple(self.gpujobs)

    def record_write(self, seen: CachedGpuJob) -> None:
        """Store the API server's answer to a write, or to a read that bypasses the watch."""
        self._written[Key(*seen.job.key)] = seen

    def is_echo(self, key: Key, version: str) -> bool:
        """Tell whether a watch event only repeats the operator's own newest write."""
        written = self._written.get(key)
        return written is not None and written.metadata.resource_version == version

    def on_pod_deleted(self, pod: Pod) -> None:
        """Keep the end of a deleted pod that had finished.

        A pod's author chooses its labels and owner: so one pod of each worker of an existing Job is
        kept, the first.
        """
        meta, index = pod.metadata, owner.index_of(pod)
        if not pod.finished or not 0 <= index < MAX_WORKERS:
            return
        for job in self._present(self.jobs.get(meta.labels.get(names.JOB_UID_LABEL), ())):
            near = job.metadata.namespace == meta.namespace
            if near and owner.is_controlled_by(pod, job):
                self._ended.setdefault(job.metadata.uid, {}).setdefault(index, pod)

    def on_job_deleted(self, job: Job) -> None:
        """Forget what a deleted Job's workers reported."""
        self._ended.pop(job.metadata.uid, None)

    def mark_deleted(self, uid: str) -> None:
        """Mark an object as deleted although no event reported it."""
        self._deleted.add(uid)

    def forget_deleted(self) -> None:
        """Forget deleted objects that no index holds any more."""
        indexes = (self.gpujobs, self.jobs, self.pods)
        indexed = {item.metadata.uid for index in indexes for item in _all(index)}
        indexed |= {seen.metadata.uid for seen in self._written.values()}
        self._deleted &= indexed

    def _is_newer(self, written: CachedGpuJob, seen: CachedGpuJob) -> bool:
        gone = written.metadata.uid in self._deleted
        return not gone and version(written) > version(seen)

    def _present(self, found: Iterable[Any]) -> Iterator[Any]:
        return (item for item in found if item.metadata.uid not in self._deleted)


def _all(index: Lookup) -> Iterator[Any]:
    return (item for key in index for item in index[key])


def version(item: Versioned) -> int:
    """Return an object's resourceVersion; versions of one kind are comparable."""
    return int(item.metadata.resource_version or 0)
