# SPDX-License-Identifier: Apache-2.0
"""Nodes with their GPUs, and figures of the whole cluster.

GB are 10^9 bytes.
"""

import datetime as dt

import msgspec


class DeviceView(msgspec.Struct, frozen=True):
    """A GPU or MIG slice.

    Attributes:
        free_percent: available for new work: 0 where the health allows no new work, whatever part
            of `given_percent` is held.
        free_memory_gb: available for new work.
        given_percent: percent that is held.
        simulated: the GPU does not exist.
        temperature_celsius: like `power_watts` and `busy_percent` of the last minutes, where the
            driver reports them and `api.readings` is on; else null.
        busy_percent: part of the time in which it computes.
    """

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


class NodeView(msgspec.Struct, frozen=True):
    """A node with GPUs.

    Attributes:
        available_gpus: GPUs that are free as a whole.
        memory_per_gpu: memory of its smallest GPU.
        utilization: allocated percentage of its GPUs, with shares counted by their part.
        simulated: some of its GPUs do not exist.
    """

    node_name: str
    gpu_type: str
    total_gpus: int
    available_gpus: int
    memory_per_gpu: float
    utilization: float
    ready: bool
    devices: tuple[DeviceView, ...] = ()
    simulated: bool = False


class Nodes(msgspec.Struct, frozen=True):
    """Nodes by name; `next` is empty where there are no more."""

    nodes: tuple[NodeView, ...]
    next: str = ""


class Utilization(msgspec.Struct, frozen=True):
    """The allocated part, in percent."""

    gpu_utilization: float
    gpu_memory_usage: float


class AvailableNode(msgspec.Struct, frozen=True):
    """A node with GPUs that are free as a whole."""

    node_name: str
    gpu_type: str
    available_gpus: int
    memory_per_gpu: float
    utilization: float


class Status(msgspec.Struct, frozen=True):
    """A summary of the cluster, or of one machine; `simulated`: some of its GPUs do not exist."""

    utilization: Utilization
    available_nodes: tuple[AvailableNode, ...]
    total_nodes: int
    total_gpus: int
    available_gpus: int
    timestamp: dt.datetime
    simulated: bool = False


class Sample(msgspec.Struct, frozen=True):
    """Figures of the cluster at one time; percentages of what is allocated.

    `fragmentation`: percent of the free GPUs outside free blocks of as many GPUs as the largest
    node has.
    """

    timestamp: dt.datetime
    gpus: int
    available_gpus: int
    gpu_utilization: float
    gpu_memory_usage: float
    running_jobs: int
    waiting_jobs: int
    fragmentation: float = 0.0


class Monitoring(msgspec.Struct, frozen=True):
    """Figures of now and of the last hour."""

    current: Sample | None
    history: tuple[Sample, ...]
    interval_seconds: float


class Health(msgspec.Struct, frozen=True):
    """A status: ok, or stale with what is missing."""

    status: str
    missing: str = ""
