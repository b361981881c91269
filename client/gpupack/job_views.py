# SPDX-License-Identifier: Apache-2.0
"""GPUJobs and standalone pods of a cluster, in the form of the REST API's answers.

The command line shows the same types. Fields that a server of another version adds are ignored.
"""

import datetime as dt
from collections.abc import Iterable
from math import inf
from typing import Final

import msgspec

_LAST: Final = dt.datetime.max.replace(tzinfo=dt.UTC)


class QueueRow(msgspec.Struct, frozen=True):
    """A GPUJob or a standalone pod that waits for GPUs.

    Attributes:
        namespace: its namespace.
        name: its name.
        kind: GPUJob or Pod.
        position: position among all that wait in the cluster; the first is 1; None: unknown, or not
            in the queue.
        phase: its phase.
        reason: why it waits, one word.
        message: why it waits, in words.
        workers: number of a GPUJob's workers.
        gpus: requested GPUs: a number of whole GPUs, or text such as 2x40%.
        priority: priority in the queue.
        created: when it was created.
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


class QueuePage(msgspec.Struct, frozen=True):
    """A part of the queue; `total` counts the rows of all parts."""

    waiting: list[QueueRow]
    total: int = 0
    next: str = ""


class JobName(msgspec.Struct, frozen=True):
    """The name of a GPUJob or a standalone pod."""

    namespace: str
    name: str
    kind: str = "GPUJob"

    @property
    def text(self) -> str:
        """«team/train», «team/pod/notebook»."""
        return f"{self.namespace}/{'pod/' if self.kind == 'Pod' else ''}{self.name}"


class Start(msgspec.Struct, frozen=True):
    """When a waiting job or pod starts.

    Attributes:
        kind: Now, At (at `at` or before), WhenReleased (when holders release what it needs), Never
            (not with this cluster and quota) or Unknown.
        at: the latest start, where it is known.
        certain: no other waiting job can delay it beyond `at`.
        preemption_at: when preemption for it begins, where there is one.
        holders: number of jobs and pods that it waits for, where they are known.
    """

    kind: str
    at: dt.datetime | None = None
    certain: bool = False
    preemption_at: dt.datetime | None = None
    holders: int = 0


class Explanation(msgspec.Struct, frozen=True):
    """The reason why a job waits, or how it ended, and what would help.

    Attributes:
        phase: its phase.
        reason: why it waits, one word.
        message: why it waits, in words.
        position: position among all that wait in the cluster; None: it is not in the queue.
        waiting: number of jobs and pods that wait in the cluster.
        ahead: jobs and pods before it that may be named.
        ahead_hidden: number of others before it.
        estimated_wait_seconds: time to its latest start, where there is an estimate.
        fits_now: whether it fits, whatever else waits; None: it is not in the queue.
        would_help: changes that would let it start.
        start: when it starts; None: it is not in the queue.
        node: node of a bound pod; empty: it waits, or it is a job.
    """

    phase: str = ""
    reason: str = ""
    message: str = ""
    position: int | None = None
    waiting: int = 0
    ahead: list[JobName] = []
    ahead_hidden: int = 0
    estimated_wait_seconds: float | None = None
    fits_now: bool | None = None
    would_help: list[str] = []
    start: Start | None = None
    node: str = ""


class WrittenJob(msgspec.Struct, frozen=True):
    """A GPUJob that was created or changed; `suspended` is its `spec.suspend` now."""

    namespace: str
    name: str
    suspended: bool


def sort_queue(rows: Iterable[QueueRow]) -> list[QueueRow]:
    """Sort by position; those without one last, the highest priority first, then the oldest."""
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
