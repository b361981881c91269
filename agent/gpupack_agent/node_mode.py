# SPDX-License-Identifier: Apache-2.0
"""The mode of a node: gpupack hands out its GPUs (owned), or other device plugins do (observed).

A node becomes observed when the kubelet has healthy devices of one of the configured resources.
There may be several of these, each with its own GPUs. The node stays observed, whatever happens to
those plugins: while one restarts or is upgraded, the kubelet shows none of its devices, but pods
still hold them. If gpupack registered then, two plugins would hand out the same GPUs. GPUNode
records the mode over restarts of the agent. An administrator who removed the other plugins deletes
the GPUNode.
"""

import logging
from collections.abc import Collection, Mapping

from gpupack_crds import names
from gpupack_crds.gpunode import MAX_RESOURCES, GpuNodeStatus, Mode

log = logging.getLogger(__name__)

_REPLICA_SEPARATOR = "::"
"""The separator in NVIDIA's names of a GPU's replicas: UUID, separator, number."""


class NodeMode:
    """The mode of one node, and the resources by which the kubelet hands out its GPUs.

    Args:
        observed: resources of other plugins.
        others: those of them whose GPUs are of other vendors and not in the agent's inventory.
    """

    def __init__(self, observed: tuple[str, ...], others: Collection[str] = ()) -> None:
        self._observed, self._others = observed, frozenset(others)
        self._kubelet_answered = not observed
        self._foreign: tuple[str, ...] = ()
        self._resource_of: dict[str, str] = {}
        """The resource of each GPU that other plugins have shown, by UUID."""

    @property
    def mode(self) -> Mode:
        """Return the mode, as GPUNode names it."""
        return "observed" if self._foreign else "owned"

    @property
    def resources(self) -> tuple[str, ...]:
        """Return the resources by which the kubelet hands out this node's GPUs.

        They are in the order of the configuration.
        """
        return self._foreign or (names.GPU,)

    @property
    def observes(self) -> bool:
        """Tell whether the configuration names resources of other device plugins."""
        return bool(self._observed)

    def resource_of(self, uuid: str) -> str:
        """Return the resource by which a GPU of the agent's inventory is handed out.

        If no plugin has ever shown the GPU, it is the first possible resource. If all plugins are
        of other vendors, it is gpupack's own resource, which no plugin serves.
        """
        possible = [name for name in self.resources if name not in self._others]
        known = self._resource_of.get(uuid)
        return known if known in possible else next(iter(possible), names.GPU)

    def may_register(self) -> bool:
        """Tell whether gpupack's plugins may register.

        They may once the kubelet has answered and no other plugin serves GPUs of this node.
        """
        return self._kubelet_answered and self.mode == "owned"

    def update(self, served: Mapping[str, Collection[str]]) -> None:
        """Apply the IDs of the devices that the kubelet has at this moment, by resource.

        A GPU that its plugin does not show for now keeps its resource.
        """
        self._kubelet_answered = True
        for name in self._observed:
            if name in served and name not in self._foreign:
                log.warning(
                    "another device plugin serves %s on this node: the node is observed, and "
                    "gpupack assigns no GPUs here until the plugin is removed and this GPUNode "
                    "deleted",
                    name,
                )
                self._add(name)
        for name in reversed(self._foreign):
            uuids = (device.partition(_REPLICA_SEPARATOR)[0] for device in served.get(name, ()))
            self._resource_of.update(dict.fromkeys(uuids, name))

    def restore(self, recorded: GpuNodeStatus) -> None:
        """Restore the mode that GPUNode recorded: an observed node stays observed."""
        if recorded.mode == "observed":
            self._add(*recorded.resources)
            before = {device.uuid: device.resource for device in recorded.devices}
            self._resource_of = before | self._resource_of

    def forget(self) -> None:
        """Forget the mode of a deleted GPUNode.

        If the node was observed, the kubelet must answer again before gpupack's plugins register.
        """
        if self.mode == "observed":
            self._foreign, self._resource_of = (), {}
            self._kubelet_answered = not self._observed

    def _add(self, *resources: str) -> None:
        """Add resources, in the order of the configuration; those it no longer names come last."""
        known = {*self._foreign, *resources}
        ordered = [name for name in self._observed if name in known]
        ordered += sorted(known.difference(ordered))
        self._foreign = tuple(ordered[:MAX_RESOURCES])
