# SPDX-License-Identifier: Apache-2.0
"""Loads machine code on a GPU, finds its kernels, checks their parameters, and launches them."""

import ctypes
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpupack_workloads.cuda_api import Refused, check_status, load
from gpupack_workloads.errors import BadArgument

# Of a constant that is read; a tenant's source may have one of any size.
MAX_INTEGERS = 64


@dataclass(frozen=True)
class Signature:
    """Parameters of a kernel.

    Attributes:
        name: name of the kernel, which is extern "C".
        declaration: in C++, for messages.
        types: ctypes of its parameters, including structures by value.
    """

    name: str
    declaration: str
    types: tuple[Any, ...]

    @property
    def sizes(self) -> list[int]:
        """Return the bytes of each parameter."""
        return [ctypes.sizeof(kind) for kind in self.types]


class Module:
    """Code that is loaded onto the current device, which has a context by now.

    The driver unloads no code that a kernel may still be of: it stays as long as the process.

    Args:
        cubin: the code.
        path: path of the source, for messages.

    Raises:
        Refused: the driver does not load the code.
    """

    def __init__(self, cubin: bytes, path: Path) -> None:
        self._driver = load("driver")
        self._path = path
        self.handle: Any = check_status(self._driver.cuModuleLoadData(cubin))

    def integers(self, name: str) -> list[int] | None:
        """Return a constant of the code, `int name[]`; None where it has none of that name.

        Raises:
            BadArgument: it is something else, or more than is read.
            Refused: it cannot be read.
        """
        try:
            pointer, size = check_status(self._driver.cuModuleGetGlobal(self.handle, name.encode()))
        except Refused as error:
            if error.status != "CUDA_ERROR_NOT_FOUND":
                raise
            return None
        count, rest = divmod(int(size), ctypes.sizeof(ctypes.c_int))
        if rest or count > MAX_INTEGERS:
            raise BadArgument(
                f"{self._path}: {name} has {size} bytes: it is int {name}[] of at most"
                f" {MAX_INTEGERS} numbers"
            )
        values = (ctypes.c_int * count)()
        check_status(self._driver.cuMemcpyDtoH(ctypes.addressof(values), pointer, int(size)))
        return list(values)

    def function(self, signature: Signature) -> "Function":
        """Return a kernel.

        Raises:
            BadArgument: it takes other parameters.
            Refused: it is not there.
        """
        handle = check_status(
            self._driver.cuModuleGetFunction(self.handle, signature.name.encode())
        )
        sizes: list[int] = []
        while len(sizes) <= len(signature.types):
            status, _, size = self._driver.cuFuncGetParamInfo(handle, len(sizes))
            # Refused behind the last one.
            if int(status) != 0:
                break
            sizes.append(int(size))
        if sizes != signature.sizes:
            raise BadArgument(
                f"{self._path}: {signature.name} takes parameters of {sizes} bytes, and not those"
                f" of {signature.declaration}"
            )
        return Function(handle, signature.types)


class Function:
    """A kernel that can be launched.

    Args:
        handle: the driver's.
        types: ctypes of its parameters.
    """

    def __init__(self, handle: Any, types: tuple[Any, ...]) -> None:
        self._driver = load("driver")
        self.handle = handle
        # cuda-bindings knows a structure by its value.
        self._types = tuple(None if issubclass(kind, ctypes.Structure) else kind for kind in types)

    def ask_for_shared_memory(self, size: int) -> None:
        """Let a block have so many bytes of dynamic shared memory, which from 48 KiB it must ask.

        Raises:
            Refused: the GPU gives it less.
        """
        most = self._driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        check_status(self._driver.cuFuncSetAttribute(self.handle, most, size))

    def launch(
        self,
        values: tuple[Any, ...],
        *,
        blocks: tuple[int, int],
        threads: int,
        stream: int,
        shared_bytes: int = 0,
    ) -> None:
        """Begin to compute on a stream of the current device.

        Args:
            values: values of the parameters; addresses as numbers, structures as they are.
            blocks: along x and y.
            threads: number of threads of a block, along x.
            stream: its handle.
            shared_bytes: bytes of dynamic shared memory per block.

        Raises:
            Refused: the GPU cannot launch it.
        """
        check_status(
            self._driver.cuLaunchKernel(
                self.handle,
                *(*blocks, 1),
                *(threads, 1, 1),
                shared_bytes,
                stream,
                (values, self._types),
                0,
            )
        )
