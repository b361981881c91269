# SPDX-License-Identifier: Apache-2.0
"""Whose pod took how much energy, and how much memory."""

import dataclasses

import msgspec
import pytest

from gpupack_agent.inventory.facts import GpuFacts, GpuProcess, Load, SliceFacts
from gpupack_agent.pod_use import PodUse
from gpupack_agent.pods import PodView
from gpupack_crds.devices import DeviceShare, encode_devices


def gpus(*joules):
    return [
        GpuFacts(uuid=f"GPU-{n}", index=n, name="H200", load=Load(energy_joules=total_joules))
        for n, total_joules in enumerate(joules)
    ]


def pod(name, *shares, finished=False):
    """Shares as (GPU, percent)."""
    held = [DeviceShare(uuid=f"GPU-{n}", percent=part, memory_mib=100) for n, part in shares]
    annotation = encode_devices(held)
    return PodView("team", name, f"uid-{name}", annotation=annotation, finished=finished)


@pytest.fixture
def use():
    return PodUse({1: "uid-train", 2: "uid-train", 3: "uid-gone"}.get)


def test_a_pod_uses_the_energy_of_its_gpus_between_two_scans(use):
    train = pod("train", (0, 100), (1, 100))
    use.update(gpus(1000.0, 50.0), [train])
    assert use.joules == {"uid-train": 0.0}
    use.update(gpus(1700.0, 350.0), [train])
    use.update(gpus(1800.0, 350.0), [train])
    assert use.joules == {"uid-train": 1100.0}


def test_holders_of_shares_divide_the_energy_by_their_percentages(use):
    both = [pod("small", (0, 10)), pod("large", (0, 30))]
    use.update(gpus(0.0), both)
    use.update(gpus(400.0), both)
    assert use.joules == {"uid-small": 100.0, "uid-large": 300.0}


def test_energy_without_a_holder_is_assigned_to_no_pod(use):
    use.update(gpus(0.0, 0.0), [])
    use.update(gpus(100.0, 100.0), [pod("over", (0, 100), finished=True)])
    assert use.joules == {}


def test_a_counter_that_is_reset_does_not_reduce_the_energy_of_a_pod(use):
    train = [pod("train", (0, 100))]
    use.update(gpus(900.0), train)
    use.update(gpus(1000.0), train)
    use.update(gpus(5.0), train)
    use.update(gpus(25.0), train)
    assert use.joules == {"uid-train": 120.0}


def test_energy_is_not_counted_while_a_gpu_does_not_report_it(use):
    train = [pod("train", (0, 100))]
    for total_joules in (100.0, None, 500.0, 600.0):
        use.update(gpus(total_joules), train)
    assert use.joules == {"uid-train": 100.0}


def test_an_ended_pod_keeps_its_energy_until_it_is_deleted(use):
    train = pod("train", (0, 100))
    use.update(gpus(0.0), [train])
    use.update(gpus(10.0), [train])
    use.update(gpus(20.0), [dataclasses.replace(train, finished=True)])
    assert use.joules == {"uid-train": 10.0}
    use.update(gpus(30.0), [])
    assert use.joules == {}


def test_memory_is_that_of_all_processes_of_a_pod_and_of_no_others(use):
    processes = (
        GpuProcess(1, 500),
        GpuProcess(2, 300),
        GpuProcess(3, 70),
        GpuProcess(4, 9),
        GpuProcess(1, None),
    )
    facts = [dataclasses.replace(gpu, processes=processes) for gpu in gpus(None)]
    use.update(facts, [pod("train", (0, 100)), pod("idle", (1, 100))])
    assert use.memory_bytes == {("GPU-0", "uid-train"): 800}
    use.update(gpus(None), [pod("train", (0, 100))])
    assert use.memory_bytes == {}


def test_holders_of_slices_divide_the_energy_by_their_slots(use, build):
    slices = [
        msgspec.structs.replace(build.device(0), uuid=f"GPU-{n}", mig_parent="GPU-0", mig_size=size)
        for n, size in ((1, 1), (2, 4), (3, 2))
    ]
    both = [pod("small", (1, 100)), pod("large", (2, 100))]
    use.update(gpus(0.0), both, slices)
    use.update(gpus(100.0), both, slices)
    assert use.joules == {"uid-small": 20.0, "uid-large": 80.0}


def test_memory_of_processes_on_a_slice_is_the_slices(use):
    of_slice = SliceFacts(
        uuid="MIG-1", profile="1g.18gb", instance=1, processes=(GpuProcess(1, 5), GpuProcess(2, 6))
    )
    (gpu,) = gpus(0.0)
    cut = dataclasses.replace(gpu, slices=(of_slice,), processes=(GpuProcess(1, 5),))
    use.update([cut], [pod("train", (0, 100))])
    assert use.memory_bytes == {("MIG-1", "uid-train"): 11}
