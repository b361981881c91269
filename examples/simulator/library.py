# SPDX-License-Identifier: Apache-2.0
"""Two jobs on one node, step by step: the simulator as a library."""
# ruff: noqa: INP001, T201  # a script that prints

from gpupack_placement import Device, DeviceUuid, MiB, MilliCpu, Node, NodeName, Request
from gpupack_simulator import Job, JobId, Settings, Simulator

GIB = 1024

devices = tuple(Device(DeviceUuid(f"gpu-{n}"), n, "A100", MiB(80 * GIB)) for n in range(4))
node = Node(NodeName("node1"), devices, cpu=MilliCpu(64_000), memory=MiB(512 * GIB))
jobs = [
    Job(JobId("train"), arrival=0, request=Request(gpus=3), duration=4),
    Job(JobId("tune"), arrival=1, request=Request(gpus=2), duration=2),
]

simulator = Simulator([node], jobs, "best-fit", Settings(discipline="fifo"))
while simulator.step():
    sample = simulator.sample()
    free = sum(device.milli for device in simulator.cluster.free_devices(node.name)) // 1000
    print(f"t={simulator.now:g}: {free} GPUs free, {sample.queued_jobs} waiting")

for record in simulator.record().jobs:
    print(f"{record.job.id}: {record.end}, waited {record.wait:g}, ended at {record.ended:g}")
