# SPDX-License-Identifier: Apache-2.0
"""Errors of workloads. Each kind has its exit status, for a GPUJob's failurePolicy.

WorkloadError               1
├── BadArgument             2   as click's own errors are
├── WrongResult             3   what was computed is wrong: the hardware is suspect
├── OutOfMemory             4
├── NoSuchDevice            5   a GPU is required and none can be used
├── PeersMissing            6   other workers did not come in time, or were killed
├── Interrupted             7   stopped by a signal; what a workload keeps over attempts is saved
├── Cancelled             130   stopped by SIGINT; nothing is kept
└── Terminated            143   stopped by SIGTERM or a similar signal; nothing is kept
"""

import signal
from typing import ClassVar

from gpupack_workloads.results import Result


class WorkloadError(Exception):
    """Root of all errors of workloads; the text is for the user."""

    exit_status: ClassVar[int] = 1


class BadArgument(WorkloadError):
    """Error: an argument or a setting is not valid."""

    exit_status = 2


class WrongResult(WorkloadError):
    """Error: a result differs from the reference by more than rounding explains.

    Attributes:
        result: what to report in spite of the error: the findings, without speeds.
    """

    exit_status = 3

    def __init__(self, message: str, result: Result | None = None) -> None:
        super().__init__(message)
        self.result = result


class OutOfMemory(WorkloadError):
    """Error: the problem does not fit into the device's (or the container's) memory."""

    exit_status = 4


class NoSuchDevice(WorkloadError):
    """Error: a GPU is required and none can be used."""

    exit_status = 5


class PeersMissing(WorkloadError):
    """Error: other workers of the gang did not come in time, or were killed."""

    exit_status = 6


class Interrupted(WorkloadError):
    """Error: a signal stopped the workload before it was done; it can continue from saved state."""

    exit_status = 7


class Cancelled(WorkloadError):
    """Error: SIGINT stopped the workload."""

    # The exit status that a shell reports for a process that a signal has ended.
    exit_status = 128 + signal.SIGINT


class Terminated(WorkloadError):
    """Error: SIGTERM or a similar signal stopped the workload."""

    exit_status = 128 + signal.SIGTERM


def error_of_status(status: int, message: str) -> WorkloadError:
    """Return the error whose exit status a process ended with."""
    kinds = {
        kind.exit_status: kind
        for kind in WorkloadError.__subclasses__()
        if "exit_status" in vars(kind)  # its own status, not an inherited one
    }
    return kinds.get(status, WorkloadError)(message)


def termination_error(by: signal.Signals) -> Cancelled | Terminated:
    """Return the error for a signal to the main process."""
    kind = Cancelled if by == signal.SIGINT else Terminated
    return kind(f"stopped by {by.name}")
