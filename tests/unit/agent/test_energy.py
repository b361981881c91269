# SPDX-License-Identifier: Apache-2.0
"""Whose pod took how much energy."""

import dataclasses

import pytest

from gpupack_agent.energy import PodEnergy
from gpupack_agent.inventory.facts import GpuFacts, Load
from gpupack_agent.pods import PodView
from gpupack_crds.devices import DeviceShare, encode_devices


def gpus(*joules):
    return [
        GpuFacts(uuid=f"GPU-{n}", index=n, name="H200", load=Load(energy_joules=told))
        for n, told in enumerate(joules)
    ]


def pod(name, *shares, finished=False):
    """Shares as (GPU, percent)."""
    held = [DeviceShare(uuid=f"GPU-{n}", percent=part, memory_mib=100) for n, part in shares]
    annotation = encode_devices(held)
    return PodView("team", name, f"uid-{name}", annotation=annotation, finished=finished)


@pytest.fixture
def energy():
    return PodEnergy()


def test_a_pod_takes_what_its_gpus_took_between_two_scans(energy):
    train = pod("train", (0, 100), (1, 100))
    energy.see(gpus(1000.0, 50.0), [train])
    assert energy.joules == {}
    energy.see(gpus(1700.0, 350.0), [train])
    energy.see(gpus(1800.0, 350.0), [train])
    assert energy.joules == {"uid-train": 1100.0}


def test_who_share_a_gpu_share_what_it_took_by_their_parts(energy):
    both = [pod("small", (0, 10)), pod("large", (0, 30))]
    energy.see(gpus(0.0), both)
    energy.see(gpus(400.0), both)
    assert energy.joules == {"uid-small": 100.0, "uid-large": 300.0}


def test_what_nobody_holds_is_nobodys_and_the_dead_take_nothing(energy):
    energy.see(gpus(0.0, 0.0), [])
    energy.see(gpus(100.0, 100.0), [pod("over", (0, 100), finished=True)])
    assert energy.joules == {}


def test_a_counter_that_begins_anew_takes_nothing_away(energy):
    train = [pod("train", (0, 100))]
    energy.see(gpus(900.0), train)
    energy.see(gpus(1000.0), train)
    energy.see(gpus(5.0), train)
    energy.see(gpus(25.0), train)
    assert energy.joules == {"uid-train": 120.0}


def test_a_gpu_that_does_not_tell_for_a_while_is_not_counted_for_it(energy):
    train = [pod("train", (0, 100))]
    for told in (100.0, None, 500.0, 600.0):
        energy.see(gpus(told), train)
    assert energy.joules == {"uid-train": 100.0}


def test_a_pod_that_has_ended_keeps_its_sum_until_it_is_gone(energy):
    train = pod("train", (0, 100))
    energy.see(gpus(0.0), [train])
    energy.see(gpus(10.0), [train])
    energy.see(gpus(20.0), [dataclasses.replace(train, finished=True)])
    assert energy.joules == {"uid-train": 10.0}
    energy.see(gpus(30.0), [])
    assert energy.joules == {}
