# SPDX-License-Identifier: Apache-2.0
"""The interface of policies."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from gpupack_placement.arrays import Arrays, FloatArray, IntArray
from gpupack_placement.demand_forecast import DemandForecast
from gpupack_placement.request import Request


class Policy(ABC):
    """A ranking of the nodes with room; threads may use it for a cluster and its forks.

    What a policy remembers never changes an answer; a policy that remembers anything locks it.
    """

    name: str
    """The name in settings and in GPUJob.spec.policy."""

    relative: ClassVar[bool] = False
    """Whether a row's score depends on the other rows of the call."""

    prefers_fastest: bool = False
    """Whether the fastest GPUs of a node are chosen, if that takes no more NVLink cliques."""

    @abstractmethod
    def score(self, view: Arrays, request: Request, rows: IntArray) -> FloatArray:
        """Return one score per row, all of which have room; the largest wins, equals tie.

        Unless the policy is `relative`, a row's score depends on that row alone: plan_gang scores
        again only the node of the last worker. The view must not be changed.
        """

    def informed(self, forecast: DemandForecast) -> "Policy":
        """Return this policy with the expected demand; one that does not look ahead stays as it is.

        The call may take long (an LP), so it runs outside decisions, which go on with the old
        policy.

        Raises:
            DecisionError: the policy could not be informed; go on with the present policy.
        """
        del forecast
        return self

    def share_column(self, view: Arrays, request: Request, row: int, columns: Sequence[int]) -> int:
        """Return the column that a share goes to, of those with room: the fullest device."""
        del request
        milli, memory = view.free_milli[row].tolist(), view.free_memory[row].tolist()
        return min(columns, key=lambda column: (milli[column], memory[column], column))
