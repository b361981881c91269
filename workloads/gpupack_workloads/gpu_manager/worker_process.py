# SPDX-License-Identifier: Apache-2.0
"""The supervisor's side of a worker: its process, socket and shared memory.

Results come back by a ring in that memory, which the worker has pinned: a GPU writes there itself,
and it is anonymous (memfd), so that neither /dev/shm's size limits it nor anything of it is left.
"""

import io
import mmap
import multiprocessing
import os
import pickle
import select
import socket
from collections import deque
from typing import Any

import torch

from gpupack_workloads.gpu_manager.task_queue import Task
from gpupack_workloads.gpu_manager.worker import (
    ANSWER,
    CHUNK_BYTES,
    ORDER,
    STATUS_BYTES,
    Plan,
    Status,
    aligned,
    frames,
    work,
)

GRACE_SECONDS = 10
"""Time for a process to end by itself, or after it was killed."""

Answer = tuple[tuple[int, ...], bytes]


class Ring:
    """Ring buffer for results, released in the order of allocation."""

    def __init__(self, start: int, size: int) -> None:
        self._start, self._end = start, start + size
        self._taken: deque[tuple[int, int]] = deque()

    def take(self, size: int) -> int | None:
        """Return where so many bytes (at least one) in a row are free, or None."""
        size = aligned(size)
        place = self._start
        if self._taken:
            oldest, newest_end = self._taken[0][0], sum(self._taken[-1])
            limit = oldest
            if newest_end > oldest:
                in_a_row = newest_end + size <= self._end
                place, limit = (newest_end, self._end) if in_a_row else (self._start, oldest)
            else:
                place = newest_end
            if place + size > limit:
                return None
        self._taken.append((place, size))
        return place

    def give_back(self) -> None:
        """Free what was taken first."""
        self._taken.popleft()

    def take_back(self) -> None:
        """Free what was taken last."""
        self._taken.pop()


class ResultUnpickler(pickle.Unpickler):
    """Unpickles a task's result; tensors are copied out of shared memory."""

    def __init__(self, body: bytes, shared: torch.Tensor) -> None:
        super().__init__(io.BytesIO(body))
        self._shared = shared

    def persistent_load(self, pid: Any) -> torch.Tensor:
        """Copy a tensor."""
        start, dtype, shape = pid
        length = dtype.itemsize * torch.Size(shape).numel()
        return self._shared[start : start + length].view(dtype).view(shape).clone()


class WorkerProcess:
    """A started worker; it reports when it can take tasks.

    Args:
        device: as torch names it.
        pool_bytes: bytes of the device's memory.
        result_bytes: bytes of host memory for results, aligned.
        wake: an eventfd that ends a wait.

    Attributes:
        status: which task began last.
    """

    def __init__(self, device: str, wake: int, *, pool_bytes: int, result_bytes: int) -> None:
        size = STATUS_BYTES + result_bytes
        descriptor = os.memfd_create("gpu-manager")
        os.ftruncate(descriptor, size)
        shared = mmap.mmap(descriptor, size)
        self.status = Status(descriptor, shared)
        self.status.clear()
        self._results = torch.frombuffer(shared, dtype=torch.uint8)
        self._ring = Ring(STATUS_BYTES, result_bytes)
        self._line, far_end = socket.socketpair()
        self._line.setblocking(False)  # noqa: FBT003  a worker that hangs reads nothing
        plan = Plan(device, pool_bytes=pool_bytes, shared_bytes=size)
        # Forked from a process that has imported torch and never touched a GPU: a start is a CUDA
        # context, and not the seconds of an import as well.
        forking = multiprocessing.get_context("forkserver")
        forking.set_forkserver_preload([work.__module__])
        self._process = forking.Process(target=work, args=(far_end, plan), daemon=True)
        self._process.start()
        far_end.close()
        socket.send_fds(self._line, [b"."], [descriptor])
        self._descriptor = descriptor
        self._wake, self._poll = wake, select.poll()
        self._poll.register(self._line)
        self._poll.register(wake, select.POLLIN)
        self._unsent = bytearray()
        self._received = bytearray()

    def send(self, task: Task) -> bool:
        """Have a task sent with the next flush; False where its result has no room yet."""
        place: int | None = STATUS_BYTES
        if task.result_bytes:
            place = self._ring.take(task.result_bytes)
        if place is None:
            return False
        self._unsent += ORDER.pack(
            *(self.status.recalls, task.number, task.memory_bytes, place, task.result_bytes),
            len(task.payload),
        )
        self._unsent += task.payload
        return True

    def flush(self) -> None:
        """Send what the worker takes; the rest goes when it has read some."""
        try:
            while self._unsent:
                del self._unsent[: self._line.send(self._unsent)]
        except (BlockingIOError, ConnectionError):
            # An end of the line is found where it is read.
            return

    def wait(self, seconds: float | None) -> None:
        """Wait for an answer, for room to send, for the worker's end, or to be woken."""
        sending = select.POLLOUT if self._unsent else 0
        self._poll.modify(self._line, select.POLLIN | sending)
        for descriptor, _ in self._poll.poll(None if seconds is None else seconds * 1000):
            if descriptor == self._wake:
                os.eventfd_read(self._wake)

    def receive(self) -> tuple[list[Answer], bool]:
        """Return the answers that have come, and whether more can come."""
        more = True
        try:
            while data := self._line.recv(CHUNK_BYTES):
                self._received += data
                if len(data) < CHUNK_BYTES:
                    break
            else:
                more = False
        except BlockingIOError:
            pass
        except ConnectionError:
            more = False
        return list(frames(self._received, ANSWER)), more

    def value(self, body: bytes) -> Any:
        """Return a task's result, with its tensors in separate memory."""
        return ResultUnpickler(body, self._results).load()

    def settled(self, task: Task) -> None:
        """Free the place of a task's result, once that has been read."""
        if task.result_bytes:
            self._ring.give_back()

    def recalled(self, task: Task) -> None:
        """Free the place of a task's result: of those that were called back, the last one first."""
        if task.result_bytes:
            self._ring.take_back()

    def end(self, *, grace: bool) -> str | None:
        """End the process; return how it has ended, or None where the kernel does not let go of it.

        Args:
            grace: let it end by itself, as it does where nothing more can come.
        """
        if grace:
            self._line.shutdown(socket.SHUT_WR)
            self._process.join(GRACE_SECONDS)
        self._process.kill()
        self._process.join(GRACE_SECONDS)
        status = self._process.exitcode
        if status is None:
            return None
        return f"by signal {-status}" if status < 0 else f"with exit status {status}"

    def close(self) -> None:
        """Let go of line and memory; results that have not been read are lost."""
        self._line.close()
        os.close(self._descriptor)
