# SPDX-License-Identifier: Apache-2.0
"""What would be if these jobs were stopped: whether there is room, and where the job goes.

Tried on an overlay of the cluster, from which those who are stopped are gone until they are spared.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from gpupack_core.cluster import Cluster
from gpupack_core.feasibility import worker_slots
from gpupack_core.queueing.candidates import Candidate, order
from gpupack_core.queueing.charge import Charge
from gpupack_core.queueing.job import Places, Running
from gpupack_core.request import Gang


@dataclass(frozen=True, slots=True)
class Found:
    """The victims, and where the job goes."""

    victims: tuple[Candidate, ...]
    places: Places
    charge: Charge


Fit = Callable[[Cluster, Sequence[Running]], tuple[Places, Charge] | None]
"""Where the job goes in this cluster, from which these are gone, if the books allow all of it."""


class Trials:
    """For one gang; the cluster that is given is not changed."""

    def __init__(self, cluster: Cluster, gang: Gang, fit: Fit) -> None:
        self.cluster, self.gang, self._fit = cluster.overlay(), gang, fit

    def of(self, victims: Sequence[Candidate]) -> Found | None:
        """These are the victims, if the job fits without them and the books allow it."""
        with self.without(victims):
            if not self.has_room():
                return None
            answer = self._fit(self.cluster, [one.running for one in victims])
        return None if answer is None else Found(tuple(victims), *answer)

    def sparing(self, victims: Sequence[Candidate]) -> Found | None:
        """Of these; they are spared one by one, the dearest first, as long as the job fits."""
        found = self.of(victims)
        for one in sorted(victims, key=order, reverse=True):
            if found is None:
                return None
            fewer = self.of([other for other in found.victims if other is not one])
            found = fewer or found
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
