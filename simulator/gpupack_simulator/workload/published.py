# SPDX-License-Identifier: Apache-2.0
"""The published experiment: more and more pods until the demand is so many times the capacity.

Pods sorted by name and shuffled; then, since the traces ask for less than 130%, pods drawn from all
of them with replacement until the demand reaches the target. Where the trace alone asks for more,
pods drawn at random are left out. Nothing ends and nothing waits: discipline `drop`. There is no
clock either: a pod's arrival is its number.

Source: «Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient
Descent» (USENIX ATC '23) and its artifact.
"""

from collections.abc import Sequence
from math import inf
from random import Random

from gpupack_core import Request
from gpupack_simulator.errors import InvalidParameter
from gpupack_simulator.inputs.openb import Pod
from gpupack_simulator.job import Job, JobId
from gpupack_simulator.workload.bound import bounded


def published_jobs(
    pods: Sequence[Pod], *, demand: float, capacity_milli: int, random: Random
) -> list[Job]:
    """Jobs whose GPU demand is `demand` times the capacity."""
    if not 0 < demand < inf:
        raise InvalidParameter(
            f"the demand is {demand:g}; ask for more than 0, not without end (1.3 is 130%)"
        )
    by_name = [pod.request for pod in sorted(pods, key=lambda pod: pod.name)]
    if not any(request.needs_gpu for request in by_name):
        raise InvalidParameter("no pod asks for GPUs, so that no demand is ever reached")
    target = demand * capacity_milli
    bounded(target * len(by_name) / sum(request.milli for request in by_name))
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
