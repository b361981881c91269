# SPDX-License-Identifier: Apache-2.0
"""Errors of core. A refusal is an answer (reasons.Refusal), never an exception.

CoreError
├── Invalid              (also ValueError: an impossible state, rejected at construction)
│   ├── InvalidInventory   device, taint or node
│   ├── InvalidSelector    selector requirement or toleration
│   ├── InvalidRequest     request, share, spread or gang
│   ├── InvalidPlacement   grant or placement
│   ├── InvalidQuota       limit, quota, cohort or a tree of them
│   ├── InvalidPrices      a price list that no GPU-hour can be priced by
│   └── InvalidSnapshot    a document that describes no cluster; names path and value
├── LedgerConflict       (what is held would contradict itself; nothing was changed)
│   ├── UnknownNode
│   ├── UnknownDevice
│   ├── DuplicateDevice    one UUID on two nodes
│   ├── OverAllocated      more than there is
│   ├── AlreadyHeld        the holder holds a placement already
│   └── NotHeld            the holder holds nothing
├── InvalidScores        (a policy of one's own answers with what cannot be compared)
├── NoPrices             (nothing was solved; go on with the prices there are)
└── UnknownPolicy
"""


class CoreError(Exception):
    """Base of all errors of gpupack_core."""


class Invalid(CoreError, ValueError):
    """The value cannot exist."""


class InvalidInventory(Invalid):
    """A device, taint or node that cannot exist."""


class InvalidSelector(Invalid):
    """A requirement or toleration that Kubernetes would refuse."""


class InvalidRequest(Invalid):
    """A request, share, spread or gang that contradicts itself."""


class InvalidPlacement(Invalid):
    """A grant or placement that no decision can have made."""


class InvalidQuota(Invalid):
    """A limit, quota or cohort that promises nonsense, or cohorts that are above themselves."""


class InvalidPrices(Invalid):
    """A name that is no model, or a price that is no price."""


class InvalidSnapshot(Invalid):
    """A document that describes no cluster; the message names path and value."""


class LedgerConflict(CoreError):
    """The change contradicts what there is and what is held; both are as before."""


class UnknownNode(LedgerConflict):
    """The node is not in the cluster."""


class UnknownDevice(LedgerConflict):
    """The node has no such device."""


class DuplicateDevice(LedgerConflict):
    """One UUID on two nodes."""


class OverAllocated(LedgerConflict):
    """More than there is."""


class AlreadyHeld(LedgerConflict):
    """The holder holds a placement already."""


class NotHeld(LedgerConflict):
    """The holder holds nothing."""


class UnknownPolicy(CoreError):
    """The table of policies has no such name."""


class InvalidScores(CoreError):
    """A policy answered with something else than one number for each node."""


class NoPrices(CoreError):
    """The LP that gives prices was not solved."""
