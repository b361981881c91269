# SPDX-License-Identifier: Apache-2.0
"""Worker processes that execute runs: one experiment, many cases.

    run ── Popen, a socket pair ──► work: experiment once, then a case at a time
        ◄── its digest, or the error that it ended in ──

These are plain processes, not multiprocessing's: those import the main module of the calling
program, so that a script without `if __name__ == "__main__"` starts itself again in each. A worker
has its own session, which a terminal's Ctrl-C does not reach. It ends when the other end of its
socket is closed, even in the middle of a run: by the parent when it is done, or by the kernel if
the parent was killed. So no worker outlives its parent, however the parent ends.
"""

import os
import pickle
import subprocess
import sys
from collections import deque
from collections.abc import Generator, Iterable
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from traceback import format_exception
from typing import Any, NamedTuple

from gpupack_simulator.errors import InvalidParameter, ProcessLost
from gpupack_simulator.experiments import Experiment
from gpupack_simulator.output.digest import Digest
from gpupack_simulator.output.writing import digested

Case = tuple[str, int]
"""Policy and seed."""

_START = (
    "import sys; from gpupack_simulator.workers import serve_cases; serve_cases(int(sys.argv[1]))"
)


class Done(NamedTuple):
    """A finished run of a worker."""

    case: Case
    digest: Digest


class _Failed(NamedTuple):
    error: BaseException


def run_case(experiment: Experiment, case: Case, folder: Path | None) -> Digest:
    """Execute one run in this process; a folder gets its files."""
    policy, seed = case
    return digested([experiment.run(policy, seed)], folder)[0]


def run_cases(
    experiment: Experiment, cases: Iterable[Case], folder: Path | None, *, processes: int
) -> Generator[Done]:
    """Yield runs of several processes as they finish; closing the generator ends them.

    Raises:
        InvalidParameter: the experiment is of a class that other processes cannot import.
        ProcessLost: a worker was killed.
    """
    if type(experiment).__module__ == "__main__":
        raise InvalidParameter(
            f"{type(experiment).__name__} stands in the main program, which other processes do not "
            "import; put it into a module, or use one process"
        )
    waiting = deque(cases)
    number, workers = len(waiting), list[_Worker]()
    try:
        for _ in range(min(processes, number)):
            workers.append(_Worker((experiment, folder)))
            workers[-1].give(waiting.popleft())
        busy = {worker.connection: worker for worker in workers}
        while busy:
            for connection in wait(list(busy)):
                worker = busy[connection]  # type: ignore[index]  # what `wait` was given
                yield worker.answer(number)
                if waiting:
                    worker.give(waiting.popleft())
                else:
                    del busy[worker.connection]
    finally:
        for worker in workers:
            worker.connection.close()
        for worker in workers:
            worker.end()


class _Worker:
    """A worker process, as its parent sees it."""

    def __init__(self, shared: tuple[Experiment, Path | None]) -> None:
        self.connection, theirs = Pipe()
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603  # our own interpreter and code
                [sys.executable, "-P", "-c", _START, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
            )
        try:
            self._send(shared)
        except BaseException:
            # The message cannot be pickled, and only this object knows the process.
            self.connection.close()
            self.end()
            raise

    def give(self, case: Case) -> None:
        """Send a case to run."""
        self._send(case)

    def answer(self, runs: int) -> Done:
        """Wait for the last case and return its result."""
        try:
            answer: Done | _Failed = self.connection.recv()
        except (EOFError, ConnectionError):
            raise ProcessLost(runs) from None
        if isinstance(answer, _Failed):
            raise answer.error
        return answer

    def end(self) -> None:
        """Kill the process at once, without waiting for a run of minutes."""
        self._process.kill()
        self._process.wait()

    def _send(self, message: object) -> None:
        """Send a message; a lost process shows in its answer, the end of the connection."""
        try:
            self.connection.send(message)
        except ConnectionError:
            return


def serve_cases(descriptor: int) -> None:
    """Execute runs as a worker until the other end of the socket is closed."""
    connection, cases = Connection(descriptor), SimpleQueue[Case]()
    try:
        experiment, folder = connection.recv()
    except (EOFError, ConnectionError):
        return
    except Exception as error:  # noqa: BLE001  # its class may raise anything
        connection.send(_Failed(_picklable(error)))
        return
    Thread(target=_receive, args=(connection, cases), daemon=True).start()
    while True:
        case = cases.get()
        try:
            answer: Done | _Failed = Done(case, run_case(experiment, case, folder))
        except Exception as error:  # noqa: BLE001  # it is raised in the parent
            answer = _Failed(_picklable(error))
        connection.send(answer)


def _receive(connection: "Connection[Any, Any]", cases: SimpleQueue[Case]) -> None:
    while True:
        try:
            cases.put(connection.recv())
        except (EOFError, ConnectionError):
            os._exit(1)


def _picklable(error: Exception) -> Exception:
    """Return the error with its traceback as a note, or a RuntimeError if it cannot be pickled."""
    text = "".join(format_exception(error))
    try:
        copy: Exception = pickle.loads(pickle.dumps(error))  # noqa: S301  # our own
    except Exception:  # noqa: BLE001  # its class may raise anything
        return RuntimeError(text)
    copy.add_note(text)
    return copy
