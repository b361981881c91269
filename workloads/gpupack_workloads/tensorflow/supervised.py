# SPDX-License-Identifier: Apache-2.0
"""Runs TensorFlow in a child process; the parent handles signals and deadlines.

While workers meet, TensorFlow holds Python's lock, for ever where one does not come, and from then
on it catches SIGTERM itself and does nothing: neither a handler nor a thread of the same process
would run. A worker that is lost can also end the others' processes by abort().
"""

import contextlib
import ctypes
import logging
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from types import FrameType
from typing import Any, NoReturn

from gpupack_workloads.distributed.rendezvous import WaitPolicy, wait_for_name
from gpupack_workloads.errors import (
    PeersMissing,
    WorkloadError,
    WrongResult,
    error_of_status,
    termination_error,
)
from gpupack_workloads.results import Result
from gpupack_workloads.tensorflow.options import TensorFlowOptions
from gpupack_workloads.tensorflow.setup import Setup

logger = logging.getLogger(__name__)

MEETING_SECONDS = 300.0
"""From when TensorFlow was started, as torch's launcher is given."""
EXIT_SECONDS = 5.0
"""How long worker 0 stays when it is done: its process serves TensorFlow's coordination, without
which others are aborted, who may be about to tell their results."""
DIE_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of prctl(2)."""


@dataclass(frozen=True)
class Failed:
    """An error of the process, with its result if it has one."""

    status: int
    message: str
    result: Result | None = None

    def error(self) -> WorkloadError:
        """Return it as it was raised."""
        kind = error_of_status(self.status, self.message)
        return WrongResult(self.message, self.result) if isinstance(kind, WrongResult) else kind


@dataclass(frozen=True)
class WorkersMet:
    """Message: all workers have joined."""


@dataclass
class Child:
    """The process and its messages.

    Attributes:
        process: that computes.
        said: where it speaks.
        workers: number of workers of the gang.
        end: when its workers have to have met, by the monotonic clock; None: they have.
    """

    process: Any
    said: Connection
    workers: int
    end: float | None = field(default=None)

    def outcome(self) -> Result:
        """Wait for its result.

        Raises:
            PeersMissing: the workers did not meet in time, or one has ended.
            WorkloadError: what it raised, or that it ended without a word.
        """
        while True:
            left = None if self.end is None else max(0.0, self.end - time.monotonic())
            if not wait([self.said, self.process.sentinel], left):
                raise PeersMissing(
                    f"{self.workers} workers did not meet within {MEETING_SECONDS:.0f} s"
                )
            try:
                message = self.said.recv()
            except EOFError:
                self.process.join()
                raise self._died(self.process.exitcode) from None
            if isinstance(message, Result):
                return message
            if isinstance(message, Failed):
                raise message.error()
            self.end = None

    def _died(self, status: int) -> WorkloadError:
        how = f"signal {-status}" if status < 0 else f"status {status}"
        if self.workers > 1 and status == -signal.SIGABRT:
            # What TensorFlow's coordination does to the others of a worker that is lost.
            return PeersMissing(f"TensorFlow has ended by {how}: another worker is lost, see above")
        return WorkloadError(f"TensorFlow has ended by {how}; see its log above")


def run_supervised(options: TensorFlowOptions, setup: Setup) -> Result:
    """Train in a child process.

    Raises:
        Terminated, Cancelled: by a signal; the process is gone then, as it is after any error.
        WorkloadError: as `session.measure` and `Child.outcome` do.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=work, args=(theirs, options, setup), daemon=True)
    with _raising_on_signals():
        try:
            process.start()
            theirs.close()
            child = Child(process, ours, setup.workers, time.monotonic() + MEETING_SECONDS)
            result = child.outcome()
            if is_leader(setup):
                process.join(EXIT_SECONDS)
            return result
        finally:
            if process.pid is not None:
                process.kill()
                process.join()


def is_leader(setup: Setup) -> bool:
    """Return whether other workers depend on this one's process."""
    return setup.workers > 1 and setup.index == 0


def work(connection: Connection, options: TensorFlowOptions, setup: Setup) -> None:
    """Do everything; the process's own part."""
    _die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s"
    )
    # Which has a line for every tensor that is reduced.
    logging.getLogger("tensorflow").setLevel(logging.WARNING)
    os.environ.update(setup.environment)
    try:
        for peer in setup.peers:
            wait_for_name(peer, WaitPolicy())
        from gpupack_workloads.tensorflow.session import measure  # noqa: PLC0415 - TensorFlow

        connection.send(measure(options, setup, lambda: connection.send(WorkersMet())))
        if is_leader(setup):
            time.sleep(EXIT_SECONDS)
    except WorkloadError as error:
        connection.send(Failed(error.exit_status, str(error), getattr(error, "result", None)))
    except Exception as error:
        logger.exception("not expected")
        connection.send(Failed(WorkloadError.exit_status, f"{type(error).__name__}: {error}"))
    finally:
        connection.close()


@contextlib.contextmanager
def _raising_on_signals() -> Iterator[None]:
    """Raise on SIGTERM and SIGINT, which by default do not end a container's first process."""
    before = {number: signal.signal(number, _end) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    del frame
    raise termination_error(signal.Signals(number))


def _die_with_parent() -> None:
    """End with the parent, so that no GPU is held when no process waits for the result."""
    ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
