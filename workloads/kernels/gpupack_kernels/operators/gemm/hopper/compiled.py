# SPDX-License-Identifier: Apache-2.0
"""Compiled kernels, found by what they were compiled for."""

from collections.abc import Callable, Hashable
from typing import Any

DIVISOR = 16
BEYOND_32_BITS = 2**31

Grid = tuple[int, int, int]
Arguments = tuple[object, ...]


def specialization(number: int) -> tuple[bool, bool, bool]:
    """Return what of a number that is not negative tells one compiled kernel from another.

    A one is compiled in; else it counts whether 16 divides the number, and its bits.
    """
    return number == 1, number % DIVISOR == 0, number < BEYOND_32_BITS


class CompiledKernels:
    """Compiled kernels by the key of their compilation.

    Triton finds them as well, in half of the time that a launch takes. It keeps them all, too, so
    there are no more here than there are anyway.

    Args:
        launch: launches through Triton, which compiles where it has to; returns what was compiled.
    """

    def __init__(self, launch: Callable[[Grid, Arguments], Any]) -> None:
        self._launch = launch
        self._found: dict[Hashable, Any] = {}

    def run(self, key: Hashable, grid: Grid, arguments: Arguments) -> None:
        """Launch the kernel of a key; by Triton the first time."""
        found = self._found.get(key)
        if found is None:
            self._found[key] = self._launch(grid, arguments)
        else:
            found[grid](*arguments)
