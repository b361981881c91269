# SPDX-License-Identifier: Apache-2.0
"""A matrix product in CUDA C++, from one thread per element to tensor cores, or a kernel of yours.

    naive.cu         one thread computes one element
    shared.cu        a block shares tiles in shared memory
    registers.cu     a thread computes 8 x 8 elements in registers, by vectors of four
    tensor_cores.cu  mma.sync, ldmatrix, cp.async, four stages
    kernels          compiles such a source, loads and launches it
    session          checks, times against cuBLAS, and makes the result

Each source is self-contained: copy one to begin a kernel of your own (`--source`).
Only `session` imports torch.
"""

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpupack_workloads.results import Result
from gpupack_workloads.settings import Options

DTYPES = ("float32", "bfloat16")


@dataclass(frozen=True, kw_only=True)
class CudaMatmulOptions(Options):
    """Options of `cuda-matmul`; `size` is rows and columns of all matrices.

    Attributes:
        source: a kernel to run instead of ours.
        dtype: type of that kernel's A and B.
        compiler: nvcc or nvrtc; None takes nvcc where there is one.
    """

    source: Path | None = None
    dtype: str = "float32"
    compiler: str | None = None


@dataclass(frozen=True)
class Step:
    """A kernel.

    Attributes:
        name: in results.
        path: path of its source.
        dtype: type of A and B.
        least: the compute capability that it needs.
    """

    name: str
    path: Path
    dtype: str
    least: tuple[int, int] = (0, 0)


HERE = Path(__file__).parent
STEPS = (
    Step("naive", HERE / "naive.cu", "float32"),
    Step("shared", HERE / "shared.cu", "float32"),
    Step("registers", HERE / "registers.cu", "float32"),
    Step("tensor_cores", HERE / "tensor_cores.cu", "bfloat16", least=(8, 0)),
)


def steps_of(options: CudaMatmulOptions) -> tuple[Step, ...]:
    """Return our kernels, or the user's one."""
    if options.source is None:
        return STEPS
    return (Step("source", options.source, options.dtype),)


def run(options: CudaMatmulOptions) -> Result:
    """Compile, check and time the kernels; see `session.run`."""
    session: Any = importlib.import_module("gpupack_workloads.cuda_matmul.session")
    result: Result = session.run(options)
    return result
