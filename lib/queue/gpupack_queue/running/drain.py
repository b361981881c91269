# SPDX-License-Identifier: Apache-2.0
"""Devices that running jobs are to leave."""

from collections.abc import Iterable, Mapping

from gpupack_devices.units import DeviceUuid, NodeName
from gpupack_placement.placement import Placement

Drains = Mapping[NodeName, frozenset[DeviceUuid] | None]
"""The devices to leave, by node; None: all devices of the node."""


def node_to_drain(places: Iterable[Placement], drains: Drains) -> NodeName | None:
    """Return the first node on which the places have a device to drain; None: there is none."""
    return next((place.node for place in places if _is_to_leave(place, drains)), None)


def _is_to_leave(place: Placement, drains: Drains) -> bool:
    if place.node not in drains:
        return False
    devices = drains[place.node]
    return devices is None or any(grant.uuid in devices for grant in place.devices)
