# SPDX-License-Identifier: Apache-2.0
"""The GPUs that each node's agent lists.

A GPU is on one node. Where two agents list it, one of them is wrong or malicious.
"""

from collections import defaultdict
from collections.abc import Set as AbstractSet

from gpupack_crds.kinds import GpuNode


class Listings:
    """The UUIDs in each GPUNode, whether or not a Node of its name exists."""

    def __init__(self) -> None:
        self._uuids: dict[str, frozenset[str]] = {}
        self._nodes: dict[str, set[str]] = defaultdict(set)

    def put(self, name: str, gpus: GpuNode | None) -> None:
        """Update what a node's agent lists; on an observed node GPUs are known by number only."""
        for uuid in self._uuids.pop(name, frozenset()):
            self._nodes[uuid].discard(name)
            if not self._nodes[uuid]:
                del self._nodes[uuid]
        if gpus is not None and gpus.status.mode == "owned":
            self._uuids[name] = frozenset(device.uuid for device in gpus.status.devices)
            for uuid in self._uuids[name]:
                self._nodes[uuid].add(name)

    def rivals(self, name: str) -> dict[str, AbstractSet[str]]:
        """Return other nodes that list GPUs of this one, and these GPUs; in order of names."""
        here = self._uuids.get(name, frozenset())
        others = {other for uuid in here for other in self._nodes[uuid]} - {name}
        return {other: here & self._uuids[other] for other in sorted(others)}
