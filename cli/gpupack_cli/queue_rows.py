# SPDX-License-Identifier: Apache-2.0
"""What waits in the queue, as rows."""

import datetime as dt
from collections.abc import Iterable
from math import inf
from typing import Any, Final, Self

import msgspec

from gpupack_cli.figures import age
from gpupack_cli.output import Column
from gpupack_crds.gpujob_status import gpu_count
from gpupack_crds.kinds import GpuJob

QUEUE_COLUMNS: Final = (
    Column("#", right=True),
    Column("namespace"),
    Column("name"),
    Column("gpus", right=True),
    Column("priority", right=True, least_width=100),
    Column("waits", right=True),
    Column("reason"),
    Column("message", least_width=100, rest=True),
)
_LAST: Final = dt.datetime.max.replace(tzinfo=dt.UTC)


class QueueRow(msgspec.Struct, frozen=True):
    """A GPUJob or a standalone pod that waits, with the names of the REST API.

    `position` is among all that wait in the cluster; None: it is not known, or not in the queue.
    """

    namespace: str
    name: str
    kind: str = "GPUJob"
    position: int | None = None
    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    workers: int = 1
    gpus: int | str = ""
    priority: int = 0
    created: dt.datetime | None = None

    @classmethod
    def of(cls, job: GpuJob) -> Self:
        """Of an object, which does not know its position."""
        status = job.status
        return cls(
            namespace=job.metadata.namespace,
            name=job.metadata.name,
            phase=status.phase,
            reason=status.reason,
            message=status.message,
            workers=job.spec.workers,
            gpus=gpu_count(status.gpus),
            priority=status.priority or job.spec.priority,
            created=job.metadata.creation_timestamp,
        )

    def cells(self, now: dt.datetime) -> tuple[Any, ...]:
        """In the order of QUEUE_COLUMNS."""
        return (
            "" if self.position is None else self.position,
            self.namespace,
            f"pod/{self.name}" if self.kind == "Pod" else self.name,
            self.gpus,
            self.priority,
            age(self.created, now),
            self.reason,
            self.message,
        )


def in_order(rows: Iterable[QueueRow]) -> list[QueueRow]:
    """By position; those without one last, the highest priority first, then the oldest."""
    return sorted(
        rows,
        key=lambda row: (
            inf if row.position is None else row.position,
            -row.priority,
            row.created or _LAST,
            row.namespace,
            row.name,
        ),
    )
