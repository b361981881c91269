# SPDX-License-Identifier: Apache-2.0
"""Those who could be stopped, the cheapest first: what each would lose, and what it has where."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple, overload

import numpy as np

from gpupack_core.arrays import FloatArray, IntArray
from gpupack_core.cluster import Cluster
from gpupack_core.queueing.job import Running
from gpupack_core.units import NodeName

Cost = tuple[float, int, int]


@dataclass(frozen=True, slots=True)
class Candidate:
    """One who could be stopped."""

    running: Running
    cost: Cost


class Parts(NamedTuple):
    """What jobs hold of nodes, one number in each column per job and node.

    `of`: the job's place among the candidates; `node`: a number of its own; milli-GPU, milli-CPU
    and MiB.
    """

    of: IntArray
    node: IntArray
    milli: IntArray
    cpu: IntArray
    memory: IntArray


class Candidates(Sequence[Candidate]):
    """In the order of their cost, then of their names. Immutable.

    `kinds`: a number for each; those of one number are alike in all that the books look at.
    """

    def __init__(
        self,
        running: Sequence[Running],
        lost: FloatArray,
        milli: IntArray,
        kinds: IntArray,
        parts: Parts,
        nodes: Sequence[NodeName],
    ) -> None:
        self._running, self.lost, self._milli = running, lost, milli
        self.kinds, self.parts, self._nodes = kinds, parts, nodes
        self._made: dict[int, Candidate] = {}

    def __len__(self) -> int:
        return len(self._running)

    @overload
    def __getitem__(self, at: int) -> Candidate: ...

    @overload
    def __getitem__(self, at: slice) -> list[Candidate]: ...

    def __getitem__(self, at: int | slice) -> Candidate | list[Candidate]:
        if isinstance(at, slice):
            return [self[one] for one in range(*at.indices(len(self)))]
        made = self._made.get(at)
        if made is None:
            cost = float(self.lost[at]), int(self._milli[at]), 1
            made = self._made[at] = Candidate(self._running[at], cost)
        return made

    def cheaper(self, cost: Cost) -> int:
        """How many lose less."""
        return bisect_left(self, cost, key=attrgetter("cost"))

    def rows(self, cluster: Cluster) -> IntArray:
        """In which row each part is; NO_ROW: in none."""
        numbers, at = np.unique(self.parts.node, return_inverse=True)
        return cluster.rows(self._nodes[number] for number in numbers.tolist())[at]


def cost_of(victims: Sequence[Candidate]) -> Cost:
    """Of all together."""
    lost, milli, jobs = (
        zip(*(one.cost for one in victims), strict=True) if victims else ((), (), ())
    )
    return sum(lost), sum(milli), sum(jobs)


def order(one: Candidate) -> tuple[Cost, str]:
    """The cheapest first."""
    return one.cost, one.running.job.id
