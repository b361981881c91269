# SPDX-License-Identifier: Apache-2.0
"""Jobs drawn from the pods of a trace by a seed, for the two experiments.

**Filling up**: pods are sorted by name and shuffled. The traces request less than 130%, so pods are
then drawn from all of them with replacement until the demand reaches the target. If the trace alone
requests more, pods drawn at random are left out. Nothing ends and nothing waits: discipline `drop`.
There is no clock either: a pod's arrival is its number. Source: «Beware of Fragmentation:
Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent» (USENIX ATC '23) and its
artifact.

**With departures**: Poisson arrivals, exponential lifetimes, pods drawn with replacement. The unit
of time is the mean lifetime. By Little's law the load is

    load = arrivals per lifetime · mean GPU demand of a pod / capacity

so that a load of 1 requests on average exactly all GPUs.
"""

from collections.abc import Sequence
from math import inf
from random import Random
from typing import Final

from gpupack_placement import Request
from gpupack_simulator.errors import InvalidParameter
from gpupack_simulator.inputs.openb import Pod
from gpupack_simulator.job import Job, JobId

MAX_JOBS: Final = 5_000_000
"""Maximum number of jobs; more would fill the memory before the first one runs."""


def published_jobs(
    pods: Sequence[Pod], *, demand: float, capacity_milli: int, random: Random
) -> list[Job]:
    """Draw jobs with a GPU demand of `demand` times the capacity."""
    if not 0 < demand < inf:
        raise InvalidParameter(
            f"the demand is {demand:g}; ask for more than 0, not without end (1.3 is 130%)"
        )
    by_name = [pod.request for pod in sorted(pods, key=lambda pod: pod.name)]
    if not any(request.needs_gpu for request in by_name):
        raise InvalidParameter("no pod requests GPUs, so no demand is ever reached")
    target = demand * capacity_milli
    _bounded(target * len(by_name) / sum(request.milli for request in by_name))
    chosen = by_name.copy()
    random.shuffle(chosen)
    asked: int = sum(request.milli for request in chosen)
    while asked > target:
        asked -= chosen.pop(random.randrange(len(chosen))).milli
    while asked < target:
        asked += _appended(chosen, random.choice(by_name)).milli
    return [
        Job(JobId(f"pod-{number}"), float(number), request) for number, request in enumerate(chosen)
    ]


def _appended(chosen: list[Request], request: Request) -> Request:
    chosen.append(request)
    return request


def departing_jobs(
    pods: Sequence[Pod], *, load: float, capacity_milli: int, until: float, random: Random
) -> list[Job]:
    """Draw all jobs that arrive before `until` (lifetimes)."""
    if not until < inf:
        raise InvalidParameter(f"jobs come and go for {until:g} lifetimes; ask for an end")
    rate = arrival_rate(pods, load=load, capacity_milli=capacity_milli)
    _bounded(rate * until)
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
    """Return the arrivals per mean lifetime."""
    mean = sum(pod.request.milli for pod in pods) / len(pods)
    if not 0 < load < inf:
        raise InvalidParameter(f"the load is {load:g}; ask for more than 0, not without end")
    if not mean or not capacity_milli:
        raise InvalidParameter("a load needs pods that ask for GPUs and nodes that have some")
    return load * capacity_milli / mean


def _bounded(jobs: float) -> None:
    """Raise InvalidParameter if too many jobs are expected."""
    if not jobs <= MAX_JOBS:
        raise InvalidParameter(
            f"this makes about {jobs:,.0f} jobs; the most are {MAX_JOBS:,}: ask for less demand, "
            "load or time"
        )
