# SPDX-License-Identifier: Apache-2.0
"""Imports kernels so that they run where they are wanted: compiled for a GPU, or interpreted."""

import importlib
import os
from collections.abc import Callable
from typing import Any


def interpret() -> None:
    """Let kernels be interpreted, for there is no GPU.

    Triton decides that once for all when it is imported, and torch imports it when it likes: with
    the first optimiser, or for the profiler. So this is called as soon as the device is known.
    """
    os.environ["TRITON_INTERPRET"] = "1"


def load(path: str, name: str) -> Callable[..., Any]:
    """Import a function of a kernel; by then a device has been chosen.

    Args:
        path: the module below `gpupack_kernels.operators`.
        name: the function.
    """
    module = importlib.import_module(f"gpupack_kernels.operators.{path}")
    function: Callable[..., Any] = getattr(module, name)
    return function
