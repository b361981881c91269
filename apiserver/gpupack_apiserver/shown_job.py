# SPDX-License-Identifier: Apache-2.0
"""The part of a GPUJob that ledger, queue and callers read."""

import datetime as dt
from typing import Final

import msgspec

from gpupack_crds import names
from gpupack_kubeclient import objects
from gpupack_kubeclient.resources import Resource
from gpupack_scheduler.ledger.pending_job import (
    PendingAttempt,
    PendingJob,
    PendingSpec,
    PendingStatus,
)

MESSAGE_CHARACTERS: Final = 1024
"""Maximum characters of a kept message: twenty thousand jobs are in memory."""


class ShownWorkload(objects.View, frozen=True):
    """The built-in workload of a job."""

    name: str = ""


class ShownSpec(PendingSpec, frozen=True):
    """The spec that the queue reads, with the workload."""

    workload: ShownWorkload | None = None
    revision: int = 0


class ShownAttempt(PendingAttempt, frozen=True):
    """The attempt that the queue reads, with its text for users."""

    message: str = ""
    nodes: str | tuple[str, ...] = ""


class ShownStatus(PendingStatus, frozen=True):
    """The status that the queue reads, with its text for users."""

    started_at: dt.datetime | None = None
    revision: int = 0
    message: str = ""
    gpus: str = ""
    nodes: str = ""
    headline: str = ""
    preemptions: int = 0
    restarts: int = 0
    attempts: tuple[ShownAttempt, ...] = ()

    def __post_init__(self) -> None:
        """Cut the message to the part that is shown."""
        msgspec.structs.force_setattr(self, "message", self.message[:MESSAGE_CHARACTERS])


class ShownJob(PendingJob, frozen=True):
    """A GPUJob with its shown spec and status."""

    spec: ShownSpec = ShownSpec()
    status: ShownStatus = ShownStatus()


SHOWN_JOBS = Resource(names.API_PREFIX, "gpujobs", ShownJob)
