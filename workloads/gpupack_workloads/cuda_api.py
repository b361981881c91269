# SPDX-License-Identifier: Apache-2.0
"""CUDA's own interfaces by NVIDIA's binding (cuda-bindings, which torch brings): driver and NVRTC.

Rejected: torch.cuda._compile_kernel, which is private, and cuda.core, which torch does not bring.

A call there returns a status and what it gives; `told` makes an error of a status that is none.
"""

import importlib
from typing import Any

from gpupack_workloads.errors import WorkloadError


class Refused(WorkloadError):
    """A call of CUDA's that failed.

    Attributes:
        status: its name, such as CUDA_ERROR_NOT_FOUND.
    """

    def __init__(self, status: str) -> None:
        super().__init__(f"CUDA says {status}")
        self.status = status


def load(name: str) -> Any:
    """Return an interface, `driver` or `nvrtc`.

    Raises:
        ImportError: cuda-bindings is not installed. The library itself is looked for by the first
            call, which raises a RuntimeError where there is none.
    """
    return importlib.import_module(f"cuda.bindings.{name}")


def told(answer: tuple[Any, ...]) -> Any:
    """Return what a call gives: nothing, a value, or several in a tuple.

    Raises:
        Refused: it failed.
    """
    status, *values = answer
    if int(status) != 0:
        raise Refused(str(status.name))
    return values[0] if len(values) == 1 else tuple(values) or None
