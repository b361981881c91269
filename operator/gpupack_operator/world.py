# SPDX-License-Identifier: Apache-2.0
"""What the API server holds, as kopf's indices and our own writes know it.

kopf fills three indices. Two things they cannot know are added here:

* What we wrote ourselves a moment ago: the newest answer to a write wins over an older watch
  event, so that a pass never decides by a status that the one before has replaced.
* What is gone: after a broken watch kopf lists anew, but drops nothing that is no longer listed.
  `audit` finds such ghosts; a uid never comes back, so they are left out for good.
"""

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from gpupack_crds.kinds import GpuJob
from gpupack_kube.objects import Job, Json, Object, Pod
from gpupack_operator.manifests import owner
from gpupack_operator.waitlist import Key

Index = Mapping[Any, Iterable[Any]]


@dataclasses.dataclass(frozen=True, slots=True)
class Seen:
    """A GPUJob, and its pod template as it was written.

    The typed view of the template keeps only the fields that gpupack reads.
    """

    job: GpuJob
    template: Json


@dataclasses.dataclass(slots=True)
class World:
    """Read access to everything that was observed."""

    gpujobs: Index = dataclasses.field(default_factory=dict)
    jobs: Index = dataclasses.field(default_factory=dict)
    pods: Index = dataclasses.field(default_factory=dict)
    _written: dict[Key, GpuJob] = dataclasses.field(default_factory=dict)
    _gone: set[str] = dataclasses.field(default_factory=set)

    def gpujob(self, key: Key) -> Seen | None:
        """The newest state of a GPUJob; None where there is none."""
        seen = next(iter(self._living(self.gpujobs.get(key, ()))), None)
        if seen is None:
            self._written.pop(key, None)
            return None
        written = self._written.get(key)
        if written and _is_newer(written, seen.job):
            return Seen(job=written, template=seen.template)
        self._written.pop(key, None)
        return seen

    def jobs_of(self, job: GpuJob) -> tuple[Job, ...]:
        """The Jobs that a GPUJob controls."""
        labelled = self._present(self.jobs.get(job.metadata.uid, ()))
        return tuple(found for found in labelled if owner.is_ours(found, job))

    def pods_of(self, job: GpuJob, jobs: Collection[Job]) -> tuple[Pod, ...]:
        """The pods of a GPUJob's Jobs, and those that have outlived theirs."""
        labelled = self._present(self.pods.get(job.metadata.uid, ()))
        return tuple(pod for pod in labelled if owner.is_worker(pod, job, jobs))

    def keys(self) -> tuple[Key, ...]:
        """All GPUJobs."""
        return tuple(self.gpujobs)

    def wrote(self, job: GpuJob) -> None:
        """The API server's answer to a write of ours."""
        self._written[Key(*job.key)] = job

    def is_echo(self, key: Key, version: str) -> bool:
        """Whether a watch event only repeats our own newest write."""
        written = self._written.get(key)
        return written is not None and written.metadata.resource_version == version

    def mark_gone(self, uid: str) -> None:
        """An object is gone although nobody was told."""
        self._gone.add(uid)

    def _living(self, found: Iterable[Seen]) -> Iterator[Seen]:
        return (seen for seen in found if seen.job.metadata.uid not in self._gone)

    def _present(self, found: Iterable[Any]) -> Iterator[Any]:
        return (item for item in found if item.metadata.uid not in self._gone)


def read_gpujob(body: Mapping[str, Any]) -> Seen:
    """Read a GPUJob as kopf hands it out.

    Raises:
        msgspec.ValidationError: it does not follow the CRD's schema.
    """
    job = msgspec.convert(dict(body), GpuJob)
    return Seen(job=job, template=body.get("spec", {}).get("template") or {})


def version(item: Object) -> int:
    """An object's resourceVersion; they are comparable within one kind."""
    return int(item.metadata.resource_version or 0)


def _is_newer(written: GpuJob, seen: GpuJob) -> bool:
    same = written.metadata.uid == seen.metadata.uid
    return same and version(written) > version(seen)
