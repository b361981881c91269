# SPDX-License-Identifier: Apache-2.0
"""A lock for changes of the cluster: two drivers would start the same daemons."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpupack_devcluster.timing import logger


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock, and wait for it if necessary; the kernel releases a dead driver's lock."""
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
    """Hold the lock if it is free; yield whether it is held."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
