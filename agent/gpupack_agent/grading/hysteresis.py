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
    seen: GpuDevice, before: GpuDevice | None, *, now: dt.datetime, hold_seconds: float
) -> GpuDevice:
    """What is said of a GPU that was seen like this, and of which that was said before."""
    if before is None or not is_worse(before.health, seen.health):
        return seen
    since = moment(before.well_since) or now
    if (now - since).total_seconds() >= hold_seconds:
        return seen
    return structs.replace(
        seen,
        health=before.health,
        cause=before.cause,
        causes=before.causes,
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
