# SPDX-License-Identifier: Apache-2.0
"""GPUs that another device plugin hands out, from the kubelet's IDs and the node's labels.

The kubelet shows their number. Their models come from labels of the vendor's plugin or labeller, or
from those of Node Feature Discovery:

    amd.com/gpu.product-name=AMD_Instinct_MI300X_OAM    KEY=VALUE: all GPUs of the node
    amd.com/gpu.vram.64G=4                              KEY.VALUE=COUNT: as many of them
    gpu.intel.com/device-id.0380-0bd5.count=2           the same, with a PCI ID
    feature.node.kubernetes.io/pci-1200_1da3_1060.present=true

If a node has several models, labels do not show the model of each ID, only the number of each
model. If no label shows a size, the table's size counts; if the table has none, 1 MiB.
"""

import dataclasses
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from gpupack_crds.devices import BYTES_PER_MIB, MAX_MEMORY_MIB, MAX_UUID
from gpupack_crds.gpunode import MAX_GPUS, GpuDevice
from gpupack_crds.vendors import Vendor, VendorModel

Labels = Mapping[str, str]

UNKNOWN_MIB: Final = 1
NFD_PCI: Final = "feature.node.kubernetes.io/pci-"
MODEL_CHARACTERS: Final = 128
"""The largest number of characters of a model that GPUNode accepts."""

PCI_ADDRESS: Final = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.IGNORECASE)
_PCI_ID: Final = re.compile(r"[0-9a-f]{4}")
_SIZE: Final = re.compile(r"(\d+)(?:([GM])i?B?)?", re.IGNORECASE)
_MIB: Final = {"G": 1024, "M": 1}
_MIN_BYTES: Final = 1 << 24
"""A number without a unit is in bytes from here on (16 MiB), and in MiB below it (16 TiB)."""


@dataclasses.dataclass(frozen=True, slots=True)
class ModelCount:
    """GPUs of one model; if `count` is None, all GPUs of the node, or all others."""

    model: str
    memory_mib: int
    count: int | None = None


def devices(
    vendor: Vendor, resource: str, ids: Iterable[str], labels: Labels
) -> tuple[GpuDevice, ...]:
    """Return the GPUs with these IDs; none if no label names a model."""
    model_counts = list(_repeat_by_count(_model_counts(vendor, labels)))
    if not model_counts:
        return ()
    # All further GPUs are of the last kind.
    of_each = itertools.chain(model_counts, itertools.repeat(model_counts[-1]))
    ordered = sorted(ids, key=_natural_sort_key)[:MAX_GPUS]
    return tuple(
        _device(kind, resource, each, index)
        for index, (each, kind) in enumerate(zip(ordered, of_each, strict=False))
    )


def _device(kind: ModelCount, resource: str, name: str, index: int) -> GpuDevice:
    return GpuDevice(
        uuid=name[-MAX_UUID:],
        index=index,
        model=kind.model[:MODEL_CHARACTERS],
        memory_mib=min(kind.memory_mib or UNKNOWN_MIB, MAX_MEMORY_MIB),
        pci_bus_id=name.lower() if PCI_ADDRESS.fullmatch(name) else "",
        resource=resource,
    )


def _model_counts(vendor: Vendor, labels: Labels) -> Sequence[ModelCount]:
    named = _label_values(labels, vendor.model_labels)
    sizes = {
        size
        for value, _ in _label_values(labels, vendor.memory_labels)
        if (size := _parse_mib(value))
    }
    size = sizes.pop() if len(sizes) == 1 else 0
    if named:
        return [_kind_from_label(vendor, value, size, count) for value, count in named]
    by_pci = _models_by_pci_id(vendor, labels) or list(_models_by_nfd(vendor, labels))
    return [ModelCount(model.name, size or model.memory_mib, count) for model, count in by_pci]


def _kind_from_label(vendor: Vendor, value: str, size: int, count: int | None) -> ModelCount:
    known = vendor.model_of_label(value)
    is_product_name = known is not None and value.casefold() in map(str.casefold, known.labels)
    name = known.name if known and is_product_name else value.replace("_", " ")
    return ModelCount(name, size or (known.memory_mib if known else 0), count)


def _label_values(labels: Labels, keys: Iterable[str]) -> list[tuple[str, int | None]]:
    """Return the values of the first of these keys that is present, each with a number of GPUs.

    A number of None stands for all GPUs.
    """
    for key in keys:
        if value := labels.get(key):
            return [(value, None)]
        counted: list[tuple[str, int | None]] = [
            (label.removeprefix(f"{key}."), min(int(count), MAX_GPUS))
            for label, count in sorted(labels.items())
            if label.startswith(f"{key}.") and count.isdecimal()
        ]
        if counted:
            return counted
    return []


def _models_by_pci_id(vendor: Vendor, labels: Labels) -> list[tuple[VendorModel, int | None]]:
    """Return the models from labels with PCI IDs.

    A label may have the class before the ID, and further text after it.
    """
    return [
        (model, count)
        for value, count in _label_values(labels, vendor.pci_labels)
        for each in _PCI_ID.findall(value.lower())
        if (model := vendor.model_of_pci(each))
    ]


def _models_by_nfd(vendor: Vendor, labels: Labels) -> Iterator[tuple[VendorModel, int | None]]:
    """Iterate over the models from labels of Node Feature Discovery.

    Its deviceLabelFields must contain vendor and device.
    """
    for label in sorted(labels):
        if vendor.pci_vendor and label.startswith(NFD_PCI) and labels[label] == "true":
            fields = label.removeprefix(NFD_PCI).removesuffix(".present").split("_")
            models = map(vendor.model_of_pci, fields)
            if vendor.pci_vendor in fields and (model := next(filter(None, models), None)):
                yield model, None


def _repeat_by_count(model_counts: Iterable[ModelCount]) -> Iterator[ModelCount]:
    """Repeat each counted kind once per GPU; then list the kinds whose number is not known."""
    for kind in sorted(model_counts, key=lambda each: each.count is None):
        yield from [kind] * (1 if kind.count is None else kind.count)


def _parse_mib(value: str) -> int:
    """Return a size in MiB; 0: the value is no size."""
    found = _SIZE.fullmatch(value)
    if not found:
        return 0
    number, unit = int(found[1]), found[2]
    if unit:
        return number * _MIB[unit.upper()]
    return number // BYTES_PER_MIB if number >= _MIN_BYTES else number


def _natural_sort_key(text: str) -> list[tuple[int, str]]:
    """Return a sort key that orders numbers by value: Ascend910-10 comes after Ascend910-9."""
    parts = re.split(r"(\d+)", text)
    return [(int(part), "") if part.isdecimal() else (0, part) for part in parts]
