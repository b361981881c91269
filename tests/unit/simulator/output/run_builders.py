# SPDX-License-Identifier: Apache-2.0
"""Runs made by hand, so that every figure of a test can be worked out on paper."""

from math import inf

from gpupack_placement import (
    Device,
    DeviceUuid,
    Grant,
    MiB,
    MilliGpu,
    Node,
    NodeName,
    Placement,
    Request,
    Share,
)
from gpupack_simulator.job import Job, JobId
from gpupack_simulator.record import (
    Cause,
    End,
    JobRecord,
    Loss,
    Occupancy,
    Outage,
    Run,
    Sample,
    TimeUnit,
)


def node(name, gpus, *, model="GPU"):
    devices = (Device(DeviceUuid(f"{name}/{i}"), i, model, MiB(16_384)) for i in range(gpus))
    return Node(NodeName(name), tuple(devices))


def job(name, gpus=1, *, milli=None, arrival=0.0, duration=inf, workers=1):
    request = Request(gpus=gpus) if milli is None else Request(share=Share(MilliGpu(milli), MiB(0)))
    return Job(JobId(name), arrival, request, workers=workers, duration=duration)


def done(name, gpus=1, *, at=0.0, start, duration, milli=None):
    """Submitted `at`, started and succeeded."""
    asked = job(name, gpus, milli=milli, arrival=at, duration=duration)
    return JobRecord(asked, at, start, start + duration, End.SUCCEEDED, attempts=1, wait=start - at)


def waiting(name, gpus=1, *, at=0.0, now):
    return JobRecord(job(name, gpus, arrival=at), at, None, None, End.WAITING, wait=now - at)


def running(name, gpus=1, *, at=0.0, start, node, duration=inf):
    grants = tuple(Grant(DeviceUuid(f"{node}/{i}"), MilliGpu(1000), MiB(0)) for i in range(gpus))
    return JobRecord(
        job(name, gpus, arrival=at, duration=duration),
        at,
        start,
        None,
        End.RUNNING,
        placements=(Placement(NodeName(node), grants),),
        attempts=1,
        wait=start - at,
    )


def dropped(name, gpus=1, *, at=0.0):
    return JobRecord(job(name, gpus, arrival=at), at, None, at, End.DROPPED, reason="no room")


def sample(time, allocated, *, capacity=4000, arrived=0, fragmented=None, queued=0, **kw):
    return Sample(time, arrived, allocated, capacity, fragmented, queued, 0, **kw)


def held(device, name, start, end, milli=1000):
    return Occupancy(
        NodeName(device.split("/")[0]), DeviceUuid(device), JobId(name), start, end, milli
    )


def lost(time, milli_time, name="a", node="n1"):
    return Loss(time, JobId(name), NodeName(node), Cause.KILLED_WORK, milli_time)


def outage(node, start, end, device=None):
    return Outage(NodeName(node), device and DeviceUuid(device), start, end)


def run(**kw):
    """Four GPUs in two nodes, ten steps, in which nothing happens."""
    defaults = {
        "policy": "fgd",
        "seed": 0,
        "parameters": {"discipline": "fifo"},
        "time_unit": TimeUnit.STEP,
        "nodes": (node("n1", 2), node("n2", 2)),
        "jobs": (),
        "samples": (),
        "occupancy": (),
        "losses": (),
        "outages": (),
        "measured_from": 0.0,
        "allocated_milli_time": 0.0,
        "ended": 10.0,
        "events": 0,
        "seconds_of_wall": 0.0,
    }
    return Run(**(defaults | kw))
