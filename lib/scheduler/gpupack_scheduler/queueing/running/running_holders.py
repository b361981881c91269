# SPDX-License-Identifier: Apache-2.0
"""Running jobs for the queue: all holders of GPUs by the ledger's claims.

    attempt      from the time when its workers have places, planned or written, until its last
                 pod is gone; each extra worker of an elastic one is a separate job
    group        members of a pod group that were admitted, together or later
    pod          a standalone pod; or one that is only labelled as a worker, of an attempt that
                 has no places or other ones; or a lingering one, whose processes still hold GPUs

A pod's author writes its labels and owner references: a pod that is no worker by the ledger counts
as a pod of its namespace, whatever attempt of whatever job it names.
"""

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from gpupack_crds.gpujob import MAX_WORKERS
from gpupack_crds.gpujob_status import RunLimit
from gpupack_placement import NodeName
from gpupack_queue import Job, JobId, Queue, extra_worker
from gpupack_scheduler.ledger.changes import Changes
from gpupack_scheduler.ledger.claims import Allocation, PodClaim
from gpupack_scheduler.ledger.ledger import Ledger
from gpupack_scheduler.ledger.terminating import TerminatingHolder
from gpupack_scheduler.ledger.workers import AttemptKey, WorkerKey
from gpupack_scheduler.queueing.pending.request import (
    group_id,
    holder_id,
    job_id,
    lingering_id,
    pod_id,
)
from gpupack_scheduler.queueing.running import holders
from gpupack_scheduler.queueing.running.membership import Held, divide, parts
from gpupack_scheduler.queueing.running.shown_jobs import (
    LearnedDurations,
    RunningUpdates,
    began,
    current_attempt,
)
from gpupack_scheduler.requests.pod_groups import GangKey, GroupKey

MAX_VACATED: Final = 64
"""Maximum of nodes per gang that members have left and that are remembered for others."""


class RunningHolders:
    """The running jobs, from the claims; the queue's owner has the pending jobs."""

    def __init__(
        self,
        ledger: Ledger,
        queue: Queue,
        learned: LearnedDurations,
        *,
        evicts: bool,
        observed: Collection[str],
        limit_of: Callable[[str], RunLimit | None] = lambda _: None,
    ) -> None:
        """Follow the claims.

        `evicts`: standalone pods can be preempted; `observed`: resources; `limit_of`: returns the
        maximum run time of a namespace's pods.
        """
        self._ledger, self._queue, self._learned = ledger, queue, learned
        self._evicts, self._observed, self._limit_of = evicts, observed, limit_of
        self._held: dict[JobId, Held] = {}
        self._attempts: dict[JobId, AttemptKey] = {}
        self._least: dict[JobId, int] = {}
        """Number of workers of an attempt that start together; larger indices are extra workers."""
        self._extra_workers: dict[JobId, dict[int, JobId]] = defaultdict(dict)
        """Extra workers of an attempt that hold something, by index."""
        self._alone: dict[AttemptKey, set[str]] = defaultdict(set)
        """UIDs of pods that are labelled as workers of an attempt, and count separately."""
        self._members: dict[JobId, dict[str, Allocation]] = {}
        """Members of gangs of pod groups that hold something, by UID, and what they hold."""
        self._gang_of: dict[str, GangKey] = {}
        """Gangs of those members, by UID."""
        self._vacated: dict[JobId, list[NodeName]] = {}
        """Nodes of members that have ended and were not replaced yet, the last ones."""
        self._changed_groups: set[GroupKey] = set()
        self._updates = RunningUpdates(ledger, queue, self._attempts, observed)
        self.suppositions = holders.AssumedPlaces(ledger.cluster)

    def __contains__(self, job: object) -> bool:
        return job in self._held

    def add_gang(self, job: Job, attempt: AttemptKey, now: float) -> None:
        """Add an attempt whose places were just held in the ledger."""
        self._attempts[job.id], self._least[job.id] = attempt, job.gang.workers
        held, _ = divide(self._ledger.claims.places_of(attempt), (), ())
        self._start(job, held, now)

    def add_extra_worker(self, worker: WorkerKey, now: float) -> None:
        """Add an extra worker of a running gang whose place was just held in the ledger."""
        place = self._ledger.claims.workers[worker].allocation
        self._start_extra_worker(worker.attempt, worker.index, (place,), now)

    def attempt_of(self, gang: JobId) -> AttemptKey | None:
        """Return the attempt of a gang; None if it holds nothing."""
        return self._attempts.get(gang)

    def least(self, attempt: AttemptKey) -> int:
        """Return how many workers start together; larger indices are extra workers."""
        known = self._least.get(job_id(attempt))
        if known is not None:
            return known
        shown = self._ledger.jobs.shown(attempt.job_uid)
        return shown.least if shown else MAX_WORKERS

    def add_pod(self, job: Job, claim: PodClaim, now: float) -> None:
        """Add a pod whose place was just held in the ledger."""
        job = dataclasses.replace(job, preemptible=self._evicts)
        self._start(job, (claim.allocation,), now)

    def add_members(self, waiting: Job, gang: GangKey, now: float) -> None:
        """Add members of a pod group whose places were just held in the ledger.

        `waiting`: the job in which they waited, which the gang is if it is new.
        """
        if waiting.id != group_id(gang):
            self._queue.withdraw(waiting.id, self._ledger.cluster)
        self._see_members(gang, now)

    def vacated(self, gang: GangKey) -> tuple[NodeName, ...]:
        """Return nodes that members have left and where no later member was placed."""
        return tuple(self._vacated.get(group_id(gang), ()))

    def take_changed_groups(self) -> set[GroupKey]:
        """Return the pod groups of which running members have changed, and forget them."""
        changed, self._changed_groups = self._changed_groups, set()
        return changed

    def see_pod(self, uid: str, now: float) -> None:
        """Update a standalone pod whose claim may have changed at this moment."""
        self._see_standalone([uid], now)

    def see(self, seen: Changes, now: float) -> tuple[AttemptKey, ...]:
        """Apply changes of the ledger; return the attempts that hold nothing any more."""
        ended = [
            attempt for attempt in sorted(seen.attempts, key=str) if self._see_attempt(attempt, now)
        ]
        self._see_standalone(sorted(seen.pods), now)
        for node, uid in sorted(seen.terminating):
            self._see_terminating(node, uid, now)
        self._see_nodes(seen.nodes, now)
        self._updates.see_jobs(seen.jobs, now)
        return tuple(ended)

    def _see_standalone(self, uids: Iterable[str], now: float) -> None:
        """Update pods that are no workers, and the gangs of pod groups that have them."""
        pods, gangs = self._ledger.claims.pods, dict[GangKey, None]()
        for uid in uids:
            claim = pods.get(uid)
            gang, before = claim.gang if claim else None, self._gang_of.get(uid)
            gangs |= dict.fromkeys(each for each in (before, gang) if each is not None)
            if claim and claim.worker is None and gang is None:
                self._see_pod(uid, claim, now)
            else:
                self._leave(uid, now)
        for each in gangs:
            self._see_members(each, now)

    def _see_members(self, gang: GangKey, now: float) -> None:
        """Update the gang of a pod group by the claims of its members."""
        job, claims = group_id(gang), self._ledger.claims.members_of(gang)
        counted = [each for each in claims if self._counted((each.allocation,))]
        before = self._members.pop(job, {})
        for uid in before:
            del self._gang_of[uid]
        self._changed_groups.add(gang.group)
        if not counted:
            self._vacated.pop(job, None)
            self._end(job, now)
            return
        members = {each.uid: each.allocation for each in counted}
        self._members[job] = members
        self._gang_of.update(dict.fromkeys(members, gang))
        self._see_vacated(job, before, members)
        since = min((each.begun for each in counted if each.begun is not None), default=None)
        if job not in self._held or members != before:
            found = holders.members_job(gang, counted, evicts=self._evicts)
            held = tuple(each.allocation for each in holders.ordered_members(counted))
            self._start_or_change(found, held, now, since=since)
        self._updates.see_began(job, since, now)
        saved = [each.checkpointed for each in counted if each.checkpointed is not None]
        self._updates.see_checkpoint(job, max(saved, default=None), now)
        self._updates.see_run_limit(job, self._limit_of(gang.group.namespace), now)

    def _see_vacated(
        self, job: JobId, before: Mapping[str, Allocation], members: Mapping[str, Allocation]
    ) -> None:
        """Record the nodes that members have left, without those where others came."""
        left = self._vacated.get(job, [])
        left += [held.node for uid, held in before.items() if uid not in members]
        for held in (held for uid, held in members.items() if uid not in before):
            if held.node in left:
                left.remove(held.node)
        if left:
            self._vacated[job] = left[-MAX_VACATED:]
        else:
            self._vacated.pop(job, None)

    def _start_or_change(self, found: Job, held: Held, now: float, *, since: float | None) -> None:
        """Update the gang of a pod group that is new, or has other members or places."""
        running = self._queue.state.running.get(found.id)
        if found.id not in self._held:
            self._start(found, held, now, since=since)
            return
        if running is None:
            return
        found = dataclasses.replace(found, estimate=running.job.estimate)
        if self._held[found.id] == held and found == running.job:
            return
        self._held[found.id] = held
        places = self.suppositions.places(found.id, held)
        self._queue.update_running(found, places, self._ledger.cluster, now)

    def _see_attempt(self, attempt: AttemptKey, now: float) -> bool:
        """Update an attempt; return whether it held something and holds nothing now."""
        claims, job = self._ledger.claims, job_id(attempt)
        pods = {claim.uid: claim for claim in claims.pods_of_attempt(attempt)}
        is_known = self._attempts.get(job) == attempt
        if not is_known and (job in self._attempts or not claims.has_workers(attempt)):
            self._see_standalone_pods(attempt, pods, now)
            return False
        self._attempts[job], self._least[job] = attempt, self.least(attempt)
        ids: dict[int | None, JobId] = {None: job, **dict(self._extra_workers.get(job, {}).items())}
        found = parts(self._least[job], claims.places_of(attempt), pods.values(), ids.keys())
        divided = {
            part.index: divide(
                part.places,
                part.pods,
                self._before(ids.get(part.index)),
                place_of=claims.place_of,
            )
            for part in found
        }
        others = {uid: pod for _, strangers in divided.values() for uid, pod in strangers.items()}
        self._see_standalone_pods(attempt, others, now)
        has_ended = False
        for index, (all_held, _) in divided.items():
            held = self._counted(all_held)
            if index is None:
                has_ended = self._see_gang(attempt, held, now)
            else:
                self._see_extra_worker(attempt, index, held, now)
        if job not in self._held and job not in self._extra_workers:
            del self._attempts[job], self._least[job]
        return has_ended

    def _before(self, job: JobId | None) -> Held:
        """Return what a job held at the last look."""
        return self._held.get(job, ()) if job is not None else ()

    def _see_gang(self, attempt: AttemptKey, held: Held, now: float) -> bool:
        """Update a gang; return whether it held something and holds nothing now."""
        job = job_id(attempt)
        if held and job not in self._held:
            self._start(self._gang(attempt, held), held, now, since=began(self._ledger, attempt))
        elif held:
            self._move(job, held, now)
        else:
            return self._end(job, now)
        return False

    def _see_extra_worker(self, attempt: AttemptKey, index: int, held: Held, now: float) -> None:
        extra = self._extra_workers[job_id(attempt)]
        if held and index not in extra:
            self._start_extra_worker(attempt, index, held, now, since=began(self._ledger, attempt))
        elif held:
            self._move(extra[index], held, now)
        elif index in extra:
            self._end(extra.pop(index), now)
        if not extra:
            del self._extra_workers[job_id(attempt)]

    def _start_extra_worker(
        self, attempt: AttemptKey, index: int, held: Held, now: float, *, since: float | None = None
    ) -> None:
        gang = self._queue.state.running.get(job_id(attempt))
        found = gang.job if gang else self._gang(attempt, held)
        job = extra_worker(found, index - self.least(attempt) + 1)
        self._extra_workers[job_id(attempt)][index] = job.id
        self._start(job, held, now, since=since)

    def _gang(self, attempt: AttemptKey, held: Held) -> Job:
        """Return the job of an attempt that was found running."""
        places = tuple(each.placement for each in held)
        estimate = self._learned.estimate(attempt)
        current = current_attempt(self._ledger, attempt)
        return holders.gang_job(attempt, places, current, estimate, observed=self._observed)

    def _see_standalone_pods(
        self, attempt: AttemptKey, pods: Mapping[str, PodClaim], now: float
    ) -> None:
        """Count these pods, which are labelled as workers of an attempt, separately."""
        before = self._alone.pop(attempt, set())
        if pods:
            self._alone[attempt] = set(pods)
        for uid in sorted(before - pods.keys()):
            self._leave(uid, now)
        for uid, claim in sorted(pods.items()):
            self._see_pod(uid, claim, now)

    def _leave(self, uid: str, now: float) -> None:
        """End the separate count of a pod, unless it still counts as one labelled as a worker."""
        claim = self._ledger.claims.pods.get(uid)
        attempt = claim.worker.attempt if claim and claim.worker else None
        if attempt is None or uid not in self._alone.get(attempt, ()):
            self._see_pod(uid, None, now)

    def _see_pod(self, uid: str, claim: PodClaim | None, now: float) -> None:
        self._follow(pod_id(uid), claim, claim.allocation if claim else None, now)

    def _see_terminating(self, node: NodeName, uid: str, now: float) -> None:
        """Update a lingering pod: deletion by force does not exempt its GPUs from quota."""
        lingers = self._ledger.claims.terminating_holder(node, uid)
        allocation = Allocation(lingers.placement) if lingers else None
        self._follow(lingering_id(node, uid), lingers, allocation, now)

    def _follow(
        self,
        job: JobId,
        pod: PodClaim | TerminatingHolder | None,
        allocation: Allocation | None,
        now: float,
    ) -> None:
        held = self._counted((allocation,) if allocation else ())
        if pod is None or not held:
            self._end(job, now)
            return
        since = pod.begun if isinstance(pod, PodClaim) else None
        if job in self._held:
            self._move(job, held, now)
            self._updates.see_began(job, since, now)
        else:
            found = holders.pod_job(job, pod, held[0].placement, evicts=self._evicts)
            self._start(found, held, now, since=since)
        if isinstance(pod, PodClaim):
            self._updates.see_pod(job, pod, now)
            self._updates.see_run_limit(job, self._limit_of(pod.namespace), now)

    def see_run_limits(self, now: float) -> None:
        """Use the present maximum run times for all standalone pods."""
        for claim in self._ledger.claims.pods.values():
            self._updates.see_run_limit(holder_id(claim), self._limit_of(claim.namespace), now)

    def _see_nodes(self, nodes: Collection[NodeName], now: float) -> None:
        """Update jobs with device tokens on these nodes, whose GPUs are assumed again."""
        if not nodes:
            return
        for job, held in tuple(self._held.items()):
            if any(each.tokens and each.node in nodes for each in held):
                self._move(job, held, now, is_replaced=True)

    def _start(self, job: Job, held: Held, now: float, *, since: float | None = None) -> None:
        self._held[job.id] = held
        places = self.suppositions.places(job.id, held)
        self._queue.start(job, places, self._ledger.cluster, now, since=since)

    def _move(self, job: JobId, held: Held, now: float, *, is_replaced: bool = False) -> None:
        if self._held[job] == held and not is_replaced:
            return
        self._held[job] = held
        running = self._queue.state.running.get(job)
        places = self.suppositions.places(job, held)
        if running is not None and places != running.placements:
            self._queue.update_running(running.job, places, self._ledger.cluster, now)

    def _end(self, job: JobId, now: float) -> bool:
        if self._held.pop(job, None) is None:
            return False
        self.suppositions.forget(job)
        self._queue.end(job, self._ledger.cluster, now)
        return True

    def _counted(self, held: Iterable[Allocation]) -> Held:
        """Return the places; none if they contain no GPUs, since the queue counts only GPUs."""
        found = tuple(held)
        return found if any(each.placement.devices or each.tokens for each in found) else ()
