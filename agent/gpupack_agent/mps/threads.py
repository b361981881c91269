# SPDX-License-Identifier: Apache-2.0
"""The percentage of a GPU's threads of a limited share: its own, or the next correct one below.

Libraries choose their kernels by the number of multiprocessors that MPS gives a process. With most
such numbers of an H100 or H200, cuBLAS computes wrong results (docs/adr/0058). A percentage is
correct if the results are right, which benchmarks/mps_products.py measured for each model. Shares
of models without a measurement keep their percentages.
"""

from collections.abc import Mapping
from typing import Annotated

import msgspec

Percent = Annotated[int, msgspec.Meta(ge=1, le=100)]
Range = tuple[Percent, Percent]
"""The first and the last percentage of a range; all percentages of the range are correct."""


class ThreadPercentages(msgspec.Struct, frozen=True):
    """The percentages of threads with which matrix products are right, for each model.

    Attributes:
        ranges: ranges of percentages in ascending order, by the driver's name of the model.
    """

    ranges: Mapping[str, tuple[Range, ...]] = {}

    def up_to(self, percent: int, model: str) -> int:
        """Return the largest correct percentage up to `percent`; `percent` if there is none."""
        below = [
            min(last, percent) for first, last in self.ranges.get(model, ()) if first <= percent
        ]
        return below[-1] if below else percent


NO_THREAD_PERCENTAGES = ThreadPercentages()


def parse_thread_percentages(text: str) -> ThreadPercentages:
    """Parse a text such as `{"NVIDIA H200": [[1, 13], [90, 100]]}`.

    Raises:
        ValueError: the text is not of this form; the message shows where.
    """
    try:
        ranges = msgspec.json.decode(text, type=dict[str, tuple[Range, ...]])
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from error
    for model, given in ranges.items():
        ends = [end for each in given for end in each]
        if ends != sorted(ends):
            raise ValueError(f"the ranges of {model} do not ascend: {[list(r) for r in given]}")
    return ThreadPercentages(ranges)
