# SPDX-License-Identifier: Apache-2.0
"""List of attempts in a status."""

import datetime as dt
import itertools

from msgspec import structs

from gpupack_crds import broken
from gpupack_crds.broken import Break
from gpupack_crds.gpujob_status import (
    ATTEMPTS_KEPT,
    Attempt,
    Fault,
    GpuJobStatus,
)
from gpupack_crds.placement import NodePlacement, by_worker, nodes_of
from gpupack_crds.times import format_time
from gpupack_operator.decision import times
from gpupack_operator.decision.conditions import clip
from gpupack_operator.decision.reasons import JobReason
from gpupack_operator.decision.view import Verdict

MESSAGE_CHARACTERS = 1024
SUMMARY_CHARACTERS = 256
"""Limit of the message of an attempt that another has followed: there may be twenty."""
NODES_CHARACTERS = 200
"""Limit of the list of nodes, unless the first node's name alone is longer."""
DEVICES_CHARACTERS = 200
FIRST_BACKOFF_SECONDS = 1.0
MAX_BACKOFF_SECONDS = 60.0
HEALTHY_SECONDS = 300.0
"""An attempt that ran this long ends a sequence of failures."""

MAX_STUCK_BACKOFF_SECONDS = 600.0
LASTING_BACKOFF_SECONDS = 15.0
"""Backoff after failures that rarely pass within a second, such as a forbidden creation or a
missing image. Each attempt holds GPUs that other jobs could use, so the other jobs come first from
the first pause on.
"""
LASTING = {JobReason.CREATION_FORBIDDEN, JobReason.IMAGE_PULL_FAILED}
NEVER_RAN = {
    JobReason.BIND_TIMEOUT,
    JobReason.CANNOT_START,
    JobReason.NAME_CONFLICT,
    JobReason.CREATION_FORBIDDEN,
    JobReason.SHARED_POD_REJECTED,
    JobReason.IMAGE_PULL_FAILED,
}
"""Ends of attempts that never ran. The more of them follow each other, the likelier it is that the
job itself is the cause (such as a volume claim that is never bound), and each keeps GPUs from other
jobs for a minute.
"""


def current(status: GpuJobStatus) -> Attempt | None:
    """Return the attempt that has not ended, if there is one."""
    last = status.attempts[-1] if status.attempts else None
    return last if last and last.finished_at is None else None


def begin_attempt(
    status: GpuJobStatus,
    placement: tuple[NodePlacement, ...],
    now: dt.datetime,
    *,
    shares_pods: bool = False,
) -> GpuJobStatus:
    """Begin the next attempt: record its number, placement and time before anything runs.

    `shares_pods`: whether workers of one node share a pod, which is recorded as well.
    """
    number = status.attempt + 1
    nodes = nodes_of(placement)
    attempt = Attempt(
        number=number,
        started_at=format_time(now),
        nodes=shorten_names(nodes, NODES_CHARACTERS),
        shares_pods=shares_pods,
    )
    return structs.replace(
        status,
        attempt=number,
        placement=placement,
        attempts=(*map(_summary, status.attempts), attempt)[-ATTEMPTS_KEPT:],
        nodes=shorten_names(nodes),
        started_at=status.started_at or format_time(now),
    )


def end_attempt(
    status: GpuJobStatus,
    verdict: Verdict,
    now: dt.datetime,
    *,
    ended_at: dt.datetime | None = None,
) -> GpuJobStatus:
    """End the current attempt; its entry records where it ran and where it failed.

    `ended_at`: when its last worker ended, if that is known and precedes this write.
    """
    started_at = times.read(status.attempts[-1].started_at)
    ended = structs.replace(
        status.attempts[-1],
        ended_at=format_time(_between(started_at, ended_at, now)) if ended_at else None,
        finished_at=format_time(now),
        outcome=verdict.outcome,
        reason=str(verdict.reason),
        message=clip(verdict.message, MESSAGE_CHARACTERS),
        fault=_fault(status, verdict),
    )
    active = _active_seconds(ended, now if ended_at is None else min(ended_at, now))
    return structs.replace(
        status,
        attempts=(*status.attempts[:-1], ended),
        ended_workers=None,
        active_seconds=status.active_seconds + active,
    )


def nodes_to_avoid(status: GpuJobStatus, now: dt.datetime, seconds: float) -> tuple[str, ...]:
    """Return nodes on which attempts failed within the last `seconds`, the latest first."""
    breaks = (
        Break(each.fault.node, each.reason, times.read(each.finished_at))
        for each in reversed(status.attempts)
        if each.fault is not None and each.finished_at is not None
    )
    return broken.to_avoid(breaks, now, seconds)


def next_start(status: GpuJobStatus) -> dt.datetime | None:
    """Return when the next attempt may begin, later after each consecutive failure.

    None means at once.
    """
    last = status.attempts[-1] if status.attempts else None
    failures = _failures(status)
    if failures == 0 or last is None or last.finished_at is None:
        return None
    seconds = min(_doubled(failures), MAX_BACKOFF_SECONDS)
    if stuck := _stuck(status):
        first = LASTING_BACKOFF_SECONDS if last.reason in LASTING else FIRST_BACKOFF_SECONDS
        seconds = max(seconds, min(_doubled(stuck, first), MAX_STUCK_BACKOFF_SECONDS))
    return times.after(times.read(last.finished_at), seconds)


def shorten_names(names: tuple[str, ...], characters: int = 40) -> str:
    """Shorten names for a column: all of them, or the first few and the number of the others."""
    shown = list(names)
    while len(shown) > 1 and len(",".join(shown)) > characters:
        shown.pop()
    more = len(names) - len(shown)
    return ",".join(shown) + (f" +{more}" if more else "")


def _summary(attempt: Attempt) -> Attempt:
    return structs.replace(attempt, message=clip(attempt.message, SUMMARY_CHARACTERS))


def _fault(status: GpuJobStatus, verdict: Verdict) -> Fault | None:
    if verdict.outcome not in {"Failed", "Infrastructure"}:
        return None
    found = (place for place in by_worker(status.placement) if place.worker == verdict.worker)
    place = next(found, None)
    if place is None:
        return None
    devices = tuple(device.uuid for device in place.devices)
    return Fault(
        worker=place.worker,
        node=place.node,
        devices=shorten_names(devices, DEVICES_CHARACTERS),
    )


def _failures(status: GpuJobStatus) -> int:
    """Count the consecutive failed attempts, back to the last that was healthy for a while."""
    row = 0
    for attempt in reversed(status.attempts):
        if attempt.outcome not in {"Failed", "Infrastructure"}:
            break
        row += 1
        if _seconds(attempt) >= HEALTHY_SECONDS:
            break
    return row


def _stuck(status: GpuJobStatus) -> int:
    """Count the consecutive attempts that never ran."""
    newest_first = reversed(status.attempts)
    return sum(1 for _ in itertools.takewhile(lambda each: each.reason in NEVER_RAN, newest_first))


def _doubled(row: int, first: float = FIRST_BACKOFF_SECONDS) -> float:
    return first * 2.0 ** (row - 1)


def _between(started_at: dt.datetime, ended_at: dt.datetime, now: dt.datetime) -> dt.datetime:
    """Clamp the end to the API server's clock: a node's clock may be fast or slow."""
    return max(started_at, min(ended_at, now))


def _active_seconds(attempt: Attempt, until: dt.datetime) -> int:
    """Return whole seconds, as the times are; a clock that was set back adds nothing."""
    return max(round((until - times.read(attempt.started_at)).total_seconds()), 0)


def _seconds(attempt: Attempt) -> float:
    end = attempt.finished_at or attempt.started_at
    return (times.read(end) - times.read(attempt.started_at)).total_seconds()
