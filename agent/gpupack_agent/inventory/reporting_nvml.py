# SPDX-License-Identifier: Apache-2.0
"""A wrapper of NVML that reports the GPU of each call, because the call may hang."""

import functools
import threading
from collections.abc import Callable
from typing import Any

OPEN_FUNCTION = "nvmlDeviceGetHandleByIndex"


class ReportingNvml:
    """A wrapper with the functions and constants of `pynvml`.

    A handle belongs to the GPU for which it was opened. A call whose first argument is no known
    handle counts for the GPU of the call before, such as a call with the handle of a MIG device. A
    call without arguments concerns no single GPU. Calls of other threads are not reported, because
    those threads wait for events.

    Args:
        nvml: the module `pynvml`, or an object with its functions.
        report_gpu: called with the index when the GPU changes; None: no single GPU.
    """

    def __init__(self, nvml: Any, report_gpu: Callable[[int | None], None]) -> None:
        self._nvml, self._report_gpu = nvml, report_gpu
        self._opened: dict[int, tuple[Any, int]] = {}
        """Handle and index, by the handle's identity, because pynvml's handles do not compare."""
        self._thread = threading.get_ident()
        self._index: int | None = None

    def start_request(self) -> None:
        """Forget all handles: each scan opens them again."""
        self._opened.clear()
        self._index = None
        self._report_gpu(None)

    def __getattr__(self, name: str) -> Any:
        """Return a constant, or a function that reports its GPU before the call."""
        found = getattr(self._nvml, name)
        is_call = name.startswith("nvml") and callable(found)
        return functools.partial(self._call, name, found) if is_call else found

    def _call(self, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        if threading.get_ident() != self._thread:
            return function(*arguments)
        self._report_if_changed(name, arguments)
        result = function(*arguments)
        if name == OPEN_FUNCTION:
            self._opened[id(result)] = (result, arguments[0])
        return result

    def _report_if_changed(self, name: str, arguments: tuple[Any, ...]) -> None:
        index = self._index
        if name == OPEN_FUNCTION:
            index = arguments[0]
        elif not arguments:
            index = None
        elif known := self._opened.get(id(arguments[0])):
            index = known[1]
        if index != self._index:
            self._index = index
            self._report_gpu(index)
