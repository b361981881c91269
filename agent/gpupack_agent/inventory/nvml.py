# SPDX-License-Identifier: Apache-2.0
"""The node's real GPUs, as NVIDIA's driver lists them through NVML.

The initialisation of NVML accesses no GPU, but opening a handle does. So the errors of each GPU are
caught separately, and one that fell off the bus hides no other. A GPU that cannot be read is
missing from the findings; `KnownDevices` notices and reports it. Values that a driver or board does
not report are left out. Any call may hang for ever, so this runs in a separate process (`prober`).
"""

import contextlib
import dataclasses
import functools
import logging
import pathlib
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, TypeVar

from gpupack_agent.errors import InventoryUnavailable
from gpupack_agent.inventory import driver_files, mig, mig_partitioning
from gpupack_agent.inventory.activity import Activity
from gpupack_agent.inventory.base import Findings
from gpupack_agent.inventory.driver_root import DriverSearch
from gpupack_agent.inventory.facts import GpuFacts, cpu_list
from gpupack_agent.inventory.layout import MigGpu
from gpupack_agent.inventory.peers import Peers
from gpupack_agent.inventory.readings import Readings
from gpupack_agent.inventory.xids import XidWatcher
from gpupack_crds.devices import BYTES_PER_MIB
from gpupack_crds.gpunode import GpuDevice

log = logging.getLogger(__name__)

T = TypeVar("T")

NVML = "libnvidia-ml.so.1"


@dataclasses.dataclass(frozen=True, slots=True)
class _Gpu:
    """A GPU that answered: NVML's handle, its index and its UUID."""

    handle: Any
    index: int
    uuid: str


class NvmlReader:
    """The GPUs that the driver shows.

    Args:
        nvml: the module `pynvml`, or an object with its functions.
        xids: collects the driver's events; the first scan starts it.
        host_root: this process's path of the host's root, for sysfs.
    """

    def __init__(self, nvml: Any, xids: XidWatcher, *, host_root: pathlib.Path) -> None:
        self._nvml = nvml
        self._xids = xids
        self._activity = Activity(nvml)
        self._readings = Readings(nvml, host_root)
        self._peers = Peers(nvml)
        self._instances: dict[str, tuple[int, int]] = {}
        self._mig_gpus: dict[str, MigGpu] = {}
        """The GPUs in MIG mode, by UUID; the possible profiles of a GPU do not change."""

    def scan(self, skip: Collection[int] = ()) -> Findings:
        """Read every GPU that answers.

        Args:
            skip: indices of GPUs that must not be queried.

        Raises:
            InventoryUnavailable: the driver does not list its GPUs.
        """
        with self._inventory_errors():
            count = self._nvml.nvmlDeviceGetCount()
            driver = self._nvml.nvmlSystemGetDriverVersion()
            # Not _v2, which fails if libcuda is not on this process's search path.
            cuda = self._nvml.nvmlSystemGetCudaDriverVersion()
        indices = (index for index in range(count) if index not in skip)
        gpus = [gpu for index in indices if (gpu := self._retried(self._open, index))]
        self._xids.watch({gpu.uuid: gpu.handle for gpu in gpus})
        minors = {
            gpu.uuid: minor
            for gpu in gpus
            if (minor := self._optional(self._nvml.nvmlDeviceGetMinorNumber, gpu.handle))
            is not None
        }
        self._readings.retain({gpu.uuid for gpu in gpus} | self._instances.keys())
        read = [
            (gpu, facts) for gpu in gpus if (facts := self._retried(self._facts, gpu)) is not None
        ]
        self._instances = {}
        self._mig_gpus = {
            gpu.uuid: known for gpu in gpus if (known := self._mig_gpus.get(gpu.uuid))
        }
        described = list(self._describe_all(read))
        devices = tuple(device for _, of_gpu in described for device in of_gpu)
        minors |= {
            each.uuid: minors[each.mig_parent] for each in devices if each.mig_parent in minors
        }
        return Findings(
            devices=devices,
            facts=tuple(facts for facts, _ in described),
            xids=self._xids.by_gpu(),
            driver_version=driver,
            busy=self._activity.busy({gpu.uuid: gpu.handle for gpu in gpus}),
            minors=minors,
            instances=self._instances,
            mig_gpus=tuple(self._mig_gpus.values()),
            cuda_version=f"{cuda // 1000}.{cuda % 1000 // 10}",
        )

    def _facts(self, gpu: _Gpu) -> GpuFacts:
        name = self._nvml.nvmlDeviceGetName(gpu.handle)
        return self._readings.facts(gpu.handle, uuid=gpu.uuid, index=gpu.index, name=name)

    def _describe_all(
        self, read: Sequence[tuple[_Gpu, GpuFacts]]
    ) -> Iterator[tuple[GpuFacts, list[GpuDevice]]]:
        """Iterate over the GPUs that answered every necessary call.

        A GPU with facts is not gone, whether it has slices or not.
        """
        self._peers.update({gpu.index: (gpu.handle, facts) for gpu, facts in read})
        for gpu, facts in read:
            described = self._retried(self._describe, gpu, facts)
            if described is not None:
                yield described

    def _open(self, index: int) -> _Gpu:
        handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
        return _Gpu(handle=handle, index=index, uuid=self._nvml.nvmlDeviceGetUUID(handle))

    def _describe(self, gpu: _Gpu, facts: GpuFacts) -> tuple[GpuFacts, list[GpuDevice]]:
        """Describe a GPU, or its slices if it is in MIG mode."""
        describe = functools.partial(
            GpuDevice,
            index=gpu.index,
            numa_node=facts.board.numa_node,
            architecture=facts.board.architecture or "",
            serial=facts.board.serial or "",
            pci_bus_id=facts.board.pci_bus_id or "",
            compute_mode=facts.board.compute_mode or "",
            cpus=cpu_list(facts.board.cpus),
            nvlinks=len(facts.links.nvlinks),
            nvlinks_down=facts.links.down,
        )
        slices = mig.slices(self._nvml, gpu.handle)
        if slices is None:
            self._mig_gpus.pop(gpu.uuid, None)
            whole = describe(
                **self._identity(gpu.handle),
                nvlink_clique=self._peers.nvlink.get(gpu.index),
                p2p_clique=self._peers.p2p.get(gpu.index),
            )
            return facts, [whole]
        if gpu.uuid not in self._mig_gpus:
            profiles = mig_partitioning.profiles(self._nvml, gpu.handle)
            self._mig_gpus[gpu.uuid] = MigGpu(gpu.uuid, profiles)
        found, of_slices = [], []
        for each in slices:
            identity = self._identity(each.handle)
            self._instances[identity["uuid"]] = (each.gpu, each.compute)
            of_slices.append(
                self._readings.slice_facts(
                    gpu.handle, each.handle, instance=each.gpu, profile=each.profile
                )
            )
            found.append(
                describe(
                    **identity,
                    mig_parent=gpu.uuid,
                    mig_profile=each.profile,
                    mig_start=each.start,
                    mig_size=each.size,
                )
            )
        return dataclasses.replace(facts, slices=tuple(of_slices)), found

    def _identity(self, handle: Any) -> dict[str, Any]:
        return {
            "uuid": self._nvml.nvmlDeviceGetUUID(handle),
            "model": self._nvml.nvmlDeviceGetName(handle),
            "memory_mib": self._nvml.nvmlDeviceGetMemoryInfo(handle).total // BYTES_PER_MIB,
        }

    def _optional(self, call: Callable[..., T], *arguments: Any) -> T | None:
        """Call a function that not every driver or board supports; None: no value."""
        try:
            return call(*arguments)
        except self._nvml.NVMLError:
            return None

    def _retried(self, call: Callable[..., T], *arguments: Any) -> T | None:
        """Call a function without whose result a GPU counts as gone, so that its jobs restart.

        Errors that say that the GPU is gone count at once. After other errors the call is repeated
        once.
        """
        nvml = self._nvml
        try:
            try:
                return call(*arguments)
            except (nvml.NVMLError_GpuIsLost, nvml.NVMLError_NotFound):
                raise
            except nvml.NVMLError as error:
                log.warning("repeating a call for a GPU (%s): %s", arguments[0], error)
                return call(*arguments)
        except nvml.NVMLError as error:
            log.warning("a GPU does not answer (%s): %s", arguments[0], error)
            return None

    @contextlib.contextmanager
    def _inventory_errors(self) -> Iterator[None]:
        try:
            yield
        except self._nvml.NVMLError as error:
            raise InventoryUnavailable(f"NVML: {error}") from error


def driver_too_old(nvml: Any) -> str:
    """Return the message for NVMLLibraryMismatchError, which is no NVMLError.

    It says that the driver lacks a function.
    """
    try:
        version = nvml.nvmlSystemGetDriverVersion()
    except nvml.NVMLError:
        version = "of an unknown version"
    return (
        f"NVML of the driver {version} lacks a function that gpupack needs: install a newer driver "
        "on this host"
    )


def open_nvml(nvml: Any, search: DriverSearch) -> None:
    """Load and initialise the driver's library, from the host's folders before the container's.

    Raises:
        InventoryUnavailable: the host has no driver, or its library cannot be used.
    """
    driver_files.create_device_nodes(search)
    driver_files.preload(search, NVML)
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        driver = search.find()
        if not driver.libraries:
            raise InventoryUnavailable(
                f"cannot find {NVML} on this host, in the usual places below "
                f"{' and '.join(search.folders)}: install NVIDIA's driver, or set agent.driverRoot "
                "to its folder",
                reason="DriverNotFound",
            ) from error
        raise InventoryUnavailable(
            f"NVML of the driver below {driver.folder} cannot be used: {error}; see the host's "
            "kernel log, and run nvidia-smi there"
        ) from error
