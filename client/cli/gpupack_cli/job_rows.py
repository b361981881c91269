# SPDX-License-Identifier: Apache-2.0
"""GPUJobs as rows."""

import datetime as dt
from typing import Any, Final

import msgspec

from gpupack_cli.figures import age
from gpupack_cli.output import Column
from gpupack_crds.gpujob_status import gpu_count
from gpupack_crds.kinds import GpuJob
from gpupack_restapi.jobs import JobView

JOB_COLUMNS: Final = (
    Column("namespace"),
    Column("name"),
    Column("phase"),
    Column("workers", right=True, min_width=100),
    Column("gpus", right=True),
    Column("nodes", min_width=120),
    Column("reason"),
    Column("age", right=True),
    Column("result", min_width=140),
    Column("attempt", right=True, wide=True),
    Column("restarts", right=True, wide=True),
    Column("preempted", right=True, wide=True),
    Column("priority", right=True, wide=True),
    Column("message", min_width=160, rest=True),
)


def row_from_object(job: GpuJob) -> JobView:
    """Return the row of an object, in the form of the REST API's answers."""
    status = job.status
    return JobView(
        namespace=job.metadata.namespace,
        name=job.metadata.name,
        phase=status.phase,
        reason=status.reason,
        message=status.message,
        workers=job.spec.workers,
        gpus=gpu_count(status.gpus),
        nodes=status.nodes,
        attempt=status.attempt,
        priority=status.priority or job.spec.priority,
        preemptions=status.preemptions,
        restarts=status.restarts,
        workload=job.spec.workload.name if job.spec.workload else "",
        result=status.headline,
        created=job.metadata.creation_timestamp,
        started=msgspec.convert(status.started_at, dt.datetime | None),
    )


def cells(row: JobView, now: dt.datetime) -> tuple[Any, ...]:
    """Return the cells in the order of JOB_COLUMNS."""
    return (
        row.namespace,
        row.name,
        row.phase,
        row.workers,
        row.gpus,
        row.nodes,
        row.reason,
        age(row.created, now),
        row.result,
        row.attempt,
        row.restarts,
        row.preemptions,
        row.priority,
        row.message,
    )
