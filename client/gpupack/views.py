# SPDX-License-Identifier: Apache-2.0
"""The answers of both backends, in the form of the REST API's answers.

GB are 10^9 bytes. `utilization` and related fields are the allocated part, in percent. Fields that
a server of another version adds are ignored.
"""

import datetime as dt

import msgspec

SIMULATED_UUID = "GPU-sim-"
"""Prefix of simulated GPUs' UUIDs, in a cluster and on this machine."""


class DeviceStatus(msgspec.Struct, frozen=True):
    """A GPU or MIG slice. `free_percent` and `free_memory_gb` are available for new work."""

    index: int
    uuid: str
    gpu_type: str
    memory_gb: float
    free_percent: float
    free_memory_gb: float
    health: str
    resource: str = ""
    mig_profile: str = ""


class GPUResourceStatus(msgspec.Struct, frozen=True):
    """A node with GPUs; `available_gpus` are free as a whole."""

    node_name: str
    gpu_type: str
    total_gpus: int
    available_gpus: int
    memory_per_gpu: float
    utilization: float
    ready: bool = True
    devices: tuple[DeviceStatus, ...] = ()
    simulated: bool = False


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


class ClusterStatus(msgspec.Struct, frozen=True):
    """A summary of the cluster, or of this machine."""

    utilization: Utilization
    available_nodes: tuple[AvailableNode, ...]
    total_nodes: int
    total_gpus: int
    available_gpus: int
    timestamp: dt.datetime
    simulated: bool = False


class Validation(msgspec.Struct, frozen=True):
    """Whether a request can be satisfied; true where it can.

    Attributes:
        valid: it can be, once running work has ended.
        fits_now: it fits at this moment.
        workers: number of workers into which it was divided.
        gpus_per_worker: GPUs of each worker, on one node.
        nodes: nodes of the workers now, one for each.
        message: why it does not fit.
    """

    valid: bool
    fits_now: bool
    workers: int
    gpus_per_worker: int
    nodes: tuple[str, ...] = ()
    message: str = ""

    def __bool__(self) -> bool:
        return self.valid


class WorkerGpus(msgspec.Struct, frozen=True):
    """The GPUs of one worker; `device_ids` are indices on their node."""

    node_name: str
    device_ids: tuple[int, ...]
    device_uuids: tuple[str, ...]
