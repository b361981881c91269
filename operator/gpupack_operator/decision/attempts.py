# SPDX-License-Identifier: Apache-2.0
"""The list of attempts in a status."""

import datetime as dt
import itertools

from msgspec import structs

from gpupack_crds.gpujob_status import (
    ATTEMPTS_KEPT,
    Attempt,
    GpuJobStatus,
    WorkerPlacement,
)
from gpupack_operator.decision import times
from gpupack_operator.decision.conditions import clipped
from gpupack_operator.decision.reasons import Reason
from gpupack_operator.decision.view import Verdict

MESSAGE_CHARACTERS = 1024
FIRST_BACKOFF_SECONDS = 1.0
MAX_BACKOFF_SECONDS = 60.0
HEALTHY_SECONDS = 300.0
"""An attempt that ran this long ends a row of failures."""

MAX_STUCK_BACKOFF_SECONDS = 600.0
FORBIDDEN_BACKOFF_SECONDS = 15.0
"""What was forbidden seldom is allowed a second later, and each attempt takes GPUs that others
could use meanwhile: so the others come first, from the first pause on."""
NEVER_RAN = {
    Reason.BIND_TIMEOUT,
    Reason.CANNOT_START,
    Reason.NAME_TAKEN,
    Reason.CREATION_FORBIDDEN,
}
"""Ends of attempts that never ran. The more of them in a row, the likelier it is that the job is
the cause itself (a volume claim that nobody fills), and each keeps GPUs from others for a minute.
"""


def current(status: GpuJobStatus) -> Attempt | None:
    """The attempt that has not ended, if there is one."""
    last = status.attempts[-1] if status.attempts else None
    return last if last and last.finished_at is None else None


def opened(
    status: GpuJobStatus, placement: tuple[WorkerPlacement, ...], now: dt.datetime
) -> GpuJobStatus:
    """Begin the next attempt: number, places and time stand in the status before anything runs."""
    number = status.attempt + 1
    nodes = distinct_nodes(placement)
    attempt = Attempt(number=number, started_at=times.write(now), nodes=nodes)
    return structs.replace(
        status,
        attempt=number,
        placement=placement,
        attempts=(*status.attempts, attempt)[-ATTEMPTS_KEPT:],
        nodes=shortened(nodes),
        started_at=status.started_at or times.write(now),
    )


def closed(status: GpuJobStatus, verdict: Verdict, now: dt.datetime) -> GpuJobStatus:
    """End the current attempt; where it ran stays in its entry."""
    ended = structs.replace(
        status.attempts[-1],
        finished_at=times.write(now),
        outcome=verdict.outcome,
        reason=str(verdict.reason),
        message=clipped(verdict.message, MESSAGE_CHARACTERS),
    )
    return structs.replace(status, attempts=(*status.attempts[:-1], ended))


def next_start(status: GpuJobStatus) -> dt.datetime | None:
    """When the next attempt may begin: later after each failure in a row; None for at once."""
    last = status.attempts[-1] if status.attempts else None
    failures = _failures(status)
    if failures == 0 or last is None or last.finished_at is None:
        return None
    seconds = min(_doubled(failures), MAX_BACKOFF_SECONDS)
    if stuck := _stuck(status):
        forbidden = last.reason == Reason.CREATION_FORBIDDEN
        first = FORBIDDEN_BACKOFF_SECONDS if forbidden else FIRST_BACKOFF_SECONDS
        seconds = max(seconds, min(_doubled(stuck, first), MAX_STUCK_BACKOFF_SECONDS))
    return times.after(times.read(last.finished_at), seconds)


def distinct_nodes(placement: tuple[WorkerPlacement, ...]) -> tuple[str, ...]:
    """The nodes of a placement, each once, in the order of the workers."""
    return tuple(dict.fromkeys(place.node for place in placement))


def shortened(nodes: tuple[str, ...], characters: int = 40) -> str:
    """Nodes for a column: all of them, or the first few and how many more."""
    shown = list(nodes)
    while len(shown) > 1 and len(",".join(shown)) > characters:
        shown.pop()
    more = len(nodes) - len(shown)
    return ",".join(shown) + (f" +{more}" if more else "")


def _failures(status: GpuJobStatus) -> int:
    """Failed attempts in a row, back to the last that was healthy for a while."""
    row = 0
    for attempt in reversed(status.attempts):
        if attempt.outcome not in {"Failed", "Infrastructure"}:
            break
        row += 1
        if _seconds(attempt) >= HEALTHY_SECONDS:
            break
    return row


def _stuck(status: GpuJobStatus) -> int:
    """Attempts in a row that never ran."""
    newest_first = reversed(status.attempts)
    return sum(1 for _ in itertools.takewhile(lambda each: each.reason in NEVER_RAN, newest_first))


def _doubled(row: int, first: float = FIRST_BACKOFF_SECONDS) -> float:
    return first * 2.0 ** (row - 1)


def _seconds(attempt: Attempt) -> float:
    end = attempt.finished_at or attempt.started_at
    return (times.read(end) - times.read(attempt.started_at)).total_seconds()
