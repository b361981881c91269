# SPDX-License-Identifier: Apache-2.0
"""The device plugins: each gives the kubelet device tokens of one resource.

A node has two: one for whole GPUs and one for shares. A GPU has device tokens at both, but is held
in one way at a time. Each profile of its MIG slices has a further plugin. It starts when such a
slice is first seen and stays: the kubelet counts a resource that it once knew for as long as the
kubelet runs.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator

from gpupack_agent import holders, tickets
from gpupack_agent.holders import NodeView, Record
from gpupack_agent.plugin_servicer import PluginServicer
from gpupack_agent.registration import Registration
from gpupack_crds import names
from gpupack_crds.gpunode import GpuDevice


@dataclasses.dataclass(frozen=True, slots=True)
class DevicePlugin:
    """One resource that the node hands out.

    Attributes:
        prefix: the beginning of the IDs of its device tokens.
        per_gpu: number of device tokens that stand for one GPU.
    """

    plugin: PluginServicer
    registration: Registration
    prefix: str
    per_gpu: int

    def publish(self, view: NodeView) -> None:
        """Publish the present device tokens to the kubelet."""
        self.plugin.publish(self.tickets(view))

    def tickets(self, view: NodeView) -> tuple[tickets.Ticket, ...]:
        """Return all device tokens of the resource.

        Tokens for failed GPUs, as far as no container holds them, are marked as Unhealthy.
        """
        devices = tickets.handed_out(view.devices.values(), self.plugin.resource)
        live = holders.live_records(view)
        unusable = tickets.unusable(
            devices,
            (share.uuid for record in live for share in record.devices if self._uses(record)),
            tickets_per_gpu=self.per_gpu,
        )
        return tickets.grade(
            tickets.issue(self.prefix, len(devices) * self.per_gpu),
            held={each for record in live for each in record.tickets},
            unusable=unusable,
        )

    def _uses(self, record: Record) -> bool:
        """Tell whether a record holds its devices as this resource does: whole, or as shares."""
        whole = all(share.whole for share in record.devices)
        return whole == (self.plugin.resource != names.GPU_SHARE)


class DevicePlugins:
    """All device plugins of the node.

    Args:
        make: builds the plugin of a resource from its name.
    """

    def __init__(self, make: Callable[[str], DevicePlugin]) -> None:
        self._make = make
        self._plugins = {name: make(name) for name in (names.GPU, names.GPU_SHARE)}
        self._started: set[str] = set()

    def __iter__(self) -> Iterator[DevicePlugin]:
        """Iterate over the present plugins."""
        return iter(tuple(self._plugins.values()))

    def see(self, devices: Iterable[GpuDevice]) -> None:
        """Add a plugin for each new MIG profile among these devices."""
        for resource in sorted(tickets.slice_resources(devices) - self._plugins.keys()):
            self._plugins[resource] = self._make(resource)

    def to_start(self) -> list[DevicePlugin]:
        """Return the plugins that this function has not returned before."""
        fresh = [name for name in self._plugins if name not in self._started]
        self._started.update(fresh)
        return [self._plugins[name] for name in fresh]
