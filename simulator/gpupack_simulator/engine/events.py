# SPDX-License-Identifier: Apache-2.0
"""The clock: events in the order (time, kind, sequence).

At one instant, events that give capacity back come first and events that request it come last, so
that a job that arrives when another ends finds the place free. The sequence makes ties explicit:
events of equal time and kind go in the order in which they were scheduled. Subjects are never
compared, and nothing depends on hashes, so one seed gives one trace in every process.
"""

from dataclasses import dataclass, field
from enum import IntEnum
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple

from gpupack_placement import DeviceUuid, NodeName
from gpupack_simulator.engine.maintenance import NodeChange
from gpupack_simulator.job import Job, JobId
from gpupack_simulator.record import Cause


class EventKind(IntEnum):
    """The kind of an event: its priority within an instant, smallest first."""

    END = 0
    STOP = 1
    CANCEL = 2
    REPAIR = 3
    FAIL = 4
    NODE_CHANGE = 5
    """Maintenance or presence of a node begins or ends."""
    ARRIVE = 6
    RECHECK = 7
    """Time alone may make a decision due."""
    SAMPLE = 8


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a job's attempt; void if the attempt was killed before.

    `is_timeout`: the maximum run time is over.
    """

    job: JobId
    attempt: int
    is_timeout: bool = False


@dataclass(frozen=True, slots=True)
class Stop:
    """The end of the grace period of a job's attempt; void if the attempt has ended."""

    job: JobId
    attempt: int
    cause: Cause = Cause.PREEMPTED


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The cancellation of a job by its user."""

    job: JobId


@dataclass(frozen=True, slots=True)
class Component:
    """A node, or one device of it, that fails or is repaired."""

    node: NodeName
    device: DeviceUuid | None = None


Subject = Job | Ended | Stop | Cancelled | Component | NodeChange | None


class Event(NamedTuple):
    """An event, compared only by time, kind and sequence: sequences differ."""

    time: float
    kind: EventKind
    sequence: int
    subject: Subject


@dataclass(slots=True)
class EventQueue:
    """The events to come."""

    _heap: list[Event] = field(default_factory=list)
    _sequence: int = 0

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, time: float, kind: EventKind, subject: Subject = None) -> None:
        """Schedule an event; one at infinity is not kept."""
        if time < inf:
            heappush(self._heap, Event(time, kind, self._sequence, subject))
            self._sequence += 1

    @property
    def only_samples_left(self) -> bool:
        """Whether only samples are to come, of which there is one at a time."""
        return not self._heap or (len(self._heap) == 1 and self._heap[0].kind is EventKind.SAMPLE)

    @property
    def next_time(self) -> float:
        """Time of the next event; infinity: there is none."""
        return self._heap[0].time if self._heap else inf

    def pop_at(self, time: float, *, before: EventKind) -> Event | None:
        """Pop the next event of this instant of a kind before the given one; None: none exists."""
        if self._heap and self._heap[0].time <= time and self._heap[0].kind < before:
            return heappop(self._heap)
        return None

    def drop_samples(self, time: float) -> bool:
        """Remove the samples that are due; tell whether there were any."""
        due = False
        while self._heap and self._heap[0].time <= time and self._heap[0].kind is EventKind.SAMPLE:
            heappop(self._heap)
            due = True
        return due
