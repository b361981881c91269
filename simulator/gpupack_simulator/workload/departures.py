# SPDX-License-Identifier: Apache-2.0
"""Jobs that come and go: Poisson arrivals, exponential lifetimes, pods drawn with replacement.

The unit of time is the mean lifetime. By Little's law the load is

    load = arrivals per lifetime · mean GPU demand of a pod / capacity

so that a load of 1 asks on average for exactly all GPUs.
"""

from collections.abc import Sequence
from math import inf
from random import Random

from gpupack_simulator.errors import InvalidParameter
from gpupack_simulator.inputs.openb import Pod
from gpupack_simulator.job import Job, JobId
from gpupack_simulator.workload.bound import bounded


def departing_jobs(
    pods: Sequence[Pod], *, load: float, capacity_milli: int, until: float, random: Random
) -> list[Job]:
    """All that arrive before `until` (lifetimes)."""
    if not until < inf:
        raise InvalidParameter(f"jobs come and go for {until:g} lifetimes; ask for an end")
    rate = arrival_rate(pods, load=load, capacity_milli=capacity_milli)
    bounded(rate * until)
    by_name = [pod.request for pod in sorted(pods, key=lambda pod: pod.name)]
    jobs: list[Job] = []
    time = random.expovariate(rate)
    while time < until:
        duration = random.expovariate(1.0)
        request = random.choice(by_name)
        jobs.append(Job(JobId(f"pod-{len(jobs)}"), time, request, duration=duration))
        time += random.expovariate(rate)
    return jobs


def arrival_rate(pods: Sequence[Pod], *, load: float, capacity_milli: int) -> float:
    """Arrivals per mean lifetime."""
    mean = sum(pod.request.milli for pod in pods) / len(pods)
    if not 0 < load < inf:
        raise InvalidParameter(f"the load is {load:g}; ask for more than 0, not without end")
    if not mean or not capacity_milli:
        raise InvalidParameter("a load needs pods that ask for GPUs and nodes that have some")
    return load * capacity_milli / mean
