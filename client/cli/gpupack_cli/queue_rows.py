# SPDX-License-Identifier: Apache-2.0
"""Pending jobs and pods as rows."""

import datetime as dt
from typing import Any, Final

import msgspec

from gpupack_cli import job_rows
from gpupack_cli.figures import age
from gpupack_cli.output import Column
from gpupack_crds.kinds import GpuJob
from gpupack_restapi.jobs import QueueRow

QUEUE_COLUMNS: Final = (
    Column("#", right=True),
    Column("namespace"),
    Column("name"),
    Column("gpus", right=True),
    Column("priority", right=True, min_width=100),
    Column("waits", right=True),
    Column("reason"),
    Column("message", min_width=100, rest=True),
)


def row_from_object(job: GpuJob) -> QueueRow:
    """Return the row of an object, which does not have its position."""
    return QueueRow(**msgspec.structs.asdict(job_rows.row_from_object(job)))


def cells(row: QueueRow, now: dt.datetime) -> tuple[Any, ...]:
    """Return a row's cells in the order of QUEUE_COLUMNS."""
    return (
        "" if row.position is None else row.position,
        row.namespace,
        f"pod/{row.name}" if row.kind == "Pod" else row.name,
        row.gpus,
        row.priority,
        age(row.created, now),
        row.reason,
        row.message,
    )
