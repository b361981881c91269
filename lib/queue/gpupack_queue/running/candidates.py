# SPDX-License-Identifier: Apache-2.0
"""Jobs that could be preempted, the cheapest first, with their losses and what they hold."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple, overload

import numpy as np

from gpupack_devices.units import NodeName
from gpupack_placement.arrays import FloatArray, IntArray
from gpupack_placement.cluster import Cluster
from gpupack_queue.job import RunningJob

Cost = tuple[float, int, int]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A job that could be preempted, with its cost."""

    running: RunningJob
    cost: Cost


class Parts(NamedTuple):
    """Columns with what jobs hold on nodes: one number per job and node in each column.

    `candidate` is the job's index among the candidates. `node` is an index of node names. The other
    columns are milli-GPU, milli-CPU and MiB.
    """

    candidate: IntArray
    node: IntArray
    milli: IntArray
    cpu: IntArray
    memory: IntArray


class Candidates(Sequence[Candidate]):
    """Candidates in the order of their cost, then of their job IDs; immutable.

    `kinds` has a number for each candidate. Candidates with the same number are alike for all quota
    rules.
    """

    def __init__(
        self,
        running: Sequence[RunningJob],
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

    def count_cheaper(self, cost: Cost) -> int:
        """Return how many candidates cost less than `cost`."""
        return bisect_left(self, cost, key=attrgetter("cost"))

    def rows(self, cluster: Cluster) -> IntArray:
        """Return the row of each part; NO_ROW: its node is in no row."""
        numbers, at = np.unique(self.parts.node, return_inverse=True)
        return cluster.rows(self._nodes[number] for number in numbers.tolist())[at]


def cost_of(victims: Sequence[Candidate]) -> Cost:
    """Return the cost of all victims together."""
    lost, milli, jobs = (
        zip(*(one.cost for one in victims), strict=True) if victims else ((), (), ())
    )
    return sum(lost), sum(milli), sum(jobs)


def cost_key(one: Candidate) -> tuple[Cost, str]:
    """Return a sort key that puts the cheapest candidate first."""
    return one.cost, one.running.job.id
