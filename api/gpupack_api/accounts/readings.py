# SPDX-License-Identifier: Apache-2.0
"""How busy GPUs are and what power they draw, as far as somebody knows."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from gpupack_api.readings import reading


class Reading(NamedTuple):
    """Of one GPU at about this moment; None: that is not known.

    `busy_percent`: of the time in which something ran on it; `power_watts`: of the whole GPU.
    """

    busy_percent: float | None = None
    power_watts: float | None = None


class Readings(Protocol):
    """Where figures come from."""

    def of(self, node: str, uuid: str) -> Reading | None:
        """The newest of that node's GPU; None: there is none that is not too old.

        Which is not the same as idle.
        """


class NoReadings:
    """Nobody measures."""

    def of(self, node: str, uuid: str) -> None:
        """Nothing is known."""
        del node, uuid


class Agents(Protocol):
    """Who knows what the agent of each node tells, as gpupack_api.readings.gauge does."""

    def of(self, node: str) -> Mapping[str, reading.Reading]:
        """By UUID."""


class AgentReadings:
    """What agents tell; each is believed of the GPUs that are held on its own node."""

    def __init__(self, agents: Agents) -> None:
        self._agents = agents

    def of(self, node: str, uuid: str) -> Reading | None:
        """The newest of that node's GPU."""
        found = self._agents.of(node).get(uuid)
        return Reading(found.busy_percent, found.power_watts) if found else None
