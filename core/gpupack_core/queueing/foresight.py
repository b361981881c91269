# SPDX-License-Identifier: Apache-2.0
"""For whom room is kept in a cycle, and whether a later job would take of it."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from math import inf
from typing import Final

from gpupack_core.cluster import Cluster
from gpupack_core.queueing.future import Ends, Future, adopt
from gpupack_core.queueing.job import Job, JobId, Places, Running
from gpupack_core.queueing.room import KeptRoom, Planner, earliest
from gpupack_core.queueing.sheet import Sheet
from gpupack_core.queueing.state import State
from gpupack_core.queueing.waiting import Entry

REVISED_AFTER: Final = 5.0
"""Seconds: what rests on jobs that are overdue, or of unknown duration, stands for so long."""


class Foresight:
    """Belongs to one cycle. Room is worked out when the first job comes that could take of it.

    `most`: for so many at the most. Nobody starts past another whose turn to be worked out has not
    come: that is put off to the next cycle, which is due at once.
    """

    def __init__(
        self, state: State, sheet: Sheet, plan: Planner, now: float, *, most: float = inf
    ) -> None:
        self._state, self._sheet, self._plan, self._now = state, sheet, plan, now
        self._left = most
        self.is_put_off = False
        """Whether room for somebody is to be worked out in a later cycle."""
        self._heads: list[Entry] = []
        self._early: set[JobId] = set()
        """Of the heads those who have not waited for long: in the way of lower priorities alone."""
        self._void: set[JobId] = set()
        """Of those whose places somebody of their own priority may have taken in this cycle."""
        self._kept: list[KeptRoom] = []
        self._promised = self._still_waiting()
        """For whom room was kept before, and who has not been looked at yet."""
        self._starting: list[Running] = []
        self._stops: list[tuple[Job, Places, Sequence[Running]]] = []
        """For whom who is stopped in this cycle, and where it goes then."""
        self._moves = False
        """Whether anybody is moved in this cycle: what is known counts with his place of before."""
        self._guests: dict[JobId, set[JobId]] = {}
        """Who goes past whom on a guess in this cycle."""
        self._ending: tuple[int, Ends] | None = None
        """With how many who start in this cycle; without the guests of anybody."""
        self._beside: tuple[frozenset[JobId], Cluster] | None = None
        """The sheet with the places of these taken."""
        self._let: list[tuple[KeptRoom, JobId]] = []
        """Who is placed where in this cycle: until its start is told, it does not run."""
        self._passed_over: set[JobId] = set()
        """Of the heads those who may fit now."""
        self.has_foreseen = False
        """Whether room was worked out in this cycle."""
        self.look_at = inf
        """When room will have to be kept for somebody."""

    def lacks_room(self, entry: Entry) -> None:
        """Room is kept for it, if others are not before it.

        At once against those of lower priority, against others when it has waited for long enough.
        """
        due = entry.since + self._state.books.rules.keep_room_after
        if due > self._now:
            self.look_at = min(self.look_at, due)
            if due < inf and len(self._early) < self._state.books.rules.kept:
                self._early.add(entry.job.id)
                self._heads.append(entry)
        elif entry.job.id in self._promised or self._is_free_for(entry.job):
            self._promised.pop(entry.job.id, None)
            self._heads.append(entry)

    def heed_heads(self) -> None:
        """Room is kept for those who were first in the last cycle, but for whom others end."""
        for head in map(self._state.waiting.get, self._state.heads):
            if head is not None and head.job.id not in self._state.reserved:
                self.lacks_room(head)

    def passes_over(self, entry: Entry) -> None:
        """It is not let in for now, though it may fit; what room is kept for it stays so."""
        if entry.job.id in self._state.heads:
            self._passed_over.add(entry.job.id)
            self.lacks_room(entry)

    def _is_free_for(self, job: Job) -> bool:
        """Whether room can be kept for one more.

        Shares go up and down, and the order with them; who was promised room keeps it, as long as
        nobody more urgent lacks it.
        """
        before = sum(other.priority >= job.priority for other in self._promised.values())
        return len(self._heads) - len(self._early) + before < self._state.books.rules.kept

    def starts(self, running: Running) -> None:
        """It was admitted in this cycle."""
        self._starting.append(running)
        if self._beside is not None:
            adopt(self._beside[1], running.job, running.placements)

    def stops(self, job: Job, places: Places, stopped: Sequence[Running]) -> None:
        """These are stopped for the job in this cycle."""
        self._stops.append((job, places, stopped))
        self._beside = None

    def moves(self) -> None:
        """Somebody is moved in this cycle."""
        self._moves = True
        self._beside = None

    def stop(self) -> None:
        """Nothing more is worked out in this cycle."""
        self._left = 0

    def is_unknown(self, job: Job) -> bool:
        """Whether it is not known in this cycle whom the job would delay."""
        return self._heads_before(job) and len(self._rooms()) < len(self._heads)

    def would_delay(self, entry: Entry) -> bool:
        """True: a job of this shape would have delayed somebody, and nothing was freed since.

        Unless it ends in time. Or it cannot be said in this cycle.
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
        """It would delay somebody wherever it starts now."""
        entry.lane.shape.delayed = self._token(entry.job), self._state.waiting.frees

    def lets(self, job: Job, places: Places) -> bool:
        """Whether nobody is delayed when it starts there now; it is foreseen from then on.

        Not to be asked where that is unknown.
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
        """Those of one lane who will have ended before any of the kept room is needed."""
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
        """Of one lane, which is in the order of priority where that counts."""
        if self._state.books.rules.by_priority:
            return entries[-1].job
        return min(entries, key=lambda entry: entry.job.priority).job

    def _ends_before(self, job: Job, room: KeptRoom) -> bool:
        """Whether it is not in the way: it ends before the room is needed, or none is kept.

        On a guess, where it can be stopped.
        """
        if room.placements is None or self._surely_ends_before(job, room):
            return True
        return job.is_expected(self._now) <= room.at < inf and self._may_guess(job, room)

    def _surely_ends_before(self, job: Job, room: KeptRoom) -> bool:
        return not room.guessed and job.ends(self._now) <= room.at < inf

    def _may_guess(self, job: Job, room: KeptRoom) -> bool:
        """Whether it may be a guest: nobody is once the one who waits could run but for guests."""
        owed, delay = self._state.guests.owed, self._state.books.rules.guess_delay
        return job.preemptible and room.job.id not in owed and delay < inf

    def beside(self, job: Job) -> Cluster | None:
        """To plan on with all places taken that are kept from the job; None: none is."""
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
        """What is kept from the job for whom."""
        return tuple((room.job.id, room.at, room.made) for room in self._rooms_before(job))

    def _is_before(self, head: Job, job: Job) -> bool:
        """Whether the head's places are kept from the job."""
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
        """Room for these, and what rests on it, is worked out anew when somebody asks for it."""
        if not heads:
            return
        self._void |= heads
        made = (number for number, room in enumerate(self._kept) if room.job.id in heads)
        del self._kept[next(made, len(self._kept)) :]
        self._beside = None

    def _still_waiting(self) -> dict[JobId, Job]:
        if not self._state.books.rules.by_share:
            return {}
        waited = self._now - self._state.books.rules.keep_room_after
        heads = (self._state.waiting.get(room.job.id) for room in self._state.kept)
        return {head.job.id: head.job for head in heads if head and head.since <= waited}

    def keeps_room_for(self, job: Job) -> bool:
        """Whether it is among the heads by now."""
        return any(head.job.id == job.id for head in self._heads)

    def foreseen(self, job: Job) -> KeptRoom | None:
        """When a head starts, and where; None: that is not known in this cycle."""
        return next((room for room in self._rooms() if room.job.id == job.id), None)

    def serves(self, job: Job) -> None:
        """Other room is made for a head in this cycle."""
        self._revise({job.id})
        self._early.discard(job.id)
        self._heads = [head for head in self._heads if head.job.id != job.id]
        self._beside = None

    def foresee_anew(self, job: Job) -> None:
        """What is kept for the job is no longer so."""
        self._revise({job.id})

    def remember(self, *, complete: bool = True) -> None:
        """For the next cycle, of those who are first still.

        `complete` False: not all were looked at, and those who were first before may be so still.
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
        """Of all heads, or of the first of them: the rest is put off."""
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
        """Whether it goes with this cycle's decisions, and with what is kept for those before."""
        self._leave_out_those_behind(found)
        return (
            all(found.starts(one, guest=self._is_guest(one, found.job)) for one in self._starting)
            and all(found.exchange(*each) for each in self._stops)
            and all(found.stands_beside(other) for other in self._kept)
        )

    def _is_guest(self, running: Running, head: Job) -> bool:
        guest = running.job.id
        return guest in self._state.guests.of(head.id) or head.id in self._guests.get(guest, ())

    def _fits_now(self, found: KeptRoom) -> bool:
        """Of one who is passed over: sooner than was foreseen."""
        if found.job.id not in self._passed_over or found.at <= self._now:
            return False
        return self._plan(self._sheet.cluster, found.job) is not None

    def _leave_out_those_behind(self, found: KeptRoom) -> None:
        """Who was before it when it was foreseen, and waits still, may be behind it by now."""
        before = {room.job.id for room in self._kept} | {job_id for _, job_id in self._let}
        for other in found.future.all_taken():
            behind = other not in before and other != found.job.id
            if behind and other in self._state.waiting and other not in self._state.reserved:
                found.future.give_back(other)

    def _foreseen(self, job: Job) -> KeptRoom:
        """Beside what is kept for those before it."""
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
        guessed = future.guessed and self._state.books.rules.guess_delay < inf
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

    def _guests_of(self, job: Job) -> list[Running]:
        """They can be stopped for it, so its room does not rest on when they end."""
        known = set(self._state.guests.of(job.id))
        running = [self._state.running.get(guest) for guest in known - self._state.stopping()]
        return [one for one in running if one is not None] + [
            one for one in self._starting if job.id in self._guests.get(one.job.id, ())
        ]

    def _extras(self) -> list[Running]:
        """Those of elastic gangs, who are stopped for whoever waits."""
        starting = [running for running in self._starting if running.job.extends is not None]
        return [*self._state.running.extras.values(), *starting]

    def _ends(self, guests: Sequence[Running]) -> Ends:
        """Of those who run and those who start in this cycle."""
        census = self._state.running.census
        if guests:
            return census.ends(self._now, self._starting, [guest.job.id for guest in guests])
        if self._ending is None or self._ending[0] != len(self._starting):
            self._ending = len(self._starting), census.ends(self._now, self._starting)
        return self._ending[1]
