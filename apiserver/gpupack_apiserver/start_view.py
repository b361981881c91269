# SPDX-License-Identifier: Apache-2.0
"""When a waiting job or pod starts, in the form of answers."""

import datetime as dt
from typing import Final, Literal

import msgspec

from gpupack_queue import At, Never, Now, Start, Unknown, WhenReleased, latest_start

Kind = Literal["Now", "At", "WhenReleased", "Never", "Unknown"]


class StartView(msgspec.Struct, frozen=True):
    """When it starts.

    Attributes:
        kind: Now: in the next scheduling cycle. At: at `at` or before. WhenReleased: when holders
            have released what it needs. Never: not with the present cluster and quota. Unknown: not
            computed.
        at: its latest start, where that is known.
        certain: whether no other waiting job can delay it beyond `at`; a later job that goes before
            it can.
        preemption_at: when preemption for it begins, where there is one.
        holders: WhenReleased: number of jobs and pods that it waits for, where they are known.
    """

    kind: Kind
    at: dt.datetime | None = None
    certain: bool = False
    preemption_at: dt.datetime | None = None
    holders: int = 0


_KINDS: Final[dict[type[Start], Kind]] = {
    Now: "Now",
    At: "At",
    WhenReleased: "WhenReleased",
    Never: "Never",
    Unknown: "Unknown",
}


def start_view(start: Start) -> StartView:
    """Return a start in the form of answers; holders are counted and not named."""
    by = latest_start(start)
    held = start if isinstance(start, WhenReleased) else WhenReleased()
    return StartView(
        kind=_KINDS[type(start)],
        at=_moment(by.at if by else None),
        certain=by is not None and not by.is_estimated,
        preemption_at=_moment(held.preempts_at),
        holders=len(held.holders),
    )


def _moment(at: float | None) -> dt.datetime | None:
    return None if at is None else dt.datetime.fromtimestamp(at, dt.UTC)
