# SPDX-License-Identifier: Apache-2.0
"""What both backends answer: the shapes of the REST API's answers.

GB are 10^9 bytes; `utilization` and its like are what is given out, in percent. Fields that a
server of another version adds are passed over.
"""

import datetime as dt

import msgspec

SIMULATED_UUID = "GPU-sim-"
"""With which UUIDs of simulated GPUs begin, in a cluster and on this machine."""


class DeviceStatus(msgspec.Struct, frozen=True):
    """A GPU or MIG slice. `free_percent` and `free_memory_gb` are what new work may take."""

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
    """What is given out, in percent."""

    gpu_utilization: float
    gpu_memory_usage: float


class AvailableNode(msgspec.Struct, frozen=True):
    """A node that has GPUs which are free as a whole."""

    node_name: str
    gpu_type: str
    available_gpus: int
    memory_per_gpu: float
    utilization: float


class ClusterStatus(msgspec.Struct, frozen=True):
    """The cluster, or this machine, in short."""

    utilization: Utilization
    available_nodes: tuple[AvailableNode, ...]
    total_nodes: int
    total_gpus: int
    available_gpus: int
    timestamp: dt.datetime
    simulated: bool = False


class Validation(msgspec.Struct, frozen=True):
    """Whether what was asked for can be served; true where it can.

    Attributes:
        valid: it can be, once what runs has ended.
        fits_now: there is room for it at this moment.
        workers: into how many workers it was divided.
        gpus_per_worker: GPUs of each, on one node.
        nodes: where they would be now, one for each worker.
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
    """What one worker has; `device_ids` are the GPUs' indices on their node."""

    node_name: str
    device_ids: tuple[int, ...]
    device_uuids: tuple[str, ...]
