# SPDX-License-Identifier: Apache-2.0
"""A job that says otherwise now than what runs: it starts again by that, on the same GPUs.

It is a move to where the job is: its places stand in the status in the write that ends the attempt,
and the scheduler keeps them for the next. Where another device plugin chose the devices there is
nothing that could be kept; the job waits for its turn there.
"""

import datetime as dt
from typing import Final

from gpupack_crds.gpujob_status import GpuJobStatus, Preemption, Victims
from gpupack_crds.kinds import GpuJob
from gpupack_crds.placement import by_node, by_worker
from gpupack_crds.wire import Timestamp
from gpupack_operator.decision import times
from gpupack_operator.decision.reasons import JobReason
from gpupack_operator.decision.view import AttemptView, Verdict

OUTCOME: Final = "Revised"

APART_SECONDS: Final = 60.0
"""Between two revisions that stop what runs; the first of a job does so at once. Each costs an
attempt, as many pods as it has workers, and a place that nobody else can use meanwhile."""


def revised(job: GpuJob, seen: AttemptView) -> tuple[Verdict | None, dt.datetime | None]:
    """Whether the attempt ends for a higher revision, and else when it will."""
    if job.spec.revision <= job.status.revision:
        return None, None
    before = job.status.attempts[-2] if len(job.status.attempts) > 1 else None
    if before is not None and before.outcome == OUTCOME:
        begins = times.after(seen.started_at, APART_SECONDS)
        if begins > seen.now:
            return None, begins
    message = f"stopped by revision {job.spec.revision} of the job"
    return Verdict(outcome=OUTCOME, reason=JobReason.REVISED, message=message), None


def kept(job: GpuJob, now: dt.datetime) -> Preemption | None:
    """The places of the workers that start together; others come back as they came."""
    places = tuple(
        place for place in by_worker(job.status.placement) if place.worker < job.spec.least
    )
    if not all(place.devices for place in places):
        return None
    ends = Victims(ground=OUTCOME, attempts=(f"{job.metadata.uid}/{job.status.attempt}",))
    return Preemption(since=times.write(now), victims=(ends,), placement=by_node(places))


def held_since(status: GpuJobStatus) -> Timestamp:
    """Since when the job has the GPUs that are kept for it."""
    return status.held_since or status.attempts[-1].started_at
