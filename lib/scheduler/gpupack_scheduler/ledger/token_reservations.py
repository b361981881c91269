# SPDX-License-Identifier: Apache-2.0
"""GPUs set aside for the kubelet's device tokens whose devices are unknown.

    owned node      pods that another scheduler bound: their annotation is missing or wrong
    observed node   every pod and every planned worker: another plugin chooses the devices

The kubelet counts the tokens of each resource. It would reject one gpupack pod for good for each
GPU that gpupack gives out beyond the kubelet's remaining tokens. Which GPUs of the resource are set
aside does not matter, so they are always GPUs without another holder: every other claim takes
precedence.

A token for a share without an annotation sets aside a whole GPU's slots, although it is one slot.
To set aside single slots was rejected: such a pod never starts (the agent has nothing to give it),
and such a claim would be the only one that holds no percent.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence

from gpupack_crds import names
from gpupack_placement import WHOLE_GPU, Cluster, Grant, Holder, NodeName, Placement
from gpupack_scheduler.ledger.claims import Allocation, DeviceTokens
from gpupack_scheduler.ledger.workers import token_holder


class TokenReservations:
    """The whole free GPUs of each node that are held for such tokens: as many as needed, or all."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._nodes: dict[Holder, NodeName] = {}
        self._on: dict[NodeName, dict[Holder, DeviceTokens]] = defaultdict(dict)

    def on(self, fork: Cluster) -> "TokenReservations":
        """Return the same tokens on a fork of the cluster; the two are independent from now on."""
        twin = TokenReservations(fork)
        twin._nodes = self._nodes.copy()
        twin._on.update({node: held.copy() for node, held in self._on.items()})
        return twin

    def put(self, holder: Holder, allocation: Allocation | None) -> None:
        """Replace the tokens of a holder by those of this place."""
        before = self._nodes.pop(holder, None)
        if before is not None:
            del self._on[before][holder]
        if allocation is not None and allocation.tokens:
            self._nodes[holder] = allocation.node
            self._on[allocation.node][holder] = allocation.tokens
        changed = {before, self._nodes.get(holder)}
        for node in (name for name in changed if name is not None):
            self.recompute(node)

    def needed(self, node: NodeName, resource: str) -> int:
        """Return how many GPUs of a resource (placement's name) the tokens on the node need."""
        held = self._on[node].values() if node in self._on else ()
        if resource:
            return _total(held, resource)
        slots = _total(held, names.GPU_SHARE)
        return _total(held, names.GPU) - -slots // names.SHARE_SLOTS_PER_GPU

    def recompute(self, name: NodeName) -> None:
        """Choose a node's GPUs again; call this after any change there."""
        holder = token_holder(name)
        if name not in self._on:
            return
        if self._cluster.placement_of(holder) is not None:
            self._cluster.give_back(holder)
        if not self._on[name]:
            del self._on[name]
        elif chosen := self._last_free(name):
            self._cluster.adopt(holder, Placement(name, chosen, pods=0))

    def _last_free(self, name: NodeName) -> tuple[Grant, ...]:
        node = self._cluster.node(name)
        needed = {each: self.needed(name, each) for each in node.resources} if node else {}
        if node is None or not any(needed.values()):
            return ()
        devices = {device.uuid: device for device in node.devices}
        free: dict[str, list[Grant]] = {resource: [] for resource in needed}
        for each in self._cluster.free_devices(name):
            device = devices[each.uuid]
            if device.is_slice:
                is_free = not self._cluster.holders_of(node=name, uuid=each.uuid)
            else:
                is_free = (each.milli, each.memory) == (WHOLE_GPU, device.memory)
            if is_free:
                grant = Grant(each.uuid, WHOLE_GPU, device.memory)
                free[device.resource].append(grant)
        chosen = (_last(free[each], number) for each, number in needed.items())
        return tuple(itertools.chain.from_iterable(chosen))


def _last(grants: Sequence[Grant], number: int) -> Sequence[Grant]:
    return grants[-number:] if number else ()


def _total(held: Iterable[DeviceTokens], resource: str) -> int:
    return sum(tickets.get(resource, 0) for tickets in held)
