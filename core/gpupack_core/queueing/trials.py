# SPDX-License-Identifier: Apache-2.0
"""Trials: whether the job fits if certain jobs are preempted, and on which places.

They use an overlay of the cluster without the victims, until these are spared.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from gpupack_core.cluster import Cluster
from gpupack_core.feasibility import worker_slots
from gpupack_core.queueing.candidates import Candidate, cost_of, order
from gpupack_core.queueing.charge import Charge
from gpupack_core.queueing.grounds import Grounds
from gpupack_core.queueing.job import Places
from gpupack_core.queueing.quota_planner import QuotaPlanner


@dataclass(frozen=True, slots=True)
class Found:
    """The victims, and the preemptor's places."""

    victims: tuple[Candidate, ...]
    places: Places
    charge: Charge


@dataclass(frozen=True, slots=True)
class Insufficient:
    """Victims that do not suffice.

    `ways`: the places where the job would fit without them, if the quota usage permitted it, each
    with what the job would count there. It is empty if the job would fit nowhere.
    """

    victims: tuple[Candidate, ...]
    ways: tuple[tuple[Places, Charge], ...] = ()


class Trials:
    """The trials for one job; the given cluster stays as it is."""

    def __init__(self, cluster: Cluster, within: QuotaPlanner, grounds: Grounds) -> None:
        self.cluster, self.gang = cluster.overlay(), grounds.job.gang
        self._within, self._grounds = within, grounds

    def of(self, victims: Sequence[Candidate]) -> Found | Insufficient:
        """Tell whether these victims suffice."""
        with self.without(victims):
            return self.of_stopped(victims)

    def of_stopped(self, victims: Sequence[Candidate]) -> Found | Insufficient:
        """Tell whether these victims suffice, which have been taken from the overlay already."""
        refused: list[tuple[Places, Charge]] = []
        if self.has_room():
            running = [one.running for one in victims]
            for places, charge in self._within.placements(self.cluster, self._grounds.job):
                if self._grounds.allow(running, charge):
                    return Found(tuple(victims), places, charge)
                refused.append((places, charge))
        return Insufficient(tuple(victims), tuple(refused))

    def ways(self) -> tuple[tuple[Places, Charge], ...]:
        """Return where the job fits and what it counts there, whatever the quota usage is."""
        return tuple(self._within.placements(self.cluster, self._grounds.job))

    def sparing(self, found: Found) -> Found:
        """Spare victims one by one, the dearest first, until all are needed; return the rest.

        A victim that was needed can be spared after another one was: the tenant of a victim that is
        preempted must have a share not smaller than the preemptor's afterwards.
        """
        tried: set[int] = set()
        while len(tried) < len(found.victims):
            left = (one for one in found.victims if id(one) not in tried)
            dearest = max(left, key=order)
            trial = self.of([other for other in found.victims if other is not dearest])
            if isinstance(trial, Found):
                found, tried = trial, set()
            else:
                tried.add(id(dearest))
        return found

    def has_room(self) -> bool:
        """Tell whether all workers can fit; necessary, not sufficient."""
        gang = self.gang
        slots = worker_slots(self.cluster, gang.request)
        return int(np.minimum(slots, gang.workers).sum()) >= gang.workers

    def has_room_without(self, victims: Sequence[Candidate], row: int, *, workers: int) -> bool:
        """Tell whether this many workers fit on the row without the victims."""
        with self.without(victims):
            return self.slots(row) >= workers

    def slots(self, row: int) -> int:
        """Return how many workers fit on the row."""
        return int(worker_slots(self.cluster, self.gang.request)[row])

    @contextmanager
    def without(self, victims: Sequence[Candidate]) -> Iterator[None]:
        """Take the victims from the overlay, and spare them in the end."""
        for one in victims:
            self.stop(one)
        try:
            yield
        finally:
            for one in victims:
                self.spare(one)

    def stop(self, one: Candidate) -> None:
        """Free its places."""
        for placement in one.running.placements:
            self.cluster.suppose_free(placement)

    def spare(self, one: Candidate) -> None:
        """Undo `stop`."""
        for placement in one.running.placements:
            self.cluster.suppose_held(placement)


def is_below(subset: Sequence[Candidate], known: Found | None) -> bool:
    """Tell whether the set costs less than the known one."""
    return known is None or cost_of(subset) < cost_of(known.victims)
