# SPDX-License-Identifier: Apache-2.0
"""The value of a node's gaps that is lost because no CPU is left to use them.

    Ψ(x) = s · ln(1 + e^(x/s)),  s = 0.058 GPU;  x = worth of the gaps - free CPU / r

r: cores per GPU's worth of pods. Ψ is nearly 0 if CPU is ample and nearly x if it lacks; between is
a soft corner, since pods differ. A table gives it in whole numbers: a policy that compares
differences of Ψ must not depend on how a processor rounds exp().
"""

import numpy as np

from gpupack_devices.units import WHOLE_GPU
from gpupack_placement.arrays import IntArray
from gpupack_placement.demand_forecast import RequestMix
from gpupack_placement.fragmentation import UNIT

CORNER = 0.058
CORES_PER_GPU = 12.0
"""The value of r while nothing is known."""

_SHIFT = 8
_REACH = 2 * UNIT
"""The table covers -2 to 2 GPU; beyond, Ψ equals 0 or x to the last digit."""
_MILLE = 1000


class Stranding:
    """Ψ times a weight, for one r."""

    def __init__(self, cores_per_gpu: float, *, weight: float) -> None:
        self._parts_per_cpu = round(UNIT * 1024 / (1000 * cores_per_gpu))
        self._per_mille = round(weight * _MILLE)
        x = np.arange(-_REACH, _REACH, 1 << _SHIFT) / UNIT
        psi = CORNER * np.logaddexp(0.0, x / CORNER)
        self._table: IntArray = np.round(psi * weight * UNIT).astype(np.int64)

    @property
    def table(self) -> tuple[IntArray, int, int, int, int]:
        """The table of `of`, with its parameters.

        Ψ in parts, parts per milli-CPU, weight per mille, reach in parts, and the number of the
        last bits of x that are left out.
        """
        return self._table, self._parts_per_cpu, self._per_mille, _REACH, _SHIFT

    def of(self, worth: IntArray, cpu: IntArray) -> IntArray:
        """Return the lost value in parts; `worth` is in parts, `cpu` in free milli-CPU."""
        x = worth - ((cpu * self._parts_per_cpu) >> 10)
        # The same as clip, which looks up the limits of the type each time.
        place = np.minimum(np.maximum((x + _REACH) >> _SHIFT, 0), len(self._table) - 1)
        psi = np.where(x < _REACH, self._table[place], x * self._per_mille // _MILLE)
        stranded: IntArray = np.where(x < -_REACH, 0, psi)
        return stranded


def cores_per_gpu(mix: RequestMix) -> float:
    """Return the cores per requested GPU of the mix's pods that request GPUs."""
    demands = [d for d in mix.demands if d.request.milli]
    cpu = sum(d.weight * d.request.cpu for d in demands)
    gpus = sum(d.weight * d.request.milli for d in demands) / WHOLE_GPU
    return cpu / 1000 / gpus if cpu and gpus else CORES_PER_GPU
