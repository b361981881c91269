# SPDX-License-Identifier: Apache-2.0
"""GPUs out of service: rules of the outside watcher about maintenance and failed GPUs."""

import dataclasses
from collections import defaultdict
from collections.abc import Iterator
from math import inf
from typing import Final

from storm_views import SeenAttempt, SeenJob

MAINTENANCE: Final = "Maintenance"
MOVED: Final = "Moved"
LATE_SECONDS: Final = 5.0
"""Maximum delay with which a GPU that goes out of service may still get new work."""
WHOLE_SECONDS: Final = 1.0
"""The resolution of times in statuses."""


@dataclasses.dataclass(slots=True)
class Window:
    """A node, or one GPU, is out of service.

    Attributes:
        drain: the drain policy of the GPUNode; Never for a failed GPU.
        asked: a time before it was written.
        since: a time after it was written; infinite if that is unknown.
    """

    name: str
    drain: str
    asked: float
    since: float = inf
    until: float = inf


class OutOfService:
    """No job is admitted where no work is to go, and only jobs that were there are drained.

    Args:
        slack_seconds: how long after the end of a window a status may still report a drain for
            it: the job has its grace period, and the operator may be down.
    """

    def __init__(self, *, slack_seconds: float) -> None:
        self._slack = slack_seconds
        self._windows: list[Window] = []
        self._places: dict[tuple[str, int], set[str]] = defaultdict(set)
        """By attempt, its nodes and GPUs."""
        self._kept: dict[str, dict[str, float]] = defaultdict(dict)
        """By job, since when a node or GPU is kept for it."""
        self._judged: set[tuple[str, int]] = set()
        self.moves = 0
        self.stops = 0

    def ask(self, name: str, drain: str, at: float) -> Window:
        """It is about to be written that no work is to go to this node, or GPU."""
        self._windows.append(window := Window(name, drain, at))
        return window

    def out(self, window: Window, at: float) -> None:
        """That is written."""
        window.since = at

    def back(self, name: str, at: float) -> None:
        """It is in service again."""
        for window in self._windows:
            if window.name == name:
                window.until = min(window.until, at)

    def job(self, job: SeenJob, at: float) -> Iterator[str]:
        """A GPUJob changed."""
        kept = self._kept[job.uid]
        self._kept[job.uid] = {name: kept.get(name, at) for name in job.kept | job.places}
        for attempt in job.running:
            yield from self._let_in(job, attempt)
            self._places[job.uid, attempt.number] |= job.places
        for attempt in job.attempts:
            name = job.uid, attempt.number
            of_upkeep = attempt.outcome == MOVED or attempt.reason == MAINTENANCE
            if not of_upkeep or name in self._judged:
                continue
            self._judged.add(name)
            moved = attempt.outcome == MOVED
            self.moves += moved
            self.stops += not moved
            if moved and not job.movable:
                yield f"{job.key} was moved, and does not say that it may be"
            if attempt.reason == MAINTENANCE and not self._was_asked(name, attempt, at):
                what = "moved" if moved else "stopped"
                of = ", ".join(sorted(self._places[name]))
                text = f"attempt {attempt.number} of {job.key} was {what}"
                yield f"{text} for no maintenance of {of}"

    def _let_in(self, job: SeenJob, attempt: SeenAttempt) -> Iterator[str]:
        for window in self._windows:
            if window.name not in job.places:
                continue
            let_in = self._let_in_at(job, attempt, window.name)
            if window.since < let_in < window.until - WHOLE_SECONDS:
                late = min(let_in, self._kept[job.uid][window.name]) - window.since
                if late > LATE_SECONDS:
                    text = f"attempt {attempt.number} of {job.key} was let in on {window.name}"
                    yield f"{text}, which was out of service for {late:.0f} s"

    def _let_in_at(self, job: SeenJob, attempt: SeenAttempt, name: str) -> float:
        """With the attempt; where a worker came later, when that was seen."""
        before, seen = self._places.get((job.uid, attempt.number)), self._kept[job.uid][name]
        if before is None:
            grown = job.least < job.workers and seen - attempt.started > LATE_SECONDS
        else:
            grown = name not in before
        return seen if grown else attempt.started

    def _was_asked(self, name: tuple[str, int], attempt: SeenAttempt, at: float) -> bool:
        """Where its places were never seen, any maintenance of the time will do."""
        drains = {"Movable", "All"} if attempt.outcome == MOVED else {"All"}
        places, ended = self._places[name], min(attempt.ended, at)
        return any(
            window.drain in drains
            and (not places or window.name in places)
            and window.asked <= ended + WHOLE_SECONDS
            and attempt.started <= window.until + LATE_SECONDS
            and ended <= window.until + self._slack
            for window in self._windows
        )
