# SPDX-License-Identifier: Apache-2.0
"""Who waits, by the queue's name for him, within what a namespace may have in the queue."""

import dataclasses
from collections.abc import Iterator

from gpupack_core.queueing import JobId
from gpupack_scheduling.errors import QueueFull
from gpupack_scheduling.queueing.ask import Ask, GangAsk, GatedAsk, pod_id
from gpupack_scheduling.queueing.capacity import Capacity


@dataclasses.dataclass(slots=True)
class Waiting:
    """One who waits; times are the queue's."""

    ask: Ask
    asked_at: float
    unknown_since: float

    def asks_for_the_same(self, ask: Ask) -> bool:
        """Whether it was not edited since.

        It keeps the estimate with which it came, and what it avoids.
        """
        before = self.ask
        if not isinstance(before, GangAsk) or not isinstance(ask, GangAsk):
            return before.job == ask.job
        same = dataclasses.replace(
            ask, version=before.version, estimate=before.estimate, avoid=before.avoid
        )
        return same == before

    def see_version(self, ask: Ask) -> None:
        """The object was written anew, and asks for the same."""
        if isinstance(self.ask, GangAsk) and isinstance(ask, GangAsk):
            self.ask = dataclasses.replace(self.ask, version=ask.version)
        else:
            self.ask = ask


class WaitingAsks:
    """Attempts of GPUJobs and pods of their own."""

    def __init__(self) -> None:
        self._asks: dict[JobId, Waiting] = {}
        self._of_job: dict[str, dict[JobId, None]] = {}
        """By UID of their GPUJob."""
        self._capacity = Capacity()
        self._outside: dict[str, tuple[str, str]] = {}
        """Namespaces of pods that are not in the queue, and why they are not, by UID."""

    def __len__(self) -> int:
        return len(self._asks)

    def __iter__(self) -> Iterator[JobId]:
        """Any may leave meanwhile."""
        return iter(tuple(self._asks))

    def __getitem__(self, job: JobId) -> Waiting:
        return self._asks[job]

    def __contains__(self, job: object) -> bool:
        return job in self._asks

    def get(self, job: JobId) -> Waiting | None:
        """Of a job that waits."""
        return self._asks.get(job)

    @property
    def has_gangs(self) -> bool:
        """Whether there are attempts of GPUJobs."""
        return bool(self._of_job)

    def gangs(self) -> Iterator[tuple[JobId, Waiting, GangAsk]]:
        """Attempts of GPUJobs; any may leave meanwhile."""
        for job, waiting in tuple(self._asks.items()):
            if isinstance(waiting.ask, GangAsk):
                yield job, waiting, waiting.ask

    def of_job(self, uid: str) -> Iterator[tuple[JobId, GangAsk]]:
        """Attempts of the GPUJob; any may leave meanwhile."""
        for job in tuple(self._of_job.get(uid, ())):
            ask = self._asks[job].ask
            if isinstance(ask, GangAsk):
                yield job, ask

    def jobs(self) -> set[str]:
        """UIDs of the GPUJobs that have attempts here."""
        return set(self._of_job)

    def require_room(self, ask: Ask) -> None:
        """Its namespace may have one more of these in the queue.

        Raises:
            QueueFull: it may not; who was refused is called when another has left.
        """
        before = self._asks.get(ask.job.id)
        is_new = before is None or before.ask.gang != ask.gang
        if is_new and (obstacle := self._capacity.obstacle(ask.namespace, ask.gang)):
            self._capacity.refuse(ask.namespace, ask.key)
            if isinstance(ask, GatedAsk):
                self._outside[ask.ask.uid] = ask.namespace, obstacle
            raise QueueFull(obstacle)
        self._capacity.comes_in(ask.namespace, ask.key)

    def obstacle_to(self, ask: Ask) -> str:
        """Why one that is not here could not come in; empty: it could."""
        return self._capacity.obstacle(ask.namespace, ask.gang)

    def obstacle(self, uid: str) -> str:
        """Why a pod is not in the queue; empty: nothing kept it out."""
        found = self._outside.get(uid)
        return found[1] if found else ""

    def outside(self) -> Iterator[str]:
        """UIDs of the pods that are not in the queue; any may come in meanwhile."""
        return iter(tuple(self._outside))

    def leave_outside(self, uid: str) -> None:
        """The pod comes in, or waits for nothing any more."""
        found = self._outside.pop(uid, None)
        if found is not None:
            self._capacity.comes_in(found[0], pod_id(uid))

    def add(self, ask: Ask, now: float) -> None:
        """It waits; nothing of it did before."""
        self._capacity.add(ask.namespace, ask.gang)
        self._asks[ask.job.id] = Waiting(ask, now, now)
        if isinstance(ask, GangAsk):
            self._of_job.setdefault(ask.attempt.job_uid, {})[ask.job.id] = None

    def remove(self, job: JobId) -> tuple[str, str] | None:
        """It waits no longer; the answer is who of its namespace may come in for it."""
        waiting = self._asks.pop(job, None)
        if waiting is None:
            return None
        ask = waiting.ask
        self._capacity.remove(ask.namespace, ask.gang)
        if isinstance(ask, GangAsk):
            attempts = self._of_job[ask.attempt.job_uid]
            del attempts[job]
            if not attempts:
                del self._of_job[ask.attempt.job_uid]
        outside = self._capacity.next_outside(ask.namespace)
        return (ask.namespace, outside) if outside else None
