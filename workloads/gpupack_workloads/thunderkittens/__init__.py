# SPDX-License-Identifier: Apache-2.0
"""GEMM and attention in ThunderKittens' tile C++, against our Triton and Gluon kernels.

    gemm.cu       C = A B, bfloat16
    attention.cu  attention forward, heads of 128, full and causal
    kernels       compiles them against ThunderKittens' headers, describes tensors, launches
    session       checks, times against Triton, Gluon, cuBLAS and cuDNN, and makes the result

ThunderKittens is not part of this project: its folder is named by TK_ROOT.
Only `session` imports torch.
"""

import importlib
from dataclasses import dataclass
from typing import Any

from gpupack_workloads.errors import BadArgument
from gpupack_workloads.results import Result
from gpupack_workloads.settings import Options

COLUMN = 64
"""ThunderKittens describes a matrix as columns of so many elements, and none is beyond the last."""


@dataclass(frozen=True, kw_only=True)
class ThunderKittensOptions(Options):
    """Options of `thunderkittens`; `size` is rows and columns of the matrices.

    Attributes:
        length: positions of the sequences; None takes what suits the device.
        heads: number of heads of attention; None takes what suits the device.
        compiler: nvcc or nvrtc; None takes nvcc where there is one.
    """

    length: int | None = None
    heads: int | None = None
    compiler: str | None = None

    def __post_init__(self) -> None:
        """Refuse a size that a tensor map of ThunderKittens' cannot describe."""
        if self.size is not None and self.size % COLUMN:
            raise BadArgument(
                f"--size {self.size} is no multiple of {COLUMN}: ThunderKittens describes a matrix"
                f" as whole columns of {COLUMN} elements"
            )


def run(options: ThunderKittensOptions) -> Result:
    """Compile, check and time the kernels; see `session.run`."""
    session: Any = importlib.import_module("gpupack_workloads.thunderkittens.session")
    result: Result = session.run(options)
    return result
