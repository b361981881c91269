# SPDX-License-Identifier: Apache-2.0
"""Maintenance and presence of nodes by time."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import inf

from gpupack_placement import DeviceUuid, NodeName
from gpupack_queue import Drains
from gpupack_simulator.errors import InvalidParameter


class Drain(StrEnum):
    """The jobs that leave a component in maintenance."""

    NEVER = "Never"
    MOVABLE = "Movable"
    ALL = "All"


@dataclass(frozen=True, slots=True)
class Maintenance:
    """A maintenance as in a GPUNode: from `at` to `until` the devices (None: all) get no new work.

    Movable jobs leave as soon as they have another place. If `drain` is ALL, jobs that are there at
    `stop_at` are stopped and wait again.
    """

    node: NodeName
    devices: frozenset[DeviceUuid] | None
    at: float
    until: float = inf
    drain: Drain = Drain.NEVER
    stop_at: float | None = None
    """Time at which jobs are stopped; None: at once."""

    def __post_init__(self) -> None:
        if self.at < 0 or not self.until > self.at:
            raise InvalidParameter(
                f"the maintenance of {self.node} begins at {self.at:g} and ends at {self.until:g}: "
                "the end must come later, and both after 0"
            )
        if self.stop_at is not None and self.drain is not Drain.ALL:
            raise InvalidParameter(
                f"{self.node}: stopAt needs drain: All, since only then jobs are stopped"
            )

    @property
    def stops(self) -> float:
        """Time at which jobs there are stopped; infinity: never."""
        if self.drain is not Drain.ALL:
            return inf
        return self.at if self.stop_at is None else max(self.at, self.stop_at)


@dataclass(frozen=True, slots=True)
class Presence:
    """The time that a node spends in the cluster; jobs there when it leaves are stopped."""

    node: NodeName
    joins: float = 0.0
    leaves: float = inf

    def __post_init__(self) -> None:
        if self.joins < 0 or not self.leaves > self.joins:
            raise InvalidParameter(
                f"{self.node} joins at {self.joins:g} and leaves at {self.leaves:g}: it must leave "
                "later than it joins, and both after 0"
            )

    def at(self, now: float) -> bool:
        """Tell whether the node is in the cluster at this time."""
        return self.joins <= now < self.leaves


@dataclass(frozen=True, slots=True)
class NodeChange:
    """A node of which maintenance or presence begins or ends now."""

    node: NodeName


class Calendar:
    """All maintenance and presence of a run; immutable."""

    def __init__(self, maintenance: Iterable[Maintenance], presence: Iterable[Presence]) -> None:
        self._entries = tuple(maintenance)
        self._presence = {each.node: each for each in presence}

    def changes(self) -> Iterator[tuple[float, NodeChange]]:
        """Yield the times at which a node changes, with the node."""
        for entry in self._entries:
            for time in sorted({entry.at, entry.stops, entry.until}):
                yield time, NodeChange(entry.node)
        for each in self._presence.values():
            yield from ((time, NodeChange(each.node)) for time in (each.joins, each.leaves) if time)

    def is_present(self, node: NodeName, now: float) -> bool:
        """Tell whether the node is in the cluster."""
        known = self._presence.get(node)
        return known is None or known.at(now)

    @property
    def changes_nodes(self) -> bool:
        """Whether nodes join or leave during the run."""
        return any(each.joins or each.leaves < inf for each in self._presence.values())

    def maintained(self, node: NodeName, now: float) -> frozenset[DeviceUuid] | None:
        """Return the devices of the node that get no new work; None: all."""
        return _together(entry.devices for entry in self._entries if _is(entry, node, now))

    def drains(self, now: float) -> Drains:
        """Return the devices that movable jobs are to leave."""
        found: Mapping[NodeName, list[Maintenance]] = {
            entry.node: [
                other
                for other in self._entries
                if _is(other, entry.node, now) and other.drain is not Drain.NEVER
            ]
            for entry in self._entries
        }
        return {node: _together(e.devices for e in of) for node, of in found.items() if of}

    def stopped(self, node: NodeName, now: float) -> Iterator[frozenset[DeviceUuid] | None]:
        """Yield the devices of the node whose jobs are stopped; None: all."""
        for entry in self._entries:
            if _is(entry, node, now) and entry.stops <= now:
                yield entry.devices


def _is(entry: Maintenance, node: NodeName, now: float) -> bool:
    return entry.node == node and entry.at <= now < entry.until


def _together(devices: Iterable[frozenset[DeviceUuid] | None]) -> frozenset[DeviceUuid] | None:
    found: set[DeviceUuid] = set()
    for of in devices:
        if of is None:
            return None
        found |= of
    return frozenset(found)
