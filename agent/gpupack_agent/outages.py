# SPDX-License-Identifier: Apache-2.0
"""The condition of a GPUNode by which its agent says that it cannot look at the GPUs."""

import datetime as dt

import msgspec

from gpupack_agent.grading.hysteresis import written
from gpupack_agent.known_devices import Outage
from gpupack_crds.condition import Condition, ConditionStatus
from gpupack_crds.gpunode import INVENTORY_UNAVAILABLE

MAX_MESSAGE = 4096
"""Characters of a condition's message."""


def conditions(
    recorded: tuple[Condition, ...], outage: Outage | None, now: dt.datetime
) -> tuple[Condition, ...]:
    """Bring a GPUNode's conditions up to date; those of others stay as they are.

    A node whose GPUs could always be looked at has no such condition.
    """
    before = next((each for each in recorded if each.type == INVENTORY_UNAVAILABLE), None)
    if before is None and outage is None:
        return recorded
    wanted = _wanted(outage)
    if before is not None and before.status == wanted.status:
        moment = before.last_transition_time
    else:
        moment = written(outage.since if outage else now)
    stated = msgspec.structs.replace(wanted, last_transition_time=moment)
    if before is None:
        return (*recorded, stated)
    return tuple(stated if each is before else each for each in recorded)


def _wanted(outage: Outage | None) -> Condition:
    status: ConditionStatus = "False" if outage is None else "True"
    return Condition(
        type=INVENTORY_UNAVAILABLE,
        status=status,
        reason=outage.reason if outage else "InventoryAvailable",
        message=outage.message[:MAX_MESSAGE] if outage else "the GPUs are looked at",
        last_transition_time="",
    )
