# SPDX-License-Identifier: Apache-2.0
"""Workers that ended while their attempt continues: the status keeps their indices and results.

A finished pod is lost with its node, and the operator's memory of it is lost with the operator's
process. The Job's completedIndexes do not suffice: its controller also counts a worker as completed
if it was requested to end and exits with 0.

    worker ends ─► RECORD_SECONDS ─► status.endedWorkers ─► the attempt's end is written: removed

Workers of a gang mostly end together, and then the attempt ends without such a write.
"""

import dataclasses
import datetime as dt
from typing import Final

from gpupack_crds import indices
from gpupack_crds.gpujob_status import EndedWorkers
from gpupack_crds.times import format_time
from gpupack_operator.decision import causes, readings, times
from gpupack_operator.decision.view import AttemptView
from gpupack_operator.decision.workers import Worker, by_index

RECORD_SECONDS: Final = 5.0
"""Time from a worker's end until it is written: there is at most one such write in this time."""

RECORDED_PER_SECOND: Final = 20
"""A second is added for each such number of recorded workers: a status with the results of a
thousand workers takes 200 KB, and each component that watches GPUJobs reads each write.
"""


@dataclasses.dataclass(frozen=True, slots=True)
class EndedWorkersRecord:
    """Record to write, and when to look again."""

    ended: EndedWorkers | None
    again_at: dt.datetime | None = None


def record_ended_workers(view: AttemptView, before: EndedWorkers | None) -> EndedWorkersRecord:
    """Add the workers that ended since the last such write, if the first ended a while ago."""
    known = view.ended.indices
    news = [each for each in by_index(view.workers).values() if each.index not in known]
    ended = [each for each in news if _has_ended(each, view)]
    if not ended:
        return EndedWorkersRecord(before)
    seconds = RECORD_SECONDS + len(known) // RECORDED_PER_SECOND
    due = times.after(min(_ended_at(each, view) for each in ended), seconds)
    if view.now < due:
        return EndedWorkersRecord(before, again_at=due)
    succeeded = {each.index for each in ended if each.succeeded}
    ignored = {each.index for each in ended} - succeeded
    last_at = max([_ended_at(each, view) for each in ended] + view.ended.end_times)
    return EndedWorkersRecord(
        EndedWorkers(
            succeeded=indices.written(view.ended.succeeded | succeeded),
            ignored=indices.written(view.ended.ignored | ignored),
            last_at=format_time(last_at),
            results=readings.read(ended, view.ended).results,
        )
    )


def _has_ended(worker: Worker, view: AttemptView) -> bool:
    """Tell whether the worker's end is final and did not break the attempt."""
    if not worker.pod.finished:
        return False
    cause = causes.cause_of(worker, view)
    return worker.succeeded if cause is None else causes.is_ignored(cause, view)


def _ended_at(worker: Worker, view: AttemptView) -> dt.datetime:
    """Return when the worker ended; a node's fast clock must not delay the write."""
    return min(worker.ended_at or view.started_at, view.now)
