# SPDX-License-Identifier: Apache-2.0
"""The clock: events in the order (time, kind, sequence).

Of what happens at one instant, what gives capacity back comes first and what asks for it last, so
that a job that arrives when another ends finds the place free. The sequence makes ties explicit:
equal time and kind go in the order in which they were scheduled. No event is ever compared with
another, and nothing depends on hashes, so one seed gives one trace in every process.
"""

from dataclasses import dataclass, field
from enum import IntEnum
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple

from gpupack_core import DeviceUuid, NodeName
from gpupack_simulator.engine.maintenance import Turned
from gpupack_simulator.job import Job, JobId
from gpupack_simulator.record import Cause


class EventKind(IntEnum):
    """Priority within an instant, smallest first."""

    END = 0
    STOP = 1
    CANCEL = 2
    REPAIR = 3
    FAIL = 4
    TURN = 5
    """Of a node something begins or ends: maintenance, or its being there."""
    ARRIVE = 6
    LOOK = 7
    """Time alone may have made a decision due."""
    SAMPLE = 8


@dataclass(frozen=True, slots=True)
class Ended:
    """A job's attempt is through; void if the attempt was killed before."""

    job: JobId
    attempt: int


@dataclass(frozen=True, slots=True)
class Stop:
    """The grace period of a job's attempt is over; void if the attempt has ended."""

    job: JobId
    attempt: int
    cause: Cause = Cause.PREEMPTED


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Who submitted the job takes it back."""

    job: JobId


@dataclass(frozen=True, slots=True)
class Component:
    """A node, or one device of it, fails or is repaired."""

    node: NodeName
    device: DeviceUuid | None = None


Subject = Job | Ended | Stop | Cancelled | Component | Turned | None


class Event(NamedTuple):
    """Compared by time, kind and sequence alone: sequences differ."""

    time: float
    kind: EventKind
    sequence: int
    subject: Subject


@dataclass(slots=True)
class EventQueue:
    """What is still to come."""

    _heap: list[Event] = field(default_factory=list)
    _sequence: int = 0

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, time: float, kind: EventKind, subject: Subject = None) -> None:
        """What never happens (at infinity) is not kept."""
        if time < inf:
            heappush(self._heap, Event(time, kind, self._sequence, subject))
            self._sequence += 1

    @property
    def spent(self) -> bool:
        """Nothing is to come but samples, of which there is one at a time."""
        return not self._heap or (len(self._heap) == 1 and self._heap[0].kind is EventKind.SAMPLE)

    @property
    def next_time(self) -> float:
        """Infinity: nothing is to come."""
        return self._heap[0].time if self._heap else inf

    def pop_at(self, time: float, *, before: EventKind) -> Event | None:
        """The next event of this instant and of a kind that comes before the given one."""
        if self._heap and self._heap[0].time <= time and self._heap[0].kind < before:
            return heappop(self._heap)
        return None

    def drop_samples(self, time: float) -> bool:
        """Whether a sample is due now; the queue has it no more."""
        due = False
        while self._heap and self._heap[0].time <= time and self._heap[0].kind is EventKind.SAMPLE:
            heappop(self._heap)
            due = True
        return due
