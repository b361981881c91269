# SPDX-License-Identifier: Apache-2.0
"""Times as statuses write them: metav1.Time, whole seconds."""

import datetime as dt

from gpupack_crds import job_times
from gpupack_crds.gpujob import GpuJobSpec
from gpupack_crds.gpujob_status import GpuJobStatus, RunLimit
from gpupack_crds.kinds import GpuJob


def read(text: str) -> dt.datetime:
    """Read a time; the CRD's schema ensures its form."""
    return dt.datetime.fromisoformat(text)


def after(moment: dt.datetime, seconds: float) -> dt.datetime:
    """Return the time so many seconds later."""
    return moment + dt.timedelta(seconds=seconds)


def earliest(*moments: dt.datetime | None) -> dt.datetime | None:
    """Return the earliest of the times that are not None."""
    return min((moment for moment in moments if moment is not None), default=None)


def deadline(spec: GpuJobSpec, status: GpuJobStatus) -> dt.datetime | None:
    """Return when the running attempt must have ended; None: there is no deadline, or none runs."""
    left, last = seconds_left(spec, status), status.attempts[-1] if status.attempts else None
    if left is None or last is None or last.finished_at is not None:
        return None
    return after(read(last.started_at), left)


def seconds_left(spec: GpuJobSpec, status: GpuJobStatus) -> float | None:
    """Return what ended attempts leave of the deadline; None: there is no deadline."""
    of_cohort = status.run_limit.seconds if status.run_limit else None
    return job_times.seconds_left(spec.active_deadline_seconds, of_cohort, status.active_seconds)


def run_limit(spec: GpuJobSpec, limit: RunLimit | None) -> RunLimit | None:
    """Return the limit of the job's cohort if it is the shorter one; otherwise None."""
    own = spec.active_deadline_seconds
    return limit if limit is not None and (own is None or limit.seconds < own) else None


def describe_limit(spec: GpuJobSpec, limit: RunLimit | None) -> str:
    """Describe the deadline that counts, with where it is set."""
    if limit is None:
        return f"{spec.active_deadline_seconds} s (activeDeadlineSeconds)"
    return f"{limit.seconds} s (maxRunSeconds of GPUCohort {limit.cohort})"


def waits_since(job: GpuJob) -> dt.datetime | None:
    """Return since when the job's next attempt waits."""
    status = job.status
    ends = (each.finished_at for each in status.attempts)
    moments = (read(each) if each else None for each in (*ends, status.resumed_at))
    return job_times.waits_since((job.metadata.creation_timestamp, *moments))
