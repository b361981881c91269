# SPDX-License-Identifier: Apache-2.0
import pytest

from gpupack_workloads.device_query.facts import (
    agreed,
    attribute_name,
    cpus_of_list,
    disagreements,
    lines,
    listed,
    matrix,
    shown,
)

ATTRIBUTES = {
    "compute_capability_major": 9,
    "compute_capability_minor": 0,
    "pci_domain_id": 0,
    "pci_bus_id": 0x1B,
    "pci_device_id": 0,
    "clock_rate": 1_980_000,
    "l2_cache_size": 50 * 2**20,
    "ecc_enabled": 1,
}


def test_attributes_become_facts_with_their_units():
    assert shown(ATTRIBUTES) == {
        "compute_capability": "9.0",
        "pci_address": "0000:1b:00.0",
        "clock_mhz": 1980,
        "l2_kib": 51200,
        "ecc": True,
    }


def test_attributes_have_the_names_of_cuda_h():
    assert attribute_name("CU_DEVICE_ATTRIBUTE_WARP_SIZE") == "warp_size"


def test_disagreements_are_reported_with_each_sources_value():
    sources = {"torch": {"name": "H100", "warp_size": 32}, "NVML": {"name": "H200", "ecc": True}}
    assert disagreements(sources) == ["name is H100 by torch, H200 by NVML"]


def test_a_fact_of_one_source_is_accepted_and_does_not_count_as_compared():
    sources = {"torch": {"name": "H100", "warp_size": 32}, "NVML": {"name": "H100"}, "none": {}}
    assert (disagreements(sources), agreed(sources)) == ([], 1)


@pytest.mark.parametrize(
    ("text", "cpus"), [("0-3,8\n", {0, 1, 2, 3, 8}), ("5", {5}), ("0-1", {0, 1})]
)
def test_a_list_of_cpus_is_read_as_the_kernel_writes_it(text, cpus):
    assert cpus_of_list(text) == cpus


def test_access_between_pairs_is_a_list_for_each_and_a_matrix_for_all():
    access = {(0, 1): True, (0, 2): False, (1, 0): True, (1, 2): False, (2, 0): True, (2, 1): True}
    assert [listed(access, reader, 3) for reader in range(3)] == ["1", "0", "0,1"]
    assert [line.split() for line in matrix(access, 3).splitlines()] == [
        ["0", "1", "2"],
        ["0", "-", "yes", "no"],
        ["1", "yes", "-", "no"],
        ["2", "yes", "yes", "-"],
    ]


def test_facts_are_printed_one_per_line():
    assert lines({"name": "H100", "warp_size": 32}) == "  name       H100\n  warp_size  32"
