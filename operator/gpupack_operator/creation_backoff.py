# SPDX-License-Identifier: Apache-2.0
"""Namespaces in which jobs ended before all their pods existed: the next job there waits.

The dry run of one pod cannot show that a quota allows the first pod and not the last, or that
several jobs will compete for the same quota. Such a job holds its GPUs until it is clear that no
more pods come, or until its tenant ends it in one of a dozen ways. A pause for each GPUJob would be
useless: the next one has another name. So the namespace pauses, longer after each such end,
whatever its cause, and after a pause one job is admitted, not all that wait there. Two ends cause
no pause: a preempted job did not choose its end, and its GPUs are needed; and after the API server
refused an attempt's shared pods, the next attempt has a pod for each worker.

A small job may fit where a large one did not. So jobs are classified by their number of workers, to
a factor of two: a pause applies to jobs of the size that failed and to larger ones.
"""

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Final

from gpupack_crds.gpujob import GpuJobSpec, Role
from gpupack_crds.gpujob_status import GpuJobStatus
from gpupack_crds.kinds import GpuJob
from gpupack_operator.decision import attempts
from gpupack_operator.decision.model import NoPlan, Observation
from gpupack_operator.decision.reasons import JobReason
from gpupack_operator.decision.view import view
from gpupack_operator.expiring_cache import ExpiringCache

FIRST_PAUSE_SECONDS: Final = 15.0
MAX_PAUSE_SECONDS: Final = 600.0
OUTCOME_SECONDS: Final = 30.0
"""How long the other jobs of a namespace wait for the outcome of the admitted one."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Pause:
    """Pause for jobs of one size.

    Attributes:
        until: end of the pause by the monotonic clock, in seconds.
        gpus: the largest number of GPUs that any such job held.
        said: how the last one ended.
    """

    until: float
    gpus: float
    said: str


@dataclasses.dataclass(frozen=True, slots=True)
class _Pauses:
    """Pauses of one namespace.

    Attributes:
        ends: number of consecutive jobs that ended before all their pods existed.
        sizes: the pause of each size.
    """

    ends: int
    sizes: Mapping[int, _Pause]

    @property
    def until(self) -> float:
        return max(pause.until for pause in self.sizes.values())


class CreationBackoff:
    """Pauses by namespace, kept in memory: after a restart each namespace may try once more.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._pauses = ExpiringCache[str, _Pauses](clock, linger_seconds=MAX_PAUSE_SECONDS)
        """Pauses by namespace."""
        self._starting: dict[tuple[str, str], GpuJob] = {}
        """Jobs that have a placement and do not have all pods yet, by namespace and name."""

    def pause(self, job: GpuJob) -> NoPlan | None:
        """Return why no plan may be requested; None: one may be."""
        pauses = [pause for pause in self._before(job).values() if pause.until > self._clock()]
        if not pauses:
            return None
        last = max(pauses, key=lambda pause: pause.until)
        message = (
            "a job of this namespace held GPUs and ended before all its pods existed, usually "
            f"because of a quota: {last.said}"
        )
        return NoPlan(
            reason=JobReason.CREATION_FORBIDDEN,
            message=f"{message}; the next job is tried within {MAX_PAUSE_SECONDS:.0f} s",
            retry_seconds=last.until - self._clock(),
        )

    def is_quota_uncertain(self, namespace: str) -> bool:
        """Tell whether the API server's earlier answer about this namespace's pods may be outdated.

        Pods of a job that has a placement and not all its pods yet will count against a quota.
        """
        starting = any(key[0] == namespace for key in self._starting)
        return starting or self._pauses.get(namespace) is not None

    def record(self, job: GpuJob, observation: Observation) -> None:
        """Record a GPUJob that was written after it was observed."""
        before, status = observation.job.status, job.status
        if job.metadata.deletion_timestamp is not None:
            self.record_deletion(job.key)
            return
        known = self._starting.get(job.key)
        if known and known.metadata.uid != job.metadata.uid:
            self.record_deletion(job.key)
        if _has_all_pods(observation):
            self._starting.pop(job.key, None)
        if before.phase == "Admitted" and status.phase in {"Running", "Succeeded"}:
            self._record_run(job)
        elif attempts.current(status):
            if not attempts.current(before):
                self._record_start(job)
        elif self._starting.pop(job.key, None) and not _ended_without_fault(status):
            self._record_early_end(job, f"{job.metadata.name}: {_end(status)}")

    def record_deletion(self, key: tuple[str, str]) -> None:
        """Record that the GPUJob of this namespace and name no longer exists."""
        if job := self._starting.pop(key, None):
            self._record_early_end(job, f"{key[1]} was deleted")

    def _before(self, job: GpuJob) -> dict[int, _Pause]:
        """Return the pauses that apply to jobs of this size, by size."""
        found = self._pauses.get(job.metadata.namespace)
        sizes = found.sizes if found else {}
        return {size: pause for size, pause in sizes.items() if size <= _size(job.spec)}

    def _record_start(self, job: GpuJob) -> None:
        self._starting[job.key] = job
        until = self._clock() + OUTCOME_SECONDS
        self._change(job, lambda pause: dataclasses.replace(pause, until=until))

    def _record_run(self, job: GpuJob) -> None:
        """End the pauses for jobs that are smaller in all respects."""
        self._starting.pop(job.key, None)
        gpus = _gpus(job.spec)
        self._change(job, lambda pause: None if pause.gpus <= gpus else pause)

    def _change(self, job: GpuJob, change: Callable[[_Pause], _Pause | None]) -> None:
        """Change or remove the pauses that apply to jobs of this size."""
        namespace = job.metadata.namespace
        if found := self._pauses.get(namespace):
            changed = {size: change(pause) for size, pause in self._before(job).items()}
            sizes = {**found.sizes, **changed}
            kept = {size: pause for size, pause in sizes.items() if pause}
            if kept:
                self._pauses.put(namespace, dataclasses.replace(found, sizes=kept))
            else:
                self._pauses.forget(namespace)

    def _record_early_end(self, job: GpuJob, said: str) -> None:
        namespace, size = job.metadata.namespace, _size(job.spec)
        found = self._pauses.get(namespace) or _Pauses(ends=0, sizes={})
        seconds = min(FIRST_PAUSE_SECONDS * 2.0 ** min(found.ends, 10), MAX_PAUSE_SECONDS)
        gpus = _gpus(job.spec)
        if size in found.sizes:
            gpus = max(gpus, found.sizes[size].gpus)
        pause = _Pause(until=self._clock() + seconds, gpus=gpus, said=said)
        self._pauses.put(namespace, _Pauses(found.ends + 1, {**found.sizes, size: pause}))


def _has_all_pods(observation: Observation) -> bool:
    """Tell whether the current or last attempt has a pod of each worker."""
    status = observation.job.status
    attempt = attempts.current(status)
    return attempt is not None and view(observation, status, attempt).all_created


def _ended_without_fault(status: GpuJobStatus) -> bool:
    """Tell whether the last attempt was preempted, or restarts with other pods."""
    last = status.attempts[-1] if status.attempts else None
    return last is not None and (
        last.outcome == "Preempted" or last.reason == JobReason.SHARED_POD_REJECTED
    )


def _end(status: GpuJobStatus) -> str:
    """Describe how the last attempt ended."""
    last = status.attempts[-1] if status.attempts else None
    return f"{last.reason}: {last.message}" if last else status.message


def _size(spec: GpuJobSpec) -> int:
    """Return 1 for one worker, 2 for two or three, 3 for four to seven, and so on."""
    return spec.workers.bit_length()


def _gpus(spec: GpuJobSpec) -> float:
    """Return the GPUs of all workers."""
    if spec.roles:
        return sum(_gpus_of(role, role.workers) for role in spec.roles)
    return _gpus_of(spec, spec.workers)


def _gpus_of(part: GpuJobSpec | Role, workers: int) -> float:
    return workers * (part.share.percent / 100 if part.share else part.gpus or 1)
