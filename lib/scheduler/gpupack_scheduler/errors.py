# SPDX-License-Identifier: Apache-2.0
"""Errors of scheduling.

SchedulingError
├── RequestInvalid       a request of a pod or a job cannot be read or served
├── BindRefused          the ledger does not give this pod this node
│   └── RequestMismatch  the pod requests other GPUs than its worker's place has
├── InventoryInvalid     a GPUNode contradicts itself or another; the node gets no work
│   └── DuplicateGpus    another node's agent lists the same GPUs
├── NotReady             there is no leader, or the known state is too old to decide on
└── QueueFull            a namespace has more pending jobs than it may have
"""

from typing import ClassVar


class SchedulingError(Exception):
    """Root of all errors of scheduling."""


class RequestInvalid(SchedulingError, ValueError):
    """Error: a request of a pod or a job cannot be read or served."""


class BindRefused(SchedulingError):
    """Error: the ledger does not give this pod this node."""


class RequestMismatch(BindRefused):
    """Error: the pod requests other GPUs than its worker's place has."""


class InventoryInvalid(SchedulingError, ValueError):
    """Error: a GPUNode contradicts itself or another.

    Attributes:
        reason: reason of the condition, for programs.
    """

    reason: ClassVar = "InventoryInvalid"


class DuplicateGpus(InventoryInvalid):
    """Error: another node's agent lists the same GPUs."""

    reason: ClassVar = "DuplicateGpus"


class NotReady(SchedulingError):
    """Error: there is no leader, or the known state is too old to decide on."""


class QueueFull(SchedulingError):
    """Error: a namespace has more pending jobs than it may have."""
