# SPDX-License-Identifier: Apache-2.0
"""Conditions of GPUNodes whose nodes get no work because of their inventory."""

import datetime as dt
import logging
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from gpupack_crds.condition import Condition, ConditionStatus, transition_time
from gpupack_crds.gpunode import INVENTORY_REJECTED
from gpupack_crds.kinds import GPUNODES, GpuNode
from gpupack_crds.times import format_time
from gpupack_extender.looking import look_forever
from gpupack_kubeclient import errors
from gpupack_kubeclient.client import Api
from gpupack_scheduler.errors import InventoryInvalid
from gpupack_scheduler.ledger.ledger import Ledger

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 2.0
MAX_WRITES: Final = 20
"""Largest number of writes in one pass."""
MAX_MESSAGE: Final = 1024


class InventoryNotes:
    """Task that writes the conditions.

    Args:
        api: the API server with the GPUNodes.
        ledger: knows the nodes that it rejects.
        decides: tells whether this process decides.
        now: returns the API server's time.
    """

    def __init__(
        self,
        api: Api,
        ledger: Ledger,
        *,
        decides: Callable[[], bool],
        now: Callable[[], dt.datetime],
    ) -> None:
        self._api, self._ledger, self._decides, self._now = api, ledger, decides, now

    async def run(self) -> None:
        """Write in an endless loop; a failed write is repeated in the next pass."""
        await look_forever(self.look, seconds=LOOK_SECONDS, decides=self._decides)

    async def look(self) -> None:
        """Write the conditions that have changed."""
        stale = [*self._stale()]
        for node, condition in stale[:MAX_WRITES]:
            try:
                await self._write(node, condition)
            except (errors.NotFound, errors.Conflict):
                continue
            except errors.KubeError as error:
                log.warning("cannot write GPUNode %s: %s", node.metadata.name, error)
                return

    def _stale(self) -> Iterator[tuple[GpuNode, Condition]]:
        now = self._now()
        for name, node in self._ledger.gpus.items.items():
            before, why = condition_of(node), self._ledger.rejected.get(name)
            if before is None and why is None:
                continue
            wanted = wanted_condition(why, before, now)
            if wanted != before:
                yield node, wanted

    async def _write(self, node: GpuNode, condition: Condition) -> None:
        others = [each for each in node.status.conditions if each.type != condition.type]
        body: dict[str, Any] = {
            "metadata": {"resourceVersion": node.metadata.resource_version},
            "status": {"conditions": msgspec.to_builtins([*others, condition])},
        }
        await self._api.merge(GPUNODES, node.metadata.name, body, subresource="status")


def condition_of(node: GpuNode) -> Condition | None:
    """Return the GPUNode's condition about its inventory."""
    found = (each for each in node.status.conditions if each.type == INVENTORY_REJECTED)
    return next(found, None)


def wanted_condition(
    why: InventoryInvalid | None, before: Condition | None, now: dt.datetime
) -> Condition:
    """Return the condition of a node that is rejected for `why`, or no longer rejected."""
    status: ConditionStatus = "True" if why else "False"
    reason, message = "InventoryAccepted", "nothing contradicts it any more"
    if why is not None:
        reason, message = why.reason, f"the node gets no work: {why}"
    return Condition(
        type=INVENTORY_REJECTED,
        status=status,
        reason=reason,
        message=message[:MAX_MESSAGE],
        last_transition_time=transition_time(before, status, format_time(now)),
    )
