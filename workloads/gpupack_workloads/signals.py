# SPDX-License-Identifier: Apache-2.0
"""Signals to end, raised as an exception wherever the main thread is.

A container's first process, which no signal ends by default, would not hear them otherwise.
"""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from types import FrameType

Heeding = Callable[[], AbstractContextManager[None]]

TO_END = (signal.SIGTERM, signal.SIGINT)


class Told(KeyboardInterrupt):
    """A signal to end; no error, which somebody (such as a log's handler) might swallow.

    A KeyboardInterrupt, since asyncio logs what else its callbacks raise, and goes on.

    Attributes:
        sigval: which, by the name that torch's SignalException has for it.
    """

    def __init__(self, sigval: signal.Signals) -> None:
        super().__init__(sigval.name)
        self.sigval = sigval


def heed_signals() -> None:
    """Raise `Told` from now on, until somebody else takes the signals."""
    if threading.current_thread() is not threading.main_thread():
        return  # Python takes handlers from no other thread, and torch leaves it at that, too.
    for number in TO_END:
        signal.signal(number, _raise)


@contextlib.contextmanager
def heeding_signals() -> Iterator[None]:
    """Raise `Told` for as long as the context lasts."""
    with _as_before():
        heed_signals()
        yield


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let signals end the process at once, even in a library's call that does not return.

    A container's first process is ended by none of itself: it hears them as elsewhere.
    """
    with _as_before():
        if os.getpid() == 1:
            heed_signals()
        elif threading.current_thread() is threading.main_thread():
            for number in TO_END:
                signal.signal(number, signal.SIG_DFL)
        yield


@contextlib.contextmanager
def _as_before() -> Iterator[None]:
    """Leave the signals in the end to who had them."""
    before = {number: signal.getsignal(number) for number in TO_END}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in before.items():
                signal.signal(number, handler)


def _raise(number: int, frame: FrameType | None) -> None:
    del frame
    raise Told(signal.Signals(number))
