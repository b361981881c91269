# SPDX-License-Identifier: Apache-2.0
"""Repeats a step in the background of a test."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor


@contextlib.contextmanager
def running(step: Callable[[], object], pause: Callable[[], float]) -> Iterator[None]:
    """Run a step after each pause (seconds) until the block ends.

    An error of a step is raised at the block's end.
    """
    stop = threading.Event()

    def go_on() -> None:
        while not stop.wait(pause()):
            step()

    with ThreadPoolExecutor(max_workers=1) as pool:
        going = pool.submit(go_on)
        try:
            yield
        finally:
            stop.set()
        going.result()
