# SPDX-License-Identifier: Apache-2.0
"""NVML that says which GPU it is asked about, before each call that may hang."""

import functools
import threading
from collections.abc import Callable
from typing import Any

OPENS = "nvmlDeviceGetHandleByIndex"


class Asking:
    """Has the functions and constants of `pynvml`.

    A handle belongs to the GPU that it was opened for; what takes none that is known, such as the
    call that opens a MIG device, goes on with the GPU before. Calls of other threads say nothing:
    those wait for events.

    Args:
        nvml: the module `pynvml`, or anything with its functions.
        asks: told the index when another GPU's turn comes; None: nothing that is one GPU's.
    """

    def __init__(self, nvml: Any, asks: Callable[[int | None], None]) -> None:
        self._nvml, self._asks = nvml, asks
        self._opened: dict[int, tuple[Any, int]] = {}
        """Handle and index, by the handle's identity: pynvml's do not compare."""
        self._thread = threading.get_ident()
        self._index: int | None = None

    def begin(self) -> None:
        """Another scan, which opens its handles anew."""
        self._opened.clear()
        self._index = None
        self._asks(None)

    def __getattr__(self, name: str) -> Any:
        """The function, which says what it is about, or the constant."""
        found = getattr(self._nvml, name)
        is_call = name.startswith("nvml") and callable(found)
        return functools.partial(self._call, name, found) if is_call else found

    def _call(self, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        if threading.get_ident() != self._thread:
            return function(*arguments)
        self._say(name, arguments)
        result = function(*arguments)
        if name == OPENS:
            self._opened[id(result)] = (result, arguments[0])
        return result

    def _say(self, name: str, arguments: tuple[Any, ...]) -> None:
        index = self._index
        if name == OPENS:
            index = arguments[0]
        elif not arguments:
            index = None
        elif known := self._opened.get(id(arguments[0])):
            index = known[1]
        if index != self._index:
            self._index = index
            self._asks(index)
