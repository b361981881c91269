# SPDX-License-Identifier: Apache-2.0
"""Backfill reservations of a cycle, and whether a later job would delay one of them."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from math import inf
from typing import Final

from gpupack_core.cluster import Cluster
from gpupack_core.queueing.future import Ends, Future, adopt
from gpupack_core.queueing.job import Job, JobId, Places, RunningJob
from gpupack_core.queueing.room import KeptRoom, Planner, earliest
from gpupack_core.queueing.sheet import Sheet
from gpupack_core.queueing.state import State
from gpupack_core.queueing.waiting import Entry

REVISED_AFTER: Final = 5.0
"""The seconds for which a reservation stands that rests on overdue or unknown ends of jobs."""


class Foresight:
    """The backfill reservations of one cycle, computed when a job comes that could take of them.

    `most`: the maximum number of reservations that are computed. No job passes a queue head whose
    reservation has not been computed: that is put off to the next cycle, which is due at once.
    """

    def __init__(
        self, state: State, sheet: Sheet, plan: Planner, now: float, *, most: float = inf
    ) -> None:
        self._state, self._sheet, self._plan, self._now = state, sheet, plan, now
        self._left = most
        self.is_put_off = False
        """Whether a reservation is to be computed in a later cycle."""
        self._heads: list[Entry] = []
        self._early: set[JobId] = set()
        """The heads that have not waited long: they hold back only jobs of lower priority."""
        self._void: set[JobId] = set()
        """The heads whose reservation of an earlier cycle does not hold in this one."""
        self._kept: list[KeptRoom] = []
        self._promised = self._still_waiting()
        """The jobs that had a reservation before, and have not been tried in this cycle."""
        self._starting: list[RunningJob] = []
        self._stops: list[tuple[Job, Places, Sequence[RunningJob]]] = []
        """The preemptors of this cycle, each with its places and its victims."""
        self._moves = False
        """Whether a job moves in this cycle: earlier reservations count it at its former place."""
        self._guests: dict[JobId, set[JobId]] = {}
        """Jobs that are speculatively backfilled in this cycle, each with the heads it passes."""
        self._ending: tuple[int, Ends] | None = None
        """The ends of running jobs, with the number of jobs that start in this cycle.

        They serve heads before which no job was speculatively backfilled.
        """
        self._beside: tuple[frozenset[JobId], Cluster] | None = None
        """The heads whose places are held, and the cluster in which they are."""
        self._let: list[tuple[KeptRoom, JobId]] = []
        """The reservations in whose future a job of this cycle is placed, each with the job.

        The job does not run until its start is reported.
        """
        self._passed_over: set[JobId] = set()
        """The heads that may fit now."""
        self.has_foreseen = False
        """Whether a reservation was computed in this cycle."""
        self.look_at = inf
        """The next time at which a job needs a reservation, or a reservation has to be checked."""

    def lacks_room(self, entry: Entry) -> None:
        """Record a queue head; it gets a reservation if not too many jobs have one already.

        It holds back jobs of lower priority at once, and other jobs when it has waited long enough.
        """
        due = entry.since + self._state.books.rules.reserve_after_seconds
        if due > self._now:
            self.look_at = min(self.look_at, due)
            if due < inf and len(self._early) < self._state.books.rules.max_reservations:
                self._early.add(entry.job.id)
                self._heads.append(entry)
        elif entry.job.id in self._promised or self._is_free_for(entry.job):
            self._promised.pop(entry.job.id, None)
            self._heads.append(entry)

    def heed_heads(self) -> None:
        """Record the queue heads of the last cycle, except those with reserved places."""
        for head in map(self._state.waiting.get, self._state.heads):
            if head is not None and head.job.id not in self._state.reserved:
                self.lacks_room(head)

    def passes_over(self, entry: Entry) -> None:
        """Record that a queue head is not admitted in this cycle, even if it fits.

        It stays a head.
        """
        if entry.job.id in self._state.heads:
            self._passed_over.add(entry.job.id)
            self.lacks_room(entry)

    def _is_free_for(self, job: Job) -> bool:
        """Tell whether one more job can have a reservation.

        Shares go up and down, and the order changes with them. A job with a reservation keeps it,
        as long as no more urgent job lacks one.
        """
        before = sum(other.priority >= job.priority for other in self._promised.values())
        return (
            len(self._heads) - len(self._early) + before < self._state.books.rules.max_reservations
        )

    def starts(self, running: RunningJob) -> None:
        """Record that a job was admitted in this cycle."""
        self._starting.append(running)
        if self._beside is not None:
            adopt(self._beside[1], running.job, running.placements)

    def stops(self, job: Job, places: Places, stopped: Sequence[RunningJob]) -> None:
        """Record that these jobs are preempted for the job in this cycle."""
        self._stops.append((job, places, stopped))
        self._beside = None

    def moves(self) -> None:
        """Record that a job moves in this cycle."""
        self._moves = True
        self._beside = None

    def stop(self) -> None:
        """Compute no more reservations in this cycle."""
        self._left = 0

    def is_unknown(self, job: Job) -> bool:
        """Tell whether it is unknown in this cycle which queue heads the job would delay."""
        return self._heads_before(job) and len(self._rooms()) < len(self._heads)

    def would_delay(self, entry: Entry) -> bool:
        """Tell whether a job of this shape is known to delay a queue head now.

        That is known if an earlier job of the shape was refused and nothing was released since,
        unless this job ends in time. The result is also true where the delay is unknown in this
        cycle.
        """
        delayed = entry.lane.shape.delayed
        if delayed is None and self._left:
            return False
        if self.is_unknown(entry.job):
            return True
        if delayed is None:
            return False
        if delayed[0] != self._token(entry.job) or self.in_time((entry,)):
            return False
        return not self._state.waiting.has_news(
            entry.lane.shape, since=delayed[1], cluster=self._sheet.cluster
        )

    def delays(self, entry: Entry) -> None:
        """Remember that a job of this shape would delay a queue head wherever it starts now."""
        entry.lane.shape.delayed = self._token(entry.job), self._state.waiting.frees

    def lets(self, job: Job, places: Places) -> bool:
        """Tell whether the job delays no queue head there; if so, place it in their futures.

        It must not be called where the delay is unknown in this cycle.
        """
        if not self._heads_before(job):
            self._revise(self._early)
            return True
        taken: list[KeptRoom] = []
        crossed: set[JobId] = set()
        past: set[JobId] = set()
        for room in self._rooms():
            if self._ends_before(job, room):
                if room.placements is not None and not self._surely_ends_before(job, room):
                    past.add(room.job.id)
                continue
            if room.future.take(job, places):
                taken.append(room)
                if room.guessed and self._may_guess(job, room):
                    past.add(room.job.id)
            elif self._is_before(room.job, job):
                for other in taken:
                    other.future.give_back(job.id)
                return False
            else:
                crossed.add(room.job.id)
        self._let += ((room, job.id) for room in taken)
        self._revise(crossed)
        if past:
            self._guests[job.id] = past
        return True

    def in_time(self, entries: Sequence[Entry]) -> list[Entry]:
        """Return the entries of one lane whose jobs end before any reservation starts."""
        if not entries:
            return []
        least = self._least_urgent(entries)
        if self.is_unknown(least):
            return []
        rooms = [room for room in self._rooms_before(least) if room.placements is not None]
        until = min((room.at if room.at < inf else -inf for room in rooms), default=inf)
        if self._now + entries[0].lane.shortest > until:
            return []
        return [e for e in entries if all(self._ends_before(e.job, room) for room in rooms)]

    def _least_urgent(self, entries: Sequence[Entry]) -> Job:
        """Return the least urgent job of a lane, which is sorted by priority where that counts."""
        if self._state.books.rules.by_priority:
            return entries[-1].job
        return min(entries, key=lambda entry: entry.job.priority).job

    def _ends_before(self, job: Job, room: KeptRoom) -> bool:
        """Tell whether the job is not in the way: it ends in time, or the head has no places.

        An estimate is enough where the job can be preempted for the head.
        """
        if room.placements is None or self._surely_ends_before(job, room):
            return True
        return job.expected_end(self._now) <= room.at < inf and self._may_guess(job, room)

    def _surely_ends_before(self, job: Job, room: KeptRoom) -> bool:
        return not room.guessed and job.latest_end(self._now) <= room.at < inf

    def _may_guess(self, job: Job, room: KeptRoom) -> bool:
        """Tell whether the job may be speculatively backfilled before this head.

        It may not once the head would fit without the jobs that were.
        """
        owed, delay = self._state.guests.owed, self._state.books.rules.max_backfill_delay_seconds
        return job.preemptible and room.job.id not in owed and delay < inf

    def beside(self, job: Job) -> Cluster | None:
        """Return the cluster with all places held that are kept from the job; None: no places."""
        rooms = (room for room in self._rooms_before(job) if room.job.id != job.id)
        kept = [room for room in rooms if room.placements is not None]
        if not kept:
            return None
        whose = frozenset(room.job.id for room in kept)
        if self._beside is None or self._beside[0] != whose:
            sheet = self._sheet.cluster.overlay()
            for room in kept:
                adopt(sheet, room.job, room.placements or ())
            self._beside = whose, sheet
        return self._beside[1]

    def _token(self, job: Job) -> tuple[object, ...]:
        """Return what identifies the reservations that hold the job back."""
        return tuple((room.job.id, room.at, room.made) for room in self._rooms_before(job))

    def _is_before(self, head: Job, job: Job) -> bool:
        """Tell whether the head's places are kept from the job."""
        if job.extends is not None:
            return True
        return head.id not in self._early or head.priority > job.priority

    def _heads_before(self, job: Job) -> bool:
        return any(self._is_before(head.job, job) for head in self._heads)

    def _rooms_before(self, job: Job) -> list[KeptRoom]:
        if not self._heads_before(job):
            return []
        return [room for room in self._rooms() if self._is_before(room.job, job)]

    def _revise(self, heads: AbstractSet[JobId]) -> None:
        """Discard these reservations and those that rest on them; they are computed when needed."""
        if not heads:
            return
        self._void |= heads
        made = (number for number, room in enumerate(self._kept) if room.job.id in heads)
        del self._kept[next(made, len(self._kept)) :]
        self._beside = None

    def _still_waiting(self) -> dict[JobId, Job]:
        if not self._state.books.rules.by_share:
            return {}
        waited = self._now - self._state.books.rules.reserve_after_seconds
        heads = (self._state.waiting.get(room.job.id) for room in self._state.kept)
        return {head.job.id: head.job for head in heads if head and head.since <= waited}

    def keeps_room_for(self, job: Job) -> bool:
        """Tell whether the job is among the queue heads by now."""
        return any(head.job.id == job.id for head in self._heads)

    def foreseen(self, job: Job) -> KeptRoom | None:
        """Return the reservation of a queue head; None: it is unknown in this cycle."""
        return next((room for room in self._rooms() if room.job.id == job.id), None)

    def serves(self, job: Job) -> None:
        """Drop a queue head, because other places are reserved for it in this cycle."""
        self._revise({job.id})
        self._early.discard(job.id)
        self._heads = [head for head in self._heads if head.job.id != job.id]
        self._beside = None

    def foresee_anew(self, job: Job) -> None:
        """Discard the reservation of the job."""
        self._revise({job.id})

    def remember(self, *, complete: bool = True) -> None:
        """Keep the reservations of the queue heads for the next cycle.

        `complete` False: not all jobs were tried, and the heads of the last cycle may still be
        heads.
        """
        for room, job_id in self._let:
            room.future.give_back(job_id)
        for room in self._kept:
            for running in self._starting:
                room.future.leaves(running)
        for running in self._starting:
            self._state.guests.leave(running.job.id)
        for guest, heads in self._guests.items():
            self._state.guests.add(guest, heads)
        found = [entry.job.id for entry in self._heads]
        if not complete:
            starting = {running.job.id for running in self._starting}
            before = (job for job in self._state.heads if job in self._state.waiting)
            found += [job for job in before if job not in starting and job not in found]
        self._state.heads = tuple(found)
        heads = set(self._state.heads)
        made = {room.job.id for room in self._kept}
        old = [room for room in self._state.kept if room.job.id not in made | self._void]
        self._state.kept = [room for room in (*self._kept, *old) if room.job.id in heads]

    def _rooms(self) -> list[KeptRoom]:
        """Return the reservations of all heads, or of the first ones: the rest is put off."""
        while len(self._kept) < len(self._heads):
            job = self._heads[len(self._kept)].job
            room = self._known(job)
            if room is None and not self._left:
                self.is_put_off, self.look_at = True, self._now
                break
            if room is None:
                self._left -= 1
                room = self._foreseen(job)
            self._beside = None
            self._kept.append(room)
            if room.at < inf:
                self.look_at = min(self.look_at, max(room.made + REVISED_AFTER, room.at))
        return self._kept

    def _known(self, job: Job) -> KeptRoom | None:
        found = None if job.id in self._void else self._state.kept_for(job)
        if found is None or found.disruptions != self._state.disruptions or self._moves:
            return None
        if not self._is_as_decided(found) or self._fits_now(found):
            self._void.add(job.id)
            return None
        if found.at == inf and found.placements is not None and not self._state.running.guessed:
            return found
        lasts = found.made + REVISED_AFTER
        return found if self._now < (lasts if found.at == inf else max(lasts, found.at)) else None

    def _is_as_decided(self, found: KeptRoom) -> bool:
        """Tell whether it agrees with the decisions of this cycle and with earlier reservations."""
        self._leave_out_those_behind(found)
        return (
            all(found.starts(one, guest=self._is_guest(one, found.job)) for one in self._starting)
            and all(found.exchange(*each) for each in self._stops)
            and all(found.stands_beside(other) for other in self._kept)
        )

    def _is_guest(self, running: RunningJob, head: Job) -> bool:
        guest = running.job.id
        return guest in self._state.guests.of(head.id) or head.id in self._guests.get(guest, ())

    def _fits_now(self, found: KeptRoom) -> bool:
        """Tell whether a head that is not admitted in this cycle fits sooner than estimated."""
        if found.job.id not in self._passed_over or found.at <= self._now:
            return False
        return self._plan(self._sheet.cluster, found.job) is not None

    def _leave_out_those_behind(self, found: KeptRoom) -> None:
        """Remove jobs that may now be behind it: they were before it, and still wait."""
        before = {room.job.id for room in self._kept} | {job_id for _, job_id in self._let}
        for other in found.future.all_taken():
            behind = other not in before and other != found.job.id
            if behind and other in self._state.waiting and other not in self._state.reserved:
                found.future.give_back(other)

    def _foreseen(self, job: Job) -> KeptRoom:
        """Compute the reservation of a head, with the reservations of the heads before it held.

        Guests of the head and all extra workers count as gone.
        """
        self.has_foreseen = True
        cluster = self._sheet.cluster.overlay()
        guests = self._guests_of(job)
        extras = self._extras()
        gone = {one.job.id: one for one in (*guests, *extras)}
        for one in gone.values():
            for placement in one.placements:
                cluster.suppose_free(placement)
        starting = {one.job.id for one in self._starting}
        reserved = {
            job_id: each.placements
            for job_id, each in self._state.reserved.items()
            if job_id not in starting
        }
        future = Future(cluster, self._ends(guests), gone=gone, taken=reserved)
        placements: Places | None
        guessed = future.guessed and self._state.books.rules.max_backfill_delay_seconds < inf
        for other in self._kept:
            future.adopt(other.job, other.placements or ())
        may_fit = guests or extras or job.id in self._passed_over
        placements = self._plan(cluster, job) if may_fit else None
        at = self._now
        if placements is None:
            at, placements = earliest(future, job, self._plan)
        future.adopt(job, placements or ())
        disruptions = self._state.disruptions
        return KeptRoom(job, at, future, placements, disruptions, self._now, guessed)

    def _guests_of(self, job: Job) -> list[RunningJob]:
        """Return the jobs that were speculatively backfilled before the job.

        They can be preempted for it, so its reservation does not depend on their ends.
        """
        known = set(self._state.guests.of(job.id))
        running = [self._state.running.get(guest) for guest in known - self._state.stopping()]
        return [one for one in running if one is not None] + [
            one for one in self._starting if job.id in self._guests.get(one.job.id, ())
        ]

    def _extras(self) -> list[RunningJob]:
        """Return the extra workers of elastic gangs, which are preempted for any pending job."""
        starting = [running for running in self._starting if running.job.extends is not None]
        return [*self._state.running.extras.values(), *starting]

    def _ends(self, guests: Sequence[RunningJob]) -> Ends:
        """Return the ends of jobs that run and of jobs that start in this cycle."""
        census = self._state.running.census
        if guests:
            return census.ends(self._now, self._starting, [guest.job.id for guest in guests])
        if self._ending is None or self._ending[0] != len(self._starting):
            self._ending = len(self._starting), census.ends(self._now, self._starting)
        return self._ending[1]
