# SPDX-License-Identifier: Apache-2.0
"""GPUJobs, and standalone pods that wait for GPUs."""

import datetime as dt
from typing import Annotated, Final

import msgspec

from gpupack_restapi.patterns import NAME_OR_EMPTY, values

Kind = Annotated[str, values("GPUJob", "Pod")]

MAX_JOB_NAME: Final = 52
"""Maximum characters of a GPUJob's name, as in its CRD."""


class JobView(msgspec.Struct, frozen=True):
    """A summary of a GPUJob; `gpus` is a number of whole GPUs, or shares and MIG slices, 2x40%."""

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
    workload: str
    result: str
    created: dt.datetime | None
    started: dt.datetime | None


class Jobs(msgspec.Struct, frozen=True):
    """GPUJobs by namespace and name; `next` is empty where there are no more.

    `may_list` is false for a caller that may list GPUJobs in no namespace that has any, nor in its
    own.
    """

    jobs: tuple[JobView, ...]
    next: str = ""
    may_list: bool = True


class AttemptView(msgspec.Struct, frozen=True):
    """One attempt of a job."""

    number: int
    started: dt.datetime | None
    finished: dt.datetime | None
    outcome: str | None
    reason: str
    message: str
    nodes: str


class HeldDevice(msgspec.Struct, frozen=True):
    """A GPU, or a share of one, that a worker has.

    Attributes:
        index: index on its node; None: the node does not list it now.
        percent: percent of its time; 100: the whole GPU.
        memory_mib: memory of it, in MiB.
    """

    index: int | None
    uuid: str
    percent: int
    memory_mib: int


class WorkerView(msgspec.Struct, frozen=True):
    """The place of a worker.

    Attributes:
        devices: its GPUs; empty where another device plugin chooses them.
        pod: name of its pod, which several workers may share; empty: it has none, or the caller may
            not list pods.
    """

    worker: int
    node: str
    devices: tuple[HeldDevice, ...]
    pod: str = ""


class JobDetail(msgspec.Struct, frozen=True):
    """A GPUJob with its attempts, newest last, and the places of the current attempt's workers."""

    job: JobView
    attempts: tuple[AttemptView, ...]
    workers: tuple[WorkerView, ...]


class QueueRow(JobView, frozen=True, kw_only=True):
    """A GPUJob or a standalone pod that waits.

    Attributes:
        kind: its kind.
        position: position among all jobs and standalone pods that wait in the cluster, in the order
            in which they are admitted; the first is 1; null: it is not in the queue now, as while
            the pods of its last attempt terminate, or where `message` says what prevents it.
    """

    kind: Kind = "GPUJob"
    position: int | None = None


class Queue(msgspec.Struct, frozen=True):
    """GPUJobs and standalone pods that wait; `message` has the reason.

    Pages are by priority, then age, so that all of them together are complete while jobs come and
    go; `position` is the place in the order in which they are admitted. `total` counts all pages;
    `next` is empty where there are no more. `may_list` is that of `Jobs`.
    """

    waiting: tuple[QueueRow, ...]
    total: int
    may_list: bool = True
    next: str = ""


class Rerun(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The options of a rerun.

    Attributes:
        name: name of the new job; empty: NAME-rerun-N, the first that is free.
    """

    name: Annotated[str, msgspec.Meta(max_length=MAX_JOB_NAME, pattern=NAME_OR_EMPTY)] = ""


class Changed(msgspec.Struct, frozen=True):
    """The GPUJob that was written; `suspended` is the present value in its spec."""

    namespace: str
    name: str
    suspended: bool
