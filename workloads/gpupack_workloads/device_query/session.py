# SPDX-License-Identifier: Apache-2.0
"""Queries torch, the driver and NVML about every device; facts from several of them must agree.

torch has what CUDA's runtime says, by which programs compute; NVML is the driver's side of
management, which nvidia-smi and the agent read. It finds a device by its UUID: a slice of a GPU
(MIG) has none there, and is not asked about.

Without a GPU the CPU stands in for a device, and Python and the kernel must agree on it.
"""

import contextlib
import importlib
import itertools
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from gpupack_workloads.cuda_api import Refused, check_status, load
from gpupack_workloads.device_query.facts import (
    KIB,
    Facts,
    agreed,
    attribute_name,
    cpus_of_list,
    disagreements,
    lines,
    listed,
    matrix,
    pci_address,
    shown,
)
from gpupack_workloads.devices import Device, choose_device, describe
from gpupack_workloads.errors import WrongResult
from gpupack_workloads.memory import MIB, host_bytes
from gpupack_workloads.results import Result, headline
from gpupack_workloads.settings import Options

logger = logging.getLogger(__name__)

ALLOWED = Path("/proc/self/status")
ONLINE = Path("/sys/devices/system/cpu/online")
NAME_BYTES = 256
UNKNOWN = "unknown"

Pairs = dict[tuple[int, int], bool]


def run(options: Options) -> Result:
    """Ask about every device of this container.

    Raises:
        NoSuchDevice: a GPU is required and there is none.
        WrongResult: sources report different values for a device.
    """
    device = choose_device(require_gpu=options.require_gpu)
    return simulate(device) if device.simulated else survey(device)


def survey(device: Device) -> Result:
    """Ask about every GPU."""
    driver, nvml = Driver(), Nvml()
    count = torch.cuda.device_count()
    access, atomics = (driver.pairs(count, ask) for ask in (driver.access, driver.atomics))
    found: list[Facts] = []
    rows: list[Facts] = []
    compared = 0
    for index in range(count):
        attributes = driver.attributes(index)
        runtime = torch_facts(index, count)
        sources = {
            "torch": runtime,
            "the driver": driver.facts(index)
            | shown(attributes)
            | {"peers": listed(access, index, count)},
            "NVML": nvml.facts(str(runtime["uuid"])),
        }
        facts = united(index, sources) | {"peers_with_atomics": listed(atomics, index, count)}
        compared += agreed(sources)
        logger.info("GPU %d\n%s", index, lines(facts))
        found.append(facts)
        rows.append(facts | {name: of for name, of in attributes.items() if name not in facts})
    logger.info("GPUs (rows) reach the memory of others (columns)\n%s", matrix(access, count))
    versions: Facts = {
        "count": count,
        "driver_version": nvml.driver_version,
        "driver_cuda_version": driver.cuda_version,
        "runtime_cuda_version": str(torch.version.cuda),
        "peer_pairs": sum(access.values()),
        "facts_compared": compared,
    }
    kinds = ", ".join(sorted({str(facts["compute_capability"]) for facts in found}))
    said = f"{count} GPU(s), compute capability {kinds}"
    return summarise(device, rows, said=said, metrics=versions | found[0])


def united(index: int, sources: dict[str, Facts]) -> Facts:
    """Return the facts of all sources about a device.

    Raises:
        WrongResult: sources report different values.
    """
    if found := disagreements(sources):
        raise WrongResult(f"device {index}: {'; '.join(found)}")
    facts: Facts = {"index": index}
    for of_source in sources.values():
        facts |= of_source
    return facts


def torch_facts(index: int, count: int) -> Facts:
    """Return what torch has of CUDA's runtime."""
    properties = torch.cuda.get_device_properties(index)
    access = {
        (index, owner): torch.cuda.can_device_access_peer(index, owner)
        for owner in range(count)
        if owner != index
    }
    return {
        "name": str(properties.name),
        "uuid": f"GPU-{properties.uuid}",
        "compute_capability": f"{properties.major}.{properties.minor}",
        "memory_mib": properties.total_memory // MIB,
        "multiprocessors": properties.multi_processor_count,
        "l2_kib": properties.L2_cache_size // KIB,
        "shared_kib_per_block_optin": properties.shared_memory_per_block_optin // KIB,
        "registers_per_multiprocessor": properties.regs_per_multiprocessor,
        "threads_per_multiprocessor": properties.max_threads_per_multi_processor,
        "warp_size": properties.warp_size,
        "peers": listed(access, index, count),
    }


class Driver:
    """CUDA's driver, which numbers devices as torch does.

    Attributes:
        cuda_version: the newest that it runs.
    """

    def __init__(self) -> None:
        self._driver = load("driver")
        check_status(self._driver.cuInit(0))
        version = int(check_status(self._driver.cuDriverGetVersion()))
        self.cuda_version = f"{version // 1000}.{version % 1000 // 10}"

    def attributes(self, index: int) -> dict[str, int]:
        """Return all of cuda.h's attributes that this driver knows, in cuda.h's units."""
        device, found = self._device(index), {}
        for attribute in self._driver.CUdevice_attribute:
            # One that is newer than the driver is refused; so is the last, which is their number.
            with contextlib.suppress(Refused):
                value = check_status(self._driver.cuDeviceGetAttribute(attribute, device))
                found[attribute_name(attribute.name)] = int(value)
        return found

    def facts(self, index: int) -> Facts:
        """Return what is no attribute."""
        device = self._device(index)
        return {
            "name": text(check_status(self._driver.cuDeviceGetName(NAME_BYTES, device))),
            "memory_mib": int(check_status(self._driver.cuDeviceTotalMem(device))) // MIB,
        }

    def pairs(self, count: int, ask: Callable[[int, int], bool]) -> Pairs:
        """Ask something about every ordered pair of devices."""
        return {pair: ask(*pair) for pair in itertools.permutations(range(count), 2)}

    def access(self, reader: int, owner: int) -> bool:
        """Return whether a device reaches another's memory."""
        devices = self._device(reader), self._device(owner)
        return bool(check_status(self._driver.cuDeviceCanAccessPeer(*devices)))

    def atomics(self, reader: int, owner: int) -> bool:
        """Return whether atomic operations work there, as they do by NVLink."""
        kinds = self._driver.CUdevice_P2PAttribute
        return bool(
            check_status(
                self._driver.cuDeviceGetP2PAttribute(
                    kinds.CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED,
                    self._device(reader),
                    self._device(owner),
                )
            )
        )

    def _device(self, index: int) -> Any:
        return check_status(self._driver.cuDeviceGet(index))


class Nvml:
    """Facts from NVML; none if NVML is not available.

    Attributes:
        driver_version: version of the kernel module.
    """

    def __init__(self) -> None:
        self.driver_version = UNKNOWN
        self._nvml: Any = None
        try:
            nvml = importlib.import_module("pynvml")
        except ImportError:
            logger.warning(
                "NVML is not available: the Python package nvidia-ml-py is not installed"
            )
            return
        try:
            nvml.nvmlInit()
            self.driver_version = text(nvml.nvmlSystemGetDriverVersion())
            self._nvml = nvml
        except nvml.NVMLError as error:
            logger.warning("NVML is not available: %s", error)

    def facts(self, uuid: str) -> Facts:
        """Return NVML's facts about a GPU; none about a slice."""
        nvml = self._nvml
        if nvml is None:
            return {}
        facts: Facts = {}
        with contextlib.suppress(nvml.NVMLError):
            handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
            place = nvml.nvmlDeviceGetPciInfo(handle)
            facts = {
                "name": text(nvml.nvmlDeviceGetName(handle)),
                "pci_address": pci_address(place.domain, place.bus, place.device),
                "compute_capability": "{}.{}".format(
                    *nvml.nvmlDeviceGetCudaComputeCapability(handle)
                ),
            }
            # Last: not every board has it.
            facts["ecc"] = bool(nvml.nvmlDeviceGetEccMode(handle)[0])
        return facts


def text(raw: str | bytes) -> str:
    """Return a text without C's trailing zeros; older bindings return bytes."""
    read = raw.decode() if isinstance(raw, bytes) else raw
    return read.partition("\0")[0]


def simulate(device: Device) -> Result:
    """Describe the CPU as a device."""
    sources: dict[str, Facts] = {
        "Python": {"name": device.name, "multiprocessors": len(os.sched_getaffinity(0))},
        "the kernel": kernel_facts(),
    }
    facts = united(0, sources) | {
        "memory_mib": host_bytes() // MIB,
        "unified_addressing": True,
        "peers": "",
    }
    logger.info("a simulated device\n%s", lines(facts))
    metrics: Facts = {"count": 1, "peer_pairs": 0, "facts_compared": agreed(sources)}
    return summarise(device, [facts], said="1 device", metrics=metrics | facts)


def kernel_facts() -> Facts:
    """Return what the kernel's files say of the CPUs that this process may use, if they do."""
    with contextlib.suppress(OSError, KeyError):
        status = dict(line.split(":\t", 1) for line in ALLOWED.read_text().splitlines())
        allowed = cpus_of_list(status["Cpus_allowed_list"])
        return {"multiprocessors": len(allowed & cpus_of_list(ONLINE.read_text()))}
    return {}


def summarise(device: Device, rows: list[Facts], *, said: str, metrics: Facts) -> Result:
    """Make the result: of all devices together, of the first, and a row for each."""
    return Result(
        workload="device-query",
        headline=headline(said, simulated=device.simulated),
        verified=True,
        simulated=device.simulated,
        metrics=metrics | describe(device),
        rows=rows,
    )
