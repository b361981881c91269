# SPDX-License-Identifier: Apache-2.0
"""A thread per GPU: sends tasks to the worker, settles them, and replaces a worker that has ended.

So many tasks are sent ahead as take about five milliseconds, for which Python may keep this thread
waiting while another hands over tasks: then the worker need not wait for the next one, and hardly
anything waits for this GPU that another one could run. Those that were sent
and did not begin go back to the queue when the worker is gone; the one that had begun fails, and is
never run again. So a task that hangs or kills its process takes no other along; and what waits
behind one that takes long is called back, for another GPU to run.
"""

import contextlib
import logging
import os
import pickle
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass

from gpupack_workloads.errors import OutOfMemory
from gpupack_workloads.gpu_manager.task_queue import (
    GpuLost,
    Task,
    TaskFailed,
    TaskQueue,
    TaskTimedOut,
    cancel,
    fail,
)
from gpupack_workloads.gpu_manager.worker import DONE, NO_TASK, OUT_OF_MEMORY, READY, UNUSABLE
from gpupack_workloads.gpu_manager.worker_process import WorkerProcess

logger = logging.getLogger(__name__)

CHECK_SECONDS = 0.05
"""How often the clock is looked at while tasks are with the worker: how late a time-out may be."""
START_SECONDS = 180
"""For a worker to make its context and reserve its memory, the first with the import of torch."""
STARTS = 3
"""In a row that may fail before the GPU is given up."""
SLOW_TASK_NS = 50_000_000
"""Behind a task that has run for longer, no other waits in the worker."""
AHEAD_NS = 5_000_000
"""Python's default of `sys.getswitchinterval`."""
SHORT_NS = 100_000
MIN_AHEAD, MAX_AHEAD = 2, 512
"""Tasks that are with the worker at a time; two, so that it has the next one when it is done."""
NEWEST = 0.2
"""Weight of the latest task in the mean of how long they take."""


@dataclass(frozen=True)
class Gpu:
    """A GPU, or a processor in its place.

    Attributes:
        index: by which tasks name it.
        device: as torch names it.
        name: the model.
    """

    index: int
    device: str
    name: str

    def __str__(self) -> str:
        """Return its name for error messages."""
        return f"GPU {self.index} ({self.name})"


class WorkerGone(Exception):
    """Error: the worker has ended, or must end.

    Attributes:
        overdue: number of the task that ran for too long; NO_TASK if none did.
    """

    def __init__(self, why: str, overdue: int = NO_TASK) -> None:
        super().__init__(why)
        self.overdue = overdue


class Supervisor:
    """Keeps a worker on a GPU, and tasks with it, until the queue is closed.

    Args:
        gpu: which.
        start_worker: starts one, given the eventfd by which it is woken.

    Attributes:
        ready: set when the first worker can take tasks, or none ever will.
    """

    def __init__(self, gpu: Gpu, start_worker: Callable[[int], WorkerProcess]) -> None:
        self._gpu = gpu
        self._start_worker = start_worker
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        weakref.finalize(self, os.close, self._wake)
        self._thread = threading.Thread(target=self._run, name=f"gpu-{gpu.index}", daemon=True)
        self._in_flight: dict[int, Task] = {}
        self._mean_ns = float(AHEAD_NS)
        self._slow = self._stuck = False
        self.ready = threading.Event()

    def start(self, queue: TaskQueue) -> None:
        """Begin to run the queue's tasks."""
        self._queue = queue
        self._thread.start()

    def wake(self) -> None:
        """Have the queue looked at."""
        os.eventfd_write(self._wake, 1)

    def join(self) -> None:
        """Wait until worker and thread have ended."""
        self._thread.join()

    def _run(self) -> None:
        why = "the manager was closed"
        try:
            why = self._keep_worker()
        except Exception as error:
            logger.exception("%s: its supervisor has failed", self._gpu)
            why = f"its supervisor has failed: {error}"
        lost = GpuLost(f"{self._gpu} is used no more: {why}")
        for task in self._in_flight.values():
            fail(task, lost)
        self._queue.lose(self._gpu.index, lost)
        self.ready.set()

    def _keep_worker(self) -> str:
        """Serve the queue with one worker after another; return why no more."""
        failed_starts = 0
        while True:
            self._worker, self._usable = self._start_worker(self._wake), False
            try:
                self._serve()
            except WorkerGone as gone:
                why = f"{gone}, {self._discard_worker(gone)}"
            except BaseException:
                self._worker.end(grace=False)
                raise
            else:
                self._worker.end(grace=self._usable)
                return "the manager was closed"
            finally:
                self._worker.close()
            failed_starts = 0 if self._usable else failed_starts + 1
            if self._queue.aborted or self._stuck or failed_starts == STARTS:
                return why
            logger.warning("%s: %s; another worker is started", self._gpu, why)

    def _serve(self) -> None:
        """Run tasks until none are left and none will come.

        Raises:
            WorkerGone: it must be replaced.
        """
        began = time.monotonic()
        while self._in_flight or not self._queue.finished(self._gpu.index):
            if self._usable and not self._slow:
                self._send_ahead()
            elif self._usable:
                self._queue.pass_on(self._gpu.index)
            elif time.monotonic() - began > START_SECONDS:
                raise WorkerGone(f"its worker was not ready within {START_SECONDS} s")
            self._worker.flush()
            idle = self._usable and not self._in_flight
            self._worker.wait(None if idle else CHECK_SECONDS)
            self._settle_answers()
            if self._queue.aborted:
                raise WorkerGone("the manager was closed")
            self._check_time()

    def _send_ahead(self) -> None:
        """Send tasks, many at once, whenever half of what should be with the worker is done."""
        ahead = min(max(MIN_AHEAD, int(AHEAD_NS / self._mean_ns)), MAX_AHEAD)
        there = len(self._in_flight)
        if there <= ahead // 2:
            # The answer to a short task comes soon, and more tasks can be taken then: being woken
            # for each of them would cost more than the tasks.
            least = 1 if self._mean_ns < SHORT_NS else MIN_AHEAD
            tasks = self._queue.take(self._gpu.index, least=least - there, most=ahead - there)
            for place, task in enumerate(tasks):
                if not self._worker.send(task):
                    self._queue.give_back(tasks[place:])
                    break
                self._in_flight[task.number] = task

    def _settle_answers(self) -> None:
        """Settle the tasks whose answers have arrived.

        Raises:
            WorkerGone: it could not start, or no more answers can come.
        """
        answers, more = self._worker.receive()
        for (number, kind, taken), body in answers:
            if kind == READY:
                self._usable = True
                self.ready.set()
            elif kind == UNUSABLE:
                text, _ = pickle.loads(body)  # noqa: S301  our own
                raise WorkerGone(f"its worker could not start: {text}")
            else:
                self._mean_ns += NEWEST * (taken - self._mean_ns)
                self._settle(self._in_flight.pop(number), kind, body)
        if not more:
            raise WorkerGone("its worker has ended")

    def _settle(self, task: Task, kind: int, body: bytes) -> None:
        try:
            if kind == DONE:
                task.future.set_result(self._worker.value(body))
            else:
                text, trace = pickle.loads(body)  # noqa: S301  our own
                where = f"{task} on {self._gpu}: {text}"
                short = kind == OUT_OF_MEMORY
                task.future.set_exception(OutOfMemory(where) if short else TaskFailed(where, trace))
        except Exception as error:  # noqa: BLE001  a class of the result may raise anything
            fail(task, TaskFailed(f"{task}: its result cannot be read: {error!r}"))
        finally:
            self._worker.settled(task)

    def _check_time(self) -> None:
        """Make sure that the task that runs may still run.

        Raises:
            WorkerGone: it may not.
        """
        number, since = self._worker.status.last()
        task = self._in_flight.get(number)
        taken = time.monotonic_ns() - since
        self._slow = task is not None and taken > SLOW_TASK_NS
        if task is None or not self._slow:
            return
        if len(self._in_flight) > 1:
            self._call_back()
        # Its answer may have come by now; then a caller that waits for a task must ask the queue.
        self._slow = number in self._in_flight
        if not self._slow or taken <= task.seconds * 1e9:
            return
        with self._worker.status.held():
            # Held, the worker cannot begin another task, which would be ended with it.
            self._settle_answers()
            self._slow = number in self._in_flight
            if not self._slow:
                return
            self._worker.end(grace=False)
        raise WorkerGone(f"{task} ran for more than {task.seconds:g} s", overdue=number)

    def _call_back(self) -> None:
        """Give tasks back to the queue that were sent and have not begun.

        Raises:
            WorkerGone: it has ended.
        """
        last = self._worker.status.recall()
        # Whatever ended before the last one began has been answered by now.
        self._settle_answers()
        left = [task for number, task in self._in_flight.items() if number != last]
        for task in reversed(left):
            del self._in_flight[task.number]
            self._worker.recalled(task)
        self._queue.give_back(left)

    def _discard_worker(self, gone: WorkerGone) -> str:
        """End a worker and settle the task that it was at; return how the process has ended."""
        ended = self._worker.end(grace=False)
        self._stuck = ended is None
        how = ended or "and its process does not end, though it was killed"
        with contextlib.suppress(WorkerGone):
            self._settle_answers()
        number, _ = self._worker.status.last()
        task = self._in_flight.pop(number, None)
        left, self._in_flight = list(self._in_flight.values()), {}
        if self._queue.aborted:
            for each in (*([task] if task else []), *left):
                cancel(each)
            return how
        if task is not None and number == gone.overdue:
            fail(task, TaskTimedOut(f"{gone} on {self._gpu}: its process was ended"))
        elif task is not None:
            fail(task, TaskFailed(f"{task} ended its process on {self._gpu}: {how}"))
        self._queue.give_back(left)
        return how
