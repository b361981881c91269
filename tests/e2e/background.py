# SPDX-License-Identifier: Apache-2.0
"""Do something again and again beside the test."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor


@contextlib.contextmanager
def running(step: Callable[[], object], pause: Callable[[], float]) -> Iterator[None]:
    """Do a step after each pause (seconds) until the block ends.

    What a step raises is raised at the block's end.
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
