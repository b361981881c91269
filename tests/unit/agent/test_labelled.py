# SPDX-License-Identifier: Apache-2.0
"""The models of GPUs that the agent cannot query, by labels as vendors document them."""

import itertools
import json
import pathlib

import pytest
import yaml

from gpupack_agent.inventory.labelled import devices
from gpupack_crds.vendors import Vendor, VendorModel, parse_vendors

ROOT = pathlib.Path(__file__).parents[3]
RECORDED = yaml.safe_load((ROOT / "tests/unit/agent/recordings/node_labels.yaml").read_text())
CHART = yaml.safe_load((ROOT / "charts/gpupack/values.yaml").read_text())["vendors"]
VENDORS = parse_vendors(json.dumps(CHART))


def kinds(found):
    grouped = itertools.groupby((device.model, device.memory_mib) for device in found)
    return [[*kind, len(list(those))] for kind, those in grouped]


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda recorded: recorded["name"])
def test_the_charts_table_reads_labels_as_vendors_write_them(recorded):
    resource = recorded["resource"]
    vendor = VENDORS.of(resource)
    found = devices(vendor, resource, recorded["ids"], recorded["labels"])
    assert kinds(found) == recorded["expected"]
    assert {device.resource for device in found} <= {resource}


VENDOR = Vendor(
    resources=("example.org/npu",),
    model_labels=("model",),
    memory_labels=("memory",),
    models=(VendorModel(name="Large", memory_mib=4096), VendorModel(name="Small")),
)


def found(labels, ids=("0",)):
    return devices(VENDOR, "example.org/npu", ids, labels)


def test_devices_are_named_as_the_kubelet_does_and_counted_in_their_natural_order():
    ids = ("npu-10", "npu-9", "0000:C1:00.0")
    shown = found({"model": "Large"}, ids)
    assert [(each.index, each.uuid) for each in shown] == [
        (0, "0000:C1:00.0"),
        (1, "npu-9"),
        (2, "npu-10"),
    ]
    assert shown[0].pci_bus_id == "0000:c1:00.0"


@pytest.mark.parametrize(
    ("memory", "mib"),
    [
        ("8G", 8192),
        ("8Gi", 8192),
        ("80GB", 81920),
        ("512M", 512),
        ("8192", 8192),
        ("8589934592", 8192),
        ("large", 4096),
        ("", 4096),
        ("-1", 4096),
    ],
)
def test_a_size_without_a_label_comes_from_the_table(memory, mib):
    (device,) = found({"model": "Large", "memory": memory})
    assert device.memory_mib == mib


def test_an_unknown_size_is_1_mib():
    assert found({"model": "Small"})[0].memory_mib == 1
    assert found({"model": "Other_Model"})[0].model == "Other Model"


def test_without_labels_there_are_no_devices():
    assert found({}) == ()
    assert found({"model": ""}) == ()


def test_a_label_cannot_make_more_gpus_than_the_kubelet_has():
    shown = found({"model.Large": "1000000000", "model.Small": "3"}, ("0", "1"))
    assert [device.model for device in shown] == ["Large", "Large"]
    assert len(found({"model": "Large"}, map(str, range(200)))) == 128


def test_names_that_are_too_long_are_truncated():
    (device,) = found({"model": "x" * 63}, ("y" * 200,))
    assert len(device.uuid) == 64
