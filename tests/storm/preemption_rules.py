# SPDX-License-Identifier: Apache-2.0
"""Who may be stopped for whom: rules of the outside watcher about preemption."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from math import inf
from typing import Final

from service_rules import MAINTENANCE, MOVED
from storm_views import SeenJob, SeenPod

PREEMPTED: Final = "Preempted"
SHRUNK: Final = "ElasticScaleDown"
CONSOLIDATION: Final = "Consolidation"
"""The ground by which who moves makes room for another."""
OTHER_WATCH_SECONDS: Final = 10.0
"""How much later than a GPUJob's event that of a pod may come which was written before it."""
MAX_TURNS: Final = 3
"""So often two may be stopped for each other in turn. While nothing else changes it never happens
(a property in core); in a storm others of both tenants come and go, and one takes back what is
promised to it from the other which took back its share, or the reverse."""
AWAY_SECONDS: Final = 120.0
"""Who was named by a pod may end so long after that pod was last seen, and the watch was away."""


class FairPreemptions:
    """Who is stopped was named before, by who needs the place, with a right to it.

    In a GPUJob's status, or in the annotation of a pod of its own, of which another watch tells. A
    preemption that the watch could not show, as one that was written and done with while it was
    away, is counted and not judged. Who is stopped for maintenance is stopped for nobody
    (service_rules).
    """

    def __init__(self) -> None:
        self.unseen = 0
        self.count = 0
        self.shrinks = 0
        self.consolidations = 0
        self._for: dict[str, dict[str, str]] = defaultdict(dict)
        """By attempt that is to end, UIDs of those for whom, and by which right."""
        self._stopped: set[str] = set()
        self._nameless: dict[str, tuple[str, float]] = {}
        """Attempts that were stopped for nobody who is known so far: their jobs, and when."""
        self._beside: dict[str, tuple[int, frozenset[int]]] = {}
        """By job its attempt, and the workers of it that come and go."""
        self._turns: dict[frozenset[str], list[tuple[str, str]]] = defaultdict(list)
        """Of two, who was stopped for the other one after the other, and by which right."""
        self._listed = -inf

    def pods_listed(self, at: float) -> None:
        """What became of pods since they were last seen is not known."""
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
                    yield f"{key} was stopped or shrunk, and nobody named its attempt {name}"

    def _resized(self, job: SeenJob, at: float, *, blind: bool) -> None:
        """Who comes and goes is stopped for anybody, but for somebody."""
        attempt, before = self._beside.get(job.uid, (0, frozenset()))
        self._beside[job.uid] = job.attempt, job.beside
        if attempt != job.attempt or not job.running or job.resized != SHRUNK:
            return
        for index in before - job.beside:
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
                whom = jobs[other].key if other in jobs else other
                rights = ", ".join(each for _, each in turns)
                yield f"{job.key} and {whom} were stopped for each other in turn: {rights}"
