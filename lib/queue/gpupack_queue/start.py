# SPDX-License-Identifier: Apache-2.0
"""The start of a pending job: one typed answer, by which the queue acts and which it shows.

    Now           it fits, and no job is before it
    At            at that time or before, since jobs that hold GPUs have deadlines or estimates
    WhenReleased  when holders without a known end, or victims, have released what they hold
    Never         the nodes or the quota as they are cannot run it
    Unknown       the answer is not computed, or no holder decides it

A cycle needs only the difference between Now, Never and the rest (admission/start_check.py). The
rest is At, WhenReleased or Unknown, and is computed where it is shown (explain/start_estimate.py).
The reason for which a job waits, its position and what would help are other fields of `Wait`.
"""

import datetime as dt
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, TypeAlias

from gpupack_queue.charge import Charge
from gpupack_queue.job import JobId, Places

_LAST_YEAR: Final = dt.datetime(9999, 1, 1, tzinfo=dt.UTC).timestamp()


@dataclass(frozen=True, slots=True)
class Now:
    """An admission by this or the next scheduling cycle, with what the job counts there."""

    placements: Places = ()
    charge: Charge = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class At:
    """A start at `at`, or before.

    `is_estimated`: the time is only expected. It depends on how long similar jobs took, or another
    job may be backfilled before the job.
    """

    at: float
    is_estimated: bool = False


@dataclass(frozen=True, slots=True)
class WhenReleased:
    """A start once these holders have released what they hold.

    `preempting`: they are being preempted for the job. `preempts_at`: the time at which preemption
    for it begins. `latest`: the time by which it starts, whether or not jobs are preempted.
    """

    holders: tuple[JobId, ...] = ()
    preempting: bool = False
    preempts_at: float | None = None
    latest: At | None = None


class Unsatisfied(Enum):
    """The reason for which a job can never start."""

    NODES = auto()
    """It would not fit on the empty cluster."""
    QUOTA = auto()
    """Its quota would not allow it if no other job ran."""


_NEEDS: Final = {
    Unsatisfied.NODES: "needs other nodes or another request",
    Unsatisfied.QUOTA: "needs a larger quota or a smaller request",
}


@dataclass(frozen=True, slots=True)
class Never:
    """No start until what `cause` names, or the job, changes."""

    cause: Unsatisfied

    @property
    def needs(self) -> str:
        """Return what has to change, in words."""
        return _NEEDS[self.cause]


@dataclass(frozen=True, slots=True)
class Unknown:
    """No known start time; `cause`: why; empty: the reason says it."""

    cause: str = ""


class NotNow(Enum):
    """The reason for which a job that can start some time does not start now.

    Its start is At, WhenReleased or Unknown.
    """

    BEHIND_QUEUE_HEAD = auto()
    """A queue head of its strict order is before it."""
    NO_QUOTA = auto()
    NO_GPUS = auto()
    WOULD_DELAY = auto()
    """It would take capacity that is reserved for a queue head."""
    RESERVED_FOR_WINDOW = auto()
    """It would hold GPUs when the window of a time-window reservation begins."""
    VICTIMS_HOLD_QUOTA = auto()
    """Its quota allows it when jobs that are being preempted have ended."""


Start: TypeAlias = Now | At | WhenReleased | Never | Unknown


def latest_start(start: Start) -> At | None:
    """Return the time by which the job starts; None: it is unknown."""
    if isinstance(start, At):
        return start
    return start.latest if isinstance(start, WhenReleased) else None


def start_text(start: Start) -> str:
    """Return the answer as the end of a sentence; empty: the reason says it already."""
    match start:
        case At():
            return _by(start)
        case WhenReleased(preempts_at=float(at)):
            return (
                f"preemption for it begins at {format_time(at)} at the latest, and it starts when "
                "the preempted jobs have terminated"
            )
        case WhenReleased(latest=At() as by):
            return _by(by)
        case WhenReleased(holders=holders, preempting=False) if holders:
            return f"no start time is known: {_endless(len(holders))}"
        case Unknown(cause=cause) if cause:
            return f"no start time is known: {cause}"
        case _:
            return ""


def lasting_start_text(start: Start) -> str:
    """Return the answer without times, and without numbers that change by themselves."""
    match start:
        case At(is_estimated=is_estimated):
            return "its start time is expected" if is_estimated else "its start time is known"
        case WhenReleased(preempts_at=float()):
            return "preemption for it begins soon"
        case WhenReleased(latest=At()):
            return "its start time is known"
        case WhenReleased(preempting=False, holders=holders) if holders:
            return "no start time is known"
        case Unknown(cause=cause) if cause:
            return "no start time is known"
        case _:
            return ""


def format_time(at: float) -> str:
    """Return the time such as «2026-01-31T12:00:00Z», rounded up so as not to be too early."""
    seconds = -int(-min(at, _LAST_YEAR) // 1)
    return dt.datetime.fromtimestamp(seconds, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _by(by: At) -> str:
    if by.is_estimated:
        return f"it is expected to start at {format_time(by.at)} at the latest"
    return f"it starts at {format_time(by.at)} at the latest"


def _endless(holders: int) -> str:
    if holders == 1:
        return "1 job or pod without a deadline holds what it needs"
    return f"{holders} jobs or pods without a deadline hold what it needs"
