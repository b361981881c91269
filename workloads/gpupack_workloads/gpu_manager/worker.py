# SPDX-License-Identifier: Apache-2.0
"""The process that runs one GPU's tasks, one at a time.

One at a time, so that the supervisor knows which task it ends with the process: the number of the
running task is in shared memory before it begins, and later tasks can be called back. The worker
waits for the GPU after each task, so that a kernel's error belongs to its own task, and no stream
works in memory that the next task gets.
"""

import contextlib
import fcntl
import io
import math
import mmap
import multiprocessing
import os
import pickle
import signal
import socket
import struct
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Any

import torch

from gpupack_workloads.devices import memory_errors
from gpupack_workloads.errors import OutOfMemory

ALIGNMENT = 256
"""Bytes: where tensors begin, as CUDA's own allocations do."""
STATUS_BYTES = mmap.PAGESIZE
"""Of the shared memory, in front of the results."""
CHUNK_BYTES = 2**16
"""Received at a time; a larger buffer would come from the kernel, zeroed, each time."""
TORCH_BYTES = 2 * 2**30
"""For torch outside the pool: cuBLAS's workspace, and what a task does not ask the pool for."""
NO_TASK = -1

ORDER = struct.Struct("<qqqqqq")
"""A task: how many recalls came before it, its number, quota of memory, offset and quota of
results, length of what follows."""
ANSWER = struct.Struct("<qqqq")
"""Of a task: its number, one of the kinds below, ns that it took, length of what follows."""
DONE, FAILED, OUT_OF_MEMORY, READY, UNUSABLE = range(5)


@dataclass(frozen=True)
class Plan:
    """Settings of a worker.

    Attributes:
        device: as torch names it.
        pool_bytes: bytes of the device's memory, reserved at once.
        shared_bytes: bytes of the memory that both processes share.
    """

    device: str
    pool_bytes: int
    shared_bytes: int


class Status:
    """Number of the last begun task, in memory that worker and supervisor share.

    What both change is changed under a record lock of the memory's file, which the kernel takes off
    a process that ends.

    Args:
        descriptor: descriptor of the memory, open as long as this is used.
        shared: the memory.
    """

    def __init__(self, descriptor: int, shared: mmap.mmap) -> None:
        self._descriptor = descriptor
        self._words = memoryview(shared)[:STATUS_BYTES].cast("q")

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keep the other process from changing anything."""
        fcntl.lockf(self._descriptor, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._descriptor, fcntl.LOCK_UN)

    def clear(self) -> None:
        """Say that no task has begun yet."""
        self._words[0] = NO_TASK

    def begin(self, number: int, recalls: int, now: int) -> bool:
        """Say that a task begins; False where it was called back after it was sent."""
        with self.held():
            if recalls != self._words[2]:
                return False
            # In this order: a reader sees no task with the start time of the one before it.
            self._words[1], self._words[0] = now, number
            return True

    def last(self) -> tuple[int, int]:
        """Return the number of the task that began last, and when (ns of the monotonic clock)."""
        number = self._words[0]
        return number, self._words[1]

    def recall(self) -> int:
        """Call back all that has not begun; return the number of the task that began last."""
        with self.held():
            self._words[2] += 1
            return self._words[0]

    @property
    def recalls(self) -> int:
        """How often tasks were called back."""
        return self._words[2]


def aligned(size: int) -> int:
    """Return what so many bytes of one tensor take of a quota."""
    return -(-size // ALIGNMENT) * ALIGNMENT


class Arena:
    """Memory for one task at a time, allocated in pieces up to the task's quota.

    Args:
        memory: bytes, reserved at once.
        name: name of the memory, for errors.
    """

    def __init__(self, memory: torch.Tensor, name: str) -> None:
        self._memory = memory
        self._name = name
        self.begin(0, 0)

    def begin(self, start: int, quota: int) -> None:
        """Let a task have `quota` bytes from `start` on; what another had is free."""
        self._next, self._end, self._quota = start, start + quota, quota

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Return a tensor, not initialised, that is the task's until it ends.

        Raises:
            OutOfMemory: the quota is too small.
        """
        size = math.prod(shape) * dtype.itemsize
        free = max(0, self._end - self._next)
        if size > free:
            raise OutOfMemory(
                f"{size} bytes are requested, and {free} are free of the task's quota of"
                f" {self._quota} bytes of {self._name}"
            )
        piece = self._memory[self._next : self._next + size]
        self._next += aligned(size)
        return piece.view(dtype).view(shape)


@dataclass(frozen=True)
class TaskContext:
    """What a task gets in addition to its arguments.

    Attributes:
        device: device of its GPU, whose current stream is the task's own.
        memory: the GPU's pool, within the task's quota.
    """

    device: torch.device
    memory: Arena


class ResultPickler(pickle.Pickler):
    """Pickles a task's result; tensors go to memory that both processes share."""

    def __init__(self, file: io.BytesIO, results: Arena) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._results = results

    def persistent_id(self, obj: Any) -> tuple[int, torch.dtype, tuple[int, ...]] | None:
        """Copy a tensor, and return its offset."""
        if not isinstance(obj, torch.Tensor):
            return None
        copy = self._results.empty(tuple(obj.shape), obj.dtype)
        copy.copy_(obj.detach(), non_blocking=True)
        return copy.storage_offset() * copy.element_size(), obj.dtype, tuple(obj.shape)


class Worker:
    """Runs the tasks that come by a socket until it is closed.

    Args:
        line: to the supervisor.
        descriptor: descriptor of the memory that both share,
        shared: mapped: status and results.
        plan: the device, and how much of its memory.
    """

    def __init__(self, line: socket.socket, descriptor: int, shared: mmap.mmap, plan: Plan) -> None:
        self._line = line
        self._status = Status(descriptor, shared)
        device = torch.device(plan.device)
        results = torch.frombuffer(shared, dtype=torch.uint8)
        self._stream: torch.cuda.Stream | None = None
        if device.type == "cuda":
            torch.cuda.set_device(device)
            limit_torch(device, plan.pool_bytes + TORCH_BYTES)
            pin(results)
            # One for all tasks, each of which has it for itself: for every other stream that ever
            # multiplied, cuBLAS would keep a workspace.
            self._stream = torch.cuda.Stream(device)
        else:
            # Stand-ins for GPUs share the host's processors.
            torch.set_num_threads(1)
        pool = torch.empty(plan.pool_bytes, dtype=torch.uint8, device=device)
        self._context = TaskContext(device, Arena(pool, f"the memory pool of {device}"))
        self._results = Arena(results, "pinned host memory for results")
        self._tell(NO_TASK, READY, 0, b"")

    def serve(self) -> None:
        """Run tasks in the order in which they come."""
        left = bytearray()
        while data := self._line.recv(CHUNK_BYTES):
            left += data
            for order, payload in frames(left, ORDER):
                self._run(order, payload)

    def _run(self, order: tuple[int, ...], payload: bytes) -> None:
        recalls, number, memory_bytes, offset, result_bytes = order
        began = time.monotonic_ns()
        if not self._status.begin(number, recalls, began):
            return
        self._context.memory.begin(0, memory_bytes)
        self._results.begin(offset, result_bytes)
        try:
            kind, body = DONE, self._call(payload, number)
        except OutOfMemory as error:
            kind, body = OUT_OF_MEMORY, pickle_error(error)
        except (Exception, SystemExit) as error:  # noqa: BLE001  a task may raise anything
            kind, body = FAILED, pickle_error(error)
        self._tell(number, kind, time.monotonic_ns() - began, body)
        if kind != DONE:
            self._end_if_broken()

    def _call(self, payload: bytes, number: int) -> bytes:
        file = io.BytesIO()
        if self._stream:
            # Again for each task, which also sets the device: the last task may have changed both.
            torch.cuda.set_stream(self._stream)
        with memory_errors(f"task {number}"):
            function, arguments = pickle.loads(payload)  # noqa: S301  the manager's own
            ResultPickler(file, self._results).dump(function(self._context, *arguments))
            if self._stream:
                torch.cuda.synchronize()
        return file.getvalue()

    def _tell(self, number: int, kind: int, taken: int, body: bytes) -> None:
        self._line.sendall(ANSWER.pack(number, kind, taken, len(body)) + body)

    def _end_if_broken(self) -> None:
        """End the process where a task's error has broken CUDA's context, as many of them do."""
        if self._stream is None:
            return
        try:
            torch.cuda.synchronize()
        except RuntimeError as error:
            print(f"CUDA can be used no more in this process: {error}", file=sys.stderr)  # noqa: T201
            os._exit(1)


def frames(left: bytearray, head: struct.Struct) -> Iterator[tuple[tuple[int, ...], bytes]]:
    """Take whole frames off what was received: head without its last field, which is a length."""
    place = 0
    while len(left) - place >= head.size:
        *fields, length = head.unpack_from(left, place)
        end = place + head.size + length
        if end > len(left):
            break
        payload = bytes(memoryview(left)[place + head.size : end])
        place = end
        yield tuple(fields), payload
    del left[:place]


def pickle_error(error: BaseException) -> bytes:
    """Pickle an error's text and traceback, because not every error can be pickled itself."""
    text = str(error) if isinstance(error, OutOfMemory) else f"{type(error).__name__}: {error}"
    return pickle.dumps((text, "".join(traceback.format_exception(error))))


def limit_torch(device: torch.device, most: int) -> None:
    """Keep torch's allocator to so many bytes of a GPU."""
    total = torch.cuda.get_device_properties(device).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, most / total), device)


def pin(memory: torch.Tensor) -> None:
    """Let a GPU copy to host memory directly.

    Raises:
        RuntimeError: CUDA refuses.
    """
    runtime = torch.cuda.cudart()
    torch.cuda.check_error(runtime.cudaHostRegister(memory.data_ptr(), memory.nbytes, 0))


def end_with_parent() -> None:
    """End this process as soon as the manager's has ended, even during a task."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def work(line: socket.socket, plan: Plan) -> None:
    """Run as the worker of a GPU."""
    # The terminal sends it to the whole group; the manager ends its workers itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=end_with_parent, daemon=True).start()
    _, descriptors, _, _ = socket.recv_fds(line, 1, 1)
    shared = mmap.mmap(descriptors[0], plan.shared_bytes)
    try:
        worker = Worker(line, descriptors[0], shared, plan)
    except (RuntimeError, OutOfMemory) as error:
        body = pickle_error(error)
        line.sendall(ANSWER.pack(NO_TASK, UNUSABLE, 0, len(body)) + body)
        return
    worker.serve()
