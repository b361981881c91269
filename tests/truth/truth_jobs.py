# SPDX-License-Identifier: Apache-2.0
"""The jobs of a seed: whole GPUs and shares, that come and go; a tenth more than the cluster fits.

Arrivals are Poisson, a burst at a time; lifetimes are exponential with mean 1. Each job is one
pod: what the simulator is given and what the cluster is given are made here from the same
draw, side by side.
"""

import json
from collections.abc import Iterable
from random import Random
from typing import Any

from truth_fleet import KWOK_LABELS, KWOK_TAINT, POOL, Shape

from gpupack_crds import names
from gpupack_placement import (
    WHOLE_GPU,
    DemandForecast,
    MiB,
    MilliCpu,
    MilliGpu,
    NodeSelector,
    Request,
    RequestMix,
    Share,
    Toleration,
    TolerationOperator,
    dump_forecast,
)
from gpupack_simulator import Job, JobId

Manifest = dict[str, Any]

LOAD = 1.1
"""GPUs asked for at a time, for each GPU there is."""
MAX_IN_A_BURST = 16
GIB = 1024
TOLERATIONS = (Toleration(KWOK_TAINT, TolerationOperator.EXISTS),)

SHARE_PERCENTS = (10, 20, 25, 30, 50, 70)
SHARE_MEMORY_GIB = (2, 4, 8, 12)
CPUS_OF_A_SHARE = (500, 1000, 2000, 4000)
CPUS_OF_A_GPU = (2000, 4000, 8000, 12_000)
WHOLE = {1: 0.30, 2: 0.12, 3: 0.02, 4: 0.08, 8: 0.04}
"""How likely a job of so many GPUs is; all others are shares."""
POOLS = ("", "", "", "", "", "", "large", "medium", "small")


def drawn_jobs(*, seed: int, arrivals: int, shapes: Iterable[Shape]) -> tuple[Job, ...]:
    """The same for the same seed, of whatever policy."""
    random = Random(f"{seed}:truth")
    gpus = sum(shape.number for shape in shapes)
    requests = [_request(random) for _ in range(arrivals)]
    mean_gpus = sum(request.milli for request in requests) / arrivals / WHOLE_GPU
    rate, now, left, jobs = LOAD * gpus / mean_gpus, 0.0, 0, []
    for number, request in enumerate(requests):
        if not left:
            left = random.randint(1, MAX_IN_A_BURST)
            now += random.expovariate(rate / left)
        left -= 1
        job = JobId(f"job-{number}")
        jobs.append(Job(job, now, request, duration=random.expovariate(1.0)))
    return tuple(jobs)


def forecast_of(jobs: Iterable[Job]) -> Manifest:
    """Return the true mix of these jobs in steady state, as the extender gets it."""
    mix = RequestMix.of((job.request, 1) for job in jobs)
    return dump_forecast(DemandForecast(mix, churn=1.0))


def pod(job: Job) -> Manifest:
    """The same for the cluster; it ends the moment that it is deleted."""
    request = job.request
    asked = {"cpu": f"{request.cpu}m", "memory": f"{request.memory}Mi", **_gpu_limits(request)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": job.id},
        "spec": {
            "schedulerName": names.SCHEDULER_NAME,
            "nodeSelector": dict(request.selector.labels) if request.selector else {},
            "tolerations": [
                {"key": each.key, "operator": each.operator.value} for each in request.tolerations
            ],
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "worker", "image": "none", "resources": {"limits": asked}}],
        },
    }


def forecast_text(forecast: Manifest) -> str:
    """For GPUPACK_DEMAND_FORECAST."""
    return json.dumps(forecast, separators=(",", ":"))


def _request(random: Random) -> Request:
    gpus = random.choices([*WHOLE, 0], [*WHOLE.values(), 1 - sum(WHOLE.values())])[0]
    cpu = (random.choice(CPUS_OF_A_GPU) * gpus) or random.choice(CPUS_OF_A_SHARE)
    where = {"cpu": MilliCpu(cpu), "memory": MiB(cpu * GIB * 2 // 1000)}
    pool = random.choice(POOLS)
    labels = KWOK_LABELS | ({POOL: pool} if pool else {})
    selector = NodeSelector(tuple(sorted(labels.items())), None)
    if gpus:
        return Request(gpus=gpus, **where, selector=selector, tolerations=TOLERATIONS)
    milli = MilliGpu(random.choice(SHARE_PERCENTS) * 10)
    share = Share(milli, MiB(random.choice(SHARE_MEMORY_GIB) * GIB))
    return Request(share=share, **where, selector=selector, tolerations=TOLERATIONS)


def _gpu_limits(request: Request) -> dict[str, str]:
    if request.share is None:
        return {names.GPU: str(request.gpus)}
    return {
        names.GPU_SHARE: "1",
        names.GPU_PERCENT: str(request.share.milli // 10),
        names.GPU_MEMORY: f"{request.share.memory}Mi",
    }
