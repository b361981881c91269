# SPDX-License-Identifier: Apache-2.0
"""Jobs as on a multi-tenant training cluster, drawn by a seed: no trace, but its known shape.

**Sizes and durations** are those that Gavel's public generator draws «from the Philly distribution»
(Narayanan et al., «Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads»,
OSDI '20; the trace: Jeon et al., «Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN
Training Workloads», USENIX ATC '19). Jobs have 1, 2, 4 or 8 GPUs with probability 0.70, 0.10, 0.15
and 0.05. There durations are 10^U(1.5, 3) minutes for 80% of jobs and 10^U(3, 4) for the rest. Here
they are log-normal with the same mean and variance of the logarithm, so that the tail does not end:
a median of 5.3 h and a mean of 15.9 h. They do not depend on the size.

**Arrivals** are Poisson with a rate that follows the day, mean · (1 + a · sin(2πt/day)), drawn by
thinning (Lewis and Shedler, Naval Research Logistics Quarterly 26, 1979). **Tenants** submit in
proportion to 1/1, 1/2, 1/3, … (Zipf). a and the number of tenants are assumptions, not measured.

    load = arrivals per second · mean GPUs · mean duration / GPUs
"""

from dataclasses import dataclass
from math import exp, inf, log, pi, sin, sqrt
from random import Random
from typing import Final

from gpupack_placement import Request
from gpupack_simulator.errors import InvalidParameter
from gpupack_simulator.job import Job, JobId
from gpupack_simulator.workload import MAX_JOBS

DAY: Final = 86_400.0
"""Seconds."""
SIZES: Final = {1: 0.70, 2: 0.10, 4: 0.15, 8: 0.05}
"""Probability of each number of GPUs of a job."""
_DECADES: Final = ((0.8, 1.5, 3.0), (0.2, 3.0, 4.0))
"""Probability of each range in which log10 of the minutes is uniform, with its bounds."""
_MINUTE: Final = 60.0
_SHORTEST: Final = 1.0


def _log_duration() -> tuple[float, float]:
    """Return mean and standard deviation of the natural logarithm of the seconds."""
    mean = sum(p * (low + high) / 2 for p, low, high in _DECADES)
    square = sum(p * (low * low + low * high + high * high) / 3 for p, low, high in _DECADES)
    return mean * log(10) + log(_MINUTE), sqrt(square - mean * mean) * log(10)


LOG_MEAN, LOG_DEVIATION = _log_duration()
MEAN_DURATION: Final = exp(LOG_MEAN + LOG_DEVIATION**2 / 2)
"""Seconds."""
MEAN_GPUS: Final = sum(gpus * part for gpus, part in SIZES.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class PhillyStyle:
    """The load and the tenants of the drawn jobs."""

    load: float
    """Fraction of all GPUs that jobs request on average; 1: exactly all."""
    gpus: int
    """GPUs of the cluster."""
    days: float
    """Days in which jobs arrive, from time 0 on."""
    tenants: int = 8
    swing: float = 0.5
    """Amplitude of the rate of arrivals over the day, as a fraction of the mean: from 0 to 1."""

    def __post_init__(self) -> None:
        if not (0 < self.load < inf and 0 < self.days < inf and self.gpus > 0):
            raise InvalidParameter(
                f"a load of {self.load:g} on {self.gpus} GPUs for {self.days:g} days makes no jobs"
            )
        if self.tenants < 1 or not 0 <= self.swing <= 1:
            raise InvalidParameter(
                f"{self.tenants} tenants and a swing of {self.swing:g}: use 1 or more, and 0 to 1"
            )
        if self.rate * self.days * DAY > MAX_JOBS:
            raise InvalidParameter(f"this makes more than {MAX_JOBS:,} jobs")

    @property
    def rate(self) -> float:
        """Arrivals per second, on average over a day."""
        return self.load * self.gpus / (MEAN_GPUS * MEAN_DURATION)


def philly_jobs(style: PhillyStyle, random: Random) -> list[Job]:
    """Draw jobs in the order of arrival; times are in seconds."""
    requests = {gpus: Request(gpus=gpus) for gpus in SIZES}
    names = [f"tenant-{number}" for number in range(1, style.tenants + 1)]
    weights = [1 / number for number in range(1, style.tenants + 1)]
    jobs: list[Job] = []
    densest = style.rate * (1 + style.swing)
    time = random.expovariate(densest)
    while time < style.days * DAY:
        now = style.rate * (1 + style.swing * sin(2 * pi * time / DAY))
        if random.random() * densest < now:
            (gpus,) = random.choices(list(SIZES), list(SIZES.values()))
            jobs.append(
                Job(
                    JobId(f"job-{len(jobs)}"),
                    time,
                    requests[gpus],
                    duration=max(random.lognormvariate(LOG_MEAN, LOG_DEVIATION), _SHORTEST),
                    tenant=random.choices(names, weights)[0],
                )
            )
        time += random.expovariate(densest)
    return jobs
