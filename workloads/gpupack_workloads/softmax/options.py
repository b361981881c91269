# SPDX-License-Identifier: Apache-2.0
"""Options of `softmax`."""

from dataclasses import dataclass

from gpupack_workloads.settings import Options

SHORTEST, LONGEST = 1024, 32768


@dataclass(frozen=True, kw_only=True)
class SoftmaxOptions(Options):
    """Options of `softmax`; `size`: elements of a matrix.

    Attributes:
        columns: the one length of rows to measure; None takes 1k to 32k, doubling.
    """

    columns: int | None = None


def lengths(columns: int | None, *, simulated: bool) -> list[int]:
    """Return the lengths of rows to measure."""
    if columns is not None:
        return [columns]
    if simulated:
        return [SHORTEST]
    doublings = (LONGEST // SHORTEST).bit_length()
    return [SHORTEST << power for power in range(doublings)]
