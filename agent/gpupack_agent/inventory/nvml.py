# SPDX-License-Identifier: Apache-2.0
"""The node's real GPUs, as NVIDIA's driver lists them through NVML.

Initialising NVML touches no GPU, asking for a handle does: every GPU is read behind a guard of its
own, so that one that fell off the bus hides no other. A GPU that cannot be read is missing from the
findings; `KnownDevices` notices and reports it. What a driver or board does not tell is left out.
"""

import contextlib
import dataclasses
import functools
import logging
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from gpupack_agent.errors import InventoryUnavailable
from gpupack_agent.inventory import driver_files, health
from gpupack_agent.inventory.base import Findings, Injection
from gpupack_agent.inventory.xids import XidWatcher
from gpupack_crds.devices import BYTES_PER_MIB
from gpupack_crds.gpunode import GpuDevice

log = logging.getLogger(__name__)

T = TypeVar("T")

MOST_XIDS = 32
"""As many as GPUNode takes; there are fewer that matter."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Gpu:
    """A GPU that answered: NVML's handle and what identifies it."""

    handle: Any
    index: int
    uuid: str


class NvmlInventory:
    """The GPUs that the driver shows.

    Args:
        nvml: the module `pynvml`, or anything with its functions.
        xids: collects the driver's events; started by the first scan.
        host_root: where the host's root is seen, for driver libraries and sysfs.
    """

    def __init__(self, nvml: Any, xids: XidWatcher, *, host_root: pathlib.Path) -> None:
        self._nvml = nvml
        self._xids = xids
        self._host_root = host_root
        self._minors: dict[str, int] = {}

    def scan(self) -> Findings:
        """Read every GPU that answers."""
        with self._unavailable():
            count = self._nvml.nvmlDeviceGetCount()
            driver = self._nvml.nvmlSystemGetDriverVersion()
            # Not _v2, which fails where libcuda is not on our own search path.
            cuda = self._nvml.nvmlSystemGetCudaDriverVersion()
        gpus = [gpu for index in range(count) if (gpu := self._guarded(self._open, index))]
        self._xids.watch({gpu.uuid: gpu.handle for gpu in gpus})
        self._minors = {
            gpu.uuid: minor
            for gpu in gpus
            if (minor := self._told(self._nvml.nvmlDeviceGetMinorNumber, gpu.handle)) is not None
        }
        return Findings(
            devices=tuple(self._devices(gpus)),
            driver_version=driver,
            cuda_version=f"{cuda // 1000}.{cuda % 1000 // 10}",
        )

    def injection(self, uuids: Sequence[str]) -> Injection:
        """Device nodes of these GPUs and the driver's libraries."""
        minors = self._minors
        if unknown := [uuid for uuid in uuids if uuid not in minors]:
            raise InventoryUnavailable(
                f"the driver does not tell the device node of {', '.join(unknown)}: it was not "
                "found by the last scan, or gives no minor number"
            )
        return driver_files.injection(self._host_root, [minors[uuid] for uuid in uuids])

    def forget(self) -> None:
        """XIDs of the past do not count any more; the driver's recovery action does."""
        self._xids.forget()

    async def changed(self) -> None:
        """Wait for an event of the driver, or until a scan is due."""
        await self._xids.changed()

    def _devices(self, gpus: Sequence[_Gpu]) -> Iterator[GpuDevice]:
        handles = {gpu.index: gpu.handle for gpu in gpus}
        cliques = nvlink_cliques(
            sorted(handles), lambda low, high: self._linked(handles[low], handles[high])
        )
        for gpu in gpus:
            devices = self._guarded(self._read, gpu, cliques.get(gpu.index))
            yield from devices or ()

    def _open(self, index: int) -> _Gpu:
        handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
        return _Gpu(handle=handle, index=index, uuid=self._nvml.nvmlDeviceGetUUID(handle))

    def _read(self, gpu: _Gpu, clique: int | None) -> list[GpuDevice]:
        """Describe a GPU, or its slices where it is cut into MIG devices."""
        xids = self._xids.seen(gpu.uuid)
        grade, cause = health.grade(self._recovery_action(gpu.handle), xids)
        describe = functools.partial(
            GpuDevice,
            index=gpu.index,
            health=grade,
            cause=cause,
            xids=tuple(sorted(xids)[:MOST_XIDS]),
            numa_node=self._numa_node(gpu.handle),
        )
        slices = self._slices(gpu.handle)
        if slices is None:
            return [describe(**self._identity(gpu.handle), nvlink_clique=clique)]
        return [describe(**self._identity(each), mig_parent=gpu.uuid) for each in slices]

    def _identity(self, handle: Any) -> dict[str, Any]:
        return {
            "uuid": self._nvml.nvmlDeviceGetUUID(handle),
            "model": self._nvml.nvmlDeviceGetName(handle),
            "memory_mib": self._nvml.nvmlDeviceGetMemoryInfo(handle).total // BYTES_PER_MIB,
        }

    def _slices(self, handle: Any) -> list[Any] | None:
        """Handles of the MIG devices; None where MIG is off or unknown to the board."""
        mode = self._told(self._nvml.nvmlDeviceGetMigMode, handle)
        if mode is None or mode[0] != self._nvml.NVML_DEVICE_MIG_ENABLE:
            return None
        most = self._nvml.nvmlDeviceGetMaxMigDeviceCount(handle)
        slices = (
            self._told(self._nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, index)
            for index in range(most)
        )
        return [each for each in slices if each is not None]

    def _recovery_action(self, handle: Any) -> int | None:
        field = self._nvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
        values = self._told(self._nvml.nvmlDeviceGetFieldValues, handle, [field])
        if values is None or values[0].nvmlReturn != self._nvml.NVML_SUCCESS:
            return None
        action: int = values[0].value.uiVal
        return action

    def _numa_node(self, handle: Any) -> int | None:
        """Ask sysfs: NVML's own call is unsupported on common boards (H200 among them)."""
        pci = self._told(self._nvml.nvmlDeviceGetPciInfo, handle)
        if pci is None:
            return None
        bus_id = pci.busId.decode() if isinstance(pci.busId, bytes) else pci.busId
        path = self._host_root / "sys/bus/pci/devices" / bus_id[-12:].lower() / "numa_node"
        try:
            node = int(path.read_text())
        except (OSError, ValueError):
            return None
        return node if node >= 0 else None

    def _linked(self, first: Any, second: Any) -> bool:
        status = self._told(
            self._nvml.nvmlDeviceGetP2PStatus, first, second, self._nvml.NVML_P2P_CAPS_INDEX_NVLINK
        )
        return bool(status == self._nvml.NVML_P2P_STATUS_OK)

    def _told(self, call: Callable[..., T], *arguments: Any) -> T | None:
        """Ask for something that not every driver or board tells."""
        try:
            return call(*arguments)
        except self._nvml.NVMLError:
            return None

    def _guarded(self, call: Callable[..., T], *arguments: Any) -> T | None:
        """Ask for something without which a GPU counts as gone."""
        try:
            return call(*arguments)
        except self._nvml.NVMLError as error:
            log.warning("a GPU does not answer (%s): %s", arguments[0], error)
            return None

    @contextlib.contextmanager
    def _unavailable(self) -> Iterator[None]:
        try:
            yield
        except self._nvml.NVMLError as error:
            raise InventoryUnavailable(f"NVML: {error}") from error


def open_nvml(nvml: Any, *, host_root: pathlib.Path) -> None:
    """Load and initialise the driver's library, from the host's folders before our own.

    Raises:
        InventoryUnavailable: there is no driver here, or its library cannot be loaded.
    """
    driver_files.preload(host_root, "libnvidia-ml.so.1")
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise InventoryUnavailable(
            f"NVML cannot be used: {error}; is the NVIDIA driver installed, with "
            f"libnvidia-ml.so.1 in one of its usual folders below {host_root}? Without GPUs set "
            "GPUPACK_INVENTORY=simulated"
        ) from error


def nvlink_cliques(indices: Sequence[int], linked: Callable[[int, int], bool]) -> dict[int, int]:
    """Group GPUs that reach each other over NVLink, by union-find.

    Pairs are asked for their peer-to-peer status, not for the far end of each link: behind NVSwitch
    the far end is the switch.

    Args:
        indices: the GPUs, in ascending order.
        linked: whether two of them reach each other.

    Returns:
        For each GPU with a peer the lowest index of its group; GPUs without one are left out.
    """
    parent = {index: index for index in indices}

    def root(index: int) -> int:
        while parent[index] != index:
            parent[index] = parent[parent[index]]
            index = parent[index]
        return index

    grouped: set[int] = set()
    for position, low in enumerate(indices):
        for high in indices[position + 1 :]:
            if linked(low, high):
                first, second = sorted((root(low), root(high)))
                parent[second] = first
                grouped |= {low, high}
    return {index: root(index) for index in sorted(grouped)}
