# SPDX-License-Identifier: Apache-2.0
"""The kernels of peer.cu: compiled for a GPU, loaded onto it, launched on its streams."""

import ctypes
from pathlib import Path

import torch

from gpupack_workloads.cuda_compiler import Compiler, arch_of, require_kernel
from gpupack_workloads.cuda_module import Module, Signature
from gpupack_workloads.p2p_cpp.plan import blocks_of
from gpupack_workloads.p2p_cpp.runtime import Stream, current

POINTER = ctypes.c_void_p
COPY = Signature(
    "copy_bytes",
    "void copy_bytes(unsigned char *to, const unsigned char *from, unsigned long long count)",
    (POINTER, POINTER, ctypes.c_size_t),
)
BOUNCE = Signature(
    "bounce",
    "void bounce(unsigned *mine, unsigned *theirs, unsigned *done, unsigned rounds,"
    " unsigned leads)",
    (POINTER, POINTER, POINTER, ctypes.c_uint, ctypes.c_uint),
)
CHASE = Signature(
    "chase",
    "void chase(const unsigned *ring, unsigned *done, unsigned rounds)",
    (POINTER, POINTER, ctypes.c_uint),
)
SWAP = Signature(
    "compare_swap",
    "void compare_swap(unsigned *theirs, unsigned *done, unsigned rounds)",
    (POINTER, POINTER, ctypes.c_uint),
)
SIGNATURES = (COPY, BOUNCE, CHASE, SWAP)
# Of a block of copy_bytes.
THREADS = 256


def compile_kernels(compiler: Compiler, path: Path, capability: tuple[int, int]) -> bytes:
    """Return the code of all kernels for GPUs of a compute capability.

    Raises:
        BadArgument: the source does not compile, or lacks a kernel.
    """
    cubin = compiler.compile(path, arch_of(capability))
    for signature in SIGNATURES:
        require_kernel(cubin, path, signature.name, signature.declaration)
    return cubin


class PeerKernels:
    """The kernels, on one device. Addresses may be another's that it has access to.

    Args:
        cubin: the code.
        path: path of the source, for messages.
        device: its number.

    Raises:
        BadArgument: a kernel takes other parameters.
        Refused: the driver does not load the code.
    """

    def __init__(self, cubin: bytes, path: Path, device: int) -> None:
        self._device = device
        properties = torch.cuda.get_device_properties(device)
        self._multiprocessors = properties.multi_processor_count
        with current(device):
            module = Module(cubin, path)
            self._copy, self._bounce, self._chase, self._swap = map(module.function, SIGNATURES)

    def copy(self, target: int, source: int, count: int, stream: Stream) -> None:
        """Begin to copy bytes by loads and stores."""
        with current(self._device):
            self._copy.launch(
                (target, source, count),
                blocks=(blocks_of(count, self._multiprocessors), 1),
                threads=THREADS,
                stream=int(stream.handle),
            )

    def bounce(
        self, mine: int, theirs: int, done: int, *, rounds: int, leads: bool, stream: Stream
    ) -> None:
        """Begin to send a number there and back, with the kernel that does so there."""
        with current(self._device):
            self._bounce.launch(
                (mine, theirs, done, rounds, int(leads)),
                blocks=(1, 1),
                threads=1,
                stream=int(stream.handle),
            )

    def chase(self, ring: int, done: int, *, rounds: int, stream: Stream) -> None:
        """Begin to follow a ring of numbers."""
        with current(self._device):
            self._chase.launch(
                (ring, done, rounds), blocks=(1, 1), threads=1, stream=int(stream.handle)
            )

    def swap(self, theirs: int, done: int, *, rounds: int, stream: Stream) -> None:
        """Begin to count by compare and swap."""
        with current(self._device):
            self._swap.launch(
                (theirs, done, rounds), blocks=(1, 1), threads=1, stream=int(stream.handle)
            )
