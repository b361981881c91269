# SPDX-License-Identifier: Apache-2.0
"""Errors and warnings of the Python API.

GpupackError
├── ConfigInvalid         (also ValueError: a field of gpu_config.yaml or of a TrainingGPUConfig)
├── NotEnoughGpus         nothing was allocated; names what is missing, and what waits ahead
├── NothingHeld           the allocation is not held
├── Unsupported           the backend does not support the call; names the backend that does
├── FrameworkMissing      (also ImportError: TensorFlow or PyTorch is not installed)
├── InventoryUnavailable  this machine's driver exists and does not answer
├── LedgerUnusable        the folder of this machine's ledger cannot be used
│   ├── LedgerBroken        a live holder's file cannot be read
│   └── LedgerBusy          another process has locked the ledger for too long
├── ServerNotFound        neither the address nor the token of the cluster's REST API is known
├── ServerUnreachable     the server does not answer, or not as a gpupack-api does
└── CallRefused           the server refuses; has `status`, `field`, `value` and `fix`
GpupackWarning (UserWarning)
├── CpuFallbackWarning    a framework continues without a GPU
└── SimulatedGpuWarning   GPUs are simulated: nothing computes on them
"""

import sys
import warnings
from types import FrameType
from typing import Final

_PACKAGE: Final = __name__.partition(".")[0]


class GpupackError(Exception):
    """Base of all errors of gpupack."""


class ConfigInvalid(GpupackError, ValueError):
    """A field has an invalid value; the message names path, value and the allowed values."""


class NotEnoughGpus(GpupackError):
    """The GPUs were not free in time, or never can be.

    Attributes:
        never: a longer wait does not help.
    """

    def __init__(self, message: str, *, never: bool = False) -> None:
        super().__init__(message)
        self.never = never


class NothingHeld(GpupackError):
    """The allocation holds nothing: it was released, its time was over, or it never existed."""


class Unsupported(GpupackError):
    """The backend does not support the call."""


class FrameworkMissing(GpupackError, ImportError):
    """TensorFlow or PyTorch is not installed."""


class InventoryUnavailable(GpupackError):
    """The driver does not list the GPUs."""


class LedgerUnusable(GpupackError):
    """The ledger of this machine can be neither read nor written."""


class LedgerBroken(LedgerUnusable):
    """The record of a live process cannot be read: no allocation is safe."""


class LedgerBusy(LedgerUnusable):
    """Another process did not release the ledger."""


class ServerNotFound(GpupackError):
    """Neither the address nor the token of the server is known."""


class ServerUnreachable(GpupackError):
    """The server does not answer, or another program answers there."""


class CallRefused(GpupackError):
    """The server refused a call.

    Attributes:
        status: status code of HTTP.
        field: name of the invalid field, if one field was.
        value: its value.
        fix: what to write instead.
    """

    def __init__(
        self, message: str, *, status: int, field: str = "", value: str = "", fix: str = ""
    ) -> None:
        super().__init__(message)
        self.status, self.field, self.value, self.fix = status, field, value, fix


class GpupackWarning(UserWarning):
    """Base of all warnings of gpupack."""


class CpuFallbackWarning(GpupackWarning):
    """There is no GPU for this process, and it continues without one."""


class SimulatedGpuWarning(GpupackWarning):
    """The allocated GPUs are simulated."""


def warn(message: str, category: type[GpupackWarning]) -> None:
    """Issue a warning for a line of the program, however deep in the package its cause is."""
    frame: FrameType | None = sys._getframe()  # noqa: SLF001 - as `warnings` itself does
    level = 1
    while frame is not None and _is_ours(frame):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] == _PACKAGE
