# SPDX-License-Identifier: Apache-2.0
"""The receivers of notices: turns, for an operator that waits for them, and writes into pods.

Turns are numbered. The operator sends the last number that it knows, and gets later turns, at once
or when there is one. An operator that knows nothing of this queue yet, or is too far behind, must
submit all jobs again: that is always correct, and costs one call for each pending job.
"""

import asyncio
import collections
import dataclasses
import uuid
from collections.abc import Iterable
from typing import Final, Protocol

from gpupack_crds.gpujob_status import Preemption
from gpupack_crds.plan import Drained, JobName, MoveOrder, Stop, TurnsResponse
from gpupack_kubeclient import objects
from gpupack_scheduler.ledger.claims import Allocation
from gpupack_scheduler.queueing.notices import NewAnswer, Notice, OpenGate, RecordPreemption
from gpupack_scheduler.requests.pod_groups import Membership

MAX_TURNS: Final = 4096
"""Number of turns that are kept; an operator that is further behind submits all jobs again."""


@dataclasses.dataclass(frozen=True, slots=True)
class Orders:
    """Orders for the operator that are in no GPUJob's status.

    Attributes:
        stops: attempts that must end for standalone pods or time windows.
        drained: attempts that must end for maintenance, or because a GPU failed.
        moves: attempts that must continue elsewhere.
        grows: attempts for which places of more workers are held.
    """

    stops: tuple[Stop, ...] = ()
    drained: tuple[Drained, ...] = ()
    moves: tuple[MoveOrder, ...] = ()
    grows: tuple[str, ...] = ()


class Turns:
    """The turns of one queue, from the start of leadership until the queue is rebuilt."""

    def __init__(self) -> None:
        self._news = asyncio.Event()
        self.begin()

    def begin(self) -> None:
        """Start a new queue without pending jobs; all of them are submitted again."""
        self._queue = uuid.uuid4().hex
        self._number = 0
        self.orders = Orders()
        self._last: collections.deque[JobName | None] = collections.deque(maxlen=MAX_TURNS)
        """The last turns; None: the orders have changed."""
        self._wake()

    def notify(self, namespace: str, name: str) -> None:
        """Add a turn of this GPUJob, so that the operator calls for it."""
        self._count(JobName(namespace=namespace, name=name))

    def order(self, orders: Orders) -> None:
        """Replace the orders by these."""
        if orders != self.orders:
            self.orders = orders
            self._count(None)

    async def since(self, queue: str, number: int, *, seconds: float) -> TurnsResponse:
        """Return the turns after `number`; wait up to `seconds` for one."""
        try:
            async with asyncio.timeout(seconds):
                while (queue, number) == (self._queue, self._number):
                    await self._news.wait()
        except TimeoutError:
            pass
        missed = self._number - number
        if queue != self._queue or not 0 <= missed <= len(self._last):
            return self._answer(is_complete=True)
        return self._answer(tuple(filter(None, tuple(self._last)[len(self._last) - missed :])))

    def _answer(
        self, jobs: tuple[JobName, ...] = (), *, is_complete: bool = False
    ) -> TurnsResponse:
        return TurnsResponse(
            queue=self._queue,
            number=self._number,
            jobs=jobs,
            all_jobs=is_complete,
            stops=self.orders.stops,
            drained=self.orders.drained,
            moves=self.orders.moves,
            grows=self.orders.grows,
        )

    def _count(self, turn: JobName | None) -> None:
        self._number += 1
        self._last.append(turn)
        self._wake()

    def _wake(self) -> None:
        """Wake all waiting calls once; later calls wait for the next turn."""
        self._news.set()
        self._news = asyncio.Event()


class PodWriter(Protocol):
    """A writer of decisions into pending pods; it writes soon, not at once."""

    def open(
        self, pod: objects.Pod, place: Allocation | None, member: Membership | None = None
    ) -> None:
        """Open the gate of a pod for kube-scheduler.

        `place`: where the queue admitted it; `member`: with which gang of a pod group.
        """

    def record(self, pod: objects.Pod, preemption: Preemption | None) -> None:
        """Write the preemption for the pod; None: there is none any more."""


@dataclasses.dataclass(frozen=True, slots=True)
class Notifiers:
    """The receivers of notices: turns for the operator, writes into pods."""

    turns: Turns
    gates: PodWriter

    def deliver(self, notices: Iterable[Notice]) -> None:
        """Deliver notices in their order."""
        for notice in notices:
            match notice:
                case NewAnswer(namespace, job):
                    self.turns.notify(namespace, job)
                case OpenGate(pod, place, member):
                    self.gates.open(pod, place, member)
                case RecordPreemption(pod, preemption):
                    self.gates.record(pod, preemption)
