# SPDX-License-Identifier: Apache-2.0
"""Errors of scheduling.

SchedulingError
├── AskInvalid           a pod or a job asks for something that cannot be read or served
├── BindRefused          the ledger does not give this pod this node
│   └── AskMismatch      the pod asks for other GPUs than its worker's place has
├── InventoryInvalid     a GPUNode contradicts itself or another; the node gets no work
│   └── GpusDisputed     another node's agent lists the same GPUs
├── NotReady             nobody leads, or what is known is too old to decide on
└── QueueFull            a namespace has more in the queue than it may
"""

from typing import ClassVar


class SchedulingError(Exception):
    """Root of all errors of scheduling."""


class AskInvalid(SchedulingError, ValueError):
    """A pod or a job asks for something that cannot be read or served."""


class BindRefused(SchedulingError):
    """The ledger does not give this pod this node."""


class AskMismatch(BindRefused):
    """The pod asks for other GPUs than its worker's place has."""


class InventoryInvalid(SchedulingError, ValueError):
    """A GPUNode contradicts itself or another.

    Attributes:
        reason: for programs, in a condition.
    """

    reason: ClassVar = "InventoryInvalid"


class GpusDisputed(InventoryInvalid):
    """Another node's agent lists the same GPUs."""

    reason: ClassVar = "GpusDisputed"


class NotReady(SchedulingError):
    """Nobody leads, or what is known is too old to decide on."""


class QueueFull(SchedulingError):
    """A namespace has more in the queue than it may."""
