# SPDX-License-Identifier: Apache-2.0
"""The check of gangs whose workers could use NVLink and report that they do not."""

import datetime as dt
from collections.abc import Iterator
from typing import Final

from gpupack_cli.doctor.cluster_state import ClusterState
from gpupack_cli.doctor.finding import Finding, ok, skipped, warning
from gpupack_cli.doctor.nodes import first_names
from gpupack_cli.doctor.views import SeenGpuJob

FAST_COMMUNICATION: Final = "FastCommunication"
RECENT: Final = dt.timedelta(days=1)
"""How long after its end a gang is still named."""
MESSAGE_CHARACTERS: Final = 400


def slow_gangs(seen: ClusterState) -> Iterator[Finding]:
    """Yield gangs that run, or ended in the last day, and are reported as slow."""
    check = "communication"
    if seen.gpu_jobs.refused:
        yield skipped(check, seen.gpu_jobs.refused)
        return
    slow = [(job, text) for job in seen.gpu_jobs.items if (text := _said(job, seen.now))]
    if not slow:
        yield ok(check, "no gang of the last day reports that it does not use NVLink")
        return
    names = [f"{job.metadata.namespace}/{job.metadata.name}" for job, _ in slow]
    yield warning(
        check,
        f"{first_names(names)}: {slow[0][1]}",
        fix="see docs/communication.md, How to check",
    )


def _said(job: SeenGpuJob, now: dt.datetime) -> str:
    """Return the condition's message of such a gang; empty for any other."""
    ended = job.status.finished_at
    if ended is not None and now - ended > RECENT:
        return ""
    for condition in job.status.conditions:
        if condition.type == FAST_COMMUNICATION and condition.status == "False":
            return condition.message[:MESSAGE_CHARACTERS] or condition.reason
    return ""
