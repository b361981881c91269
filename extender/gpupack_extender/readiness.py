# SPDX-License-Identifier: Apache-2.0
"""Conditions under which the extender may answer and decide.

To answer from the known state, watches must be synced and fresh. To decide about new places the
process must also be the leader, and its takeover must be complete. Until then the operator may be
writing a plan that this process does not know: a predecessor's, or its own from before it was
killed. Pods of written plans are placed in that time; standalone pods and new plans wait.
"""

import asyncio
import dataclasses
import enum
from collections.abc import Mapping
from typing import Final, Protocol

from gpupack_extender.leadership import Leadership
from gpupack_extender.takeover import Takeover
from gpupack_scheduler.errors import NotReady


class Watch(Protocol):
    """Interface of a reflector that readiness needs."""

    synced: asyncio.Event

    def age_seconds(self) -> float:
        """Return the seconds since the server last sent anything."""


class Missing(enum.StrEnum):
    """Reason for not being ready."""

    SYNC = "WatchNotSynced"
    FRESHNESS = "WatchStale"
    LEADERSHIP = "NotLeader"
    SETTLING = "AwaitingPreviousPlans"
    LISTING = "AwaitingPreviousWrites"


WHY: Final[Mapping[str, str]] = {
    Missing.SYNC: "it has not read all objects yet",
    Missing.FRESHNESS: "it has heard nothing of the API server for too long",
    Missing.LEADERSHIP: "another one leads, or none does since the API server or its node is slow",
    Missing.SETTLING: "it leads since a moment ago and waits for what its predecessor may write",
    Missing.LISTING: "it leads since a moment ago and reads what its predecessor wrote",
}
"""Missing conditions in words for users."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """Judge of watches and leadership."""

    watches: Mapping[str, Watch]
    leadership: Leadership
    takeover: Takeover
    stale_after_seconds: float

    def missing_to_answer(self) -> str:
        """Return what is missing to answer from the known state; empty: nothing."""
        for name, watch in self.watches.items():
            if not watch.synced.is_set():
                return f"{Missing.SYNC}: {name}"
            if watch.age_seconds() > self.stale_after_seconds:
                return f"{Missing.FRESHNESS}: {name}"
        return ""

    def missing_to_decide(self) -> str:
        """Return what is missing to decide about new places; empty: nothing."""
        if missing := self.missing_to_answer():
            return missing
        if not self.leadership.held:
            return Missing.LEADERSHIP
        if not self.takeover.is_settled:
            return Missing.SETTLING
        if not self.takeover.is_complete:
            return Missing.LISTING
        return ""

    def decides(self) -> bool:
        """Tell whether new places may be decided."""
        return not self.missing_to_decide()

    def require_to_answer(self) -> None:
        """Refuse unless calls may be answered from the known state.

        Raises:
            NotReady: the message says what is missing.
        """
        _require(self.missing_to_answer())

    def require_to_decide(self) -> None:
        """Refuse unless new places may be decided.

        Raises:
            NotReady: the message says what is missing.
        """
        _require(self.missing_to_decide())


def _require(missing: str) -> None:
    if missing:
        why = WHY[missing.partition(":")[0]]
        raise NotReady(f"this gpupack scheduler does not decide now: {why} ({missing})")
