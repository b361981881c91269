# SPDX-License-Identifier: Apache-2.0
"""Compares the error of a computed result with the bound that rounding explains.

A type rounds a number x by at most unit |x|; below its smallest normal number rounding is absolute:
half the spacing of subnormals.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import torch

Values = npt.NDArray[np.float64]

ACCUMULATION_UNIT = 2.0**-24
# Of the probabilistic bound of sums (Higham and Mary, 2019): fails once in 10^13.
SAFETY = 8.0
RESULT_UNITS = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
SUBNORMAL_UNITS = {"float32": 2.0**-150, "float16": 2.0**-25, "bfloat16": 2.0**-134}


@dataclass(frozen=True)
class Agreement:
    """The element that comes closest to its bound, or exceeds it most.

    Attributes:
        error: its distance from the reference.
        bound: how much rounding explains there.
    """

    error: float
    bound: float

    @property
    def holds(self) -> bool:
        """Whether rounding explains every difference; neither a NaN nor an infinity is explained.

        A bound that follows from the result is infinite where the result is.
        """
        return math.isfinite(self.bound) and self.error <= self.bound

    @property
    def share(self) -> float:
        """The error as a part of its bound: above 1 where it does not hold."""
        if not (math.isfinite(self.error) and math.isfinite(self.bound)):
            return math.inf
        if self.error == 0:
            return 0.0
        return self.error / self.bound if self.bound else math.inf


def worst(*, error: Values, bound: Values) -> Agreement:
    """Return the element that comes closest to its bound, or exceeds it most.

    One whose error or bound is no number, or infinite, exceeds it most. A bound may be zero, where
    results must be exact.
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        share = np.where(error == 0, 0.0, error / bound)
    share[~(np.isfinite(error) & np.isfinite(bound))] = np.inf
    place = np.unravel_index(np.argmax(share), share.shape)
    found = float(error[place])
    return Agreement(
        error=math.inf if math.isnan(found) else found,
        bound=float(bound[place]),
    )


def closest(agreements: list[Agreement]) -> Agreement:
    """Return the one of several that comes closest to its bound, or exceeds it most."""
    return max(agreements, key=lambda agreement: agreement.share)


def furthest(*, error: "torch.Tensor", bound: "torch.Tensor") -> Agreement:
    """Return what `worst` does, where the tensors are."""
    share = (error / bound).masked_fill_(error == 0, 0.0)
    unknown = ~(error.isfinite() & bound.isfinite())
    place = share.masked_fill_(unknown, math.inf).argmax()
    return Agreement(
        error=error.nan_to_num(nan=math.inf, posinf=math.inf).flatten()[place].item(),
        bound=bound.flatten()[place].item(),
    )
