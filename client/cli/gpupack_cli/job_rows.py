# SPDX-License-Identifier: Apache-2.0
"""GPUJobs as rows."""

import datetime as dt
from typing import Any, Final

import msgspec

from gpupack_cli.figures import age
from gpupack_cli.output import Column
from gpupack_crds.gpujob_status import gpu_count
from gpupack_crds.kinds import GpuJob

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


class JobRow(msgspec.Struct, frozen=True):
    """A summary of a GPUJob, with the REST API's names."""

    namespace: str
    name: str
    phase: str
    reason: str
    message: str
    workers: int
    gpus: int | str
    nodes: str
    attempt: int
    priority: int
    preemptions: int
    restarts: int
    result: str
    created: dt.datetime | None
    started: str | None

    @classmethod
    def from_object(cls, job: GpuJob) -> "JobRow":
        """Return the row of an object."""
        status = job.status
        return cls(
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
            result=status.headline,
            created=job.metadata.creation_timestamp,
            started=status.started_at,
        )

    def cells(self, now: dt.datetime) -> tuple[Any, ...]:
        """Return the cells in the order of JOB_COLUMNS."""
        return (
            self.namespace,
            self.name,
            self.phase,
            self.workers,
            self.gpus,
            self.nodes,
            self.reason,
            age(self.created, now),
            self.result,
            self.attempt,
            self.restarts,
            self.preemptions,
            self.priority,
            self.message,
        )
