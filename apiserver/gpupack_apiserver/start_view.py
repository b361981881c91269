# SPDX-License-Identifier: Apache-2.0
"""When a waiting job or pod starts, and on which models, in the form of answers."""

import datetime as dt
from typing import Final

from gpupack_queue import (
    At,
    Never,
    Now,
    PermittedModels,
    Start,
    Unknown,
    WhenReleased,
    latest_start,
)
from gpupack_restapi.questions import ModelsView, StartKind, StartView

_KINDS: Final[dict[type[Start], StartKind]] = {
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


def models_view(models: PermittedModels | None) -> ModelsView | None:
    """Return the permitted models in the form of answers; None: the job has no order."""
    if models is None:
        return None
    following_at = models.next_at if models.following else None
    return ModelsView(models.models, models.following, _moment(following_at), models.skipped)


def _moment(at: float | None) -> dt.datetime | None:
    return None if at is None else dt.datetime.fromtimestamp(at, dt.UTC)
