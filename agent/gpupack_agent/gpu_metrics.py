# SPDX-License-Identifier: Apache-2.0
"""Metrics of the node's GPUs, under the names that NVIDIA's dcgm-exporter uses.

Dashboards and alerts for dcgm-exporter work. Metrics that it does not have start with gpupack_agent
and not with DCGM_FI. There is one series for each GPU and figure, and one for each GPU that a pod
holds, with its container: the node bounds the number of both. The series are computed on each
request. A figure that the driver does not report is missing, and simulated GPUs have no figures.
"""

from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gpupack_agent.container_devices import container_by_device
from gpupack_agent.grading.grade import HEALTH_ORDER
from gpupack_agent.holders import annotated_devices
from gpupack_agent.inventory.facts import GpuFacts
from gpupack_agent.known_devices import KnownDevices
from gpupack_agent.pod_use import PodUse
from gpupack_agent.pods import PodStore
from gpupack_crds.devices import BYTES_PER_MIB
from gpupack_crds.gpunode import GpuDevice

GPU_LABELS: Final = (
    "gpu",
    "UUID",
    "pci_bus_id",
    "device",
    "modelName",
    "Hostname",
    "GPU_I_PROFILE",
    "GPU_I_ID",
)
"""The labels of dcgm-exporter; a MIG slice has those of its GPU and the last two."""
POD_LABELS: Final = ("UUID", "namespace", "pod", "container")
MILLIJOULES: Final = 1000.0
PERCENT: Final = 100.0

Read = Callable[[GpuFacts], float | None]

GAUGES: Final[tuple[tuple[str, str, Read], ...]] = (
    ("GPU_TEMP", "GPU temperature (in C).", lambda gpu: gpu.load.temperature_celsius),
    ("MEMORY_TEMP", "Memory temperature (in C).", lambda gpu: gpu.load.memory_temperature_celsius),
    ("POWER_USAGE", "Power draw (in W).", lambda gpu: gpu.load.power_watts),
    ("SM_CLOCK", "SM clock frequency (in MHz).", lambda gpu: gpu.load.sm_clock_mhz),
    ("MEM_CLOCK", "Memory clock frequency (in MHz).", lambda gpu: gpu.load.memory_clock_mhz),
    ("GPU_UTIL", "GPU utilization (in %).", lambda gpu: gpu.load.utilization_percent),
    (
        "MEM_COPY_UTIL",
        "Memory utilization (in %).",
        lambda gpu: gpu.load.memory_utilization_percent,
    ),
    ("FB_USED", "Memory used (in MiB).", lambda gpu: _mib(gpu.load.memory_used_bytes)),
    ("FB_RESERVED", "Memory reserved (in MiB).", lambda gpu: _mib(gpu.load.memory_reserved_bytes)),
    ("FB_FREE", "Memory free (in MiB).", lambda gpu: _mib(_free_bytes(gpu))),
    (
        "ROW_REMAP_FAILURE",
        "Whether remapping of rows has failed.",
        lambda gpu: gpu.errors.remap_failed,
    ),
    (
        "ROW_REMAP_PENDING",
        "Whether a row will be remapped at the next reset.",
        lambda gpu: gpu.errors.remap_pending,
    ),
)
PROFILED: Final[tuple[tuple[str, str, Read], ...]] = (
    (
        "GR_ENGINE_ACTIVE",
        "Fraction of time in which the graphics or compute engine is active.",
        lambda gpu: _ratio(gpu.load.graphics_active_percent),
    ),
    (
        "SM_ACTIVE",
        "Fraction of active multiprocessors.",
        lambda gpu: _ratio(gpu.load.sm_active_percent),
    ),
    (
        "PIPE_TENSOR_ACTIVE",
        "Fraction of time in which tensor cores are active.",
        lambda gpu: _ratio(gpu.load.tensor_active_percent),
    ),
    (
        "DRAM_ACTIVE",
        "Fraction of memory bandwidth in use.",
        lambda gpu: _ratio(gpu.load.dram_active_percent),
    ),
)
COUNTERS: Final[tuple[tuple[str, str, Read], ...]] = (
    (
        "TOTAL_ENERGY_CONSUMPTION",
        "Total energy consumption since boot (in mJ).",
        lambda gpu: _multiplied(gpu.load.energy_joules, MILLIJOULES),
    ),
    (
        "ECC_SBE_VOL_TOTAL",
        "Single-bit errors since boot.",
        lambda gpu: gpu.errors.ecc_corrected_volatile,
    ),
    (
        "ECC_DBE_VOL_TOTAL",
        "Double-bit errors since boot.",
        lambda gpu: gpu.errors.ecc_uncorrected_volatile,
    ),
    (
        "ECC_SBE_AGG_TOTAL",
        "Single-bit errors since manufacture.",
        lambda gpu: gpu.errors.ecc_corrected_aggregate,
    ),
    (
        "ECC_DBE_AGG_TOTAL",
        "Double-bit errors since manufacture.",
        lambda gpu: gpu.errors.ecc_uncorrected_aggregate,
    ),
    (
        "CORRECTABLE_REMAPPED_ROWS",
        "Rows remapped for correctable errors.",
        lambda gpu: gpu.errors.remapped_corrected,
    ),
    (
        "UNCORRECTABLE_REMAPPED_ROWS",
        "Rows remapped for uncorrectable errors.",
        lambda gpu: gpu.errors.remapped_uncorrected,
    ),
    ("PCIE_REPLAY_COUNTER", "PCIe retries.", lambda gpu: gpu.errors.pcie_replays),
    (
        "NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
        "NVLink flow-control CRC errors.",
        lambda gpu: gpu.errors.nvlink_crc,
    ),
    (
        "NVLINK_REPLAY_ERROR_COUNT_TOTAL",
        "NVLink retries.",
        lambda gpu: gpu.errors.nvlink_replays,
    ),
    (
        "NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
        "NVLink recovery errors.",
        lambda gpu: gpu.errors.nvlink_recoveries,
    ),
)


class GpuMetrics(Collector):
    """The metrics of one node's GPUs.

    Args:
        known_devices: the GPUs, with the figures of the last scan.
        pods: the pods that hold them.
        use: the use of the GPUs by these pods.
        node: name of the node.
    """

    def __init__(
        self, known_devices: KnownDevices, pods: PodStore, use: PodUse, *, node: str
    ) -> None:
        self._known_devices, self._pods, self._use, self._node = known_devices, pods, use, node

    def collect(self) -> Iterator[Metric]:
        """Return all families; a family without a figure has no series."""
        findings = self._known_devices.findings
        for name, text, read in GAUGES:
            gauge = GaugeMetricFamily(f"DCGM_FI_DEV_{name}", text, labels=GPU_LABELS)
            yield self._with_figures(gauge, findings.facts, read)
        for name, text, read in PROFILED:
            gauge = GaugeMetricFamily(f"DCGM_FI_PROF_{name}", text, labels=GPU_LABELS)
            yield self._with_figures(gauge, findings.facts, read)
        for name, text, read in COUNTERS:
            # For a counter the library would add _total, which dcgm-exporter's names do not have.
            counter = Metric(f"DCGM_FI_DEV_{name}", text, "unknown")
            for facts in findings.facts:
                if (value := read(facts)) is not None:
                    labels = dict(zip(GPU_LABELS, self._labels(facts), strict=True))
                    counter.add_sample(counter.name, labels, float(value))
            yield counter
        yield self._throttle_reasons(findings.facts)
        yield _health(findings.devices)
        yield from self._granted()
        yield self._joules()
        yield self._memory()

    def _joules(self) -> Metric:
        family = CounterMetricFamily(
            "gpupack_agent_pod_energy_joules",
            "Energy of a pod's GPUs since the agent started, in proportion to the pod's part of "
            "them.",
            labels=("namespace", "pod", "gpujob"),
        )
        pods = self._pods.by_uid
        for uid, joules in self._use.joules.items():
            if (pod := pods.get(uid)) is not None:
                family.add_metric([pod.namespace, pod.name, pod.job], joules)
        return family

    def _memory(self) -> Metric:
        family = GaugeMetricFamily(
            "gpupack_agent_pod_gpu_memory_used_bytes",
            "GPU memory that the processes of a pod use.",
            labels=POD_LABELS,
        )
        pods = self._pods.by_uid
        for (uuid, uid), used in self._use.memory_bytes.items():
            if (pod := pods.get(uid)) is not None:
                container = container_by_device(pod).get(uuid, "")
                family.add_metric([uuid, pod.namespace, pod.name, container], used)
        return family

    def _granted(self) -> Iterator[Metric]:
        part = GaugeMetricFamily(
            "gpupack_agent_pod_gpu_granted_ratio",
            "Part of a GPU that was granted to a pod. 1: the whole GPU.",
            labels=POD_LABELS,
        )
        memory = GaugeMetricFamily(
            "gpupack_agent_pod_gpu_memory_granted_bytes",
            "GPU memory that was granted to a pod.",
            labels=POD_LABELS,
        )
        for pod in tuple(self._pods.by_uid.values()):
            containers = container_by_device(pod)
            for share in () if pod.finished else annotated_devices(pod):
                container = containers.get(share.uuid, "")
                labels = [share.uuid, pod.namespace, pod.name, container]
                part.add_metric(labels, share.percent / PERCENT)
                memory.add_metric(labels, share.memory_mib * BYTES_PER_MIB)
        yield part
        yield memory

    def _with_figures(
        self, family: GaugeMetricFamily, gpus: tuple[GpuFacts, ...], read: Read
    ) -> Metric:
        for facts in gpus:
            if (value := read(facts)) is not None:
                family.add_metric(self._labels(facts), float(value))
            for each in facts.slices:
                own = GpuFacts(uuid=each.uuid, index=facts.index, name=facts.name, load=each.load)
                if (value := read(own)) is not None:
                    labels = self._labels(facts, each.profile, each.instance)
                    family.add_metric(labels, float(value))
        return family

    def _throttle_reasons(self, gpus: tuple[GpuFacts, ...]) -> Metric:
        family = GaugeMetricFamily(
            "gpupack_agent_gpu_throttled",
            "1: clocks are throttled for this reason. NVML's name of the reason.",
            labels=(*GPU_LABELS, "reason"),
        )
        for facts in gpus:
            for reason in sorted(facts.load.throttled_by):
                family.add_metric([*self._labels(facts), reason], 1)
        return family

    def _labels(self, facts: GpuFacts, profile: str = "", instance: int | None = None) -> list[str]:
        return [
            str(facts.index),
            facts.uuid,
            _pci_bus_id(facts.board.pci_bus_id),
            f"nvidia{facts.index}",
            facts.name,
            self._node,
            profile,
            "" if instance is None else str(instance),
        ]


def _health(devices: tuple[GpuDevice, ...]) -> Metric:
    family = GaugeMetricFamily(
        "gpupack_agent_gpu_health",
        "1 for the health of the GPU: Healthy, Degraded, Cordoned or Failed.",
        labels=("gpu", "UUID", "modelName", "health"),
    )
    for device in devices:
        for health in HEALTH_ORDER:
            labels = [str(device.index), device.uuid, device.model, health]
            family.add_metric(labels, device.health == health)
    return family


def _pci_bus_id(address: str | None) -> str:
    """Return the address as dcgm-exporter writes it, with an 8-digit domain: 00000000:0F:00.0."""
    if not address:
        return ""
    domain, _, rest = address.partition(":")
    return f"{domain:0>8}:{rest}".upper()


def _free_bytes(gpu: GpuFacts) -> int | None:
    load = gpu.load
    figures = (load.memory_total_bytes, load.memory_used_bytes, load.memory_reserved_bytes)
    if None in figures:
        return None
    total, used, reserved = (each or 0 for each in figures)
    return total - used - reserved


def _mib(number: int | None) -> float | None:
    return None if number is None else number / BYTES_PER_MIB


def _ratio(percent: float | None) -> float | None:
    return None if percent is None else percent / PERCENT


def _multiplied(number: float | None, factor: float) -> float | None:
    return None if number is None else number * factor
