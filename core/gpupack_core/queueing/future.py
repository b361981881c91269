# SPDX-License-Identifier: Apache-2.0
"""The cluster after those who run have ended, one after the other.

An end is booked on a node when somebody looks there. At which end so much may be free for the first
time that a gang could fit is a sum over columns of numbers; before it nothing is planned, and what
ends where no worker could have room is not booked at all until a job is placed there.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from gpupack_core.arrays import FloatArray, IntArray
from gpupack_core.cluster import NO_ROW, Cluster
from gpupack_core.errors import LedgerConflict
from gpupack_core.feasibility import usable, worker_slots
from gpupack_core.queueing.job import Job, JobId, Places, Running, holder_of
from gpupack_core.request import Gang
from gpupack_core.serving import seen_for
from gpupack_core.units import NodeName

_NOW = -1
"""Before the first end."""

NEVER = -1
"""Of one who runs for ever, or counts as gone."""


@dataclass(frozen=True, slots=True)
class Ends:
    """Of those who run; several may be one end. `times`: of each end, infinity where unknown.

    `lines`: of each job its key of `running`. `end_of`: by that key, the number of its end, or
    NEVER. `guessed`: whether somebody is expected to end before he must.

    The last six are columns of what each job has of each node, by `node` (its place in `nodes`; its
    number in `numbers`), then `end`; `job`: a key of `running`; milli-GPU, milli-CPU and MiB.
    """

    times: FloatArray
    running: Mapping[int, Running]
    lines: Mapping[JobId, int]
    end_of: IntArray
    nodes: Sequence[NodeName]
    numbers: Mapping[NodeName, int]
    node: IntArray
    end: IntArray
    job: IntArray
    milli: IntArray
    cpu: IntArray
    memory: IntArray
    guessed: bool = False


class Chances:
    """Ends after which a gang could fit for the first time, and the nodes that each is about."""

    def __init__(self, end: IntArray, node: IntArray) -> None:
        order = np.lexsort((node, end))
        self._nodes = node[order]
        self._ends, self._starts = np.unique(end[order], return_index=True)

    def __len__(self) -> int:
        return len(self._ends)

    def end(self, number: int) -> int:
        """The number of the end."""
        return int(self._ends[number])

    def nodes(self, first: int, last: int) -> set[int]:
        """Of these and all in between."""
        stop = self._starts[last + 1] if last + 1 < len(self) else None
        return set(self._nodes[self._starts[first] : stop].tolist())


class Future:
    """Mutable; the cluster is an overlay and this one's own.

    `gone`: who runs and counts as gone, so that the cluster is without them. `taken`: who does not
    run yet and is placed in the cluster.
    """

    def __init__(
        self,
        cluster: Cluster,
        ends: Ends,
        *,
        gone: Collection[JobId] = (),
        taken: Mapping[JobId, Places] = MappingProxyType({}),
    ) -> None:
        self.cluster, self._ends = cluster, ends
        self._gone, self._taken = set(gone), dict(taken)
        self._after: dict[int, int] = {}
        self._settled = _NOW

    def copy(self) -> "Future":
        """The same, independent of this one, but for who holds what."""
        twin = Future(self.cluster.overlay(), self._ends, gone=self._gone, taken=self._taken)
        twin._after, twin._settled = self._after.copy(), self._settled
        return twin

    @property
    def guessed(self) -> bool:
        """Whether it rests on how long jobs like those who run took."""
        return self._ends.guessed

    def chances(self, gang: Gang) -> Chances | None:
        """None: it never fits.

        With the first come all nodes that could have room by then.
        """
        ends = self._ends
        rows = self.cluster.rows(ends.nodes)[ends.node]
        parts = np.flatnonzero(rows != NO_ROW)
        end, row = ends.end[parts], rows[parts]
        workers, before = self._workers(gang, parts, row)
        slots = worker_slots(self.cluster, gang.request)
        now = int(np.minimum(slots, _most(gang)).sum())
        more = np.bincount(end, workers - before, len(ends.times)).cumsum()
        enough = np.flatnonzero(now + more >= gang.workers)
        if not len(enough):
            return None
        first = int(enough[0])
        hopeful = parts[workers > 0]
        return Chances(np.maximum(ends.end[hopeful], first), ends.node[hopeful])

    def _workers(self, gang: Gang, parts: IntArray, row: IntArray) -> tuple[IntArray, IntArray]:
        """How many at the most fit on the node after each end there, and how many before it."""
        a, request, ends = self.cluster.arrays, gang.request, self._ends
        starts = np.flatnonzero(np.diff(row, prepend=-1))
        lengths = np.diff(starts, append=len(row))
        workers = np.where(usable(self.cluster, request), _most(gang), 0)[row]
        for asked, free, freed in (
            (request.milli, seen_for(self.cluster, request).free_gpu_milli, ends.milli[parts]),
            (request.cpu, a.free_cpu, ends.cpu[parts]),
            (request.memory, a.free_ram, ends.memory[parts]),
        ):
            if asked:
                so_far = freed.cumsum()
                so_far -= np.repeat((so_far - freed)[starts], lengths)
                workers = np.minimum(workers, (free[row] + so_far) // asked)
        before = np.empty_like(workers)
        before[1:] = workers[:-1]
        slots = worker_slots(self.cluster, request)
        before[starts] = np.minimum(slots[row[starts]], _most(gang))
        return workers, before

    def move(self, nodes: Collection[int], *, after: int) -> list[int]:
        """These nodes are as they will be after that end; the answer is their rows."""
        for node in nodes:
            self._bring(node, after)
        rows = self.cluster.rows(self._ends.nodes[node] for node in nodes)
        return [row for row in rows.tolist() if row != NO_ROW]

    def settle(self, after: int | None = None) -> float:
        """From now on every node is as after that end (None: after all) when it is looked at."""
        self._settled = len(self._ends.times) - 1 if after is None else after
        return float(self._ends.times[self._settled]) if after is not None else np.inf

    def take(self, job: Job, places: Places) -> bool:
        """Place all workers, or none if one place is taken."""
        self._settle_at(places)
        if not take(self.cluster, job, places):
            return False
        self._taken[job.id] = places
        return True

    def adopt(self, job: Job, places: Places) -> None:
        """As take, whether or not somebody is there still."""
        adopt(self.cluster, job, places)
        self._taken[job.id] = places

    def taken(self, job: JobId) -> Places | None:
        """Where it is placed here; None: it is not."""
        return self._taken.get(job)

    def all_taken(self) -> tuple[JobId, ...]:
        """Those who are placed here."""
        return tuple(self._taken)

    def give_back(self, job: JobId) -> None:
        """The reverse of take and adopt; of no effect for others."""
        for worker, placement in enumerate(self._taken.pop(job, ())):
            holder = holder_of(job, worker)
            if self.cluster.placement_of(holder) is None:
                self.cluster.suppose_free(placement)
            else:
                self.cluster.give_back(holder)

    def leaves(self, running: Running) -> None:
        """It has ended, or will have by then, whatever was foreseen of it."""
        job = running.job.id
        if job in self._taken:
            self.give_back(job)
            return
        if job not in self._ends.lines or job in self._gone:
            return
        self._gone.add(job)
        if self._holds(job):
            for placement in running.placements:
                self.cluster.suppose_free(placement)

    def _holds(self, job: JobId) -> bool:
        """Whether it runs still after the end on which this is settled."""
        end = self._ends.end_of[self._ends.lines[job]]
        return bool(end == NEVER or end > self._settled)

    def _settle_at(self, places: Places) -> None:
        for placement in places:
            node = self._ends.numbers.get(placement.node)
            if node is not None:
                self._bring(node, self._settled)

    def _bring(self, node: int, after: int) -> None:
        was = self._after.get(node, _NOW)
        self._after[node] = after
        ends, name = self._ends, self._ends.nodes[node]
        low, high = min(was, after), max(was, after)
        here = slice(*np.searchsorted(ends.node, (node, node + 1)).tolist())
        start, stop = (here.start + np.searchsorted(ends.end[here], (low, high), "right")).tolist()
        book = self.cluster.suppose_free if after > was else self.cluster.suppose_held
        for job in ends.job[start:stop].tolist():
            for placement in ends.running[job].placements:
                if placement.node == name:
                    book(placement)


def _most(gang: Gang) -> int:
    """Workers on one node."""
    return 1 if gang.spread.one_worker_per_node else gang.workers


def adopt(cluster: Cluster, job: Job, placements: Places) -> None:
    """Keep all these places, whether or not somebody is there still."""
    for worker, placement in enumerate(placements):
        cluster.adopt(holder_of(job.id, worker), placement)


def give_back(cluster: Cluster, job: Job, placements: Places) -> None:
    """The reverse of take and adopt."""
    for worker in range(len(placements)):
        cluster.give_back(holder_of(job.id, worker))


def take(cluster: Cluster, job: Job, placements: Places) -> bool:
    """Place all workers, or none if one place is taken."""
    taken = []
    try:
        for worker, placement in enumerate(placements):
            cluster.take(holder_of(job.id, worker), placement)
            taken.append(holder_of(job.id, worker))
    except LedgerConflict:
        for holder in taken:
            cluster.give_back(holder)
        return False
    return True
