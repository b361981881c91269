# SPDX-License-Identifier: Apache-2.0
"""Namespaces in which gangs got fewer pods than they have workers: the next gang there waits.

The dry run of one pod cannot tell that a quota has room for the first and not for the last. Such a
gang holds its GPUs until it is noticed that no more pods come. A pause for each GPUJob would buy
nothing: the next one has another name. So the namespace pauses, longer after each such end, and
after a pause one gang is admitted, not all that wait there. A gang that is deleted or suspended
before it runs counts as one, or whoever does that in time would never pause.
"""

import dataclasses
import time
from collections.abc import Callable
from typing import Final

from gpupack_crds.gpujob_status import Attempt, GpuJobStatus
from gpupack_crds.kinds import GpuJob
from gpupack_operator.decision import attempts
from gpupack_operator.decision.model import NotPlanned
from gpupack_operator.decision.reasons import JobReason
from gpupack_operator.remembered import Remembered

FIRST_PAUSE_SECONDS: Final = 15.0
MAX_PAUSE_SECONDS: Final = 600.0
TRIAL_SECONDS: Final = 30.0
"""How long the others of a namespace wait for what becomes of the gang that was admitted."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Pause:
    refused: int
    until: float
    said: str


class CreationBackoff:
    """Kept in memory: after a restart each namespace may try once more.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._pauses = Remembered[str, _Pause](clock, linger_seconds=MAX_PAUSE_SECONDS)
        """By namespace."""
        self._starting: dict[tuple[str, str], str] = {}
        """The uid of each gang that has places and does not run yet, by namespace and name."""

    def pause(self, job: GpuJob) -> NotPlanned | None:
        """Why no plan is to be asked for; None where one may be."""
        found = self._pauses.get(job.metadata.namespace)
        if found is None or job.spec.workers == 1 or found.until <= self._clock():
            return None
        message = f"the last gang of this namespace did not get all its pods: {found.said}"
        return NotPlanned(
            reason=JobReason.CREATION_FORBIDDEN,
            message=f"{message}; the next may try within {MAX_PAUSE_SECONDS:.0f} s",
            lacks_room=False,
            retry_seconds=found.until - self._clock(),
        )

    def saw(self, job: GpuJob, before: GpuJobStatus) -> None:
        """The status of a GPUJob was written; `before` is what it was."""
        if job.spec.workers == 1:
            return
        if self._starting.get(job.key, job.metadata.uid) != job.metadata.uid:
            self.gone(job.key)
        status = job.status
        if status.phase == "Running":
            self._ran(job)
        elif attempts.current(status):
            if not attempts.current(before):
                self._began(job)
        elif job.key in self._starting:
            self._ended(job, status.attempts[-1])

    def gone(self, key: tuple[str, str]) -> None:
        """The GPUJob of this namespace and name is no longer there."""
        if self._starting.pop(key, None):
            self._refused(key[0], f"{key[1]} was deleted before it ran")

    def _ran(self, job: GpuJob) -> None:
        self._starting.pop(job.key, None)
        self._pauses.forget(job.metadata.namespace)

    def _ended(self, job: GpuJob, attempt: Attempt) -> None:
        if attempt.reason == JobReason.CREATION_FORBIDDEN or attempt.outcome == "Suspended":
            self._refused(job.metadata.namespace, attempt.message)
        elif attempt.outcome in {"Succeeded", "Failed"}:
            self._ran(job)
        self._starting.pop(job.key, None)

    def _refused(self, namespace: str, said: str) -> None:
        before = self._pauses.get(namespace)
        count = before.refused + 1 if before else 1
        seconds = min(FIRST_PAUSE_SECONDS * 2.0 ** (count - 1), MAX_PAUSE_SECONDS)
        self._pauses.keep(namespace, _Pause(count, self._clock() + seconds, said))

    def _began(self, job: GpuJob) -> None:
        self._starting[job.key] = job.metadata.uid
        if found := self._pauses.get(job.metadata.namespace):
            until = self._clock() + TRIAL_SECONDS
            self._pauses.keep(job.metadata.namespace, dataclasses.replace(found, until=until))
