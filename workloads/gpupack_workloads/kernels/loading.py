# SPDX-License-Identifier: Apache-2.0
"""Imports kernels so that they run where they are wanted: compiled for a GPU, or interpreted."""

import importlib
import os
from collections.abc import Callable
from typing import Any


def load(path: str, name: str, *, interpreted: bool) -> Callable[..., Any]:
    """Import a function of a kernel; Triton decides at its own import whether to interpret.

    Args:
        path: the module below `gpupack_workloads.kernels`.
        name: the function.
        interpreted: there is no GPU.
    """
    if interpreted:
        interpret()
    module = importlib.import_module(f"gpupack_workloads.kernels.{path}")
    function: Callable[..., Any] = getattr(module, name)
    return function


def interpret() -> None:
    """Let Triton interpret kernels from its import on, which must not have happened yet."""
    os.environ["TRITON_INTERPRET"] = "1"
