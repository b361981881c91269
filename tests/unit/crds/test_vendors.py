# SPDX-License-Identifier: Apache-2.0
import json

import pytest

from gpupack_crds.errors import VendorsInvalid
from gpupack_crds.vendors import Vendors, parse_vendors

AMD = {
    "resources": ["amd.com/gpu"],
    "visibleDevices": "ROCR_VISIBLE_DEVICES",
    "models": [{"name": "AMD Instinct MI300X", "memoryMiB": 196608, "pci": ["74a1"]}],
}


def parsed(**rows):
    return parse_vendors(json.dumps(rows))


def test_a_vendor_is_found_by_its_resource():
    vendors = parsed(amd=AMD, nvidia={"resources": ["nvidia.com/gpu"], "library": "nvml"})
    assert vendors.name_of("amd.com/gpu") == "amd"
    assert vendors.of("amd.com/gpu").model_of_pci("74a1").memory_mib == 196608
    assert vendors.of("example.org/gpu") is None


def test_nvidias_driver_may_show_the_gpus_of_unknown_plugins():
    vendors = parsed(amd=AMD, nvidia={"resources": ["nvidia.com/gpu"], "library": "nvml"})
    resources = ("nvidia.com/gpu", "example.org/gpu", "amd.com/gpu")
    assert [vendors.driver_shows(each) for each in resources] == [True, True, False]
    assert Vendors().driver_shows("amd.com/gpu")


def test_a_model_is_found_by_a_label_that_means_it_or_has_its_name():
    vendor = parsed(amd=AMD | {"models": [{"name": "MI300X"}, {"name": "Max", "labels": ["M-1"]}]})
    row = vendor.of("amd.com/gpu")
    assert row.model_of_label("AMD_Instinct_MI300X_OAM").name == "MI300X"
    assert row.model_of_label("m-1").name == "Max"
    assert row.model_of_label("M-2") is None


def test_a_vendor_that_is_null_is_none():
    assert parsed(amd=None).of("amd.com/gpu") is None


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"amd": {}}, r"missing required field `resources`.*\$\[\.\.\.\]"),
        ({"amd": AMD | {"resource": "x"}}, "unknown field `resource`"),
        ({"amd": AMD | {"library": "rocm-smi"}}, "Invalid enum value 'rocm-smi'"),
        ({"amd": AMD | {"resources": ["gpu"]}}, "vendors.amd: resources: 'gpu' is no extended"),
        ({"amd": AMD | {"resources": ["gpupack.dev/gpu"]}}, "'gpupack.dev/gpu' is no extended"),
        ({"amd": AMD | {"visibleDevices": "a b"}}, "'a b' is no environment variable"),
        ({"amd": AMD | {"pciVendor": "0x1002"}}, "'0x1002' is no PCI id: four hexadecimal"),
        (
            {"amd": AMD | {"models": [{"name": "M", "memoryMiB": -1}]}},
            "vendors.amd: model 'M': memoryMiB is -1",
        ),
        (
            {"amd": AMD, "other": AMD},
            "vendors.other: amd.com/gpu is of vendors.amd already; a resource has one vendor",
        ),
    ],
)
def test_a_table_that_is_wrong_says_where_and_how(rows, message):
    with pytest.raises(VendorsInvalid, match=message):
        parsed(**rows)


def test_invalid_json_is_an_error_that_names_it():
    with pytest.raises(VendorsInvalid, match="the table of vendors cannot be read: "):
        parse_vendors("amd: {}")
