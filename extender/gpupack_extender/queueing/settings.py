# SPDX-License-Identifier: Apache-2.0
"""How the queue is run, as the chart's values have it (`queue`)."""

from typing import Annotated, Final

import msgspec

from gpupack_core.queueing import NEVER, Rules
from gpupack_crds.quota import Order
from gpupack_crds.wire import Wire
from gpupack_extender.queueing.quotas import ORDERS, DefaultQuota

MOST_SECONDS: Final = 31_536_000.0

Seconds = Annotated[float, msgspec.Meta(ge=0, le=MOST_SECONDS)]


class QueueSettings(Wire, frozen=True, forbid_unknown_fields=True):
    """All of it.

    Attributes:
        order: whether others may go before the first where that finds no room.
        keep_room_after_seconds: for who is first and has waited for so long room is kept.
        default: of namespaces without a GPUQuota.
    """

    order: Order = "BestEffort"
    keep_room_after_seconds: Seconds = 300.0
    default: DefaultQuota = DefaultQuota()

    def as_rules(self) -> Rules:
        """As core has them."""
        return Rules(
            fifo=ORDERS[self.order],
            keep_room_after=self.keep_room_after_seconds,
            preemption=NEVER,
        )
