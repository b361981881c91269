# SPDX-License-Identifier: Apache-2.0
import pathlib
import re

import prometheus_client
import pytest
from nvml_recording import h200

from gpupack_agent.gpu_metrics import GpuMetrics
from gpupack_agent.inventory.base import Findings
from gpupack_agent.inventory.facts import GpuFacts, Load, SliceFacts
from gpupack_agent.inventory.nvml import NvmlReader
from gpupack_agent.inventory.xids import XidWatcher
from gpupack_agent.known_devices import KnownDevices
from gpupack_agent.pod_use import PodUse
from gpupack_agent.pods import PodStore, PodView


@pytest.fixture
def shown(tmp_path, build):
    """What is shown of a host like the recorded one, by name and labels."""

    def of(state="load", *, gpus=1, pods=()):
        nvml = h200(state, gpus=gpus)
        watcher = XidWatcher(nvml, notify=lambda: None)
        known_devices = KnownDevices()
        known_devices.update(NvmlReader(nvml, watcher, host_root=tmp_path).scan())
        store = PodStore(())
        store.by_uid = {pod.uid: pod for pod in pods}
        registry = prometheus_client.CollectorRegistry()
        registry.register(GpuMetrics(known_devices, store, PodUse(), node="n1"))
        return registry

    return of


def value(registry, name, **labels):
    found = [
        sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    ]
    return found[0] if found else None


def test_figures_have_the_names_and_units_of_dcgm_exporter(shown):
    registry = shown()
    of = {
        "gpu": "0",
        "device": "nvidia0",
        "modelName": "NVIDIA H200",
        "pci_bus_id": "00000000:00:06.0",
        "Hostname": "n1",
    }
    assert value(registry, "DCGM_FI_DEV_GPU_UTIL", **of) == 100
    assert value(registry, "DCGM_FI_DEV_POWER_USAGE", **of) == pytest.approx(690, abs=10)
    assert value(registry, "DCGM_FI_DEV_FB_USED", **of) == pytest.approx(882, abs=1)
    energy = value(registry, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", **of)
    assert energy > 1_000_000
    text = prometheus_client.generate_latest(registry).decode()
    assert "\nDCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{" in text


def test_activity_is_a_ratio_as_in_dcgm_exporter(build):
    known_devices = KnownDevices()
    load = Load(graphics_active_percent=98.0, sm_active_percent=96.0, dram_active_percent=16.0)
    facts = GpuFacts(uuid="GPU-0", index=0, name="NVIDIA H200", load=load)
    known_devices.update(Findings(devices=(build.device(0),), facts=(facts,)))
    registry = prometheus_client.CollectorRegistry()
    registry.register(GpuMetrics(known_devices, PodStore(()), PodUse(), node="n1"))
    assert value(registry, "DCGM_FI_PROF_GR_ENGINE_ACTIVE", UUID="GPU-0") == 0.98
    assert value(registry, "DCGM_FI_PROF_SM_ACTIVE", UUID="GPU-0") == 0.96
    assert value(registry, "DCGM_FI_PROF_DRAM_ACTIVE", UUID="GPU-0") == 0.16
    assert value(registry, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE") is None


def test_throttle_reasons_have_nvmls_names(shown):
    assert value(shown(), "gpupack_agent_gpu_throttled", reason="SwPowerCap") == 1
    assert value(shown("rest"), "gpupack_agent_gpu_throttled") is None


def test_used_free_and_reserved_memory_sum_up_to_the_total(shown):
    registry = shown()
    parts = (value(registry, f"DCGM_FI_DEV_FB_{part}") for part in ("USED", "FREE", "RESERVED"))
    assert sum(parts) == pytest.approx(143771, abs=1)


def test_each_pod_has_metrics_of_its_granted_share(shown, build):
    pod = build.pod("a", build.share(percent=40))
    assert value(shown(pods=[pod]), "gpupack_agent_pod_gpu_granted_ratio", pod=pod.name) == 0.4


def test_each_gpu_of_a_pod_shows_the_container_that_has_it(build):
    registry, use, store = prometheus_client.CollectorRegistry(), PodUse(), PodStore(())
    pod = build.pod("a", build.share(1), build.share(0), requests=build.requests(x=1, y=1))
    store.by_uid = {pod.uid: pod}
    use.memory_bytes = {("GPU-0", pod.uid): 4096}
    registry.register(GpuMetrics(KnownDevices(), store, use, node="n1"))
    granted = "gpupack_agent_pod_gpu_granted_ratio"
    assert value(registry, granted, UUID="GPU-1", container="x") == 1
    assert value(registry, granted, UUID="GPU-0", container="y") == 1
    used = "gpupack_agent_pod_gpu_memory_used_bytes"
    assert value(registry, used, UUID="GPU-0", container="y") == 4096


def test_a_gpu_without_facts_has_a_health_and_no_figures(build):
    known_devices = KnownDevices()
    known_devices.update(Findings(devices=(build.device(0, health="Failed"),)))
    registry = prometheus_client.CollectorRegistry()
    registry.register(GpuMetrics(known_devices, PodStore(()), PodUse(), node="n1"))
    assert value(registry, "gpupack_agent_gpu_health", health="Failed") == 1
    assert value(registry, "gpupack_agent_gpu_health", health="Healthy") == 0
    assert value(registry, "DCGM_FI_DEV_GPU_TEMP") is None


def test_eight_gpus_are_one_series_a_figure_each(shown):
    registry = shown(gpus=8)
    series = [
        sample.labels["UUID"]
        for family in registry.collect()
        for sample in family.samples
        if sample.name == "DCGM_FI_DEV_GPU_TEMP"
    ]
    assert len(set(series)) == len(series) == 8


def test_energy_and_memory_are_shown_by_pod_and_job(build):
    registry, use, store = prometheus_client.CollectorRegistry(), PodUse(), PodStore(())
    store.by_uid = {"uid-w": PodView("team", "train-1-0-x", "uid-w", job="train")}
    use.joules = {"uid-w": 1500.0, "uid-unknown": 3.0}
    use.memory_bytes = {("GPU-0", "uid-w"): 4096, ("GPU-0", "uid-unknown"): 1}
    registry.register(GpuMetrics(KnownDevices(), store, use, node="n1"))
    name, labels = (
        "gpupack_agent_pod_energy_joules_total",
        {"pod": "train-1-0-x", "gpujob": "train"},
    )
    assert value(registry, name, **labels) == 1500.0
    used = "gpupack_agent_pod_gpu_memory_used_bytes"
    assert value(registry, used, UUID="GPU-0", namespace="team") == 4096
    text = prometheus_client.generate_latest(registry).decode()
    assert [text.count(f"{each}{{") for each in (name, used)] == [1, 1]


def test_slices_have_their_own_series_with_the_labels_of_their_gpu(build):
    known_devices = KnownDevices()
    load = Load(memory_used_bytes=2**30, sm_active_percent=40.0)
    of_slice = SliceFacts(uuid="MIG-1", profile="1g.18gb", instance=7, load=load)
    facts = GpuFacts(
        uuid="GPU-0", index=0, name="NVIDIA H200", load=Load(power_watts=300.0), slices=(of_slice,)
    )
    known_devices.update(Findings(devices=(build.device(0),), facts=(facts,)))
    registry = prometheus_client.CollectorRegistry()
    registry.register(GpuMetrics(known_devices, PodStore(()), PodUse(), node="n1"))
    of = {"UUID": "GPU-0", "GPU_I_PROFILE": "1g.18gb", "GPU_I_ID": "7"}
    assert value(registry, "DCGM_FI_DEV_FB_USED", **of) == 1024
    assert value(registry, "DCGM_FI_PROF_SM_ACTIVE", **of) == 0.4
    assert value(registry, "DCGM_FI_DEV_POWER_USAGE", **of) is None
    assert value(registry, "DCGM_FI_DEV_POWER_USAGE", UUID="GPU-0", GPU_I_PROFILE="") == 300


def recorded_labels():
    """Labels of NVIDIA's exporter, without those of the pod that Kubernetes maps."""
    text = (pathlib.Path(__file__).parent / "recordings/dcgm_exporter.prom").read_text()
    line = next(each for each in text.splitlines() if each.startswith("DCGM_FI_DEV_GPU_TEMP{"))
    mapped = {"DCGM_FI_DRIVER_VERSION", "container", "namespace", "pod"}
    return {
        name: value for name, value in re.findall(r'(\w+)="([^"]*)"', line) if name not in mapped
    }


def test_labels_are_those_of_nvidias_exporter_in_its_form(shown):
    registry = shown()
    (ours,) = (
        {name: text for name, text in sample.labels.items() if text}
        for family in registry.collect()
        for sample in family.samples
        if sample.name == "DCGM_FI_DEV_GPU_TEMP"
    )
    theirs = recorded_labels()
    assert ours.keys() == theirs.keys()
    forms = {
        name: re.sub("[0-9A-F]", "0", theirs[name]) for name in ("gpu", "device", "pci_bus_id")
    }
    assert {name: re.sub("[0-9A-F]", "0", ours[name]) for name in forms} == forms
