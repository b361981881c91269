# SPDX-License-Identifier: Apache-2.0
"""Errors of placement. A refusal is an answer (reasons.Refusal), never an exception.

DecisionError          (gpupack_devices)
├── Invalid              (also ValueError: an impossible state, rejected at construction)
│   ├── InvalidInventory   device, taint or node
│   ├── InvalidSelector    selector requirement or toleration
│   ├── InvalidRequest     request, share, spread or gang
│   ├── InvalidPlacement   grant or placement
│   └── InvalidSnapshot    a document that describes no cluster; names path and value
├── LedgerConflict       (the change would contradict what is held; nothing was changed)
│   ├── UnknownNode
│   ├── UnknownDevice
│   ├── DuplicateDevice    one UUID on two nodes
│   ├── OverAllocated      more than is free
│   ├── AlreadyHeld        the holder already holds a placement
│   └── NotHeld            the holder holds nothing
├── InvalidScores        (a custom policy returned scores that cannot be compared)
├── NoPrices             (the LP was not solved; the present prices stay valid)
└── UnknownPolicy
"""

from gpupack_devices.errors import DecisionError, Invalid


class InvalidSelector(Invalid):
    """A requirement or toleration that Kubernetes would refuse."""


class InvalidPlacement(Invalid):
    """A grant or placement that no decision can have made."""


class InvalidSnapshot(Invalid):
    """A document that describes no cluster; the message names path and value."""


class LedgerConflict(DecisionError):
    """A change that contradicts the inventory or the holdings; both stay as they were."""


class UnknownNode(LedgerConflict):
    """A node that is not in the cluster."""


class UnknownDevice(LedgerConflict):
    """A device that the node does not have."""


class DuplicateDevice(LedgerConflict):
    """One UUID on two nodes."""


class OverAllocated(LedgerConflict):
    """A placement that takes more than is free."""


class AlreadyHeld(LedgerConflict):
    """A holder that already holds a placement."""


class NotHeld(LedgerConflict):
    """A holder that holds nothing."""


class UnknownPolicy(DecisionError):
    """A policy name that is not in the table."""


class InvalidScores(DecisionError):
    """An answer of a policy that is not one number for each node."""


class NoPrices(DecisionError):
    """A failure to solve the LP that gives prices."""
