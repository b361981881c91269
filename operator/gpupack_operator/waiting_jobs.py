# SPDX-License-Identifier: Apache-2.0
"""GPUJobs that wait for a plan: which may request one next, and which have an answer.

The extender's queue decides which job is next, and where. It knows a job after the first request
for its plan, and notifies the operator when it can be admitted; until then a further request only
shows whether the reason has changed. So a job repeats its request rarely, at growing intervals.

One plan is made at a time. A job that finds another one being planned waits in line, by priority
and age: so a restarted queue receives the first jobs first.
"""

import dataclasses
import datetime as dt
from collections.abc import Callable
from typing import Final, NamedTuple

from gpupack_operator.decision.model import WaitMessage

FIRST_REPEAT_SECONDS: Final = 15.0
MAX_REPEAT_SECONDS: Final = 600.0


class Key(NamedTuple):
    """Namespace and name of a GPUJob."""

    namespace: str
    name: str


class TurnOrder(NamedTuple):
    """Sort key of the line: priority, then age."""

    minus_priority: int
    created: dt.datetime
    key: Key


@dataclasses.dataclass(frozen=True, slots=True)
class QueueAnswer:
    """Last answer of the queue about a GPUJob.

    Attributes:
        answers: how many consecutive answers said that it must wait.
        generation: generation of the requested spec.
        repeat_at: when to request again, to see whether the reason has changed.
    """

    answers: int
    generation: int
    repeat_at: dt.datetime


@dataclasses.dataclass(slots=True)
class _Entry:
    failures: int = 0
    wait_message: WaitMessage | None = None
    answer: QueueAnswer | None = None
    is_notified: bool = False
    """It may be admitted since its last request, perhaps while the answer to that was under way."""


_NOTHING: Final = _Entry()


class WaitingJobs:
    """GPUJobs in line, and the last answers about those that wait.

    Args:
        wake: queues a GPUJob for a pass.
    """

    def __init__(self, wake: Callable[[Key], None]) -> None:
        self._wake = wake
        self._entries: dict[Key, _Entry] = {}
        self._queue: dict[Key, TurnOrder] = {}
        self._next: Key | None = None
        """The next GPUJob from the line, until it sends its request."""

    def enqueue(self, order: TurnOrder) -> None:
        """Line up a GPUJob while another is being planned; the line continues after that."""
        self._queue[order.key] = order
        self.discard_answer(order.key)
        if self._next == order.key:
            self._next = None

    def wake_next(self) -> None:
        """Let the first GPUJob in line request its plan."""
        first = min(self._queue.values(), default=None)
        self._next = first.key if first else None
        if first:
            del self._queue[first.key]
            self._wake(first.key)

    def end_pass(self, key: Key) -> None:
        """End a pass over a GPUJob; if it was next and sent no request, the next one may."""
        if self._next == key:
            self.wake_next()

    def record_request(self, key: Key) -> None:
        """Record that a GPUJob requests a plan now."""
        self._entry(key).is_notified = False

    def record_answer(self, key: Key, *, generation: int, now: dt.datetime) -> None:
        """Record that the queue knows the GPUJob and answered that it waits."""
        entry = self._entry(key)
        answers = entry.answer.answers + 1 if entry.answer else 1
        seconds = min(FIRST_REPEAT_SECONDS * 2.0 ** min(answers - 1, 10), MAX_REPEAT_SECONDS)
        repeat_at = now + dt.timedelta(seconds=seconds)
        entry.answer, entry.failures = QueueAnswer(answers, generation, repeat_at), 0

    def record_failure(self, key: Key) -> None:
        """Record that a request failed or had no answer: the queue may not know the GPUJob."""
        entry = self._entry(key)
        entry.failures, entry.answer = entry.failures + 1, None

    def discard_answer(self, key: Key) -> None:
        """Forget an outdated answer: the GPUJob requests a plan at its next pass."""
        if entry := self._entries.get(key):
            entry.answer = None

    def notify(self, key: Key) -> None:
        """Wake a GPUJob that the queue can admit: it requests its plan."""
        if entry := self._entries.get(key):
            entry.is_notified = True
        self._wake(key)

    def notify_all(self) -> None:
        """Let all waiting GPUJobs request plans, because the queue has lost them."""
        for key in self._entries:
            self.notify(key)

    def set_wait_message(self, key: Key, wait_message: WaitMessage) -> None:
        """Record why a GPUJob waits, as written into its status."""
        if entry := self._entries.get(key):
            entry.wait_message = wait_message

    def remove(self, key: Key) -> None:
        """Remove a GPUJob that no longer waits."""
        self._entries.pop(key, None)
        self._queue.pop(key, None)

    def wait_message(self, key: Key) -> WaitMessage | None:
        """Return what a waiting GPUJob's status says; None: this operator did not write it."""
        return self._entries.get(key, _NOTHING).wait_message

    def next_request_at(self, key: Key, *, generation: int) -> dt.datetime | None:
        """Return until when the queue's answer holds for the job as it is.

        None means that it must request.
        """
        entry = self._entries.get(key, _NOTHING)
        if entry.answer is None or entry.is_notified or entry.answer.generation != generation:
            return None
        return entry.answer.repeat_at

    def failures(self, key: Key) -> int:
        """Return the number of consecutive requests that failed or had no answer."""
        return self._entries.get(key, _NOTHING).failures

    def _entry(self, key: Key) -> _Entry:
        return self._entries.setdefault(key, _Entry())
