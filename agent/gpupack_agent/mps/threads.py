# SPDX-License-Identifier: Apache-2.0
"""How many of a GPU's threads a limited share has: its percentage, or the next sound one below.

Libraries choose their kernels by the number of multiprocessors that MPS leaves a process, and
cuBLAS computes wrongly with most such numbers of an H100 or H200 (docs/adr/0058). What is sound was
measured by benchmarks/mps_products.py, model by model; of other models nothing is known, and their
shares have their percentages as they are.
"""

from collections.abc import Mapping
from typing import Annotated

import msgspec

Percent = Annotated[int, msgspec.Meta(ge=1, le=100)]
Range = tuple[Percent, Percent]
"""First and last, both sound, as all between."""


class SoundThreads(msgspec.Struct, frozen=True):
    """Of each model, the percentages at which products are right.

    Attributes:
        ranges: by the driver's name of the model, in ascending order.
    """

    ranges: Mapping[str, tuple[Range, ...]] = {}

    def at_most(self, percent: int, model: str) -> int:
        """Return the largest sound percentage that is no more; itself where there is none."""
        below = [
            min(last, percent) for first, last in self.ranges.get(model, ()) if first <= percent
        ]
        return below[-1] if below else percent


NOTHING_KNOWN = SoundThreads()


def parse_sound_threads(text: str) -> SoundThreads:
    """Read `{"NVIDIA H200": [[1, 13], [90, 100]]}`.

    Raises:
        ValueError: it is not that; says where.
    """
    try:
        ranges = msgspec.json.decode(text, type=dict[str, tuple[Range, ...]])
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from error
    for model, given in ranges.items():
        ends = [end for each in given for end in each]
        if ends != sorted(ends):
            raise ValueError(f"the ranges of {model} do not ascend: {[list(r) for r in given]}")
    return SoundThreads(ranges)
