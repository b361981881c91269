# SPDX-License-Identifier: Apache-2.0
"""Nodes on which attempts of a job broke: the operator asks that the next ones avoid them.

Whoever foresees where a job goes avoids the same.
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
"""Ends for which the worker's node could do nothing: the operator's reasons, and Kubernetes'."""


class Break(NamedTuple):
    """An attempt ended as something broke on this node."""

    node: str
    reason: str
    at: dt.datetime


def to_avoid(breaks: Iterable[Break], now: dt.datetime, seconds: float) -> tuple[str, ...]:
    """Nodes on which attempts broke within the last so many seconds, in the order given.

    A program that fails by itself counts, too: a GPU that is about to fail shows no other way.
    """
    since = now - dt.timedelta(seconds=seconds)
    nodes = (each.node for each in breaks if each.at > since and each.reason not in NOT_OF_THE_NODE)
    return tuple(dict.fromkeys(nodes))
