# SPDX-License-Identifier: Apache-2.0
"""GPUJobs and standalone pods of a cluster: the shapes of the REST API's answers.

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
        namespace: of it.
        name: of it.
        kind: GPUJob or Pod.
        position: among all that wait in the cluster; the first is 1; None: it is not known, or not
            in the queue.
        phase: of it.
        reason: why it waits, one word.
        message: why it waits, in words.
        workers: of a GPUJob.
        gpus: what it requests: a number of whole GPUs, or text such as 2x40%.
        priority: by which the queue is ordered.
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
        preemption_at: when preemption for it begins, where it does.
        holders: how many jobs and pods it waits for, where they are known.
    """

    kind: str
    at: dt.datetime | None = None
    certain: bool = False
    preemption_at: dt.datetime | None = None
    holders: int = 0


class Explanation(msgspec.Struct, frozen=True):
    """Why a job waits, or what became of it, and what would help.

    Attributes:
        phase: of it.
        reason: why it waits, one word.
        message: why it waits, in words.
        position: among all that wait in the cluster; None: it is not in the queue.
        waiting: how many wait in the cluster.
        ahead: what goes before it and may be named.
        ahead_hidden: how many more go before it.
        foreseen_seconds: by then it starts at the latest, where that is foreseen.
        fits_now: whether it fits, whatever else waits; None: it is not in the queue.
        would_help: what would let it start.
        start: when it starts; None: it is not in the queue.
        node: where a pod is that has a node; empty: it waits, or it is a job.
    """

    phase: str = ""
    reason: str = ""
    message: str = ""
    position: int | None = None
    waiting: int = 0
    ahead: list[JobName] = []
    ahead_hidden: int = 0
    foreseen_seconds: float | None = None
    fits_now: bool | None = None
    would_help: list[str] = []
    start: Start | None = None
    node: str = ""


class WrittenJob(msgspec.Struct, frozen=True):
    """A GPUJob that was created or changed; `suspended` is its `spec.suspend` now."""

    namespace: str
    name: str
    suspended: bool


def in_order(rows: Iterable[QueueRow]) -> list[QueueRow]:
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
