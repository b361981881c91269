# SPDX-License-Identifier: Apache-2.0
"""Room that is kept: for who is first and lacks it, and for whom others are being stopped.

EASY backfill. The earliest instant is found at which a job will fit (by taking off those who run,
in the order in which they end), and where it goes then. A later job may start now if it ends by
that instant, or if it leaves those places free: it is placed in the cluster of that instant too,
beside the job for which room is kept. Where durations are exact that job never starts later than it
would without backfill. What runs for an unknown time counts as ending after all else, the oldest
first; what runs for ever never ends.

Source: Lifka, «The ANL/IBM SP Scheduling System» (JSSPP '95).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from math import inf

from gpupack_core.cluster import Cluster
from gpupack_core.feasibility import usable
from gpupack_core.queueing.charge import Charge
from gpupack_core.queueing.future import Chances, Future, give_back, take
from gpupack_core.queueing.job import Job, JobId, Places, Running
from gpupack_core.queueing.waiting import has_room

Planner = Callable[[Cluster, Job], Places | None]
"""Where the job would go in that cluster, which is not changed; None: nowhere."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """For whom others are being stopped, and where it will run. Times in seconds.

    A job that is moved is its own victim. It waits for its place when it has ended. `own`: the
    places are those that the job has, or had last; it waits for them while it still holds them.
    """

    job: Job
    placements: Places
    victims: tuple[JobId, ...]
    since: float
    charge: Charge
    own: bool = False


@dataclass(frozen=True, slots=True)
class KeptRoom:
    """For one who waits: when it will start at the latest, and the cluster then, with it placed.

    `placements` None: it fits nowhere whatever ends, so nothing is kept. `guessed`: it rests on how
    long jobs like those who run took; its guests count as gone.
    """

    job: Job
    at: float
    future: Future
    placements: Places | None
    disruptions: int
    made: float
    guessed: bool = False

    def copy(self) -> "KeptRoom":
        """The same; who is placed in its cluster is not placed in this one's."""
        return replace(self, future=self.future.copy())

    def exchange(self, job: Job, placements: Places, stopped: Iterable[Running]) -> bool:
        """Foresee that these are stopped for the job.

        False: it takes places that are kept here, or that is to be foreseen anew.
        """
        if self.guessed:
            return False
        for running in stopped:
            self.future.leaves(running)
        self.future.give_back(job.id)
        return self.future.take(job, placements)

    def stands_beside(self, other: "KeptRoom") -> bool:
        """Foresee that the other's places are kept, too; False: it is to be foreseen anew."""
        places = other.placements or ()
        if self.future.taken(other.job.id) == places:
            return True
        self.future.give_back(other.job.id)
        return self.future.take(other.job, places)

    def starts(self, running: Running, *, guest: bool) -> bool:
        """Foresee that it runs; False: it takes places that are kept here.

        `guest`: it went past the job on a guess.
        """
        if self.placements is None:
            return True
        self.future.give_back(running.job.id)
        if self._ends_before(running, guest=guest):
            return True
        return self.future.take(running.job, running.placements)

    def _ends_before(self, running: Running, *, guest: bool) -> bool:
        """Or is stopped for it: extra workers are for whoever waits, guests if they stay."""
        if running.job.extends is not None:
            return True
        if guest and running.job.is_expected(running.started) <= self.at < inf:
            return True
        return not self.guessed and running.until <= self.at < inf


def is_free(cluster: Cluster, job: Job, placements: Places) -> bool:
    """Whether the job can start exactly there: nobody is there, and all of it takes work."""
    rows = usable(cluster, job.gang.request)
    for placement in placements:
        row, node = cluster.row(placement.node), cluster.node(placement.node)
        if row is None or node is None or not rows[row]:
            return False
        well = {device.uuid for device in node.devices if device.health.takes_work}
        if not {grant.uuid for grant in placement.devices} <= well:
            return False
    if not take(cluster, job, placements):
        return False
    give_back(cluster, job, placements)
    return True


def earliest(future: Future, job: Job, plan: Planner) -> tuple[float, Places | None]:
    """The instant at which the job fits, and where; infinity and None: it never does.

    The future is left as of then.

    More that is free never makes a plan fail. So gangs, of which a plan costs more and which many
    ends leave without room, are planned after 1, 2, 4, … ends that give room to a worker, and then
    back and forth to the first that suffices.
    """
    chances = future.chances(job.gang)
    if chances is None:
        return future.settle(), None
    fails, patience, roomy = 0, 1, 0
    for number in range(len(chances)):
        rows = future.move(chances.nodes(number, number), after=chances.end(number))
        roomy += any(has_room(future.cluster, job.gang.request, row) for row in rows)
        if roomy < patience and number + 1 < len(chances):
            continue
        placements = plan(future.cluster, job) if roomy else None
        if placements is not None:
            return _first(future, job, chances, plan, ((fails, number), placements))
        fails = number + 1
        patience, roomy = (patience * 2, 0) if job.gang.workers > 1 else (1, 0)
    return future.settle(), None


def _first(
    future: Future,
    job: Job,
    chances: Chances,
    plan: Planner,
    found: tuple[tuple[int, int], Places],
) -> tuple[float, Places]:
    """The first end in between after which it fits; it does after the last of them."""
    (low, high), places = found
    stands = high
    while low < high:
        middle = (low + high) // 2
        _move(future, chances, stands, middle)
        stands = middle
        placements = plan(future.cluster, job)
        if placements is None:
            low = middle + 1
        else:
            high, places = middle, placements
    _move(future, chances, stands, high)
    return future.settle(chances.end(high)), places


def _move(future: Future, chances: Chances, stands: int, to: int) -> None:
    """From after one end to after another."""
    if stands != to:
        nodes = chances.nodes(min(stands, to) + 1, max(stands, to))
        future.move(nodes, after=chances.end(to))
