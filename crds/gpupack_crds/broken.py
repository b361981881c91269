# SPDX-License-Identifier: Apache-2.0
"""Nodes on which attempts of a job failed: the operator asks to avoid them for the next attempts.

Start estimates avoid the same nodes.
"""

import datetime as dt
from collections.abc import Iterable
from typing import Final, NamedTuple

NOT_OF_THE_NODE: Final = frozenset(
    {
        "OutOfMemory",
        "PodDeleted",
        "EvictionByEvictionAPI",
        "PreemptionByScheduler",
    }
)
"""Failures that the worker's node did not cause: the operator's reasons, and Kubernetes'."""


class Break(NamedTuple):
    """An attempt that ended because of a failure on this node."""

    node: str
    reason: str
    at: dt.datetime


def to_avoid(breaks: Iterable[Break], now: dt.datetime, seconds: float) -> tuple[str, ...]:
    """Return nodes on which attempts failed within the last `seconds`, in the order given.

    A program that fails by itself counts too: a GPU that is about to fail shows in no other way.
    """
    since = now - dt.timedelta(seconds=seconds)
    nodes = (each.node for each in breaks if each.at > since and each.reason not in NOT_OF_THE_NODE)
    return tuple(dict.fromkeys(nodes))
