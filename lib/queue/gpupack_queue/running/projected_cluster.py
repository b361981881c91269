# SPDX-License-Identifier: Apache-2.0
"""The cluster after running jobs have ended, one end after another.

An end is booked on a node when that node is examined. A sum over columns of numbers gives the first
end after which enough may be free for a gang. Nothing is planned before it. What ends on nodes
where no worker could fit is not booked until a job is placed there.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from gpupack_devices.units import NodeName
from gpupack_placement.arrays import FloatArray, IntArray
from gpupack_placement.cluster import NO_ROW, Cluster
from gpupack_placement.errors import LedgerConflict
from gpupack_placement.feasibility import usable, worker_slots
from gpupack_placement.request import Gang, Role
from gpupack_placement.serving import view_for
from gpupack_queue.job import Job, JobId, Places, RunningJob, holder_name

_BEFORE_FIRST_END = -1
"""The moment before the first end."""

NO_END = -1
"""The end of a job that runs forever, or counts as removed."""


@dataclass(frozen=True, slots=True)
class JobEnds:
    """The ends of running jobs; several jobs may have one end.

    `times`: the time of each end; infinity: unknown. `lines`: of each job its key in `running`.
    `end_of`: by this key the number of the job's end, or NO_END. `is_estimated`: whether any job is
    expected to end before its deadline.

    The six columns from `node` to `memory` contain what each job holds on each node, sorted by
    `node` (its index in `nodes`, its number in `numbers`), then by `end`. `job` is a key of
    `running`. The amounts are milli-GPU, milli-CPU and MiB.
    """

    times: FloatArray
    running: Mapping[int, RunningJob]
    line_of: Mapping[JobId, int]
    end_of: IntArray
    nodes: Sequence[NodeName]
    numbers: Mapping[NodeName, int]
    node: IntArray
    end: IntArray
    job: IntArray
    milli: IntArray
    cpu: IntArray
    memory: IntArray
    is_estimated: bool = False


class FeasibleEnds:
    """The ends after which a gang may fit for the first time, each with its nodes."""

    def __init__(self, end: IntArray, node: IntArray) -> None:
        order = np.lexsort((node, end))
        self._nodes = node[order]
        self._ends, self._starts = np.unique(end[order], return_index=True)

    def __len__(self) -> int:
        return len(self._ends)

    def end(self, number: int) -> int:
        """Return the number of the end."""
        return int(self._ends[number])

    def nodes(self, first: int, last: int) -> set[int]:
        """Return the nodes of these two ends and of all ends between them."""
        stop = self._starts[last + 1] if last + 1 < len(self) else None
        return set(self._nodes[self._starts[first] : stop].tolist())


class ProjectedCluster:
    """The cluster at a later moment, as an overlay that belongs to this object; mutable.

    `removed`: jobs that run and count as removed, so the cluster is without them. `placed`: jobs
    that do not run yet and are placed in the cluster.
    """

    def __init__(
        self,
        cluster: Cluster,
        ends: JobEnds,
        *,
        removed: Collection[JobId] = (),
        placed: Mapping[JobId, Places] = MappingProxyType({}),
    ) -> None:
        self.cluster, self._ends = cluster, ends
        self._removed, self._placed = set(removed), dict(placed)
        self.growths = 0
        """The number of ends that left more free for the owner of this object than it expected."""
        self._after: dict[int, int] = {}
        self._settled = _BEFORE_FIRST_END

    def copy(self) -> "ProjectedCluster":
        """Return a copy that is independent, except for the holders of placed jobs."""
        twin = ProjectedCluster(
            self.cluster.overlay(), self._ends, removed=self._removed, placed=self._placed
        )
        twin._after, twin._settled = self._after.copy(), self._settled
        twin.growths = self.growths
        return twin

    @property
    def is_estimated(self) -> bool:
        """Tell whether it depends on estimates from the durations of earlier jobs."""
        return self._ends.is_estimated

    def feasible_ends(self, gang: Gang) -> FeasibleEnds | None:
        """Return the ends after which the gang may fit; None: it never fits.

        The first end comes with all nodes that could have space by then.
        """
        ends = self._ends
        rows = self.cluster.rows(ends.nodes)[ends.node]
        parts = np.flatnonzero(rows != NO_ROW)
        end, row = ends.end[parts], rows[parts]
        first, is_hopeful = 0, np.zeros(len(parts), np.bool_)
        for role in gang.limited_roles:
            workers, before = self._workers(role, parts, row)
            slots = worker_slots(self.cluster, role.request)
            now = int(np.minimum(slots, role.max_per_node).sum())
            more = np.bincount(end, workers - before, len(ends.times)).cumsum()
            enough = np.flatnonzero(now + more >= role.workers)
            if not len(enough):
                return None
            first = max(first, int(enough[0]))
            is_hopeful |= workers > 0
        hopeful = parts[is_hopeful]
        return FeasibleEnds(np.maximum(ends.end[hopeful], first), ends.node[hopeful])

    def _workers(self, role: Role, parts: IntArray, row: IntArray) -> tuple[IntArray, IntArray]:
        """Return how many workers fit at most on the node after each end, and how many before."""
        a, request, ends = self.cluster.arrays, role.request, self._ends
        starts = np.flatnonzero(np.diff(row, prepend=-1))
        lengths = np.diff(starts, append=len(row))
        workers = np.where(usable(self.cluster, request), role.max_per_node, 0)[row]
        for requested, free, freed in (
            (request.milli, view_for(self.cluster, request).free_gpu_milli, ends.milli[parts]),
            (request.cpu, a.free_cpu, ends.cpu[parts]),
            (request.memory, a.free_ram, ends.memory[parts]),
        ):
            if requested:
                so_far = freed.cumsum()
                so_far -= np.repeat((so_far - freed)[starts], lengths)
                workers = np.minimum(workers, (free[row] + so_far) // requested)
        before = np.empty_like(workers)
        before[1:] = workers[:-1]
        slots = worker_slots(self.cluster, request)
        before[starts] = np.minimum(slots[row[starts]], role.max_per_node)
        return workers, before

    def advance(self, nodes: Collection[int], *, after: int) -> list[int]:
        """Bring these nodes to the moment after that end, and return their rows."""
        for node in nodes:
            self._advance_node(node, after)
        rows = self.cluster.rows(self._ends.nodes[node] for node in nodes)
        return [row for row in rows.tolist() if row != NO_ROW]

    def settle(self, after: int | None = None) -> float:
        """Bring every node to the moment after that end when it is examined, and return its time.

        With None it is the moment after all ends, and the time is infinity.
        """
        self._settled = len(self._ends.times) - 1 if after is None else after
        return float(self._ends.times[self._settled]) if after is not None else np.inf

    def place(self, job: Job, places: Places) -> bool:
        """Place all workers, or none if one place is taken; return whether they are placed."""
        self.settle_at(places)
        if not allocate_job(self.cluster, job, places):
            return False
        self._placed[job.id] = places
        return True

    def adopt(self, job: Job, places: Places) -> None:
        """Place all workers, even where another job still holds the places."""
        adopt_job(self.cluster, job, places)
        self._placed[job.id] = places

    def places_of(self, job: JobId) -> Places | None:
        """Return the job's places here; None: it is not placed."""
        return self._placed.get(job)

    def placed_jobs(self) -> tuple[JobId, ...]:
        """Return the jobs that are placed here."""
        return tuple(self._placed)

    def remove(self, job: JobId) -> None:
        """Undo `place` or `adopt`; no effect on other jobs."""
        for worker, placement in enumerate(self._placed.pop(job, ())):
            holder = holder_name(job, worker)
            if self.cluster.placement_of(holder) is None:
                self.cluster.assume_free(placement)
            else:
                self.cluster.give_back(holder)

    def remove_running(self, running: RunningJob) -> bool:
        """Remove a job that has ended, or will have ended by then, whatever was expected of it.

        Return whether more is free then than before.
        """
        job = running.job.id
        if job in self._placed:
            self.remove(job)
            return True
        if job not in self._ends.line_of or job in self._removed:
            return False
        self._removed.add(job)
        if not self._still_runs(job):
            return False
        for placement in running.placements:
            self.cluster.assume_free(placement)
        return True

    def _still_runs(self, job: JobId) -> bool:
        """Tell whether it still runs after the end on which this object is settled."""
        end = self._ends.end_of[self._ends.line_of[job]]
        return bool(end == NO_END or end > self._settled)

    def settle_at(self, places: Places) -> None:
        """Bring the nodes of these places to the moment of this object."""
        for placement in places:
            node = self._ends.numbers.get(placement.node)
            if node is not None:
                self._advance_node(node, self._settled)

    def _advance_node(self, node: int, after: int) -> None:
        was = self._after.get(node, _BEFORE_FIRST_END)
        self._after[node] = after
        ends, name = self._ends, self._ends.nodes[node]
        low, high = min(was, after), max(was, after)
        here = slice(*np.searchsorted(ends.node, (node, node + 1)).tolist())
        start, stop = (here.start + np.searchsorted(ends.end[here], (low, high), "right")).tolist()
        book = self.cluster.assume_free if after > was else self.cluster.assume_held
        for job in ends.job[start:stop].tolist():
            for placement in ends.running[job].placements:
                if placement.node == name:
                    book(placement)


def adopt_job(cluster: Cluster, job: Job, placements: Places) -> None:
    """Hold all these places, even where another job still holds them."""
    for worker, placement in enumerate(placements):
        cluster.adopt(holder_name(job.id, worker), placement)


def release_job(cluster: Cluster, job: Job, placements: Places) -> None:
    """Undo `allocate_job` or `adopt_job`."""
    for worker in range(len(placements)):
        cluster.give_back(holder_name(job.id, worker))


def allocate_job(cluster: Cluster, job: Job, placements: Places) -> bool:
    """Place all workers, or none if one place is taken; return whether they are placed."""
    taken = []
    try:
        for worker, placement in enumerate(placements):
            cluster.take(holder_name(job.id, worker), placement)
            taken.append(holder_name(job.id, worker))
    except LedgerConflict:
        for holder in taken:
            cluster.give_back(holder)
        return False
    return True
