# SPDX-License-Identifier: Apache-2.0
"""Sets of worker indices as text: `0-3,6` for 0, 1, 2, 3 and 6.

With 1,024 workers the longest text, that of every second index, takes 2.5 kB.
"""

import re
from collections.abc import Collection
from itertools import groupby
from typing import Final

from gpupack_crds.gpujob import MAX_WORKERS

MAX_CHARACTERS: Final = 5 * MAX_WORKERS

_RANGE: Final = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


def written(indices: Collection[int]) -> str:
    """Return indices as text, in order."""
    runs = groupby(enumerate(sorted(indices)), key=lambda pair: pair[1] - pair[0])
    ends = [(run[0][1], run[-1][1]) for run in (list(group) for _, group in runs)]
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ends)


def read(ranges: str) -> list[int]:
    """Parse indices; leave out those beyond any gang's."""
    pairs = ((int(first), int(last or first)) for first, last in _RANGE.findall(ranges))
    return [index for first, last in pairs for index in range(first, min(last + 1, MAX_WORKERS))]
