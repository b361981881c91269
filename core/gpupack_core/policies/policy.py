# SPDX-License-Identifier: Apache-2.0
"""What a policy is."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from gpupack_core.arrays import Arrays, FloatArray, IntArray
from gpupack_core.outlook import Outlook
from gpupack_core.request import Request


class Policy(ABC):
    """Ranks the nodes that have room; may be asked about a cluster and its forks from threads.

    What it remembers never changes an answer; whoever remembers anything locks it.
    """

    name: str
    """As in settings and in GPUJob.spec.policy."""

    relative: ClassVar[bool] = False
    """Whether a row's score depends on which other rows are asked about."""

    quickest: bool = False
    """Whether the fastest GPUs of a node are chosen, where that takes no more NVLink cliques."""

    @abstractmethod
    def score(self, view: Arrays, request: Request, rows: IntArray) -> FloatArray:
        """One score per row, all of which have room; the largest wins, equals tie.

        Unless the policy is `relative`, a row's score depends on that row alone: plan_gang scores
        anew only the node that the last worker went to. The view must not be changed.
        """

    def informed(self, outlook: Outlook) -> "Policy":
        """This policy with what is likely to come; one that does not look ahead stays as it is.

        It may take long (an LP): call it off the path of decisions, which go on with the old one.

        Raises:
            CoreError: it could not be informed; go on with the policy there is.
        """
        del outlook
        return self

    def share_column(self, view: Arrays, request: Request, row: int, columns: Sequence[int]) -> int:
        """Which of the columns, all of which have room, a share goes to: the fullest device."""
        del request
        milli, memory = view.free_milli[row].tolist(), view.free_memory[row].tolist()
        return min(columns, key=lambda column: (milli[column], memory[column], column))
