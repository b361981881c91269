# SPDX-License-Identifier: Apache-2.0
"""Moments as statuses write them: metav1.Time, whole seconds."""

import datetime as dt

from gpupack_crds.gpujob import GpuJobSpec
from gpupack_crds.gpujob_status import GpuJobStatus


def write(moment: dt.datetime) -> str:
    """Write a moment; fractions of a second are cut off."""
    return moment.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def read(text: str) -> dt.datetime:
    """Read a moment; the CRD's schema vouches for its form."""
    return dt.datetime.fromisoformat(text)


def after(moment: dt.datetime, seconds: float) -> dt.datetime:
    """The moment so many seconds later."""
    return moment + dt.timedelta(seconds=seconds)


def earliest(*moments: dt.datetime | None) -> dt.datetime | None:
    """The first of the moments that there are."""
    return min((moment for moment in moments if moment is not None), default=None)


def deadline(spec: GpuJobSpec, status: GpuJobStatus) -> dt.datetime | None:
    """When the job must have ended: counted from its first admission."""
    if spec.active_deadline_seconds is None or status.started_at is None:
        return None
    return after(read(status.started_at), spec.active_deadline_seconds)


def seconds_left(spec: GpuJobSpec, status: GpuJobStatus, now: dt.datetime) -> float | None:
    """Until the deadline if the job starts now; None: it has none."""
    over = deadline(spec, status)
    if over is None:
        seconds = spec.active_deadline_seconds
        return None if seconds is None else float(seconds)
    return max((over - now).total_seconds(), 1.0)
