# SPDX-License-Identifier: Apache-2.0
"""The answers of the REST API, with the fields that are shown.

All sums and fractions are computed by the REST API.
"""

import datetime as dt
from typing import Any

import msgspec

from gpupack.job_views import JobName, Start


class Device(msgspec.Struct):
    """A GPU or MIG slice; memory in GB of 10^9 bytes, the driver's figures where they are known."""

    index: int
    uuid: str
    gpu_type: str
    memory_gb: float
    free_percent: float
    free_memory_gb: float
    health: str
    resource: str = ""
    mig_profile: str = ""
    given_percent: float = 0.0
    simulated: bool = False
    temperature_celsius: float | None = None
    power_watts: float | None = None
    busy_percent: float | None = None


class Node(msgspec.Struct):
    """A node; `utilization` is the allocated part, in percent."""

    node_name: str
    gpu_type: str
    total_gpus: int
    available_gpus: int
    memory_per_gpu: float
    utilization: float
    ready: bool
    devices: list[Device] = []


class Nodes(msgspec.Struct):
    """A page of nodes."""

    nodes: list[Node]
    next: str = ""


class Utilization(msgspec.Struct):
    """The allocated part, in percent."""

    gpu_utilization: float
    gpu_memory_usage: float


class Status(msgspec.Struct):
    """A summary of the cluster."""

    utilization: Utilization
    total_nodes: int
    total_gpus: int
    available_gpus: int
    timestamp: dt.datetime


class Holder(msgspec.Struct):
    """A pod's hold on one GPU."""

    namespace: str
    pod: str
    uuid: str
    job: str = ""
    worker: int | None = None
    percent: int = 100

    @property
    def text(self) -> str:
        """«team/train (worker 0, pod train-1-0-x7k2p)», «team/pod/notebook 40%»."""
        part = "" if self.percent >= 100 else f" {self.percent}%"  # noqa: PLR2004 - of a whole
        worker = "" if self.worker is None else f"worker {self.worker}, "
        whose = f"{self.job} ({worker}pod {self.pod})" if self.job else f"pod/{self.pod}"
        return f"{self.namespace}/{whose}{part}"


class Holders(msgspec.Struct):
    """A page of holders."""

    holders: list[Holder]
    next: str = ""


class PlannedDevice(msgspec.Struct):
    """A GPU, or a part of one, that a worker would get."""

    index: int
    uuid: str
    percent: int
    memory_mib: int


class Worker(msgspec.Struct):
    """The place of a worker in a hypothetical start."""

    worker: int
    node: str
    devices: list[PlannedDevice] = []


class WhatIf(msgspec.Struct):
    """The outcome for a hypothetical job."""

    outcome: str
    reason: str = ""
    message: str = ""
    workers: list[Worker] = []
    position: int | None = None
    waiting: int = 0
    estimated_wait_seconds: float | None = None
    preempts: list[JobName] = []
    preempts_hidden: int = 0
    would_help: list[str] = []
    start: Start | None = None


class CostRow(msgspec.Struct):
    """GPU-hours with their cost, for a row of any grouping."""

    namespace: str = ""
    cohort: str = ""
    job: str = ""
    model: str = ""
    allocated_gpu_hours: float = 0.0
    used_gpu_hours: float | None = None
    idle_gpu_hours: float | None = None
    unknown_gpu_hours: float = 0.0
    energy_kwh: float | None = None
    cost: float | None = None


class Cost(msgspec.Struct):
    """A page of rows; `total` covers the rows of all pages."""

    currency: str
    since: str
    until: str
    rows: list[CostRow]
    total: CostRow
    next: str = ""


Json = dict[str, Any]
"""A document that is passed on unchanged."""
