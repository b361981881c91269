# SPDX-License-Identifier: Apache-2.0
"""Rules of the external watcher about preemption."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from math import inf
from typing import Final

from service_rules import MAINTENANCE, MOVED
from storm_views import SeenJob, SeenPod

PREEMPTED: Final = "Preempted"
SHRUNK: Final = "ElasticScaleDown"
CONSOLIDATION: Final = "Consolidation"
"""The reason of a move for another job."""
OTHER_WATCH_SECONDS: Final = 10.0
"""The maximum delay of a pod's event behind a GPUJob's event that was written later."""
MAX_TURNS: Final = 3
"""Maximum number of times that two jobs preempt each other in turn. While nothing else changes it
never happens (a property in core). In a storm, other jobs of both tenants come and go: one job
reclaims its quota, the other its fair share."""
AWAY_SECONDS: Final = 120.0
"""A victim of a pod may end this long after the pod was last seen, if the watch was interrupted."""


class FairPreemptions:
    """A preemptor names each victim before the victim ends, with an allowed reason.

    It names it in a GPUJob's status or in the annotation of a standalone pod, which another watch
    shows. A preemption that the watch could not show, because it was written and finished while
    the watch was interrupted, is counted and not judged. A job that is drained for maintenance
    has no preemptor (service_rules).
    """

    def __init__(self) -> None:
        self.unseen = 0
        self.count = 0
        self.shrinks = 0
        self.consolidations = 0
        self._for: dict[str, dict[str, str]] = defaultdict(dict)
        """For each victim's attempt, the UIDs of the preemptors and their reasons."""
        self._stopped: set[str] = set()
        self._nameless: dict[str, tuple[str, float]] = {}
        """Preempted attempts without a known preemptor so far: their jobs, and when."""
        self._extra_workers: dict[str, tuple[int, frozenset[int]]] = {}
        """For each job, its attempt and the extra workers of it."""
        self._turns: dict[frozenset[str], list[tuple[str, str]]] = defaultdict(list)
        """For each pair of jobs, the preempted ones in order, with the reasons."""
        self._listed = -inf

    def pods_listed(self, at: float) -> None:
        """Record that changes of pods since they were last seen are unknown."""
        self._listed = at

    def pod(self, pod: SeenPod) -> None:
        """A pod changed."""
        for name, ground in pod.victims.items():
            self._for[name][f"pod/{pod.uid}"] = ground
            self._nameless.pop(name, None)

    def job(
        self, job: SeenJob, jobs: Mapping[str, SeenJob], at: float, *, blind: bool
    ) -> Iterator[str]:
        """A GPUJob changed; `blind`: what happened since it was last seen is not known."""
        for name, ground in job.victims.items():
            if job.uid not in self._for[name]:
                self._for[name][job.uid] = ground
                if "+" not in name:
                    yield from self._named(job, jobs.get(name.partition("/")[0]), ground)
        for attempt in job.attempts:
            name = f"{job.uid}/{attempt.number}"
            moved = attempt.outcome == MOVED and attempt.reason == CONSOLIDATION
            stopped = attempt.outcome == PREEMPTED and attempt.reason != MAINTENANCE
            if (stopped or moved) and name not in self._stopped:
                self._stopped.add(name)
                self.count += stopped
                self.consolidations += moved
                yield from self._ended(job, name, jobs, at, blind=blind)
        self._resized(job, at, blind=blind)

    def tick(self, at: float) -> Iterator[str]:
        """Time passed."""
        for name, (key, since) in list(self._nameless.items()):
            if at >= since + OTHER_WATCH_SECONDS:
                del self._nameless[name]
                if self._listed >= since - AWAY_SECONDS:
                    self.unseen += 1
                else:
                    yield f"{key} was stopped or shrunk, and no preemptor named its attempt {name}"

    def _resized(self, job: SeenJob, at: float, *, blind: bool) -> None:
        """Check that a gang shrinks only for a preemptor, of any kind."""
        attempt, before = self._extra_workers.get(job.uid, (0, frozenset()))
        self._extra_workers[job.uid] = job.attempt, job.extra_workers
        if attempt != job.attempt or not job.running or job.resized != SHRUNK:
            return
        for index in before - job.extra_workers:
            name = f"{job.uid}/{attempt}+{index - job.least + 1}"
            self.shrinks += 1
            if not self._for.get(name):
                if blind:
                    self.unseen += 1
                else:
                    self._nameless[name] = job.key, at

    def _named(self, job: SeenJob, victim: SeenJob | None, ground: str) -> Iterator[str]:
        moves_itself = victim is not None and victim.uid == job.uid
        if victim is None or victim.namespace != job.namespace or moves_itself:
            return
        if victim.priority >= job.priority + (ground == CONSOLIDATION):
            which = f"{victim.key} of priority {victim.priority}"
            yield f"{which} is to end for {job.key} of priority {job.priority}"

    def _ended(
        self, job: SeenJob, name: str, jobs: Mapping[str, SeenJob], at: float, *, blind: bool
    ) -> Iterator[str]:
        beneficiaries = self._for.get(name, {})
        if not beneficiaries and blind:
            self.unseen += 1
        elif not beneficiaries:
            self._nameless[name] = job.key, at
        for other, ground in beneficiaries.items():
            if ground == CONSOLIDATION:
                continue
            turns = self._turns[frozenset((job.uid, other))]
            if not turns or turns[-1][0] != job.uid:
                turns.append((job.uid, ground))
            if len(turns) > MAX_TURNS:
                preemptor = jobs[other].key if other in jobs else other
                rights = ", ".join(each for _, each in turns)
                yield f"{job.key} and {preemptor} were stopped for each other in turn: {rights}"
