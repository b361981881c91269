# SPDX-License-Identifier: Apache-2.0
"""One change of the cluster at a time: two drivers would each start what the other is starting."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpupack_devcluster.timing import logger


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock, waiting for it if need be; the kernel lets go of a dead driver's."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            logger.info("waiting for another command to finish with %s", path)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@contextmanager
def locked_if_free(path: Path) -> Iterator[bool]:
    """Hold the lock if nobody else does; yields whether it is held."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
