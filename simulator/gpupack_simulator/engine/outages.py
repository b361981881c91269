# SPDX-License-Identifier: Apache-2.0
"""Which nodes and devices are out of order, and what core sees of that.

A part can be hit again while it is down; it is well when as many repairs have come. A node that is
down takes its devices with it: it is not ready, and its devices keep their own health.
"""

from collections import Counter
from dataclasses import dataclass, field, replace

from gpupack_core import Cluster, Health, Node, NodeName
from gpupack_simulator.engine.events import Part
from gpupack_simulator.record import Outage


@dataclass(slots=True)
class Outages:
    """Mutable; belongs to one engine. `well`: the nodes as the scenario gives them."""

    well: dict[NodeName, Node]
    _hits: Counter[Part] = field(default_factory=Counter)
    _since: dict[Part, float] = field(default_factory=dict)
    over: list[Outage] = field(default_factory=list)

    def fail(self, cluster: Cluster, part: Part, now: float) -> bool:
        """Whether it was well before."""
        self._hits[part] += 1
        if self._hits[part] > 1:
            return False
        self._since[part] = now
        self._show(cluster, part.node)
        return True

    def repair(self, cluster: Cluster, part: Part, now: float) -> bool:
        """Whether it is well now and was not before."""
        if not self._hits[part]:
            return False
        self._hits[part] -= 1
        if self._hits[part]:
            return False
        self.over.append(Outage(part.node, part.device, self._since.pop(part), now))
        self._show(cluster, part.node)
        return True

    def all(self) -> tuple[Outage, ...]:
        """Those that are over and those that last, in the order of their start."""
        lasting = [Outage(part.node, part.device, at, None) for part, at in self._since.items()]
        return tuple(sorted(self.over + lasting, key=lambda outage: outage.start))

    def _show(self, cluster: Cluster, name: NodeName) -> None:
        node = self.well[name]
        devices = tuple(
            replace(device, health=Health.FAILED) if self._hits[Part(name, device.uuid)] else device
            for device in node.devices
        )
        ready = node.ready and not self._hits[Part(name)]
        cluster.set_node(replace(node, devices=devices, ready=ready))
