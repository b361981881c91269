# SPDX-License-Identifier: Apache-2.0
"""Utilization and power of GPUs, as far as they are known."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from gpupack_apiserver.readings import reading


class Reading(NamedTuple):
    """A reading of one GPU at about this time; None: unknown.

    `busy_percent` is the part of the time in which something ran on it; `power_watts` is for the
    whole GPU.
    """

    busy_percent: float | None = None
    power_watts: float | None = None


class Readings(Protocol):
    """A source of readings."""

    def get(self, node: str, uuid: str) -> Reading | None:
        """Return the newest reading of that node's GPU; None: there is none that is recent enough.

        None does not mean idle.
        """


class NoReadings:
    """A source without readings."""

    def get(self, node: str, uuid: str) -> None:
        """Return nothing."""
        del node, uuid


class Agents(Protocol):
    """A source of the readings of each node's agent, such as gpupack_apiserver.readings.poller."""

    def get(self, node: str) -> Mapping[str, reading.Reading]:
        """Return readings by UUID."""


class AgentReadings:
    """The agents' readings; each counts only for GPUs of its own node."""

    def __init__(self, agents: Agents) -> None:
        self._agents = agents

    def get(self, node: str, uuid: str) -> Reading | None:
        """Return the newest reading of that node's GPU."""
        found = self._agents.get(node).get(uuid)
        return Reading(found.busy_percent, found.power_watts) if found else None
