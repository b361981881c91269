# SPDX-License-Identifier: Apache-2.0
"""Ends the whole gang at once when a rank fails, with that rank's status and reason.

A rank that waits in a collective for a failed rank does not notice: NCCL spins, and destroying a
group waits for its operations. So a failing rank reports to the gang's store, and a thread of every
other rank, which reads the store each second, ends its process.

    failing rank: write_reason ─► store.set ─► os._exit(status)
    other ranks:  store.check ─► GRACE_SECONDS to end by themselves ─► os._exit(same status)

Launchers, too, end when a store is gone: that at which they have met, which worker 0's launcher
serves, or the ranks' own, which torch has the launcher of group rank 0 serve. So the ranks of both
workers end after all others. A launcher reports the process that ends first: of a worker, that is
the one that has failed.
"""

import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import NamedTuple, NoReturn

import torch.distributed as dist

from gpupack_workloads.distributed.failure import write_reason
from gpupack_workloads.errors import PeersMissing, WorkloadError, error_of_status

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
GRACE_SECONDS = 2.0
"""Time for a rank that is about to end by itself with its own reason."""
SERVING_SECONDS = 2.0
"""Additional time of ranks whose launcher serves a store."""
LAUNCHER_SECONDS = 3.0
"""Additional time of ranks of the failed rank's worker: their launcher ends them by then."""
SERVES_RENDEZVOUS = "GPUPACK_SERVES_RENDEZVOUS"
"""Set by the launcher for its ranks."""
STORE_TIMEOUT = timedelta(seconds=5)
LONGEST_REASON = 2000
OF_A_LOST_PEER = (
    "Connection closed by peer",
    "Connection reset by peer",
    "Broken pipe",
    "remote process exited",
)
"""Parts of gloo's and NCCL's errors for a collective whose other side has ended."""


def end_process(status: int) -> NoReturn:
    """End without Python's and the libraries' clean-up, which can wait for peers for minutes."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


class Failure(NamedTuple):
    """A rank's failure, with the group rank of its worker."""

    error: WorkloadError
    worker: str


class FailureBoard:
    """The entry for the first failure in the store of the gang.

    Raises:
        DistError: the store cannot be reached (all methods).
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.worker = environ.get("GROUP_RANK", "0")
        self._key = f"gpupack/{environ.get('TORCHELASTIC_RUN_ID', '')}/failed"
        self._store = dist.TCPStore(
            environ["MASTER_ADDR"],
            int(environ["MASTER_PORT"]),
            is_master=False,
            wait_for_workers=False,
            timeout=STORE_TIMEOUT,
        )

    def post(self, error: WorkloadError, *, rank: int) -> None:
        """Report a failure; only the first one is kept."""
        text = f"{error.exit_status} {self.worker} process {rank} of the gang: {error}"
        self._store.compare_set(self._key, "", text[:LONGEST_REASON])

    def read(self) -> Failure | None:
        """Return the first failure, or None."""
        if not self._store.check([self._key]):
            return None
        status, worker, reason = self._store.get(self._key).decode().split(" ", 2)
        return Failure(error_of_status(int(status), reason), worker)


def report_failure(error: BaseException, *, rank: int, environ: Mapping[str, str]) -> None:
    """Report an error to this worker's launcher and to the other ranks.

    If this worker's launcher serves a store, it returns after the others have ended: they would
    report the loss of the store as the reason.
    """
    write_reason(error)
    known = error if isinstance(error, WorkloadError) else WorkloadError(_in_a_line(error))
    try:
        FailureBoard(environ).post(known, rank=rank)
    except dist.DistError as unreachable:
        logger.warning("the other ranks could not be notified: %s", unreachable)
    else:
        if serves_a_store(environ):
            time.sleep(LOOK_SECONDS + GRACE_SECONDS + SERVING_SECONDS)


def loss(error: BaseException, environ: Mapping[str, str]) -> WorkloadError | None:
    """Return why the other side of a collective has ended, or None if the error has another cause.

    A rank that ends by itself reports its failure to the store first; a killed one does not.
    """
    if not isinstance(error, RuntimeError) or not any(e in str(error) for e in OF_A_LOST_PEER):
        return None
    with contextlib.suppress(dist.DistError):
        if word := FailureBoard(environ).read():
            return word.error
    return PeersMissing(f"another process of the gang is gone: {_in_a_line(error)}")


def wait_for_launcher(lost: WorkloadError, environ: Mapping[str, str]) -> None:
    """Wait until this worker's launcher has seen which of its processes was killed, if any."""
    if isinstance(lost, PeersMissing) and int(environ.get("LOCAL_WORLD_SIZE", "1")) > 1:
        time.sleep(LAUNCHER_SECONDS)


def serves_a_store(environ: Mapping[str, str]) -> bool:
    """Return whether other workers lose a store when this worker ends."""
    return SERVES_RENDEZVOUS in environ or environ.get("GROUP_RANK") == "0"


def _in_a_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0]


@contextlib.contextmanager
def watched(
    environ: Mapping[str, str], end: Callable[[int], object] = end_process
) -> Iterator[None]:
    """End this process soon after another rank of the gang has failed.

    Args:
        environ: names the gang's store.
        end: ends the process with a status.
    """
    left = threading.Event()
    board = FailureBoard(environ)
    grace = GRACE_SECONDS + (SERVING_SECONDS if serves_a_store(environ) else 0)
    thread = threading.Thread(
        target=_watch, args=(board, left, grace, end), name="gang-failures", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        left.set()
        thread.join()


def _watch(
    board: FailureBoard, left: threading.Event, grace_seconds: float, end: Callable[[int], object]
) -> None:
    while not left.wait(LOOK_SECONDS):
        try:
            word = board.read()
        except dist.DistError as lost:
            word = Failure(PeersMissing(f"worker 0 is gone: {_in_a_line(lost)}"), worker="")
        if word is None:
            continue
        if word.worker == board.worker:
            grace_seconds += LAUNCHER_SECONDS
        if not left.wait(grace_seconds):
            logger.error("%s: %s", type(word.error).__name__, word.error)
            write_reason(word.error)
            end(word.error.exit_status)
        return
