# SPDX-License-Identifier: Apache-2.0
"""What would be if these jobs were stopped: whether there is room, and where the job goes.

Tried on an overlay of the cluster, from which those who are stopped are gone until they are spared.
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
from gpupack_core.queueing.within import WithinQuota


@dataclass(frozen=True, slots=True)
class Found:
    """The victims, and where the job goes."""

    victims: tuple[Candidate, ...]
    places: Places
    charge: Charge


@dataclass(frozen=True, slots=True)
class Insufficient:
    """These do not suffice. `ways`: where the job would fit without them, if the books allowed it.

    Each with what the job would count there; none, if it would fit nowhere.
    """

    victims: tuple[Candidate, ...]
    ways: tuple[tuple[Places, Charge], ...] = ()


class Trials:
    """For one job; the cluster that is given is not changed."""

    def __init__(self, cluster: Cluster, within: WithinQuota, grounds: Grounds) -> None:
        self.cluster, self.gang = cluster.overlay(), grounds.job.gang
        self._within, self._grounds = within, grounds

    def of(self, victims: Sequence[Candidate]) -> Found | Insufficient:
        """Whether these suffice."""
        with self.without(victims):
            return self.of_stopped(victims)

    def of_stopped(self, victims: Sequence[Candidate]) -> Found | Insufficient:
        """Whether these suffice, who have been stopped already."""
        refused: list[tuple[Places, Charge]] = []
        if self.has_room():
            running = [one.running for one in victims]
            for places, charge in self._within.ways(self.cluster, self._grounds.job):
                if self._grounds.allow(running, charge):
                    return Found(tuple(victims), places, charge)
                refused.append((places, charge))
        return Insufficient(tuple(victims), tuple(refused))

    def ways(self) -> tuple[tuple[Places, Charge], ...]:
        """Where the job fits, and what it counts there, whatever the books say."""
        return tuple(self._within.ways(self.cluster, self._grounds.job))

    def sparing(self, found: Found) -> Found:
        """Of these victims; one by one is spared, the dearest first, until all are needed.

        Who was needed can be spared after another one was: a victim that stays has to be left with
        a share no smaller than the beneficiary's.
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
        """Necessary for all workers to fit."""
        gang = self.gang
        slots = worker_slots(self.cluster, gang.request)
        return int(np.minimum(slots, gang.workers).sum()) >= gang.workers

    def has_room_without(self, victims: Sequence[Candidate], row: int, *, workers: int) -> bool:
        """Whether so many workers have room on the row then."""
        with self.without(victims):
            return self.slots(row) >= workers

    def slots(self, row: int) -> int:
        """How many workers have room on the row."""
        return int(worker_slots(self.cluster, self.gang.request)[row])

    @contextmanager
    def without(self, victims: Sequence[Candidate]) -> Iterator[None]:
        """They are spared in the end."""
        for one in victims:
            self.stop(one)
        try:
            yield
        finally:
            for one in victims:
                self.spare(one)

    def stop(self, one: Candidate) -> None:
        """Its places are free."""
        for placement in one.running.placements:
            self.cluster.suppose_free(placement)

    def spare(self, one: Candidate) -> None:
        """The reverse of `stop`."""
        for placement in one.running.placements:
            self.cluster.suppose_held(placement)


def is_below(subset: Sequence[Candidate], known: Found | None) -> bool:
    """Whether it costs less."""
    return known is None or cost_of(subset) < cost_of(known.victims)
