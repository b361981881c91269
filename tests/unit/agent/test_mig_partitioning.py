# SPDX-License-Identifier: Apache-2.0
"""Profiles and places are those that an H200's driver shows with MIG off; the rest is a substitute.

No GPU could be partitioned where these were written.
"""

import json
import pathlib

import pytest
from fake_nvml import FakeNvml, gpu, mig_slice

from gpupack_agent.errors import InventoryUnavailable
from gpupack_agent.inventory import mig_partitioning
from gpupack_agent.inventory.layout import Place, Profile
from gpupack_agent.inventory.mig import slices
from gpupack_devices import mig
from gpupack_devices.units import MiB

RECORDING = pathlib.Path(__file__).parent / "recordings/h200_mig_profiles.json"
RECORDED = json.loads(RECORDING.read_text())["profiles"]
PROFILES = {each["kind"]: (each["id"], each["name"].removeprefix("MIG ")) for each in RECORDED}
PLACES = {
    each["id"]: (each["places"][0][1], [start for start, _ in each["places"]]) for each in RECORDED
}
MAX_COUNT = {each["id"]: each["instances"] for each in RECORDED}


def in_mig_mode(*there, **facts):
    return gpu(
        0,
        mig=1,
        slices=list(there),
        profiles=PROFILES,
        places=PLACES,
        most=MAX_COUNT,
        **({"pids": []} | facts),
    )


def layout(nvml, one):
    return {(each.profile, each.start) for each in slices(nvml, one)}


def test_profiles_are_those_that_the_driver_shows():
    one = in_mig_mode()
    found = mig_partitioning.profiles(FakeNvml(one), one)
    assert found["2g.35gb"] == Profile(number=14, size=2, starts=(0, 2, 4), max_count=3)
    assert found["1g.18gb+me"].max_count == 1


def test_the_drivers_profiles_equal_the_placement_table():
    one = in_mig_mode()
    recorded = mig_partitioning.profiles(FakeNvml(one), one)
    known = mig.family_of(MiB(one["mib"]))
    assert {name: (each.size, each.starts) for name, each in recorded.items()} == {
        name: (rule.size, rule.starts) for name, rule in known.profiles.items()
    }


def test_new_slices_replace_the_former_ones():
    one = in_mig_mode(mig_slice("MIG-1", at=(0, 1)), mig_slice("MIG-2", gi=2, at=(1, 1)))
    nvml = FakeNvml(one)
    mig_partitioning.partition(nvml, one, [Place("3g.71gb", 4, 4), Place("2g.35gb", 0, 2)])
    assert layout(nvml, one) == {("3g.71gb", 4), ("2g.35gb", 0)}
    assert all(whole == part for whole, part in (each["compute"] for each in one["slices"]))


def test_a_gpu_can_be_left_without_slices():
    one = in_mig_mode(mig_slice("MIG-1"))
    nvml = FakeNvml(one)
    mig_partitioning.partition(nvml, one, [])
    assert slices(nvml, one) == []


@pytest.mark.parametrize(
    ("facts", "places", "text"),
    [
        ({"pids": [7]}, [Place("2g.35gb", 0, 2)], "processes use the GPU: 7"),
        ({}, [Place("7g.80gb", 0, 8)], "the GPU has no MIG profile 7g.80gb"),
    ],
)
def test_a_refused_partitioning_changes_nothing(facts, places, text):
    one = in_mig_mode(mig_slice("MIG-1", at=(3, 1)), **facts)
    nvml = FakeNvml(one)
    with pytest.raises(InventoryUnavailable, match=text):
        mig_partitioning.partition(nvml, one, places)
    assert layout(nvml, one) == {("1g.18gb", 3)}


def test_a_slice_that_the_driver_holds_stays():
    held = mig_slice("MIG-1") | {"held": True}
    one = in_mig_mode(held)
    with pytest.raises(FakeNvml.NVMLError, match="In use"):
        mig_partitioning.partition(FakeNvml(one), one, [Place("2g.35gb", 0, 2)])
    assert one["slices"] == [held]
