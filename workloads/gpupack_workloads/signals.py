# SPDX-License-Identifier: Apache-2.0
"""Raises signals to end as an exception in the main thread.

By default no signal ends a container's first process.
"""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from types import FrameType

SignalContext = Callable[[], AbstractContextManager[None]]

TO_END = (signal.SIGTERM, signal.SIGINT)


class EndRequested(KeyboardInterrupt):
    """A signal to end. Not an Exception, which other code (such as a log's handler) might swallow.

    It is a KeyboardInterrupt, because asyncio only logs other exceptions of its callbacks.

    Attributes:
        sigval: the signal; torch's SignalException has the same attribute.
    """

    def __init__(self, sigval: signal.Signals) -> None:
        super().__init__(sigval.name)
        self.sigval = sigval


def raise_on_signals() -> None:
    """Raise `EndRequested` from now on, until other handlers are set."""
    if threading.current_thread() is not threading.main_thread():
        return  # Python sets handlers only from the main thread; torch does the same.
    for number in TO_END:
        signal.signal(number, _raise)


@contextlib.contextmanager
def raising_on_signals() -> Iterator[None]:
    """Raise `EndRequested` for as long as the context lasts."""
    with _as_before():
        raise_on_signals()
        yield


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let signals end the process at once, even in a library's call that does not return.

    The default action does not end a container's first process, so there the signals are raised.
    """
    with _as_before():
        if os.getpid() == 1:
            raise_on_signals()
        elif threading.current_thread() is threading.main_thread():
            for number in TO_END:
                signal.signal(number, signal.SIG_DFL)
        yield


@contextlib.contextmanager
def _as_before() -> Iterator[None]:
    """Restore the signal handlers at the end."""
    before = {number: signal.getsignal(number) for number in TO_END}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in before.items():
                signal.signal(number, handler)


def _raise(number: int, frame: FrameType | None) -> None:
    del frame
    raise EndRequested(signal.Signals(number))
