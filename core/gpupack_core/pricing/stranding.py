# SPDX-License-Identifier: Apache-2.0
"""How much of what a node's gaps are worth no CPU is left to use.

    Ψ(x) = s · ln(1 + e^(x/s)),  s = 0.058 GPU;  x = worth of the gaps - free CPU / r

r: cores that a GPU's worth of pods takes. Ψ is nearly 0 where CPU is ample and nearly x where it
lacks; between, a soft corner, since pods differ. In whole numbers, by a table: a policy that
compares differences of Ψ must not depend on how some processor rounds exp().
"""

import numpy as np

from gpupack_core.arrays import IntArray
from gpupack_core.fragmentation import UNIT
from gpupack_core.outlook import Mix
from gpupack_core.units import WHOLE_GPU

CORNER = 0.058
CORES_PER_GPU = 12.0
"""r as long as nothing is known."""

_SHIFT = 8
_REACH = 2 * UNIT
"""The table has -2 to 2 GPU; beyond, Ψ is 0 and x to the last digit."""
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
        """What `of` is looked up in.

        Ψ in parts, parts for a milli-CPU, weight per mille, reach in parts, and how many of the
        last bits of x are left out.
        """
        return self._table, self._parts_per_cpu, self._per_mille, _REACH, _SHIFT

    def of(self, worth: IntArray, cpu: IntArray) -> IntArray:
        """In parts; worth in parts, milli-CPU free."""
        x = worth - ((cpu * self._parts_per_cpu) >> 10)
        # As clip does, which asks for the limits of the type each time.
        place = np.minimum(np.maximum((x + _REACH) >> _SHIFT, 0), len(self._table) - 1)
        psi = np.where(x < _REACH, self._table[place], x * self._per_mille // _MILLE)
        stranded: IntArray = np.where(x < -_REACH, 0, psi)
        return stranded


def cores_per_gpu(mix: Mix) -> float:
    """Of the mix's pods that ask for GPUs, in cores for each GPU asked for."""
    demands = [d for d in mix.demands if d.request.milli]
    cpu = sum(d.weight * d.request.cpu for d in demands)
    gpus = sum(d.weight * d.request.milli for d in demands) / WHOLE_GPU
    return cpu / 1000 / gpus if cpu and gpus else CORES_PER_GPU
