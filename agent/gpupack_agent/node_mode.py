# SPDX-License-Identifier: Apache-2.0
"""Who hands out this node's GPUs: we do (owned), or other device plugins (observed).

A node becomes observed when the kubelet has healthy devices of one of the resources that we are
told to observe; there may be several of these, each with GPUs of its own. It stays so, whatever
becomes of those plugins: while one restarts or is upgraded the kubelet shows none of its devices,
and pods hold them all the same. Were we to register then, two plugins would hand out the same GPUs.
GPUNode keeps it over restarts of the agent; an administrator who took the other plugins away
deletes the GPUNode.
"""

import logging
from collections.abc import Collection, Mapping

from gpupack_crds import names
from gpupack_crds.gpunode import MAX_RESOURCES, GpuNodeStatus, Mode

log = logging.getLogger(__name__)

_REPLICA = "::"
"""NVIDIA's plugin names replicas of a GPU by its UUID, this, and a number."""


class NodeMode:
    """By which resources the kubelet hands out this node's GPUs, as far as we know.

    Args:
        observed: resources of other plugins.
        others: which of them are not of GPUs that our inventory shows, but of other vendors'.
    """

    def __init__(self, observed: tuple[str, ...], others: Collection[str] = ()) -> None:
        self._observed, self._others = observed, frozenset(others)
        self._asked = not observed
        self._theirs: tuple[str, ...] = ()
        self._resource_of: dict[str, str] = {}
        """By the UUIDs of GPUs that other plugins have shown."""

    @property
    def mode(self) -> Mode:
        """What GPUNode calls it."""
        return "observed" if self._theirs else "owned"

    @property
    def resources(self) -> tuple[str, ...]:
        """The names by which the kubelet hands out this node's GPUs, as they are configured."""
        return self._theirs or (names.GPU,)

    @property
    def observes(self) -> bool:
        """Whether another plugin that shows itself, or other devices, would change anything."""
        return bool(self._observed)

    def resource_of(self, uuid: str) -> str:
        """By which resource a GPU of our inventory is handed out.

        The first that it can be of, if no plugin has ever shown it; where all plugins are of other
        vendors, ours, which nobody serves.
        """
        possible = [name for name in self.resources if name not in self._others]
        known = self._resource_of.get(uuid)
        return known if known in possible else next(iter(possible), names.GPU)

    def may_register(self) -> bool:
        """Whether our plugins may: the kubelet was asked, and nobody else serves GPUs here."""
        return self._asked and self.mode == "owned"

    def see(self, served: Mapping[str, Collection[str]]) -> None:
        """Take in of which resources the kubelet has which devices at this moment, by their ids.

        A GPU that its plugin does not show for now is of the resource that it was of.
        """
        self._asked = True
        for name in self._observed:
            if name in served and name not in self._theirs:
                log.warning(
                    "another device plugin serves %s on this node, which is observed: gpupack "
                    "hands out nothing here until that plugin is gone and this GPUNode deleted",
                    name,
                )
                self._add(name)
        for name in reversed(self._theirs):
            uuids = (device.partition(_REPLICA)[0] for device in served.get(name, ()))
            self._resource_of.update(dict.fromkeys(uuids, name))

    def recall(self, recorded: GpuNodeStatus) -> None:
        """Take in what GPUNode recorded: what was observed still is."""
        if recorded.mode == "observed":
            self._add(*recorded.resources)
            before = {device.uuid: device.resource for device in recorded.devices}
            self._resource_of = before | self._resource_of

    def forget(self) -> None:
        """GPUNode was deleted: a node that was observed is asked anew before anything else."""
        if self.mode == "observed":
            self._theirs, self._resource_of = (), {}
            self._asked = not self._observed

    def _add(self, *resources: str) -> None:
        """In the order of the configuration, then those that it does not name any more."""
        known = {*self._theirs, *resources}
        ordered = [name for name in self._observed if name in known]
        ordered += sorted(known.difference(ordered))
        self._theirs = tuple(ordered[:MAX_RESOURCES])
