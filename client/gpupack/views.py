# SPDX-License-Identifier: Apache-2.0
"""The answers of both backends: types of the REST API, under the names of the Python API.

GB are 10^9 bytes. `utilization` and related fields are the allocated part, in percent.
"""

from gpupack_restapi.allocations import Validation, WorkerConfig
from gpupack_restapi.jobs import Changed, QueueRow
from gpupack_restapi.nodes import AvailableNode, DeviceView, NodeView, Status, Utilization
from gpupack_restapi.questions import Explanation, JobRef, StartView

__all__ = [
    "SIMULATED_UUID",
    "AvailableNode",
    "ClusterStatus",
    "DeviceStatus",
    "Explanation",
    "GPUResourceStatus",
    "JobName",
    "QueueRow",
    "Start",
    "Utilization",
    "Validation",
    "WorkerGpus",
    "WrittenJob",
]

SIMULATED_UUID = "GPU-sim-"
"""Prefix of simulated GPUs' UUIDs, in a cluster and on this machine."""

DeviceStatus = DeviceView
GPUResourceStatus = NodeView
ClusterStatus = Status
WorkerGpus = WorkerConfig
JobName = JobRef
Start = StartView
WrittenJob = Changed
