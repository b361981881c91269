# SPDX-License-Identifier: Apache-2.0
"""Triton kernels: a folder each, with kernel, launcher and reference; a library as well.

    from gpupack_workloads.kernels import attention, gemm, gemms, softmax, vector_add
    from gpupack_workloads.kernels import attention_varlen, paged_decode_attention
    from gpupack_workloads.kernels import linear_cross_entropy, rms_norm, rotary, swiglu

Each name is imported when it is first used: importing Triton takes seconds, and decides whether
kernels are compiled or interpreted (set TRITON_INTERPRET before).
"""

import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

MODULES = {
    "attention": "attention.ops",
    "attention_varlen": "attention.varlen.ops",
    "gemm": "gemm.ops",
    "gemms": "gemm.ops",
    "linear_cross_entropy": "linear_cross_entropy.ops",
    "paged_decode_attention": "attention.paged.ops",
    "rms_norm": "rms_norm.ops",
    "rotary": "rotary.ops",
    "softmax": "softmax.ops",
    "swiglu": "swiglu.ops",
    "vector_add": "vector_add.ops",
}


def __getattr__(name: str) -> Callable[..., Any]:
    """Import a kernel's function by its name."""
    if name not in MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{MODULES[name]}")
    function: Callable[..., Any] = getattr(module, name)
    return function


class Library(ModuleType):
    """This package, whose functions have the names of its folders.

    Importing a folder makes it an attribute of its package, which would hide the function.
    """

    def __setattr__(self, name: str, value: object) -> None:
        """Keep everything but folders that bear a function's name."""
        if name not in MODULES or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = Library
