# SPDX-License-Identifier: Apache-2.0
"""Operations and their life: one state machine for everything that outlives a cycle.

               Shown             VictimsEnd
    Decided ──────────► Written ────────────► Terminating
       │                   │                       │
       │ Expired           └─────────┬─────────────┘
       │ Withdrawn                   │
       ▼             Withdrawn       │      Started
    GivenUp ◄────────────────────────┴─────────────────► Placed ◄── from Decided, too

Only the API remembers an operation: a process that starts finds it in phase Written, with the time
of the decision. What is only decided is lost with the process, and no victim has ended for it.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Final, Generic, TypeVar

from gpupack_queue import JobId

D = TypeVar("D")

MAX_UNWRITTEN: Final = 32
"""Maximum of operations of one kind, and of admitted attempts, that are yet to be written: the
operator writes one after the other, and each is held for a few seconds only."""


class Phase(StrEnum):
    """Where an operation is in its life."""

    DECIDED = "Decided"
    """Its places are reserved. The API does not show it, and no victim may end for it."""
    WRITTEN = "Written"
    """The API shows it. Its victims are to end."""
    TERMINATING = "Terminating"
    """All its victims are ending or have ended; no more is to be ordered."""
    PLACED = "Placed"
    """The job has its places. The operation is over."""
    GIVEN_UP = "GivenUp"
    """The places are released, and the job waits or is gone. The operation is over."""

    @property
    def is_over(self) -> bool:
        """Tell whether no event can follow."""
        return self in {Phase.PLACED, Phase.GIVEN_UP}


class Event(StrEnum):
    """What happens to an operation."""

    SHOWN = "Shown"
    """The watch shows it as written."""
    VICTIMS_END = "VictimsEnd"
    """Each victim is ending or has ended."""
    STARTED = "Started"
    """The job has started on its places or others, or waits again and takes them over."""
    EXPIRED = "Expired"
    """The API should show it by now and does not."""
    WITHDRAWN = "Withdrawn"
    """The queue, an edit or the end of the job has made it pointless."""


class ImpossibleEvent(Exception):
    """An event that cannot happen in this phase: an error in this program."""

    def __init__(self, phase: Phase, event: Event) -> None:
        super().__init__(f"{event} cannot happen to an operation that is {phase}")


NEXT: Final[Mapping[tuple[Phase, Event], Phase]] = {
    (Phase.DECIDED, Event.SHOWN): Phase.WRITTEN,
    (Phase.DECIDED, Event.EXPIRED): Phase.GIVEN_UP,
    (Phase.DECIDED, Event.WITHDRAWN): Phase.GIVEN_UP,
    (Phase.DECIDED, Event.STARTED): Phase.PLACED,
    (Phase.WRITTEN, Event.SHOWN): Phase.WRITTEN,
    (Phase.WRITTEN, Event.VICTIMS_END): Phase.TERMINATING,
    (Phase.WRITTEN, Event.WITHDRAWN): Phase.GIVEN_UP,
    (Phase.WRITTEN, Event.STARTED): Phase.PLACED,
    (Phase.TERMINATING, Event.SHOWN): Phase.TERMINATING,
    (Phase.TERMINATING, Event.VICTIMS_END): Phase.TERMINATING,
    (Phase.TERMINATING, Event.WITHDRAWN): Phase.GIVEN_UP,
    (Phase.TERMINATING, Event.STARTED): Phase.PLACED,
}
"""The phase after an event; a pair that is absent is impossible. Victims end for nothing that is
not written, and what is written never expires."""


def next_phase(phase: Phase, event: Event) -> Phase:
    """Return the phase after an event.

    Raises:
        ImpossibleEvent: the event cannot happen in this phase.
    """
    try:
        return NEXT[phase, event]
    except KeyError:
        raise ImpossibleEvent(phase, event) from None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Operation(Generic[D]):
    """One decision on its way.

    Attributes:
        decision: what was decided.
        since: when, in whole seconds since the epoch, as the API shows it. The patience with
            victims counts from it, in this process and in those that follow.
        write_by: time by which the API must show it; infinity: no write is requested yet, or it is
            written.
        phase: where it is in its life.
    """

    decision: D
    since: float
    write_by: float = math.inf
    phase: Phase = Phase.DECIDED

    @classmethod
    def decided(cls, decision: D, now: float, *, hold_seconds: float = math.inf) -> "Operation[D]":
        """Return a new operation; it must be written within `hold_seconds`."""
        return cls(decision=decision, since=float(math.floor(now)), write_by=now + hold_seconds)

    @classmethod
    def found(cls, decision: D, since: float) -> "Operation[D]":
        """Return an operation that the API shows."""
        return cls(decision=decision, since=since, phase=next_phase(Phase.DECIDED, Event.SHOWN))

    def after(self, event: Event) -> "Operation[D]":
        """Return the operation after an event.

        Raises:
            ImpossibleEvent: the event cannot happen in its phase.
        """
        phase = next_phase(self.phase, event)
        return dataclasses.replace(self, phase=phase, write_by=math.inf)


class Operations(Generic[D]):
    """The operations of one kind that are not over, by job."""

    def __init__(self) -> None:
        self._by_job: dict[JobId, Operation[D]] = {}

    def __contains__(self, job: object) -> bool:
        return job in self._by_job

    def __len__(self) -> int:
        return len(self._by_job)

    def items(self) -> Iterator[tuple[JobId, Operation[D]]]:
        """Iterate over a copy: operations may end during the iteration."""
        return iter(tuple(self._by_job.items()))

    def get(self, job: JobId) -> Operation[D] | None:
        """Return the operation of a job."""
        return self._by_job.get(job)

    def put(self, job: JobId, operation: Operation[D]) -> None:
        """Add an operation, or replace one of the same job."""
        self._by_job[job] = operation

    def apply(self, job: JobId, event: Event) -> None:
        """Apply an event; an operation that is over is removed. No effect if there is none.

        Raises:
            ImpossibleEvent: the event cannot happen in the operation's phase.
        """
        operation = self._by_job.get(job)
        if operation is None:
            return
        after = operation.after(event)
        if after.phase.is_over:
            del self._by_job[job]
        else:
            self._by_job[job] = after

    def phase(self, job: JobId) -> Phase | None:
        """Return the phase of a job's operation; None: it has none."""
        operation = self._by_job.get(job)
        return operation.phase if operation else None

    def in_phase(self, *phases: Phase) -> list[tuple[JobId, D]]:
        """Return the decisions in these phases."""
        return [(job, of.decision) for job, of in self._by_job.items() if of.phase in phases]

    def overdue(self, now: float) -> list[JobId]:
        """Return the jobs whose operation the API should show by now and does not."""
        return [job for job, of in self._by_job.items() if of.write_by <= now]

    def oldest(self) -> float | None:
        """Return when the oldest operation was decided; None if there is none."""
        return min((of.since for of in self._by_job.values()), default=None)

    @property
    def may_decide(self) -> bool:
        """Tell whether another operation may be decided."""
        unwritten = sum(of.phase is Phase.DECIDED for of in self._by_job.values())
        return unwritten < MAX_UNWRITTEN

    def clear(self) -> None:
        """Forget all operations, because the queue is rebuilt."""
        self._by_job.clear()
