# SPDX-License-Identifier: Apache-2.0
"""The device plugins: each gives the kubelet device tokens of one resource.

A node has two: one for whole GPUs and one for shares. A GPU has device tokens at both, but is held
in one way at a time. Each profile of its MIG slices has a further plugin. It starts when such a
slice is first seen and stays: the kubelet counts a resource that it once knew for as long as the
kubelet runs.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator

from gpupack_agent import device_tokens, holders
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
        tokens_per_gpu: number of device tokens that stand for one GPU.
    """

    plugin: PluginServicer
    registration: Registration
    prefix: str
    tokens_per_gpu: int

    def publish(self, view: NodeView) -> None:
        """Publish the present device tokens to the kubelet."""
        self.plugin.publish(self.tokens(view))

    def tokens(self, view: NodeView) -> tuple[device_tokens.DeviceToken, ...]:
        """Return all device tokens of the resource.

        Tokens for failed GPUs, as far as no container holds them, are marked as Unhealthy.
        """
        devices = device_tokens.devices_of(view.devices.values(), self.plugin.resource)
        live = holders.live_records(view)
        unusable = device_tokens.count_unusable(
            devices,
            (
                share.uuid
                for record in live
                for share in record.devices
                if self._holds_same_kind(record)
            ),
            tokens_per_gpu=self.tokens_per_gpu,
        )
        return device_tokens.mark_unhealthy(
            device_tokens.number_tokens(self.prefix, len(devices) * self.tokens_per_gpu),
            held={each for record in live for each in record.tokens},
            unusable=unusable,
        )

    def _holds_same_kind(self, record: Record) -> bool:
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

    def update(self, devices: Iterable[GpuDevice]) -> None:
        """Add a plugin for each new MIG profile among these devices."""
        for resource in sorted(device_tokens.slice_resources(devices) - self._plugins.keys()):
            self._plugins[resource] = self._make(resource)

    def take_unstarted(self) -> list[DevicePlugin]:
        """Return the plugins that this function has not returned before."""
        unstarted = [name for name in self._plugins if name not in self._started]
        self._started.update(unstarted)
        return [self._plugins[name] for name in unstarted]
