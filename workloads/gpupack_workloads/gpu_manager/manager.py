# SPDX-License-Identifier: Apache-2.0
"""Hands tasks to the GPUs of this container."""

import itertools
import math
import pickle
import platform
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from types import TracebackType
from typing import Any, Self

import torch

from gpupack_workloads.errors import BadArgument, OutOfMemory
from gpupack_workloads.gpu_manager.supervisor import Gpu, Supervisor
from gpupack_workloads.gpu_manager.task_queue import Task, TaskQueue
from gpupack_workloads.gpu_manager.worker import aligned
from gpupack_workloads.gpu_manager.worker_process import WorkerProcess

STAND_INS = 2
"""Where there is no GPU: so many, that one can go on while another's task hangs."""
SECONDS = 60.0
RESULT_BYTES = 2**26


def find_gpus() -> list[Gpu]:
    """Return the GPUs of this container, or processors in their place."""
    count = torch.cuda.device_count()
    if not count:
        return [Gpu(index, "cpu", f"CPU {platform.machine()}") for index in range(STAND_INS)]
    return [
        Gpu(index, f"cuda:{index}", torch.cuda.get_device_name(index)) for index in range(count)
    ]


class GpuManager:
    """A worker process for each GPU, and a queue of tasks for all of them.

    A task is a function of a module, called as `function(context, *arguments)` in a worker:
    `context` is a `TaskContext`, with the device and the task's part of the memory pool. Arguments
    and what is returned are pickled, but for tensors that are returned, on any device: those come
    by pinned host memory, and are CPU tensors then.

    Leaving a `with` block waits for the tasks, or cancels them where an error, or Ctrl-C, ends it.

    Args:
        gpus: at least one.
        pool_bytes: bytes of each GPU's memory, reserved now: the most that a task can have.
        result_bytes: bytes of host memory for each GPU's results: the most that a task can return.
    """

    def __init__(
        self, gpus: Sequence[Gpu], *, pool_bytes: int, result_bytes: int = RESULT_BYTES
    ) -> None:
        if not gpus:
            raise BadArgument("a manager needs at least one GPU")
        self._pool_bytes = pool_bytes
        self._result_bytes = aligned(result_bytes)
        self._numbers = itertools.count()
        sizes = {"pool_bytes": pool_bytes, "result_bytes": self._result_bytes}
        self._supervisors = {
            gpu.index: Supervisor(gpu, partial(WorkerProcess, gpu.device, **sizes)) for gpu in gpus
        }
        self._queue = TaskQueue({index: each.wake for index, each in self._supervisors.items()})
        for supervisor in self._supervisors.values():
            supervisor.start(self._queue)

    def submit(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        gpu: int | None = None,
        memory_bytes: int = 0,
        result_bytes: int = 0,
        seconds: float = SECONDS,
    ) -> Future[Any]:
        """Queue a task; return the future of what it returns.

        The future raises `TaskFailed` for a task that raised an error or ended its process,
        `TaskTimedOut`, `OutOfMemory` for one that wanted more than its quota, `GpuLost` where no
        worker can be had any more, and `CancelledError`.

        Args:
            function: function of a module that a worker can import.
            arguments: for it.
            gpu: index of the one it must run on; None for whichever is free first.
            memory_bytes: quota of the GPU's memory pool; each tensor takes `aligned` bytes.
            result_bytes: quota of host memory for tensors that are returned, aligned as well.
            seconds: it may run, from its start; then it is ended with its process.

        Raises:
            BadArgument: there is no such GPU, or a quota or time is no sensible one.
            OutOfMemory: a quota is more than there is.
            ManagerClosed: the manager takes no more tasks.
            Exception: what pickle raises for function or arguments.
        """
        if gpu is not None and gpu not in self._supervisors:
            raise BadArgument(f"there is no GPU {gpu}: there are {sorted(self._supervisors)}")
        if not (seconds > 0 and math.isfinite(seconds)):
            raise BadArgument(f"a task cannot run for {seconds} s: give a time above 0")
        for wanted, most, what in (
            (memory_bytes, self._pool_bytes, "a GPU's memory pool"),
            (result_bytes, self._result_bytes, "the host memory for a GPU's results"),
        ):
            if wanted < 0:
                raise BadArgument(f"a quota of {wanted} bytes of {what} cannot be")
            if wanted > most:
                raise OutOfMemory(f"a quota of {wanted} bytes is requested, and {what} has {most}")
        task = Task(
            number=next(self._numbers),
            name=getattr(function, "__name__", repr(function)),
            payload=pickle.dumps((function, arguments), pickle.HIGHEST_PROTOCOL),
            gpu=gpu,
            memory_bytes=memory_bytes,
            result_bytes=result_bytes,
            seconds=seconds,
        )
        self._queue.put(task)
        return task.future

    def wait_until_ready(self) -> None:
        """Wait until every GPU's first worker takes tasks, or was given up."""
        for supervisor in self._supervisors.values():
            supervisor.ready.wait()

    def close(self, *, abort: bool = False) -> None:
        """Take no more tasks, finish those that there are, and end the workers.

        Closing again does nothing more, or aborts what the first is waiting for.

        Args:
            abort: cancel all tasks, those that run, too.
        """
        self._queue.close(abort=abort)
        try:
            self._join()
        except BaseException:
            # Such as Ctrl-C while this waits for a task that takes its time.
            self._queue.close(abort=True)
            self._join()
            raise

    def _join(self) -> None:
        for supervisor in self._supervisors.values():
            supervisor.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close(abort=kind is not None)
