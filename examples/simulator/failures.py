# SPDX-License-Identifier: Apache-2.0
"""A GPU fails under a gang: all its workers start again, and what they did is lost."""
# ruff: noqa: INP001, T201  # a script that prints

from gpupack_placement import WHOLE_GPU, Device, DeviceUuid, MiB, Node, NodeName, Request
from gpupack_simulator import Breakdown, Component, Job, JobId, Settings, Simulator


def node(name: str) -> Node:
    """Two GPUs."""
    devices = (Device(DeviceUuid(f"{name}-{n}"), n, "A100", MiB(81_920)) for n in range(2))
    return Node(NodeName(name), tuple(devices))


gang = Job(JobId("gang"), arrival=0, request=Request(gpus=2), workers=2, duration=6)
broken = Breakdown(Component(NodeName("node2"), DeviceUuid("node2-1")), at=3, until=5)

nodes = [node("node1"), node("node2")]
run = Simulator(nodes, [gang], "first-fit", Settings(breakdowns=(broken,))).run()

for loss in run.losses:
    print(
        f"t={loss.time:g}: {loss.job} lost {loss.milli_time / WHOLE_GPU:g} GPU-steps on {loss.node}"
    )
for outage in run.outages:
    print(f"{outage.device} was out of order from {outage.start:g} to {outage.end:g}")
for record in run.jobs:
    print(f"attempt {record.attempts} ran from {record.started:g} to {record.ended:g}")
