# SPDX-License-Identifier: Apache-2.0
"""How times and GPU-times of a run are called and counted."""

from dataclasses import dataclass

from gpupack_core import WHOLE_GPU
from gpupack_simulator.record import TimeUnit

SECONDS_PER_HOUR = 3600


@dataclass(frozen=True, slots=True)
class Unit:
    """Words for one TimeUnit. `axis` labels a time axis; `key` ends the name of a JSON field."""

    axis: str
    key: str
    short: str
    gpu_time: str
    """What capacity over time is counted in."""
    per_gpu_time: float
    """Milli-GPU times the run's unit that make one of them."""

    @property
    def gpu_time_key(self) -> str:
        """As part of the name of a JSON field."""
        return self.gpu_time.lower().replace("-", "_").replace(" ", "_")


UNITS = {
    TimeUnit.SECOND: Unit(
        "time (s)", "seconds", "s", "GPU-hours", float(WHOLE_GPU * SECONDS_PER_HOUR)
    ),
    TimeUnit.STEP: Unit("time (steps)", "steps", "steps", "GPU-steps", float(WHOLE_GPU)),
    TimeUnit.LIFETIME: Unit(
        "time (mean job lifetimes)", "lifetimes", "lifetimes", "GPU-lifetimes", float(WHOLE_GPU)
    ),
    TimeUnit.ARRIVAL: Unit(
        "jobs arrived", "arrivals", "arrivals", "GPUs at the end", float(WHOLE_GPU)
    ),
}
