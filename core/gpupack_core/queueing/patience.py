# SPDX-License-Identifier: Apache-2.0
"""A wrong guess costs the one who waits a bounded time.

    lacks room ──► would fit if its guests were gone ──guess_delay──► those in its way are stopped

Meanwhile nobody else goes past it on a guess, and nobody takes the places that it would have. Who
takes longer than was expected is stopped first, and nobody whom it would fit beside.
"""

from collections.abc import Sequence
from math import inf

from gpupack_core.cluster import Cluster
from gpupack_core.queueing.charge import Charge
from gpupack_core.queueing.decisions import Ground, Preempt, Victim
from gpupack_core.queueing.future import adopt, take
from gpupack_core.queueing.job import Job, Places, Running
from gpupack_core.queueing.preemption import Preemption
from gpupack_core.queueing.sheet import Sheet
from gpupack_core.queueing.state import State
from gpupack_core.queueing.within import WithinQuota
from gpupack_core.units import WHOLE_GPU


class Patience:
    """Belongs to one cycle."""

    def __init__(self, state: State, sheet: Sheet, within: WithinQuota, now: float) -> None:
        self._state, self._sheet, self._within, self._now = state, sheet, within, now
        self._delay = state.books.rules.guess_delay
        self.look_at = inf
        """When somebody will have waited for his guests for long enough."""

    def begins(self, job: Job) -> bool:
        """Whether the job, which lacks room, would fit without its guests, for the first time."""
        guests = self._state.guests
        if not guests.of(job.id) or job.id in guests.owed:
            return False
        frees = self._state.waiting.frees
        if guests.looked.get(job.id) == frees:
            return False
        if self._without(job, self._guests(job)) is None:
            guests.looked[job.id] = frees
            return False
        guests.owed[job.id] = self._now
        return True

    def ends(self, job: Job) -> Preemption | None:
        """Who is stopped for the job, which lacks room; None: nobody is, or not yet."""
        since = self._state.guests.owed.get(job.id)
        if since is None:
            return None
        if self._now < since + self._delay:
            self.look_at = min(self.look_at, since + self._delay)
            return None
        all_of_them = self._guests(job)
        late = [guest for guest in all_of_them if self._is_late(guest)]
        for guests in (late, all_of_them):
            found = self._without(job, guests) if guests else None
            if found is not None:
                return self._stopping(job, self._in_the_way(job, found[0], guests), *found)
        del self._state.guests.owed[job.id]
        return None

    def _guests(self, job: Job) -> list[Running]:
        """Those who run and are not stopped already; who loses most comes first."""
        stopping = self._state.stopping()
        found = map(self._state.running.get, self._state.guests.of(job.id))
        running = [one for one in found if one is not None and one.job.id not in stopping]
        return sorted(running, key=lambda one: (-one.lost(self._now), one.job.id))

    def _is_late(self, guest: Running) -> bool:
        return guest.job.is_expected(guest.started) <= self._now

    def _without(self, job: Job, guests: Sequence[Running]) -> tuple[Places, Charge] | None:
        return self._within.places(_emptied(self._sheet.cluster, guests), job)

    def _in_the_way(self, job: Job, places: Places, guests: Sequence[Running]) -> list[Running]:
        """Beside whom it does not fit there."""
        cluster = _emptied(self._sheet.cluster, guests)
        adopt(cluster, job, places)
        return [guest for guest in guests if not take(cluster, guest.job, guest.placements)]

    def _stopping(
        self, job: Job, stopped: Sequence[Running], places: Places, charge: Charge
    ) -> Preemption:
        extras = self._state.extras_of(stopped)
        victims = tuple(
            Victim(one.job.id, Ground.ESTIMATE, one.lost(self._now) / WHOLE_GPU) for one in stopped
        )
        victims += tuple(Victim(one.job.id, Ground.SHRINK, 0.0) for one in extras)
        return Preemption(Preempt(job.id, victims, places), (*stopped, *extras), charge)


def _emptied(cluster: Cluster, guests: Sequence[Running]) -> Cluster:
    """Without them."""
    empty = cluster.overlay()
    for guest in guests:
        for placement in guest.placements:
            empty.suppose_free(placement)
    return empty
