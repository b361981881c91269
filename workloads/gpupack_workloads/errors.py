# SPDX-License-Identifier: Apache-2.0
"""Why a workload failed. Each kind has its exit status, for a GPUJob's failurePolicy.

WorkloadError               1
├── BadArgument             2   as click's own errors are
├── WrongResult             3   what was computed is wrong: the hardware is suspect
├── OutOfMemory             4
├── NoSuchDevice            5   a GPU is required and none can be used
├── PeersMissing            6   other workers did not come in time, or were killed
├── Interrupted             7   told to end; what a workload keeps over attempts is saved
├── Cancelled             130   told to end by SIGINT; nothing is kept
└── Terminated            143   told to end by SIGTERM or its like; nothing is kept
"""

import signal
from typing import ClassVar

from gpupack_workloads.results import Result


class WorkloadError(Exception):
    """The root of this tree; its text is for the user."""

    exit_status: ClassVar[int] = 1


class BadArgument(WorkloadError):
    """An argument or a setting that cannot be served."""

    exit_status = 2


class WrongResult(WorkloadError):
    """What was computed differs from the reference by more than rounding explains.

    Attributes:
        result: what to report all the same: what was found, and no speeds as if all were well.
    """

    exit_status = 3

    def __init__(self, message: str, result: Result | None = None) -> None:
        super().__init__(message)
        self.result = result


class OutOfMemory(WorkloadError):
    """The problem does not fit into the device's (or the container's) memory."""

    exit_status = 4


class NoSuchDevice(WorkloadError):
    """A GPU is required and none can be used."""

    exit_status = 5


class PeersMissing(WorkloadError):
    """Other workers of the gang did not come in time, or were killed while this one worked."""

    exit_status = 6


class Interrupted(WorkloadError):
    """The workload was told to end before it was done, and can go on from what it has saved."""

    exit_status = 7


class Cancelled(WorkloadError):
    """Somebody at the keyboard has told it to end."""

    # As a shell says of a process that a signal has ended, for what ends so without our doing.
    exit_status = 128 + signal.SIGINT


class Terminated(WorkloadError):
    """The kubelet, or whoever started it, has told it to end."""

    exit_status = 128 + signal.SIGTERM


def error_of_status(status: int, message: str) -> WorkloadError:
    """Return the error whose exit status a process ended with."""
    kinds = {
        kind.exit_status: kind
        for kind in WorkloadError.__subclasses__()
        if "exit_status" in vars(kind)  # a status that is its own, and not all errors'
    }
    return kinds.get(status, WorkloadError)(message)


def told_to_end(by: signal.Signals) -> Cancelled | Terminated:
    """Return what a signal to the process in charge means."""
    kind = Cancelled if by == signal.SIGINT else Terminated
    return kind(f"told to end by {by.name}")
