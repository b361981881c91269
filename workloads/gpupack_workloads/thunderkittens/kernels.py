# SPDX-License-Identifier: Apache-2.0
"""Compiles, loads and launches the kernels in ThunderKittens' tile C++.

ThunderKittens' headers alone are needed, and those of CUDA with its C++ library. NVRTC takes them,
too, though it has no standard library: the few of its headers that are needed come out of
CUDA's. It sees no host's code, and ThunderKittens makes its tensor maps there; so they are made
here, as `create_tensor_map` there does, for both compilers.

A kernel takes one structure by value: a `gl` for each tensor, and what else there is. A `gl` has a
pointer, four sizes, and a tensor map, which each compiler aligns in its own way; a constant of the
source tells.
"""

import ctypes
import functools
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpupack_workloads.cuda_api import check_status, load
from gpupack_workloads.cuda_compiler import Build, Compiler, require_kernel
from gpupack_workloads.cuda_module import Function, Module, Signature
from gpupack_workloads.errors import BadArgument
from gpupack_workloads.thunderkittens import COLUMN

ROOT_VARIABLE = "TK_ROOT"
# wgmma and setmaxnreg are of this architecture alone, which no later GPU runs.
ARCH = "sm_90a"
HOPPER = (9, 0)
MAP_BYTES = 128
ELEMENT_BYTES = 2
STANDARD_HEADERS = ("bit", "concepts", "cstddef", "cstdint", "type_traits")
FROM_CUDA = "#pragma once\n#include <cuda/std/{}>\nnamespace std {{ using namespace cuda::std; }}\n"


@dataclass(frozen=True)
class Source:
    """One of our sources.

    Attributes:
        name: in results.
        path: path of the file.
        entries: its kernels, each `extern "C" __global__ void (const __grid_constant__ Operands)`.
    """

    name: str
    path: Path
    entries: tuple[str, ...]


HERE = Path(__file__).parent
GEMM = Source("gemm", HERE / "gemm.cu", ("thunderkittens_gemm",))
ATTENTION = Source(
    "attention",
    HERE / "attention.cu",
    ("thunderkittens_attention", "thunderkittens_attention_causal"),
)
SOURCES = (GEMM, ATTENTION)

Shape = tuple[int, int, int, int]


@dataclass(frozen=True)
class Operand:
    """A contiguous tensor of bfloat16 on the device.

    Attributes:
        address: address of the first element, a multiple of 16.
        shape: batch, depth, rows, columns; the columns a multiple of 64.
    """

    address: int
    shape: Shape


def root_of(environ: Mapping[str, str]) -> Path:
    """Return the folder of ThunderKittens.

    Raises:
        BadArgument: none is named, or it is not there.
    """
    named = environ.get(ROOT_VARIABLE)
    if not named:
        raise BadArgument(
            f"{ROOT_VARIABLE} is not set: clone https://github.com/HazyResearch/ThunderKittens and"
            " name its folder, or use an image that has it (see docs/workloads/matrix-products.md)"
        )
    header = Path(named) / "include" / "kittens.cuh"
    if not header.is_file():
        raise BadArgument(f"{ROOT_VARIABLE} is {named!r}, where there is no include/kittens.cuh")
    return Path(named)


def build_of(root: Path) -> Build:
    """Return the compiler options that ThunderKittens requires."""
    return Build(
        standard="c++20",
        folders=(root / "include",),
        options=("-DKITTENS_HOPPER", "-DNDEBUG", "--use_fast_math"),
        nvcc_options=("--expt-relaxed-constexpr", "--extended-lambda"),
        nvrtc_options=("-DKITTENS_NO_HOST",),
        nvrtc_headers={name: FROM_CUDA.format(name) for name in STANDARD_HEADERS},
    )


@dataclass(frozen=True)
class Compiled:
    """Code of a source.

    Attributes:
        source: what was compiled.
        cubin: the code.
        seconds: that compiling took.
    """

    source: Source
    cubin: bytes
    seconds: float


def compiled(source: Source, compiler: Compiler, root: Path) -> Compiled:
    """Compile a source.

    Raises:
        BadArgument: it does not compile, or lacks a kernel.
    """
    start = time.perf_counter()
    cubin = compiler.compile(source.path, ARCH, build_of(root))
    seconds = time.perf_counter() - start
    for entry in source.entries:
        require_kernel(cubin, source.path, entry, f"void {entry}(const __grid_constant__ Operands)")
    return Compiled(source, cubin, seconds)


@dataclass(frozen=True)
class Layout:
    """Layout constants of a source: `launch` and `boxes`.

    Attributes:
        threads: number of threads of a block.
        shared_bytes: bytes of dynamic shared memory of a block.
        alignment: alignment of a tensor map, in bytes.
        boxes: rows and columns of the tile that each operand's map is for.
    """

    threads: int
    shared_bytes: int
    alignment: int
    boxes: tuple[tuple[int, int], ...]

    @property
    def operand_bytes(self) -> int:
        """Return the size of a `gl`: the map, one byte for an empty list, and what aligns both."""
        return self.map_offset + aligned(MAP_BYTES + 1, self.alignment)

    @property
    def map_offset(self) -> int:
        """Return where in a `gl` its map is, behind a pointer and four sizes."""
        return aligned(struct.calcsize("<5Q"), self.alignment)

    def size(self, rest: int) -> int:
        """Return the size of all operands, and of so many bytes behind them."""
        return aligned(len(self.boxes) * self.operand_bytes + rest, self.alignment)


def aligned(size: int, alignment: int) -> int:
    """Round up to a multiple."""
    return -(-size // alignment) * alignment


def layout_of(module: Module, path: Path) -> Layout:
    """Read a source's constants.

    Raises:
        BadArgument: they are not there.
    """
    how, boxes = module.integers("launch"), module.integers("boxes")
    if how is None or boxes is None:
        raise BadArgument(f"{path} lacks int launch[3] or int boxes[]")
    threads, shared_bytes, alignment = how
    return Layout(
        threads=threads,
        shared_bytes=shared_bytes,
        alignment=alignment,
        boxes=tuple(zip(boxes[::2], boxes[1::2], strict=True)),
    )


class Kernels:
    """The kernels of a source, loaded onto the current device, which has a context by now.

    Args:
        code: machine code of the source.
        rest: bytes of what a kernel takes behind its tensors.

    Raises:
        BadArgument: a kernel takes another structure.
        Refused: the driver does not load the code, or the GPU has too little shared memory.
    """

    def __init__(self, code: Compiled, *, rest: int = 0) -> None:
        path = code.source.path
        module = Module(code.cubin, path)
        self.layout = layout_of(module, path)
        size = self.layout.size(rest)
        fields = [("bytes", ctypes.c_ubyte * size)]
        self._structure: Any = type("Operands", (ctypes.Structure,), {"_fields_": fields})
        self._functions: dict[str, Function] = {}
        for entry in code.source.entries:
            declaration = f"void {entry}(const __grid_constant__ Operands)"
            function = module.function(Signature(entry, declaration, (self._structure,)))
            function.ask_for_shared_memory(self.layout.shared_bytes)
            self._functions[entry] = function

    def launch(
        self,
        entry: str,
        operands: Sequence[Operand],
        *,
        blocks: tuple[int, int],
        stream: int,
        rest: bytes = b"",
    ) -> None:
        """Begin to compute on a stream of the current device.

        Args:
            entry: the kernel.
            operands: its tensors, in the order of its structure.
            blocks: along x and y.
            stream: its handle.
            rest: what the structure has behind the tensors.

        Raises:
            Refused: the GPU cannot launch it, or no map describes a tensor.
        """
        self._functions[entry].launch(
            (self._structure.from_buffer_copy(self.packed(operands, rest)),),
            blocks=blocks,
            threads=self.layout.threads,
            stream=stream,
            shared_bytes=self.layout.shared_bytes,
        )

    def packed(self, operands: Sequence[Operand], rest: bytes) -> bytearray:
        """Return the structure that a kernel takes."""
        layout = self.layout
        values = bytearray(layout.size(len(rest)))
        for number, (operand, box) in enumerate(zip(operands, layout.boxes, strict=True)):
            start = number * layout.operand_bytes
            struct.pack_into("<5Q", values, start, operand.address, *operand.shape)
            at = start + layout.map_offset
            values[at : at + MAP_BYTES] = tensor_map(operand, box)
        end = len(operands) * layout.operand_bytes
        values[end : end + len(rest)] = rest
        return values


# A work repeats its tensors, and a map takes longer to make than a launch.
@functools.lru_cache(maxsize=256)
def tensor_map(operand: Operand, box: tuple[int, int]) -> bytes:
    """Describe a tensor to the copy engine as ThunderKittens does: columns of 64 elements.

    Args:
        operand: the tensor.
        box: rows and columns of a tile.

    Raises:
        Refused: the driver has no such map.
    """
    driver = load("driver")
    sizes, steps, block = map_numbers(operand.shape, box)
    described: Any = check_status(
        driver.cuTensorMapEncodeTiled(
            driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
            len(sizes),
            operand.address,
            [driver.cuuint64_t(size) for size in sizes],
            [driver.cuuint64_t(step) for step in steps],
            [driver.cuuint32_t(length) for length in block],
            [driver.cuuint32_t(1) for _ in block],
            driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
            driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_NONE,
            driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    )
    return ctypes.string_at(int(described.getPtr()), MAP_BYTES)


def map_numbers(
    shape: Shape, box: tuple[int, int]
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Return sizes in elements, steps in bytes of all but the first, and the box, innermost first.

    The first dimension is one column of 64 elements, then come rows, columns, depth and batch.
    """
    batch, depth, rows, columns = shape
    row = columns * ELEMENT_BYTES
    sizes = (COLUMN, rows, columns // COLUMN, depth, batch)
    steps = (row, COLUMN * ELEMENT_BYTES, rows * row, depth * rows * row)
    return sizes, steps, (COLUMN, box[0], box[1] // COLUMN, 1, 1)
