# SPDX-License-Identifier: Apache-2.0
"""A series of calls; each has a result to check.

A call in place changes what it read, and a sum of sums soon exceeds what a float counts exactly. So
each call of a batch has its own buffers, as in nccl-tests, and they are filled again
before each batch. A call out of place reads the same again: one serves for all.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gpupack_workloads.distributed.shared_failure import all_or_none
from gpupack_workloads.errors import WrongResult


@dataclass(frozen=True)
class Call:
    """A call with its own buffers.

    Attributes:
        start: runs it.
        fill: writes this rank's data, and what is no result to where the result belongs.
        count_wrong: returns how many elements of the result are wrong.
        elements: how many the result has.
    """

    start: Callable[[], object]
    fill: Callable[[], object]
    count_wrong: Callable[[], int]
    elements: int


class Series:
    """Calls in turns, each with its own buffers.

    Args:
        name: name of their operation.
        calls: as many as a batch has, or one that can be repeated.
        rank: ours.
    """

    def __init__(self, name: str, calls: Sequence[Call], *, rank: int) -> None:
        self._name, self._calls, self._rank = name, calls, rank
        self._turns = itertools.cycle([call.start for call in calls])

    def fill(self) -> None:
        """Make every call's buffers ready."""
        for call in self._calls:
            call.fill()

    def start(self) -> None:
        """Run the call whose turn it is."""
        next(self._turns)()

    def check(self) -> None:
        """Count what is wrong in all results; all ranks must call this together.

        Raises:
            WrongResult: an element is.
        """
        wrong = sum(call.count_wrong() for call in self._calls)
        elements = sum(call.elements for call in self._calls)
        with all_or_none():
            if wrong:
                raise WrongResult(
                    f"rank {self._rank}: {self._name}: {wrong} of {elements}"
                    " elements that arrived are wrong"
                )

    def run(self) -> None:
        """Fill, run every call once, check."""
        self.fill()
        for _ in self._calls:
            self.start()
        self.check()
