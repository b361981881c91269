# SPDX-License-Identifier: Apache-2.0
"""Amounts of GPU time that were held, and what is known of their use."""

from dataclasses import dataclass
from typing import Final

from gpupack_devices.units import WHOLE_GPU

SECONDS_PER_HOUR: Final = 3600
MILLI_SECONDS_PER_GPU_HOUR: Final = WHOLE_GPU * SECONDS_PER_HOUR
JOULES_PER_KWH: Final = 3.6e6


@dataclass(frozen=True, slots=True)
class Amounts:
    """Amounts over a period. All but `joules` are milli-GPU times seconds.

    Attributes:
        allocated: the amount that was held.
        measured: the part of `allocated` for which the utilization of the GPUs was known.
        used: `measured`, weighted by the utilization.
        metered: the part of `allocated` for which the power draw of the GPUs was known.
        joules: the energy of the metered part.
    """

    allocated: float = 0.0
    measured: float = 0.0
    used: float = 0.0
    metered: float = 0.0
    joules: float = 0.0

    def __add__(self, other: "Amounts") -> "Amounts":
        return Amounts(
            self.allocated + other.allocated,
            self.measured + other.measured,
            self.used + other.used,
            self.metered + other.metered,
            self.joules + other.joules,
        )

    @property
    def allocated_hours(self) -> float:
        """GPU-hours that were held."""
        return gpu_hours(self.allocated)

    @property
    def used_hours(self) -> float | None:
        """GPU-hours of work; None: none of the time was measured."""
        return gpu_hours(self.used) if self.measured > 0 else None

    @property
    def idle_hours(self) -> float | None:
        """GPU-hours that were held, measured and not used; None: none of the time was measured."""
        return gpu_hours(max(self.measured - self.used, 0.0)) if self.measured > 0 else None

    @property
    def unknown_hours(self) -> float:
        """GPU-hours of which it is unknown whether they were used."""
        return gpu_hours(max(self.allocated - self.measured, 0.0))

    @property
    def energy_kwh(self) -> float | None:
        """Energy of the metered time; None: none was metered."""
        return self.joules / JOULES_PER_KWH if self.metered > 0 else None


def gpu_hours(milli_seconds: float) -> float:
    """Convert milli-GPU times seconds to GPU-hours."""
    return milli_seconds / MILLI_SECONDS_PER_GPU_HOUR
