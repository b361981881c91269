# SPDX-License-Identifier: Apache-2.0
"""Where the kubelet gets tickets of one resource: a plugin, its registration, its tickets.

A node has two: for whole GPUs and for shares. A GPU has tickets at both, but is held in one way at
a time. For each profile of its MIG slices it has one more, which begins when such a slice is first
seen and stays: a resource that the kubelet has once heard of it counts for as long as it runs.
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
        prefix: what the ids of its tickets begin with.
        per_gpu: how many tickets stand for one GPU.
    """

    plugin: PluginServicer
    registration: Registration
    prefix: str
    per_gpu: int

    def publish(self, view: NodeView) -> None:
        """Tell the kubelet what there is at this moment."""
        self.plugin.publish(self.tickets(view))

    def tickets(self, view: NodeView) -> tuple[tickets.Ticket, ...]:
        """All tickets of the resource, with those of failed GPUs that nobody holds marked."""
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
        """Whether a record's tickets are of this resource."""
        whole = all(share.whole for share in record.devices)
        return whole == (self.plugin.resource != names.GPU_SHARE)


class DevicePlugins:
    """All of the node's.

    Args:
        make: builds one of a resource, by its name.
    """

    def __init__(self, make: Callable[[str], DevicePlugin]) -> None:
        self._make = make
        self._plugins = {name: make(name) for name in (names.GPU, names.GPU_SHARE)}
        self._started: set[str] = set()

    def __iter__(self) -> Iterator[DevicePlugin]:
        """Those that there are."""
        return iter(tuple(self._plugins.values()))

    def see(self, devices: Iterable[GpuDevice]) -> None:
        """Have one for each profile of the slices among these."""
        for resource in sorted(tickets.slice_resources(devices) - self._plugins.keys()):
            self._plugins[resource] = self._make(resource)

    def to_start(self) -> list[DevicePlugin]:
        """Those that have not been asked for here before."""
        fresh = [name for name in self._plugins if name not in self._started]
        self._started.update(fresh)
        return [self._plugins[name] for name in fresh]
