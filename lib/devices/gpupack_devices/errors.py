# SPDX-License-Identifier: Apache-2.0
"""Errors of devices, and the base of the errors of placement, queue and cost.

DecisionError
└── Invalid              (also ValueError: an impossible state, rejected at construction)
    ├── InvalidInventory   device, taint or node
    └── InvalidRequest     request, share, spread or gang
"""


class DecisionError(Exception):
    """Base of all errors of the packages that decide."""


class Invalid(DecisionError, ValueError):
    """A value that cannot exist."""


class InvalidInventory(Invalid):
    """A device, taint or node that cannot exist."""


class InvalidRequest(Invalid):
    """A request, share, spread or gang that contradicts itself."""
