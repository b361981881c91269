# SPDX-License-Identifier: Apache-2.0
"""Events for users, as `kubectl describe` shows them: the differences of two statuses."""

import dataclasses
from typing import Final, Literal

from gpupack_crds.gpujob_status import Attempt, GpuJobStatus
from gpupack_crds.kinds import GpuJob
from gpupack_operator.decision.conditions import Type, get
from gpupack_operator.decision.reasons import JobReason
from gpupack_operator.decision.stalls import is_stalled

_HOUR: Final = 3600


@dataclasses.dataclass(frozen=True, slots=True)
class Notice:
    """Event about a GPUJob, not yet posted."""

    type: Literal["Normal", "Warning"]
    reason: str
    note: str


def notices(job: GpuJob, new: GpuJobStatus) -> tuple[Notice, ...]:
    """Return the events for a new status, compared with the previous one, in chronological order.

    Events of other components are not repeated: the kubelet reports the start of a job's only
    worker.
    """
    old = job.status
    found = [
        _attempt_ended(old, new),
        _preempts(old, new),
        _resized(old, new),
        _stalled(old, new),
        _phase_changed(old, new, is_alone=job.spec.workers == 1),
        _waits_for_another_reason(old, new),
        _nodes_requested(old, new),
    ]
    return tuple(notice for notice in found if notice)


def _attempt_ended(old: GpuJobStatus, new: GpuJobStatus) -> Notice | None:
    last = _last_ended(new)
    if last is None or last == _last_ended(old) or new.finished or last.outcome == "Suspended":
        return None
    if last.outcome == "Preempted":
        note = f"attempt {last.number} was {last.message}; it restarts when the queue admits it"
        return Notice(type="Warning", reason="Preempted", note=note)
    if last.outcome == "Moved":
        note = f"attempt {last.number} was {last.message}; it restarts on the GPUs reserved for it"
        return Notice(type="Normal", reason="Moved", note=note)
    if last.outcome == "Revised":
        note = f"attempt {last.number} was {last.message}; it restarts with that revision"
        return Notice(type="Normal", reason=JobReason.REVISED, note=note)
    note = f"attempt {last.number} ended ({last.reason}): {last.message}; starting another"
    return Notice(type="Warning", reason=JobReason.RESTARTING, note=note)


def _preempts(old: GpuJobStatus, new: GpuJobStatus) -> Notice | None:
    if new.preemption is None or old.preemption is not None or new.moves > old.moves:
        return None
    if any(each.reason == "Revised" for each in new.preemption.victims):
        return None
    victims = [name for each in new.preemption.victims for name in each.attempts]
    workers = sum("+" in name for name in victims)
    counts = [
        _count(len(victims) - workers, "other job"),
        _count(workers, "worker", of="of elastic gangs"),
    ]
    named = " and ".join(filter(None, counts))
    are = "is" if len(victims) == 1 else "are"
    reasons = ", ".join(each.reason for each in new.preemption.victims)
    if new.preemption.gained_gpu_seconds is not None:
        lost, gained = new.preemption.lost_gpu_seconds or 0, new.preemption.gained_gpu_seconds
        hours = f"{lost / _HOUR:.2f} GPU-hours and gains {gained / _HOUR:.2f}"
        note = f"{named} {are} moved to free GPUs for it, which costs at most {hours}"
        return Notice(type="Normal", reason="Consolidating", note=note)
    note = f"{named} {are} preempted for it ({reasons})"
    return Notice(type="Normal", reason="Preempting", note=note)


def _count(number: int, noun: str, *, of: str = "") -> str:
    """Return a number with its noun; empty for zero."""
    if not number:
        return ""
    return " ".join(filter(None, (str(number), noun if number == 1 else f"{noun}s", of)))


def _resized(old: GpuJobStatus, new: GpuJobStatus) -> Notice | None:
    before, after = old.width, new.width
    if before is None or after is None or old.attempt != new.attempt or before == after:
        return None
    reason = "ScaledUp" if after.workers > before.workers else "ScaledDown"
    note = f"{after.column} workers ({after.reason}): {after.message}"
    return Notice(type="Normal", reason=reason, note=note)


def _stalled(old: GpuJobStatus, new: GpuJobStatus) -> Notice | None:
    if not is_stalled(new) or (is_stalled(old) and old.reason == new.reason):
        return None
    return Notice(type="Warning", reason=new.reason, note=new.message)


def _phase_changed(old: GpuJobStatus, new: GpuJobStatus, *, is_alone: bool) -> Notice | None:
    if new.phase in {old.phase, "Pending"} or (is_alone and new.phase == "Running"):
        return None
    failed = new.phase == "Failed"
    reason = new.reason if failed else {"Running": "Started"}.get(new.phase, new.phase)
    return Notice(type="Warning" if failed else "Normal", reason=reason, note=new.message)


def _waits_for_another_reason(old: GpuJobStatus, new: GpuJobStatus) -> Notice | None:
    """Report a new reason for waiting; counts in the message change often, which is no event."""
    silent = {JobReason.RESTARTING, JobReason.QUEUED, JobReason.UNDETERMINED, old.reason}
    if new.phase != "Pending" or new.reason in silent or is_stalled(new):
        return None
    note = f"waiting ({new.reason}): {new.message}"
    return Notice(type="Normal", reason="Waiting", note=note)


def _nodes_requested(old: GpuJobStatus, new: GpuJobStatus) -> Notice | None:
    """Report the progress of a node request; a deferred request is no event."""
    before, after = (get(status, Type.NODES_REQUESTED) for status in (old, new))
    silent = {JobReason.PROVISIONING_DEFERRED, before.reason if before else ""}
    if after is None or after.reason in silent:
        return None
    failed = after.reason in {JobReason.PROVISIONING_FAILED, JobReason.PROVISIONING_STOPPED}
    return Notice(type="Warning" if failed else "Normal", reason=after.reason, note=after.message)


def _last_ended(status: GpuJobStatus) -> Attempt | None:
    ended = [attempt for attempt in status.attempts if attempt.outcome]
    return ended[-1] if ended else None
