# SPDX-License-Identifier: Apache-2.0
"""Distance of two courses of losses."""

import math
from collections.abc import Sequence


def distance(found: Sequence[float], reference: Sequence[float]) -> float:
    """Return the largest difference of two losses as a share of the first of the reference.

    Infinite where one of them is no number, which `max` alone would overlook.
    """
    differences = [abs(a - b) for a, b in zip(found, reference, strict=True)]
    if any(math.isnan(difference) for difference in differences):
        return math.inf
    return max(differences) / reference[0]
