# SPDX-License-Identifier: Apache-2.0
"""GPUs of other vendors on this node, from the kubelet's IDs, node labels and vendor libraries.

    kubelet: GetAllocatableResources ─► observer ─► see ─┐
    API: labels of the Node, every LABELS_SECONDS ───────┼─► devices ─► GPUNode
    amdsmi, where it can be loaded ──────────────────────┘

While a plugin restarts and shows no devices, or labels cannot be read, the last known state stays.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Protocol

import msgspec

from gpupack_agent.errors import InventoryUnavailable
from gpupack_agent.inventory import labelled
from gpupack_agent.inventory.base import Findings
from gpupack_agent.inventory.labelled import Labels
from gpupack_crds.gpunode import GpuDevice
from gpupack_crds.vendors import Vendors
from gpupack_kubeclient.errors import KubeError

log = logging.getLogger(__name__)

LABELS_SECONDS = 60.0
"""The time between two reads of labels and library: they change when the machine is changed."""
RETRY_SECONDS = 5.0
"""The time between two attempts until labels were read for the first time."""


class VendorLibrary(Protocol):
    """A vendor's library, called in a separate process."""

    async def scan(self, skip: Sequence[int]) -> Findings:
        """Scan the GPUs except those of the indices `skip`; raises InventoryUnavailable."""


class ForeignDevices:
    """The GPUs of this node that NVIDIA's driver does not show.

    Args:
        vendors: the chart's table.
        read_labels: reads the labels of the agent's Node; raises KubeError.
        libraries: the vendors' libraries, by the table's names for them.
    """

    def __init__(
        self,
        vendors: Vendors,
        read_labels: Callable[[], Awaitable[Labels]],
        libraries: Mapping[str, VendorLibrary] | None = None,
    ) -> None:
        self._vendors, self._read_labels = vendors, read_labels
        self._libraries = dict(libraries or {})
        self._ids: dict[str, frozenset[str]] = {}
        self._labels: Labels | None = None
        self._listed: dict[str, Mapping[str, GpuDevice]] = {}
        """The GPUs that each library last listed, by library, then by PCI address."""
        self._needed = asyncio.Event()

    @classmethod
    def none(cls) -> "ForeignDevices":
        """Return an object without GPUs, as for an empty table."""

        async def no_labels() -> Labels:
            return {}

        return cls(Vendors(), no_labels)

    @property
    def devices(self) -> tuple[GpuDevice, ...]:
        """Return the known GPUs; an ID that two plugins have counts once, for the first plugin."""
        found: dict[str, GpuDevice] = {}
        for resource, ids in self._ids.items():
            for device in self._devices_of(resource, ids):
                found.setdefault(device.uuid, device)
        return tuple(found.values())

    def update(self, served: Mapping[str, Collection[str]], resources: Collection[str]) -> None:
        """Apply the IDs that the kubelet has of the node's resources.

        Args:
            served: the IDs of the kubelet's devices, by resource.
            resources: the resources of the observed node; empty if it is not observed.
        """
        foreign = [name for name in resources if not self._vendors.driver_shows(name)]
        known = {name: frozenset(served.get(name, ())) for name in foreign}
        self._ids = {name: ids or self._ids.get(name, ids) for name, ids in known.items()}
        if foreign:
            self._needed.set()
        else:
            self._needed.clear()

    def is_foreign(self, device: GpuDevice) -> bool:
        """Tell whether a GPU of GPUNode is of another vendor, so that it comes from here."""
        return not self._vendors.driver_shows(device.resource)

    async def run(self) -> None:
        """Read labels and libraries repeatedly, while there are such GPUs, until cancelled."""
        while True:
            await self._needed.wait()
            await self.refresh()
            await asyncio.sleep(RETRY_SECONDS if self._labels is None else LABELS_SECONDS)

    async def refresh(self) -> None:
        """Read labels and query libraries, once."""
        try:
            self._labels = await self._read_labels()
        except KubeError as error:
            log.warning("cannot read this node's labels: %s; the last known labels stay", error)
        wanted = {vendor.library for name in self._ids if (vendor := self._vendors.of(name))}
        for name in sorted(wanted & self._libraries.keys()):
            try:
                found = await self._libraries[name].scan(())
            except InventoryUnavailable as error:
                log.warning("cannot query %s: %s; the last known GPUs stay", name, error)
            else:
                self._listed[name] = {each.pci_bus_id: each for each in found.devices}

    def _devices_of(self, resource: str, ids: frozenset[str]) -> tuple[GpuDevice, ...]:
        vendor = self._vendors.of(resource)
        if vendor is None:
            return ()
        by_address = self._listed.get(vendor.library, {})
        listed = [by_address.get(each.lower()) for each in sorted(ids)]
        if ids and all(listed):
            return tuple(
                msgspec.structs.replace(device, uuid=name, resource=resource)
                for name, device in zip(sorted(ids), listed, strict=True)
                if device is not None
            )
        return labelled.devices(vendor, resource, ids, self._labels or {})
