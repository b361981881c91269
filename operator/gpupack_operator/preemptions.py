# SPDX-License-Identifier: Apache-2.0
"""Attempts that must end, and their preemptors: from statuses of GPUJobs and from the extender.

The status of a waiting GPUJob is the request to preempt; this module finds it by victim. For a pod,
the request is in the pod's annotations, which the extender writes and reads. For a maintenance it
is in the spec of a GPUNode, for a failed GPU in its status, and for a time window it follows from a
GPUReservation; the extender reads all of them.
"""

from collections import defaultdict
from collections.abc import Iterable

from gpupack_crds.kinds import GpuJob
from gpupack_crds.plan import Drained, MoveOrder, Stop
from gpupack_operator.decision import times
from gpupack_operator.decision.model import AttemptMove, AttemptPreemption
from gpupack_operator.waiting_jobs import Key


class Preemptions:
    """Preemptions by attempt, «UID/NUMBER», and by extra worker, «UID/NUMBER+WORKER»."""

    def __init__(self) -> None:
        self._keys: dict[str, Key] = {}
        """GPUJobs by UID."""
        self._victims: dict[str, frozenset[str]] = {}
        """Victims of each preemptor, by the preemptor's UID."""
        self._for: dict[str, dict[str, AttemptPreemption]] = defaultdict(dict)
        """Preemptions by victim and preemptor's UID."""
        self._for_pods: dict[str, AttemptPreemption] = {}
        """Preemptions for pods, by victim."""
        self._drained: dict[str, AttemptPreemption] = {}
        """Preemptions for nodes, by attempt."""
        self._moves: dict[str, AttemptMove] = {}
        """Moves by attempt."""
        self._growing: frozenset[str] = frozenset()
        """Attempts for which places of more workers are held."""

    def record(self, job: GpuJob, *, gone: bool) -> tuple[Key, ...]:
        """Record a changed GPUJob; return the GPUJobs that it newly preempts."""
        uid, key = job.metadata.uid, Key(*job.key)
        if gone:
            self._keys.pop(uid, None)
        else:
            self._keys[uid] = key
        before = self._victims.pop(uid, frozenset())
        found = {} if gone else _victims(job)
        for victim in before - found.keys():
            self._forget(victim, uid)
        for victim, preempted in found.items():
            self._for[victim][uid] = preempted
        if found:
            self._victims[uid] = frozenset(found)
        return tuple(self._keys_of(found.keys() - before))

    def replace_orders(
        self,
        stops: Iterable[Stop],
        drained: Iterable[Drained] = (),
        moves: Iterable[MoveOrder] = (),
        may_grow: Iterable[str] = (),
    ) -> tuple[Key, ...]:
        """Replace the orders to end for pods and nodes, to move and to grow; return what is new."""
        found = {
            stop.attempt: AttemptPreemption(
                reason=stop.reason,
                preemptor=(stop.namespace, stop.pod),
                kind="reservation" if stop.reason == "TimeWindow" else "pod",
            )
            for stop in stops
        }
        left = {
            each.attempt: AttemptPreemption(
                reason="GpuFailed" if each.failed else "Maintenance",
                preemptor=("", each.node),
                kind="node",
                why=each.cause,
            )
            for each in drained
        }
        elsewhere = {
            each.attempt: AttemptMove(
                each.node, each.cause, times.read(each.until), each.preemption
            )
            for each in moves
        }
        before = self._for_pods.keys() | self._drained.keys()
        news = ((found.keys() | left.keys()) - before) | (elsewhere.keys() - self._moves.keys())
        wider = frozenset(may_grow)
        news |= wider - self._growing
        self._for_pods, self._drained, self._moves = found, left, elsewhere
        self._growing = wider
        return tuple(self._keys_of(news))

    def may_grow(self, job: GpuJob, attempt: int) -> bool:
        """Tell whether places are held for more workers of this attempt."""
        return f"{job.metadata.uid}/{attempt}" in self._growing

    def extra_preemptions(self, job: GpuJob, attempt: int) -> dict[int, AttemptPreemption]:
        """Return the attempt's extra workers that must end, by index, with their preemptors."""
        numbers = range(1, job.spec.extra + 1)
        found = ((n, self._preemption_of(f"{job.metadata.uid}/{attempt}+{n}")) for n in numbers)
        return {job.spec.least - 1 + number: by for number, by in found if by is not None}

    def move_of(self, job: GpuJob, attempt: int) -> AttemptMove | None:
        """Return where this attempt will continue; None: it is not moved."""
        return self._moves.get(f"{job.metadata.uid}/{attempt}")

    def preemption_of(self, job: GpuJob, attempt: int) -> AttemptPreemption | None:
        """Return for what this attempt must end; None: it need not end."""
        return self._preemption_of(f"{job.metadata.uid}/{attempt}")

    def _preemption_of(self, victim: str) -> AttemptPreemption | None:
        found = self._for.get(victim, {})
        other = self._for_pods.get(victim) or self._drained.get(victim)
        return next((found[uid] for uid in sorted(found)), other)

    def _forget(self, victim: str, preemptor: str) -> None:
        self._for[victim].pop(preemptor, None)
        if not self._for[victim]:
            del self._for[victim]

    def _keys_of(self, victims: Iterable[str]) -> Iterable[Key]:
        uids = (victim.partition("/")[0] for victim in sorted(victims))
        return (self._keys[uid] for uid in uids if uid in self._keys)


def _victims(job: GpuJob) -> dict[str, AttemptPreemption]:
    """Return the victims of a GPUJob; it has none if it does not wait, or no longer wants to.

    A job that is moved for it ends when the extender orders the move.
    """
    preemption, leaves = job.status.preemption, job.metadata.deletion_timestamp is not None
    if preemption is None or leaves or job.spec.suspend or job.status.phase != "Pending":
        return {}
    return {
        attempt: AttemptPreemption(reason=each.reason, preemptor=job.key)
        for each in preemption.victims
        if each.reason != "Consolidation"
        for attempt in each.attempts
    }
