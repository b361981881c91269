# SPDX-License-Identifier: Apache-2.0
"""A GPU gets worse at once, and better only after it has been so for a while.

A device whose state comes and goes within that time keeps the worst of its grades, so whoever
places work by it is not led back and forth. What counts as better is written beside the grade
(`GpuDevice.well_since`), and read back by an agent that begins anew: a restart heals nothing.
"""

import datetime as dt

from msgspec import structs

from gpupack_agent.grading.grade import is_worse
from gpupack_crds.gpunode import GpuDevice


def steady(
    seen: GpuDevice,
    before: GpuDevice | None,
    *,
    worst: GpuDevice | None = None,
    now: dt.datetime,
    hold_seconds: float,
) -> GpuDevice:
    """What is said of a GPU.

    Args:
        seen: as it is now.
        before: as was said last; None: nothing was.
        worst: as it was seen at its worst since it is better than that; None: as now.
        now: when it was seen.
        hold_seconds: for how long it must be better.
    """
    if before is None or not is_worse(before.health, seen.health):
        return seen
    since = moment(before.well_since) or now
    if (now - since).total_seconds() < hold_seconds:
        return _held(seen, before, since)
    # It has been as well as that for long enough, and better only now.
    return _held(seen, worst, now) if worst and is_worse(worst.health, seen.health) else seen


def _held(seen: GpuDevice, said: GpuDevice, since: dt.datetime) -> GpuDevice:
    return structs.replace(
        seen,
        health=said.health,
        cause=said.cause,
        causes=said.causes,
        well_since=written(since),
    )


def written(moment: dt.datetime) -> str:
    """As in the API: whole seconds, UTC."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def moment(text: str | None) -> dt.datetime | None:
    """The reverse; None: there is none, or it is no moment."""
    try:
        return dt.datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
