# SPDX-License-Identifier: Apache-2.0
"""The same product and the same attention: in ThunderKittens' tile C++, in Gluon, in Triton."""

import math
import os
import struct
import tempfile
import time
from collections.abc import Callable
from typing import Any, Protocol

import torch

from gpupack_kernels.devices import device_of
from gpupack_kernels.loading import load
from gpupack_workloads.thunderkittens.kernels import Compiled, Kernels, Operand

# Of wgmma's tiles of rows, one for each group of warps that multiplies.
GROUPS = 2
# Of its operands where Triton gets ready to compile.
FEW = 1024
CACHE_VARIABLE = "TRITON_CACHE_DIR"

Product = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class Forward(Protocol):
    """Attention without a gradient."""

    def __call__(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool
    ) -> torch.Tensor:
        """Return O."""


def operand_of(tensor: torch.Tensor) -> Operand:
    """Describe a tensor of two or four dimensions without gaps."""
    batch, depth = tensor.shape[:-2] or (1, 1)
    return Operand(tensor.data_ptr(), (batch, depth, tensor.shape[-2], tensor.shape[-1]))


class TileGemm:
    """The product in ThunderKittens' tile C++, on the current device."""

    def __init__(self, code: Compiled) -> None:
        self._kernels = Kernels(code)
        (self._entry,) = code.source.entries
        (rows, _), (_, self._columns), _ = self._kernels.layout.boxes
        self._rows = GROUPS * rows
        self._most = torch.cuda.get_device_properties().multi_processor_count

    def __call__(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Return A B, of bfloat16 as they are."""
        c = torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=a.dtype)
        self.into(a, b, c)
        return c

    def into(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
        """Write A B to C; all are contiguous and row-major."""
        tiles = -(-c.shape[0] // self._rows) * -(-c.shape[1] // self._columns)
        with device_of(c):
            self._kernels.launch(
                self._entry,
                [operand_of(matrix) for matrix in (a, b, c)],
                blocks=(min(self._most, tiles), 1),
                stream=torch.cuda.current_stream(a.device).cuda_stream,
            )


class TileAttention:
    """Attention in ThunderKittens' tile C++, on the current device."""

    def __init__(self, code: Compiled) -> None:
        self._kernels = Kernels(code, rest=struct.calcsize("<f"))
        self._full, self._causal = code.source.entries
        (rows, _), *_ = self._kernels.layout.boxes
        self._rows = GROUPS * rows

    def __call__(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool
    ) -> torch.Tensor:
        """Return O, of bfloat16 as Q, K and V are."""
        o = torch.empty_like(q)
        self.into((q, k, v), o, causal=causal)
        return o

    def into(
        self,
        qkv: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
        o: torch.Tensor,
        *,
        causal: bool,
    ) -> None:
        """Write O; all are contiguous."""
        batch, heads, rows, dimension = o.shape
        with device_of(o):
            self._kernels.launch(
                self._causal if causal else self._full,
                [operand_of(tensor) for tensor in (*qkv, o)],
                blocks=(-(-rows // self._rows) * batch * heads, 1),
                stream=torch.cuda.current_stream(o.device).cuda_stream,
                rest=struct.pack("<f", dimension**-0.5 * math.log2(math.e)),
            )


def triton_gemm() -> Product:
    """Return the product by Triton's kernel for any GPU, in the type of the operands."""
    launch = load("gemm.portable.launch", "launch")

    def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        c = torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=a.dtype)
        launch(a, b, c)
        return c

    return product


def gluon_gemm() -> Product:
    """Return the product by the Gluon kernel for Hopper, which ours is there."""
    return load("gemm.launch", "multiply")


def triton_attention() -> Forward:
    """Return attention by Triton's kernel for any GPU."""
    problem_of = load("attention.problem", "problem_of")
    forward = load("attention.portable.launch", "forward")
    empty_sums = load("attention.portable.launch", "empty_sums")

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool) -> torch.Tensor:
        problem = problem_of(q, k, v, causal=causal, scale=None)
        o = torch.empty_like(q)
        forward((q, k, v), (o, empty_sums(problem, q.device)), problem)
        return o

    return attend


def gluon_attention() -> Forward:
    """Return attention by the Gluon kernel for Hopper."""
    problem_of = load("attention.problem", "problem_of")
    configuration_of = load("attention.launch", "configuration_of")
    forward = load("attention.hopper.launch", "forward")
    empty_sums = load("attention.portable.launch", "empty_sums")

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool) -> torch.Tensor:
        problem = problem_of(q, k, v, causal=causal, scale=None)
        o = torch.empty_like(q)
        results = o, empty_sums(problem, q.device)
        forward((q, k, v), results, problem, configuration_of(q, problem))
        return o

    return attend


def cold_seconds(calls: dict[Any, Callable[[], object]]) -> dict[Any, float]:
    """Return what the first call of each took, with nothing in Triton's cache.

    What Triton does once for all, such as building its launcher, another kernel has made it do.
    """
    vector_add = load("vector_add.ops", "vector_add")
    before = os.environ.get(CACHE_VARIABLE)
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        os.environ[CACHE_VARIABLE] = folder
        try:
            few = torch.ones(FEW, device="cuda")
            vector_add(few, few)
            for name, call in calls.items():
                torch.cuda.synchronize()
                start = time.perf_counter()
                call()
                torch.cuda.synchronize()
                found[name] = time.perf_counter() - start
        finally:
            if before is None:
                del os.environ[CACHE_VARIABLE]
            else:
                os.environ[CACHE_VARIABLE] = before
    return found
