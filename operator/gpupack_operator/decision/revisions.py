# SPDX-License-Identifier: Apache-2.0
"""Restart of a job for a new revision of its spec, on the same GPUs.

The restart is a move to the job's own place: the write that ends the attempt records its placement
in the status, and the scheduler reserves it for the next attempt. Where another device plugin chose
the devices, nothing can be reserved; there the job waits in the queue.
"""

import datetime as dt
from typing import Final

from gpupack_crds.gpujob_status import GpuJobStatus, Preemption, Victims
from gpupack_crds.kinds import GpuJob
from gpupack_crds.placement import by_node, by_worker
from gpupack_crds.times import format_time
from gpupack_crds.wire import Timestamp
from gpupack_operator.decision import times
from gpupack_operator.decision.reasons import JobReason
from gpupack_operator.decision.view import AttemptView, Verdict

OUTCOME: Final = "Revised"

REVISION_INTERVAL_SECONDS: Final = 60.0
"""Interval between two revisions that stop a running attempt; a job's first revision does so at
once. Each costs an attempt, as many pods as the job has workers, and GPUs that no other job can use
during it.
"""


def revision_verdict(job: GpuJob, seen: AttemptView) -> tuple[Verdict | None, dt.datetime | None]:
    """Return whether the attempt ends for a higher revision, or else when it will."""
    if job.spec.revision <= job.status.revision:
        return None, None
    before = job.status.attempts[-2] if len(job.status.attempts) > 1 else None
    if before is not None and before.outcome == OUTCOME:
        begins = times.after(seen.started_at, REVISION_INTERVAL_SECONDS)
        if begins > seen.now:
            return None, begins
    message = f"stopped by revision {job.spec.revision} of the job"
    return Verdict(outcome=OUTCOME, reason=JobReason.REVISED, message=message), None


def own_place_reservation(job: GpuJob, now: dt.datetime) -> Preemption | None:
    """Return the reservation of the gang's places; extra workers are admitted again as before."""
    places = tuple(
        place for place in by_worker(job.status.placement) if place.worker < job.spec.least
    )
    if not all(place.devices for place in places):
        return None
    ends = Victims(reason=OUTCOME, attempts=(f"{job.metadata.uid}/{job.status.attempt}",))
    return Preemption(since=format_time(now), victims=(ends,), placement=by_node(places))


def held_since(status: GpuJobStatus) -> Timestamp:
    """Return since when the job has had the GPUs that are reserved for it."""
    return status.held_since or status.attempts[-1].started_at
