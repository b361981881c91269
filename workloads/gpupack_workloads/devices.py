# SPDX-License-Identifier: Apache-2.0
"""Chooses the device of a process: its GPU, else the CPU with a warning."""

import contextlib
import logging
import os
import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from gpupack_kernels.loading import interpret
from gpupack_workloads.cuda_api import Refused
from gpupack_workloads.errors import BadArgument, NoSuchDevice, OutOfMemory
from gpupack_workloads.results import Scalar

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Device:
    """A device to compute on."""

    torch: torch.device
    name: str

    @property
    def simulated(self) -> bool:
        """Whether this is a CPU in place of a GPU."""
        return bool(self.torch.type == "cpu")


def choose_device(*, require_gpu: bool, index: int = 0) -> Device:
    """Return GPU `index` of this container, or the CPU where there is none, for Triton as well.

    Raises:
        NoSuchDevice: a GPU is required, or there are GPUs but fewer than processes.
    """
    if torch.cuda.is_available():
        return _gpu(index)
    if require_gpu:
        raise NoSuchDevice("a GPU is required and CUDA finds none in this container")
    interpret()
    logger.warning("no GPU: computing on the CPU at a small size; times say nothing about a GPU")
    return Device(torch.device("cpu"), f"CPU {platform.machine()}")


def _gpu(index: int) -> Device:
    if index >= torch.cuda.device_count():
        raise NoSuchDevice(
            f"process {index} has no GPU: the container has {torch.cuda.device_count()}"
        )
    torch.cuda.set_device(index)
    return Device(torch.device("cuda", index), torch.cuda.get_device_name(index))


def describe(device: Device) -> dict[str, Scalar]:
    """Return device and versions, Triton's where it was used, as metrics."""
    facts: dict[str, Scalar] = {
        "device": device.name,
        "devices": os.environ.get("GPUPACK_DEVICES", ""),
        "torch_version": str(torch.__version__),
    }
    if not device.simulated:
        facts["cuda_version"] = str(torch.version.cuda)
    # Read from the library that computes, not from the installed package: one may hide the other.
    if triton := sys.modules.get("triton"):
        facts["triton_version"] = str(triton.__version__)
    return facts


@contextlib.contextmanager
def memory_errors(doing: str) -> Iterator[None]:
    """Turn what torch says when memory is short into `OutOfMemory`."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not _is_shortage(error):
            raise
        raise OutOfMemory(f"{doing} does not fit into memory: {error}") from error


@contextlib.contextmanager
def kernel_errors(source: Path | None) -> Iterator[None]:
    """Say of a kernel of the user's that it has failed; one of ours leaves CUDA's own error.

    Args:
        source: source of the user's kernel; None: all are ours.
    """
    try:
        yield
    except (Refused, RuntimeError) as error:
        if source is None or _is_shortage(error):
            raise
        raise BadArgument(f"{source}: a kernel has failed on the GPU: {error}") from error


def _is_shortage(error: Exception) -> bool:
    # The CPU's allocator has no error of its own.
    return isinstance(
        error, (torch.OutOfMemoryError, MemoryError)
    ) or "can't allocate memory" in str(error)
