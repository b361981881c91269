# SPDX-License-Identifier: Apache-2.0
"""The same jobs under every queue discipline: who waits how long?"""
# ruff: noqa: INP001, T201  # a script that prints

from random import Random

from gpupack_placement import Device, DeviceUuid, MiB, Node, NodeName, Request
from gpupack_simulator import DISCIPLINES, End, Job, JobId, Settings, Simulator


def node(name: str, gpus: int) -> Node:
    """GPUs of one model without CPU: these jobs request none."""
    devices = (Device(DeviceUuid(f"{name}-{n}"), n, "A100", MiB(81_920)) for n in range(gpus))
    return Node(NodeName(name), tuple(devices))


random = Random(1)  # noqa: S311  # not for secrets
nodes = [node("node1", 8), node("node2", 8)]
jobs = [
    Job(
        JobId(f"job-{n}"),
        arrival=n,
        request=Request(gpus=random.choice([1, 1, 2, 8])),
        duration=(duration := random.randrange(2, 12)),
        priority=random.randrange(2),
        walltime=2 * duration,
    )
    for n in range(60)
]

for discipline in sorted(DISCIPLINES):
    run = Simulator(nodes, jobs, "best-fit", Settings(discipline=discipline)).run()
    waits = [record.wait for record in run.jobs if record.wait is not None]
    dropped = sum(record.end is End.DROPPED for record in run.jobs)
    mean = sum(waits) / len(waits)
    print(f"{discipline:10} mean wait {mean:5.2f}, {dropped} dropped, done at {run.ended:g}")
