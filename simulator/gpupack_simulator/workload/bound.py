# SPDX-License-Identifier: Apache-2.0
"""How many jobs may be drawn: more would fill the memory before the first one runs."""

from typing import Final

from gpupack_simulator.errors import InvalidParameter

MOST_JOBS: Final = 5_000_000


def bounded(jobs: float) -> None:
    """Raises InvalidParameter: so many are expected, and that is too many."""
    if not jobs <= MOST_JOBS:
        raise InvalidParameter(
            f"this makes about {jobs:,.0f} jobs; the most are {MOST_JOBS:,}: ask for less demand, "
            "load or time"
        )
