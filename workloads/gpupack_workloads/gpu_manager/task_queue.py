# SPDX-License-Identifier: Apache-2.0
"""The queue of tasks for GPUs, and the errors of tasks.

A task is with exactly one of three: the queue, the supervisor that took it, or its future, which is
settled then. A supervisor that takes tasks and finds none is woken when there is one.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from typing import Any


class TaskError(Exception):
    """Root of the errors of tasks without a result."""


class TaskFailed(TaskError):
    """Error: a task raised an error, or its process ended.

    Attributes:
        trace: the worker's traceback, empty where there is none.
    """

    def __init__(self, message: str, trace: str = "") -> None:
        super().__init__(message)
        self.trace = trace


class TaskTimedOut(TaskError):
    """Error: a task exceeded its time limit; its process was ended."""


class GpuLost(TaskError):
    """Error: no worker can run on the GPU any more."""


class ManagerClosed(TaskError):
    """Error: a task was handed to a closed manager."""


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """One call of a function on a GPU.

    Attributes:
        number: in the order in which they were handed over.
        name: name of the function.
        payload: function and arguments, pickled.
        gpu: on which it must run; None for any.
        memory_bytes: quota of the GPU's memory pool.
        result_bytes: quota of pinned host memory, by which tensors come back.
        seconds: how long it may run, from its start in the worker.
        future: future of what the function returns.
    """

    number: int
    name: str
    payload: bytes
    gpu: int | None
    memory_bytes: int
    result_bytes: int
    seconds: float
    future: Future[Any] = field(default_factory=Future)

    def __str__(self) -> str:
        """Return its name for error messages."""
        return f"task {self.number} ({self.name})"


class TaskQueue:
    """Tasks of any GPU and of particular ones, first come, first served.

    Args:
        wakers: by GPU, what wakes its supervisor.
    """

    def __init__(self, wakers: dict[int, Callable[[], None]]) -> None:
        self._lock = threading.Lock()
        self._wakers = wakers
        self._anywhere: deque[Task] = deque()
        self._own: dict[int, deque[Task]] = {gpu: deque() for gpu in wakers}
        self._lacking: dict[int, int] = {}
        """Number of tasks that each waiting supervisor would take, by GPU."""
        self._lost: dict[int, GpuLost] = {}
        self._closed = False
        self.aborted = False

    def put(self, task: Task) -> None:
        """Add a task.

        Raises:
            ManagerClosed: none are taken any more.
            GpuLost: there is no worker that could run it.
        """
        with self._lock:
            if self._closed:
                raise ManagerClosed(f"{task} came after the manager was closed")
            if reason := self._why_never(task):
                raise reason
            self._of(task).append(task)
            wake = self._waker_for(task)
        wake()

    def take(self, gpu: int, *, least: int, most: int) -> list[Task]:
        """Return up to `most` tasks for a GPU, its own first; with fewer than `least`, be woken."""
        taken: list[Task] = []
        with self._lock:
            for waiting in (self._own[gpu], self._anywhere):
                while waiting and len(taken) < most:
                    task = waiting.popleft()
                    # One that runs already was given back: its future can be cancelled no more.
                    if task.future.running() or task.future.set_running_or_notify_cancel():
                        taken.append(task)
            if len(taken) < least:
                self._lacking[gpu] = least - len(taken)
        return taken

    def pass_on(self, gpu: int) -> None:
        """Stop waiting for tasks, and wake another supervisor for waiting tasks."""
        with self._lock:
            self._lacking.pop(gpu, None)
            wake = self._waker_for(self._anywhere[0]) if self._anywhere else _wake_none
        wake()

    def give_back(self, tasks: Iterable[Task]) -> None:
        """Put tasks that were taken and never began in front of the others again."""
        for task in sorted(tasks, key=lambda task: task.number, reverse=True):
            with self._lock:
                reason = self._why_never(task)
                if reason is None:
                    self._of(task).appendleft(task)
                    wake = self._waker_for(task)
            if reason is None:
                wake()
            else:
                fail(task, reason)

    def lose(self, gpu: int, reason: GpuLost) -> None:
        """Stop using a GPU; tasks that no GPU can run any more fail."""
        with self._lock:
            self._lost[gpu] = reason
            self._lacking.pop(gpu, None)
            hopeless = _emptied(self._own[gpu])
            if len(self._lost) == len(self._own):
                hopeless += _emptied(self._anywhere)
        for task in hopeless:
            fail(task, reason)

    def close(self, *, abort: bool) -> None:
        """Take no more tasks; with `abort`, cancel those that wait and have the others ended."""
        cancelled: list[Task] = []
        with self._lock:
            self._closed = True
            if abort:
                self.aborted = True
                for waiting in (self._anywhere, *self._own.values()):
                    cancelled += _emptied(waiting)
        for wake in self._wakers.values():
            wake()
        for task in cancelled:
            cancel(task)

    def finished(self, gpu: int) -> bool:
        """Return whether a GPU has no tasks left, and none will come."""
        with self._lock:
            return self._closed and not self._own[gpu] and not self._anywhere

    def _of(self, task: Task) -> deque[Task]:
        return self._anywhere if task.gpu is None else self._own[task.gpu]

    def _why_never(self, task: Task) -> TaskError | None:
        if task.gpu is not None:
            return self._lost.get(task.gpu)
        return next(iter(self._lost.values())) if len(self._lost) == len(self._own) else None

    def _waker_for(self, task: Task) -> Callable[[], None]:
        """Return what wakes a supervisor that awaits such a task, if there is one.

        It is called without the lock, which the woken supervisor takes at once.
        """
        able = self._lacking if task.gpu is None else self._lacking.keys() & {task.gpu}
        neediest = max(able, key=self._lacking.__getitem__, default=None)
        if neediest is None:
            return _wake_none
        del self._lacking[neediest]
        return self._wakers[neediest]


def _wake_none() -> None:
    """Wake no supervisor: all are busy and look into the queue by themselves."""


def _emptied(waiting: deque[Task]) -> list[Task]:
    tasks = list(waiting)
    waiting.clear()
    return tasks


def fail(task: Task, error: Exception) -> None:
    """Settle a task that has no result, unless its caller has cancelled it."""
    if task.future.running() or task.future.set_running_or_notify_cancel():
        task.future.set_exception(error)


def cancel(task: Task) -> None:
    """Settle a task that is not run to its end because the manager was closed."""
    if task.future.cancel():
        task.future.set_running_or_notify_cancel()
    else:
        task.future.set_exception(CancelledError(f"{task}: the manager was closed"))
