# SPDX-License-Identifier: Apache-2.0
"""Conditions of pods about their GPUs: that they are idle for too long, or that one failed."""

import dataclasses
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Final

from gpupack_crds import names
from gpupack_scheduling.ledger.claims import PodClaim
from gpupack_scheduling.ledger.ledger import Ledger

LOOK_SECONDS: Final = 5.0


@dataclasses.dataclass(frozen=True, slots=True)
class Kind:
    """A condition.

    Attributes:
        condition: its type.
        reason: while it is true, and of the event.
        over_reason, over_text: once it is not.
        called: UIDs of those of whom it is said.
        look_seconds: between two looks.
    """

    condition: str
    reason: str
    over_reason: str
    over_text: str
    called: Callable[[Ledger], AbstractSet[str]]
    look_seconds: float = LOOK_SECONDS


IDLE: Final = Kind(
    names.IDLE_CONDITION,
    "GpuIdle",
    "GpuInUse",
    "its GPUs were used again, or it is not known any more",
    called=lambda ledger: ledger.pods.called_idle,
)
FAILED: Final = Kind(
    names.FAILED_CONDITION,
    "GpuFailed",
    "GpuWorks",
    "its GPUs work again",
    called=lambda ledger: ledger.pods.called_failed,
    look_seconds=1.0,
)


@dataclasses.dataclass(frozen=True, slots=True)
class Note:
    """A pod of which a condition is true.

    Attributes:
        text: for its owner; the same for as long as nothing changes.
        advice: what follows, or what he may do; for the event alone.
    """

    claim: PodClaim
    text: str
    advice: str = ""
