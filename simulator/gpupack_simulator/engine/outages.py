# SPDX-License-Identifier: Apache-2.0
"""Failed nodes and devices, and their state in placement's cluster.

A component can fail again while it is down; it is healthy after as many repairs. A node that is
down takes its devices with it: it is not ready, and its devices keep their own health.
"""

from collections import Counter
from dataclasses import dataclass, field, replace

from gpupack_placement import Cluster, Device, DeviceUuid, Health, Node, NodeName
from gpupack_simulator.engine.events import Component
from gpupack_simulator.engine.maintenance import Calendar
from gpupack_simulator.record import Outage


@dataclass(slots=True)
class Outages:
    """The failures of a run; mutable, belongs to one engine. `well`: the scenario's nodes."""

    healthy: dict[NodeName, Node]
    calendar: Calendar = field(default_factory=lambda: Calendar((), ()))
    _hits: Counter[Component] = field(default_factory=Counter)
    _since: dict[Component, float] = field(default_factory=dict)
    ended: list[Outage] = field(default_factory=list)

    def fail(self, cluster: Cluster, component: Component, now: float) -> bool:
        """Fail a component; tell whether it was healthy before."""
        self._hits[component] += 1
        if self._hits[component] > 1:
            return False
        self._since[component] = now
        self.update_node(cluster, component.node, now)
        return True

    def repair(self, cluster: Cluster, component: Component, now: float) -> bool:
        """Repair a component; tell whether that made it healthy."""
        if not self._hits[component]:
            return False
        self._hits[component] -= 1
        if self._hits[component]:
            return False
        self.ended.append(Outage(component.node, component.device, self._since.pop(component), now))
        self.update_node(cluster, component.node, now)
        return True

    def all(self) -> tuple[Outage, ...]:
        """Return all outages, ended and current, in the order of their start."""
        lasting = [
            Outage(component.node, component.device, at, None)
            for component, at in self._since.items()
        ]
        return tuple(sorted(self.ended + lasting, key=lambda outage: outage.start))

    def update_node(self, cluster: Cluster, name: NodeName, now: float) -> None:
        """Set the node in the cluster to its current state."""
        if not self.calendar.is_present(name, now):
            if name in cluster:
                cluster.remove_node(name)
            return
        node = self.healthy[name]
        maintained = self.calendar.maintained(name, now)
        devices = tuple(
            replace(device, health=self._health(name, device, maintained))
            for device in node.devices
        )
        ready = node.ready and not self._hits[Component(name)]
        cluster.set_node(replace(node, devices=devices, ready=ready))

    def _health(
        self, node: NodeName, device: Device, maintained: frozenset[DeviceUuid] | None
    ) -> Health:
        if self._hits[Component(node, device.uuid)]:
            return Health.FAILED
        if maintained is None or device.uuid in maintained:
            return Health.MAINTENANCE if device.health is Health.HEALTHY else device.health
        return device.health
