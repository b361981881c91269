# SPDX-License-Identifier: Apache-2.0
"""GPU kernels in Triton and Gluon, as functions of torch's tensors.

    from gpupack_kernels import attention, gemm, gemms, softmax, vector_add
    from gpupack_kernels import attention_varlen, paged_decode_attention
    from gpupack_kernels import linear_cross_entropy, rms_norm, rotary, swiglu

Each function is imported when it is first used: importing Triton takes seconds, and decides whether
kernels are compiled or interpreted (set TRITON_INTERPRET before).

    operators       a folder for each function; `operators` describes their shape
    communication   kernels that work in another GPU's memory
"""

import importlib
from collections.abc import Callable
from typing import Any

FOLDERS = {
    "attention": "attention",
    "attention_varlen": "attention_varlen",
    "gemm": "gemm",
    "gemms": "gemm",
    "linear_cross_entropy": "linear_cross_entropy",
    "paged_decode_attention": "paged_decode_attention",
    "rms_norm": "rms_norm",
    "rotary": "rotary",
    "softmax": "softmax",
    "swiglu": "swiglu",
    "vector_add": "vector_add",
}


def __getattr__(name: str) -> Callable[..., Any]:
    """Import a function by its name."""
    if name not in FOLDERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.operators.{FOLDERS[name]}.ops")
    function: Callable[..., Any] = getattr(module, name)
    return function
