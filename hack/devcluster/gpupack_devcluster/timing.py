# SPDX-License-Identifier: Apache-2.0
"""Durations of steps, in the log."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

logger = logging.getLogger("gpupack_devcluster")


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Log the seconds of a step after it is done."""
    start = time.monotonic()
    yield
    logger.info("%6.2f s  %s", time.monotonic() - start, name)
