# SPDX-License-Identifier: Apache-2.0
"""GPUs set aside for pods that hold the kubelet's tickets, but no device that we know of.

Such a pod asks for GPUs and was bound by somebody else: its annotation is missing or wrong. The
kubelet counts it, and would reject for good one pod of ours for each GPU that we gave out beyond
what it has left. Which GPUs are set aside does not matter, so they are always ones that nobody
else holds: they make room for every other claim.
"""

from collections import Counter

import gpupack_core as core
from gpupack_extender.ledger.workers import ticket_holder


class Tickets:
    """Keeps as many whole free GPUs of a node held as there are such tickets, or all."""

    def __init__(self, cluster: core.Cluster) -> None:
        self._cluster = cluster
        self._counts: dict[core.NodeName, Counter[str]] = {}

    def count(self, uid: str, *, node: core.NodeName, tickets: int) -> None:
        """A pod holds so many tickets on a node; with none its count ends."""
        counts = self._counts.get(node, Counter())
        if tickets == counts[uid]:
            return
        counts[uid] = tickets
        self._counts[node] = +counts
        self.seat(node)

    def seat(self, node: core.NodeName) -> None:
        """Choose the GPUs of a node anew; to be called when anything changed there."""
        if node not in self._counts:
            return
        holder, number = ticket_holder(node), self._counts[node].total()
        if self._cluster.placement_of(holder) is not None:
            self._cluster.give_back(holder)
        if not number:
            del self._counts[node]
        elif chosen := self._last_free(node, number):
            self._cluster.adopt(holder, core.Placement(node, chosen))

    def _last_free(self, name: core.NodeName, number: int) -> tuple[core.Grant, ...]:
        node = self._cluster.node(name)
        if node is None:
            return ()
        memory = {device.uuid: device.memory for device in node.devices}
        free = [
            core.Grant(each.uuid, each.milli, each.memory)
            for each in self._cluster.free_devices(name)
            if (each.milli, each.memory) == (core.WHOLE_GPU, memory[each.uuid])
        ]
        return tuple(free[-number:])
