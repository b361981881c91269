# SPDX-License-Identifier: Apache-2.0
"""Errors and warnings of the Python API.

GpupackError
├── ConfigInvalid         (also ValueError: a field of gpu_config.yaml or of a TrainingGPUConfig)
├── NotEnoughGpus         nothing was allocated; says what is missing, and who waits before
├── NothingHeld           an allocation that is not held, or not any more
├── Unsupported           the backend cannot do this; says which one can
├── FrameworkMissing      (also ImportError: TensorFlow or PyTorch is not installed)
├── InventoryUnavailable  this machine's driver is there and does not answer
├── LedgerUnusable        the folder of this machine's ledger cannot be used
│   ├── LedgerBroken        a live holder's file cannot be read
│   └── LedgerBusy          another process has had the ledger for too long
├── ServerNotFound        nothing says where the cluster's REST API is, or with which token
├── ServerUnreachable     it does not answer, or not as a gpupack-api does
└── CallRefused           it refuses; has `status`, `field`, `value` and `fix`

GpupackWarning (UserWarning)
├── CpuFallbackWarning    a framework goes on without a GPU
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
    """A field has a value that it cannot have; the message names path, value and what it may be."""


class NotEnoughGpus(GpupackError):
    """The GPUs were not free in time, or never can be.

    Attributes:
        never: waiting does not help.
    """

    def __init__(self, message: str, *, never: bool = False) -> None:
        super().__init__(message)
        self.never = never


class NothingHeld(GpupackError):
    """The allocation holds nothing: it was released, its time was over, or it never was."""


class Unsupported(GpupackError):
    """The backend cannot do what was asked."""


class FrameworkMissing(GpupackError, ImportError):
    """TensorFlow or PyTorch is not installed."""


class InventoryUnavailable(GpupackError):
    """The driver does not say which GPUs there are."""


class LedgerUnusable(GpupackError):
    """The ledger of this machine can be neither read nor written."""


class LedgerBroken(LedgerUnusable):
    """What a live process holds cannot be read: nothing can be given out safely."""


class LedgerBusy(LedgerUnusable):
    """Another process did not let go of the ledger."""


class ServerNotFound(GpupackError):
    """Nothing says where the server is, or with which token it is called."""


class ServerUnreachable(GpupackError):
    """The server does not answer, or something else answers there."""


class CallRefused(GpupackError):
    """The server refused a call.

    Attributes:
        status: of HTTP.
        field: what was wrong, if one field was.
        value: what it was.
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
    """There is no GPU for this process, and it goes on without."""


class SimulatedGpuWarning(GpupackWarning):
    """GPUs were allocated that are simulated."""


def warn(message: str, category: type[GpupackWarning]) -> None:
    """Warn of a line of the program's own, however deep in the package it is noticed."""
    frame: FrameType | None = sys._getframe()  # noqa: SLF001 - as `warnings` itself does
    level = 1
    while frame is not None and _is_ours(frame):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] == _PACKAGE
