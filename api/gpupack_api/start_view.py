# SPDX-License-Identifier: Apache-2.0
"""When a waiting job or pod starts, as callers are shown it."""

import datetime as dt
from typing import Final, Literal

import msgspec

from gpupack_core.queueing import At, Never, Now, Start, Unknown, WhenReleased, latest

Kind = Literal["Now", "At", "WhenReleased", "Never", "Unknown"]


class StartView(msgspec.Struct, frozen=True):
    """When it starts.

    Attributes:
        kind: Now: with the next decision. At: at `at` or before. WhenReleased: when holders have
            released what it needs. Never: not as cluster and quota are. Unknown: not worked out.
        at: by then it starts at the latest, where that is known.
        certain: whether no other job that waits can delay it beyond `at`; one that comes later and
            goes before it can.
        preemption_at: preemption for it begins then, where it does.
        holders: WhenReleased: how many jobs and pods it waits for, where they are known.
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
    """As callers are shown it; who holds what it needs is counted and not named."""
    by = latest(start)
    held = start if isinstance(start, WhenReleased) else WhenReleased()
    return StartView(
        kind=_KINDS[type(start)],
        at=_moment(by.at if by else None),
        certain=by is not None and not by.guessed,
        preemption_at=_moment(held.preempts_at),
        holders=len(held.holders),
    )


def _moment(at: float | None) -> dt.datetime | None:
    return None if at is None else dt.datetime.fromtimestamp(at, dt.UTC)
