# SPDX-License-Identifier: Apache-2.0
"""CUDA's own interfaces by NVIDIA's binding (cuda-bindings, which torch brings): driver and NVRTC.

Rejected: torch.cuda._compile_kernel, which is private, and cuda.core, which torch does not bring.

A call returns a status and values; `check_status` raises an error unless the status is success.
"""

import importlib
from typing import Any

from gpupack_workloads.errors import WorkloadError


class Refused(WorkloadError):
    """Error: a CUDA call failed.

    Attributes:
        status: name of the status, such as CUDA_ERROR_NOT_FOUND.
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


def check_status(answer: tuple[Any, ...]) -> Any:
    """Return the values of a call: None, one value, or several in a tuple.

    Raises:
        Refused: the call failed.
    """
    status, *values = answer
    if int(status) != 0:
        raise Refused(str(status.name))
    return values[0] if len(values) == 1 else tuple(values) or None
