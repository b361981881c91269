# SPDX-License-Identifier: Apache-2.0
"""What a queue discipline is."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from gpupack_core import Cluster, Placement
from gpupack_simulator.job import Job
from gpupack_simulator.queueing.waiting import Entry, Rank, Waiting


@dataclass(frozen=True, slots=True)
class Lease:
    """Who runs until when, as far as the scheduler knows: durations are taken as exact."""

    job: Job
    placements: tuple[Placement, ...]
    until: float


class Desk(Protocol):
    """What a discipline may do; the engine's side of it."""

    @property
    def now(self) -> float:
        """The clock."""

    @property
    def cluster(self) -> Cluster:
        """For what-if questions; it is not to be changed."""

    @property
    def upsets(self) -> int:
        """How often something broke or was repaired: what was foreseen before is void."""

    @property
    def waiting(self) -> Waiting:
        """The queue; `start` and `drop` take entries off it."""

    def plan(self, entry: Entry, cluster: Cluster | None = None) -> tuple[Placement, ...] | None:
        """Where it would run now, or in the given cluster; None: nowhere.

        A lane that fails now stays closed until something is given back.
        """

    def start(self, entry: Entry, placements: tuple[Placement, ...]) -> None:
        """It runs from now on."""

    def drop(self, entry: Entry) -> None:
        """It is refused for good."""

    def leases(self) -> Iterable[Lease]:
        """Who runs."""


class Discipline(ABC):
    """Decides whose turn it is; an instance serves one run."""

    name: str
    keeps: bool = True
    """Whether who does not fit waits."""

    def rank(self, job: Job, sequence: int) -> Rank:
        """Its place in the queue, smallest first; `sequence` counts arrivals."""
        del job
        return (sequence,)

    @abstractmethod
    def serve(self, desk: Desk) -> None:
        """Start what may start now. Called once per instant, after all that happens in it."""


def start_if_it_fits(desk: Desk, entry: Entry) -> bool:
    """Whether it was started."""
    if not desk.waiting.may_fit(entry.lane):
        return False
    placements = desk.plan(entry)
    if placements is None:
        return False
    desk.start(entry, placements)
    return True
