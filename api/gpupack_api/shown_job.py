# SPDX-License-Identifier: Apache-2.0
"""A GPUJob as far as ledger, queue and callers read it."""

import datetime as dt
from typing import Final

import msgspec

from gpupack_crds import names
from gpupack_kube import objects
from gpupack_kube.resources import Resource
from gpupack_scheduling.ledger.asking_job import (
    AskingAttempt,
    AskingJob,
    AskingSpec,
    AskingStatus,
)

MESSAGE_CHARACTERS: Final = 1024
"""Of what is kept of a sentence: twenty thousand jobs are in memory."""


class ShownWorkload(objects.View, frozen=True):
    """Which workload of ours it runs."""

    name: str = ""


class ShownSpec(AskingSpec, frozen=True):
    """And what it runs."""

    workload: ShownWorkload | None = None
    revision: int = 0


class ShownAttempt(AskingAttempt, frozen=True):
    """And what people are told of it."""

    message: str = ""
    nodes: str | tuple[str, ...] = ""


class ShownStatus(AskingStatus, frozen=True):
    """And what people are told."""

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
        """Keep no more of a sentence than is shown."""
        msgspec.structs.force_setattr(self, "message", self.message[:MESSAGE_CHARACTERS])


class ShownJob(AskingJob, frozen=True):
    """A GPUJob."""

    spec: ShownSpec = ShownSpec()
    status: ShownStatus = ShownStatus()


SHOWN_JOBS = Resource(names.API_PREFIX, "gpujobs", ShownJob)
