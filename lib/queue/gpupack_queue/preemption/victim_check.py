# SPDX-License-Identifier: Apache-2.0
"""Trials: whether the job fits if certain jobs are preempted, and on which places.

They use an overlay of the cluster without the victims, until these are spared.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from gpupack_placement.cluster import Cluster
from gpupack_placement.feasibility import worker_slots
from gpupack_placement.gang import has_slots
from gpupack_placement.request import Role
from gpupack_queue.charge import Charge
from gpupack_queue.job import Places
from gpupack_queue.preemption.policies import PreemptionPolicy
from gpupack_queue.quotas.quota_planner import QuotaPlanner
from gpupack_queue.running.candidates import Candidate, cost_key, cost_of


@dataclass(frozen=True, slots=True)
class VictimSet:
    """The victims, and the preemptor's places."""

    victims: tuple[Candidate, ...]
    places: Places
    charge: Charge


@dataclass(frozen=True, slots=True)
class InsufficientVictims:
    """Victims that do not suffice.

    `placements`: the places where the job would fit without them, if the quota usage permitted it,
    each with what the job would count there. It is empty if the job would fit nowhere.
    """

    victims: tuple[Candidate, ...]
    placements: tuple[tuple[Places, Charge], ...] = ()


class VictimCheck:
    """Checks sets of victims for one job; the given cluster stays as it is."""

    def __init__(self, cluster: Cluster, planner: QuotaPlanner, policy: PreemptionPolicy) -> None:
        self.cluster, self.gang = cluster.overlay(), policy.job.gang
        self._planner, self._policy = planner, policy

    def check(self, victims: Sequence[Candidate]) -> VictimSet | InsufficientVictims:
        """Tell whether these victims suffice."""
        with self.without(victims):
            return self.check_removed(victims)

    def check_removed(self, victims: Sequence[Candidate]) -> VictimSet | InsufficientVictims:
        """Tell whether these victims suffice, which have been taken from the overlay already."""
        refused: list[tuple[Places, Charge]] = []
        if self.may_fit():
            running = [one.running for one in victims]
            for places, charge in self._planner.placements(self.cluster, self._policy.job):
                if self._policy.allows(running, charge):
                    return VictimSet(tuple(victims), places, charge)
                refused.append((places, charge))
        return InsufficientVictims(tuple(victims), tuple(refused))

    def placements(self) -> tuple[tuple[Places, Charge], ...]:
        """Return where the job fits and what it counts there, whatever the quota usage is."""
        return tuple(self._planner.placements(self.cluster, self._policy.job))

    def spare_unneeded(self, found: VictimSet) -> VictimSet:
        """Spare victims one by one, the dearest first, until all are needed; return the rest.

        A victim that was needed can be spared after another one was: the tenant of a victim that is
        preempted must have a share not smaller than the preemptor's afterwards.
        """
        tried: set[int] = set()
        while len(tried) < len(found.victims):
            left = (one for one in found.victims if id(one) not in tried)
            dearest = max(left, key=cost_key)
            result = self.check([other for other in found.victims if other is not dearest])
            if isinstance(result, VictimSet):
                found, tried = result, set()
            else:
                tried.add(id(dearest))
        return found

    def may_fit(self) -> bool:
        """Tell whether all workers can fit; necessary, not sufficient."""
        return has_slots(self.cluster, self.gang)

    def fits_without(
        self, victims: Sequence[Candidate], row: int, role: Role, *, workers: int
    ) -> bool:
        """Tell whether this many workers of a role fit on the row without the victims."""
        with self.without(victims):
            return self.slots(row, role) >= workers

    def slots(self, row: int, role: Role) -> int:
        """Return how many workers of a role fit on the row."""
        return int(worker_slots(self.cluster, role.request)[row])

    def is_short(self, role: Role) -> bool:
        """Tell whether a role does not fit even without the other roles."""
        slots = worker_slots(self.cluster, role.request)
        return int(np.minimum(slots, role.workers).sum()) < role.workers

    @contextmanager
    def without(self, victims: Sequence[Candidate]) -> Iterator[None]:
        """Take the victims from the overlay, and spare them in the end."""
        for one in victims:
            self.remove(one)
        try:
            yield
        finally:
            for one in victims:
                self.restore(one)

    def remove(self, one: Candidate) -> None:
        """Free its places."""
        for placement in one.running.placements:
            self.cluster.assume_free(placement)

    def restore(self, one: Candidate) -> None:
        """Undo `remove`."""
        for placement in one.running.placements:
            self.cluster.assume_held(placement)


def is_cheaper(subset: Sequence[Candidate], known: VictimSet | None) -> bool:
    """Tell whether the set costs less than the known one."""
    return known is None or cost_of(subset) < cost_of(known.victims)
