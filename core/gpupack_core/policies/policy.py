# SPDX-License-Identifier: Apache-2.0
"""What a policy is."""

from typing import Protocol

from gpupack_core.arrays import Arrays, FloatArray, IntArray
from gpupack_core.request import Request


class Policy(Protocol):
    """Ranks the nodes that have room; stateless or thread-confined."""

    @property
    def name(self) -> str:
        """As in settings and in GPUJob.spec.policy."""

    def score(self, view: Arrays, request: Request, rows: IntArray) -> FloatArray:
        """One score per row, all of which have room; the largest wins, equals tie.

        A row's score depends on that row alone: plan_gang scores anew only the node that the
        last worker went to. The view must not be changed.
        """
