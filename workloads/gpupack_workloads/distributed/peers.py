# SPDX-License-Identifier: Apache-2.0
"""A rank's failure ends the whole gang at once, with that rank's status and reason.

A rank that waits in a collective for one that has failed does not hear of it: NCCL spins, and
destroying a group waits for what was begun in it. So the rank that fails says so at the gang's
store, and a thread of every other rank, which looks there each second, ends its process.

    failing rank: leave_reason ─► store.set ─► os._exit(status)
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

from gpupack_workloads.distributed.failure import leave_reason
from gpupack_workloads.errors import PeersMissing, WorkloadError, error_of_status

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
GRACE_SECONDS = 2.0
"""For a rank that is about to end by itself, with a reason of its own."""
SERVING_SECONDS = 2.0
"""Longer than the others, for ranks whose launcher serves a store."""
BESIDE_SECONDS = 3.0
"""Longer still, for ranks of the worker whose rank has failed: their launcher ends them then."""
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
"""Parts of what gloo and NCCL say of a collective whose other side has ended."""


def end_process(status: int) -> NoReturn:
    """End without Python's and the libraries' clean-up, which can wait for peers for minutes."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


class Word(NamedTuple):
    """What a rank says of its failure, with the group rank of its worker."""

    error: WorkloadError
    worker: str


class Board:
    """Where the ranks of a gang leave word of a failure, at the store of the gang.

    Raises:
        DistError: by every method; the store cannot be reached.
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
        """Leave word of the first failure; that of a later one is dropped."""
        text = f"{error.exit_status} {self.worker} process {rank} of the gang: {error}"
        self._store.compare_set(self._key, "", text[:LONGEST_REASON])

    def read(self) -> Word | None:
        """Return what the rank that failed first has left."""
        if not self._store.check([self._key]):
            return None
        status, worker, reason = self._store.get(self._key).decode().split(" ", 2)
        return Word(error_of_status(int(status), reason), worker)


def tell(error: BaseException, *, rank: int, environ: Mapping[str, str]) -> None:
    """Leave an error to this worker's launcher and to the other ranks.

    Returns after the others have ended, where this worker's launcher serves a store: they would
    take its loss for the reason.
    """
    leave_reason(error)
    known = error if isinstance(error, WorkloadError) else WorkloadError(_in_a_line(error))
    try:
        Board(environ).post(known, rank=rank)
    except dist.DistError as unreachable:
        logger.warning("the other ranks could not be told: %s", unreachable)
    else:
        if serves_a_store(environ):
            time.sleep(LOOK_SECONDS + GRACE_SECONDS + SERVING_SECONDS)


def loss(error: BaseException, environ: Mapping[str, str]) -> WorkloadError | None:
    """Return why a collective's other side has ended; None: that is not what the error says.

    One that has ended by itself left word at the store before; one that was killed did not.
    """
    if not isinstance(error, RuntimeError) or not any(e in str(error) for e in OF_A_LOST_PEER):
        return None
    with contextlib.suppress(dist.DistError):
        if word := Board(environ).read():
            return word.error
    return PeersMissing(f"another process of the gang is gone: {_in_a_line(error)}")


def wait_beside(lost: WorkloadError, environ: Mapping[str, str]) -> None:
    """Let this worker's launcher see first which process of its own was killed, if one was."""
    if isinstance(lost, PeersMissing) and int(environ.get("LOCAL_WORLD_SIZE", "1")) > 1:
        time.sleep(BESIDE_SECONDS)


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
    board = Board(environ)
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
    board: Board, left: threading.Event, grace_seconds: float, end: Callable[[int], object]
) -> None:
    while not left.wait(LOOK_SECONDS):
        try:
            word = board.read()
        except dist.DistError as lost:
            word = Word(PeersMissing(f"worker 0 is gone: {_in_a_line(lost)}"), worker="")
        if word is None:
            continue
        if word.worker == board.worker:
            grace_seconds += BESIDE_SECONDS
        if not left.wait(grace_seconds):
            logger.error("%s: %s", type(word.error).__name__, word.error)
            leave_reason(word.error)
            end(word.error.exit_status)
        return
