# SPDX-License-Identifier: Apache-2.0
"""Workers that ended while their attempt goes on: the status keeps their indices and results.

A finished pod goes with its node, and what the operator remembers of it goes with its process. The
Job's completedIndexes do not say enough: to its controller a worker that was asked to end and exits
0 has completed as well.

    worker ends ─► RECORD_SECONDS ─► status.endedWorkers ─► the attempt's end is written: removed

Workers of a gang mostly end together, and then the attempt ends without such a write.
"""

import dataclasses
import datetime as dt
from typing import Final

from gpupack_crds import indices
from gpupack_crds.gpujob_status import EndedWorkers
from gpupack_operator.decision import causes, readings, times
from gpupack_operator.decision.view import AttemptView
from gpupack_operator.decision.workers import Worker, by_index

RECORD_SECONDS: Final = 5.0
"""From a worker's end until it is written: there is no more than one such write in this time."""

RECORDED_PER_SECOND: Final = 20
"""For every so many workers that stand there a second is added: a status with the results of a
thousand takes 200 KB, and each component that watches GPUJobs reads each write."""


@dataclasses.dataclass(frozen=True, slots=True)
class Recorded:
    """What to write, and when to look again."""

    ended: EndedWorkers | None
    again_at: dt.datetime | None = None


def recorded(view: AttemptView, before: EndedWorkers | None) -> Recorded:
    """Add the workers that ended since the last such write, if the first did so a while ago."""
    known = view.ended.indices
    news = [each for each in by_index(view.workers).values() if each.index not in known]
    ended = [each for each in news if _has_ended(each, view)]
    if not ended:
        return Recorded(before)
    seconds = RECORD_SECONDS + len(known) // RECORDED_PER_SECOND
    due = times.after(min(_ended_at(each, view) for each in ended), seconds)
    if view.now < due:
        return Recorded(before, again_at=due)
    succeeded = {each.index for each in ended if each.succeeded}
    ignored = {each.index for each in ended} - succeeded
    last_at = max([_ended_at(each, view) for each in ended] + view.ended.moments)
    return Recorded(
        EndedWorkers(
            succeeded=indices.written(view.ended.succeeded | succeeded),
            ignored=indices.written(view.ended.ignored | ignored),
            last_at=times.write(last_at),
            results=readings.read(ended, view.ended).results,
        )
    )


def _has_ended(worker: Worker, view: AttemptView) -> bool:
    """Whether nothing about the worker can change any more, and it did not break the attempt."""
    if not worker.pod.finished:
        return False
    cause = causes.cause_of(worker, view)
    return worker.succeeded if cause is None else causes.is_ignored(cause, view)


def _ended_at(worker: Worker, view: AttemptView) -> dt.datetime:
    """A node's clock may be ahead, and must not put the write off."""
    return min(worker.ended_at or view.started_at, view.now)
