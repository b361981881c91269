# SPDX-License-Identifier: Apache-2.0
"""Conditions of a GPUNode that show what its agent cannot observe."""

import dataclasses
import datetime as dt
from typing import Final

import msgspec

from gpupack_crds.condition import Condition, ConditionStatus, transition_time
from gpupack_crds.gpunode import INVENTORY_UNAVAILABLE, POD_CGROUPS_MISSING
from gpupack_crds.times import format_time

MAX_MESSAGE: Final = 4096
"""The largest number of characters of a condition's message."""

ENDED: Final = {
    INVENTORY_UNAVAILABLE: ("InventoryAvailable", "the last scan of the GPUs succeeded"),
    POD_CGROUPS_MISSING: ("PodCgroupsFound", "the cgroups of pods are found"),
}
"""The reason and message of each condition after its outage has ended."""


@dataclasses.dataclass(frozen=True, slots=True)
class Outage:
    """Something that the agent cannot observe.

    Attributes:
        reason: a CamelCase word for programs.
        message: a sentence for people.
        since: the time when the observation first failed.
    """

    reason: str
    message: str
    since: dt.datetime


def with_condition(
    recorded: tuple[Condition, ...], kind: str, outage: Outage | None, now: dt.datetime
) -> tuple[Condition, ...]:
    """Update one condition; the others stay as they are.

    A node that never had such an outage gets no such condition.
    """
    before = next((each for each in recorded if each.type == kind), None)
    if before is None and outage is None:
        return recorded
    wanted, began = _wanted(kind, outage), format_time(outage.since if outage else now)
    since = transition_time(before, wanted.status, began)
    condition = msgspec.structs.replace(wanted, last_transition_time=since)
    if before is None:
        return (*recorded, condition)
    return tuple(condition if each is before else each for each in recorded)


def _wanted(kind: str, outage: Outage | None) -> Condition:
    status: ConditionStatus = "False" if outage is None else "True"
    reason, message = (outage.reason, outage.message) if outage else ENDED[kind]
    return Condition(kind, status, reason, message[:MAX_MESSAGE], "")
