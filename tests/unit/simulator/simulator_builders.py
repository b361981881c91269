# SPDX-License-Identifier: Apache-2.0
"""Small builders, so that a test reads as nodes, jobs, expected course."""

from math import inf
from random import Random

from gpupack_placement import (
    Device,
    DeviceUuid,
    MiB,
    MilliCpu,
    MilliGpu,
    Node,
    NodeName,
    Request,
    Share,
)
from gpupack_simulator import Job, JobId, Settings, Simulator


def node(name, gpus=4, *, cpu=64_000, memory=512_000, model="GPU", gpu_memory=80_000):
    devices = (Device(DeviceUuid(f"{name}/{i}"), i, model, MiB(gpu_memory)) for i in range(gpus))
    return Node(NodeName(name), tuple(devices), MilliCpu(cpu), MiB(memory))


def job(name, gpus=1, *, at=0.0, lasts=inf, share=None, workers=1, priority=0, cpu=0, **kw):
    spread = {"spread": kw.pop("spread")} if "spread" in kw else {}
    if share is None:
        request = Request(gpus=gpus, cpu=MilliCpu(cpu), **kw)
    else:
        request = Request(share=Share(MilliGpu(share), MiB(0)), cpu=MilliCpu(cpu), **kw)
    return Job(JobId(name), at, request, workers, lasts, priority, **spread)


def run(nodes, jobs, policy="first-fit", *, until=None, **settings):
    simulator = Simulator(nodes, jobs, policy, Settings(**settings))
    return simulator.run(until)


def starts(run):
    """Job → when its last attempt started."""
    return {record.job.id: record.started for record in run.jobs}


def ends(run):
    """Job → how it ended."""
    return {record.job.id: str(record.end) for record in run.jobs}


def some_jobs(seed, *, jobs=60, gpus=(0, 1, 1, 2, 4), workers=(1, 1, 1, 2)):
    """Enough of them that some wait on two or three nodes."""
    random = Random(seed)
    return [
        job(
            f"job-{number}",
            random.choice(gpus),
            at=random.randrange(0, 40),
            lasts=random.randrange(1, 12),
            workers=random.choice(workers),
            priority=random.randrange(3),
            share=random.choice([None, None, 300, 700]),
            cpu=random.choice([0, 1000, 8000]),
        )
        for number in range(jobs)
    ]
