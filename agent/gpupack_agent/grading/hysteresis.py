# SPDX-License-Identifier: Apache-2.0
"""Hysteresis of grades: a worse grade is shown at once, a better one only after it has lasted.

A device whose state alternates within that time keeps its worst grade, so placement does not
alternate. GPUNode records since when the device is better (`GpuDevice.recovering_since`), and a
restarted agent reads it: a restart improves no grade.
"""

import datetime as dt

from msgspec import structs

from gpupack_agent.grading.grade import is_worse
from gpupack_crds.gpunode import GpuDevice
from gpupack_crds.times import format_time


def apply_hysteresis(
    seen: GpuDevice,
    before: GpuDevice | None,
    *,
    worst: GpuDevice | None = None,
    now: dt.datetime,
    hold_seconds: float,
) -> GpuDevice:
    """Return the device with the grade to show.

    Args:
        seen: the device as it is now.
        before: the device as it was last shown; None: it was not.
        worst: its worst state since it became better than `before`; None: as now.
        now: the time of the scan.
        hold_seconds: the time for which it must be better.
    """
    if before is None or not is_worse(before.health, seen.health):
        return seen
    since = parse_time(before.recovering_since) or now
    if (now - since).total_seconds() < hold_seconds:
        return _with_grade_of(seen, before, since)
    # It has been at least as good as `worst` for long enough, and is better only now.
    return (
        _with_grade_of(seen, worst, now) if worst and is_worse(worst.health, seen.health) else seen
    )


def _with_grade_of(seen: GpuDevice, source: GpuDevice, since: dt.datetime) -> GpuDevice:
    return structs.replace(
        seen,
        health=source.health,
        cause=source.cause,
        causes=source.causes,
        recovering_since=format_time(since),
    )


def parse_time(text: str | None) -> dt.datetime | None:
    """Parse a time of the API; None: there is none, or the text is no time."""
    try:
        return dt.datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
