# SPDX-License-Identifier: Apache-2.0
"""A kernel `matmul` in CUDA C++: compiled, loaded, launched.

A source has a kernel `matmul` of `MATMUL`, and says how it is launched by `launch`:

    extern "C" { __constant__ int launch[4] = {rows, columns, threads, shared}; }

These are rows and columns of C per block, threads per block (along x), and bytes of dynamic shared
memory. Blocks are numbered by columns along x and by rows along y. Without `launch` a block of 256
threads has 16 x 16 elements.
"""

import ctypes
from dataclasses import dataclass, fields
from pathlib import Path

from gpupack_workloads.cuda_api import Refused
from gpupack_workloads.cuda_compiler import Compiler, require_kernel
from gpupack_workloads.cuda_module import Module, Signature
from gpupack_workloads.errors import BadArgument

LAUNCH = "launch"
MATMUL = Signature(
    "matmul",
    "void matmul(const T *A, const T *B, float *C, int M, int N, int K)",
    (ctypes.c_void_p,) * 3 + (ctypes.c_int,) * 3,
)
MAX_THREADS = 1024


@dataclass(frozen=True)
class Launch:
    """Launch parameters of a kernel from its source.

    Attributes:
        rows: number of rows of C per block.
        columns: number of columns of C per block.
        threads: per block.
        shared_bytes: bytes of dynamic shared memory per block.
    """

    rows: int = 16
    columns: int = 16
    threads: int = 256
    shared_bytes: int = 0


LAUNCH_FIELDS = fields(Launch)


def compile_matmul(compiler: Compiler, path: Path, arch: str) -> bytes:
    """Return the code of a source for an architecture.

    Raises:
        BadArgument: it does not compile, or has no `matmul`.
    """
    cubin = compiler.compile(path, arch)
    require_kernel(cubin, path, MATMUL.name, MATMUL.declaration)
    return cubin


class Kernel:
    """A compiled `matmul`, loaded onto the current device, which has a context by now.

    Args:
        cubin: the code.
        path: path of the source, for messages.

    Raises:
        BadArgument: the parameters or the way to launch it cannot be.
        Refused: the driver does not load the code.
    """

    def __init__(self, cubin: bytes, path: Path) -> None:
        self._path = path
        module = Module(cubin, path)
        self._function = module.function(MATMUL)
        self.how = self._launch_of(module)
        self._ask_for_shared_memory()

    def launch(
        self, addresses: tuple[int, int, int], shape: tuple[int, int, int], stream: int
    ) -> None:
        """Compute C = A B on a stream.

        Args:
            addresses: addresses of A, B and C, each row by row without gaps, on the device.
            shape: M, N and K.
            stream: the handle of a stream of the current device.

        Raises:
            BadArgument: the GPU cannot launch it.
        """
        m, n, _ = shape
        how = self.how
        blocks = (-(-n // how.columns), -(-m // how.rows))
        try:
            self._function.launch(
                (*addresses, *shape),
                blocks=blocks,
                threads=how.threads,
                stream=stream,
                shared_bytes=how.shared_bytes,
            )
        except Refused as error:
            raise BadArgument(
                f"{self._path}: {blocks[0]} x {blocks[1]} blocks of {how.threads} threads cannot be"
                f" launched on this GPU: {error}"
            ) from error

    def _launch_of(self, module: Module) -> Launch:
        values = module.integers(LAUNCH)
        if values is None:
            return Launch()
        if len(values) != len(LAUNCH_FIELDS):
            raise BadArgument(
                f"{self._path}: {LAUNCH} has {len(values)} numbers; it is int {LAUNCH}[4]"
            )
        return checked_launch(Launch(*values), self._path)

    def _ask_for_shared_memory(self) -> None:
        try:
            self._function.ask_for_shared_memory(self.how.shared_bytes)
        except Refused as error:
            raise BadArgument(
                f"{self._path}: a block takes {self.how.shared_bytes} bytes of dynamic shared"
                f" memory, more than this GPU gives it: {error}"
            ) from error


def checked_launch(launch: Launch, path: Path) -> Launch:
    """Return how a kernel is launched, if it can be so on any GPU.

    Raises:
        BadArgument: it cannot.
    """
    possible = (
        launch.rows > 0
        and launch.columns > 0
        and 0 < launch.threads <= MAX_THREADS
        and launch.shared_bytes >= 0
    )
    if not possible:
        raise BadArgument(
            f"{path}: {LAUNCH} says {launch.rows} x {launch.columns} elements, {launch.threads}"
            f" threads and {launch.shared_bytes} bytes: there must be elements, 1 to {MAX_THREADS}"
            " threads, and no negative number"
        )
    return launch
