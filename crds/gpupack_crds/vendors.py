# SPDX-License-Identifier: Apache-2.0
"""Data about each vendor's GPUs: the chart's table `vendors`, read once at a component's start.

The table only describes GPUs; `observedResources` lists the observed resources. A vendor without an
entry can still be observed: its GPUs are counted, and their models are unknown.
"""

import re
from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from gpupack_crds.errors import VendorsInvalid
from gpupack_crds.names import EXTENDED_RESOURCE, GROUP
from gpupack_crds.wire import wire_name
from gpupack_devices.models import matches_model

Library = Literal["", "nvml", "amdsmi"]

_PCI: Final = re.compile("[0-9a-f]{4}")
_VARIABLE: Final = re.compile("[A-Z][A-Z0-9_]*")


class VendorModel(
    msgspec.Struct, frozen=True, kw_only=True, rename=wire_name, forbid_unknown_fields=True
):
    """A model, for nodes whose labels do not give its name or its memory.

    Attributes:
        name: name that GPUNode shows and that users request.
        memory_mib: memory of one GPU in MiB; 0: unknown.
        labels: values of a model label that mean this model.
        pci: its PCI device ids.
    """

    name: str
    memory_mib: int = 0
    labels: tuple[str, ...] = ()
    pci: tuple[str, ...] = ()


class Vendor(
    msgspec.Struct, frozen=True, kw_only=True, rename=wire_name, forbid_unknown_fields=True
):
    """One vendor's GPUs.

    Attributes:
        resources: resources with which its device plugin hands out whole GPUs.
        visible_devices: the variable with which a process selects among its GPUs.
        runtime_variables: variables with which the vendor's container runtime exposes GPUs.
        library: the library that reads the GPUs, where it can be loaded; empty: node labels only.
        pci_vendor: PCI vendor id, for labels of Node Feature Discovery.
        model_labels: keys of node labels with the model; the first that exists counts.
        memory_labels: keys of node labels with one GPU's memory; the first that exists counts.
        pci_labels: keys of node labels with the PCI device id; the first that exists counts.
        models: data that labels do not give.
    """

    resources: tuple[str, ...]
    visible_devices: str = ""
    runtime_variables: tuple[str, ...] = ()
    library: Library = ""
    pci_vendor: str = ""
    model_labels: tuple[str, ...] = ()
    memory_labels: tuple[str, ...] = ()
    pci_labels: tuple[str, ...] = ()
    models: tuple[VendorModel, ...] = ()

    def model_of_label(self, value: str) -> VendorModel | None:
        """Return the model that a label's value means, or whose name it contains."""
        said = (each for each in self.models if value.casefold() in map(str.casefold, each.labels))
        named = (each for each in self.models if matches_model(each.name, value))
        return next(said, None) or next(named, None)

    def model_of_pci(self, device: str) -> VendorModel | None:
        """Return the model of a PCI device id."""
        return next((each for each in self.models if device in each.pci), None)


class Vendors:
    """The table of vendors."""

    def __init__(self, rows: Mapping[str, Vendor] | None = None) -> None:
        self._rows = dict(rows or {})
        self._names = {each: name for name, row in self._rows.items() for each in row.resources}

    def name_of(self, resource: str) -> str:
        """Return the vendor of a resource; empty: the table lacks that vendor."""
        return self._names.get(resource, "")

    def of(self, resource: str) -> Vendor | None:
        """Return the entry of the vendor of a resource."""
        return self._rows.get(self.name_of(resource))

    def driver_shows(self, resource: str) -> bool:
        """Return whether the GPUs may be among those that NVIDIA's driver shows."""
        vendor = self.of(resource)
        return vendor is None or vendor.library == "nvml"


def parse_vendors(text: str) -> Vendors:
    """Parse the table as the chart writes it; skip a vendor that is null.

    Raises:
        VendorsInvalid: the message names the vendor, the value and the allowed values.
    """
    try:
        rows = msgspec.json.decode(text, type=dict[str, Vendor | None])
    except msgspec.MsgspecError as error:
        raise VendorsInvalid(f"the table of vendors cannot be read: {error}") from error
    found = {name: row for name, row in rows.items() if row is not None}
    owner: dict[str, str] = {}
    for name, row in found.items():
        for problem in _problems(row):
            raise VendorsInvalid(f"vendors.{name}: {problem}")
        for resource in row.resources:
            if (other := owner.setdefault(resource, name)) != name:
                raise VendorsInvalid(
                    f"vendors.{name}: {resource} is of vendors.{other} already; a resource has one "
                    "vendor"
                )
    return Vendors(found)


def _problems(row: Vendor) -> list[str]:
    found = [
        f"resources: {name!r} is no extended resource of another plugin, such as amd.com/gpu"
        for name in row.resources
        if not re.fullmatch(EXTENDED_RESOURCE, name) or name.startswith(f"{GROUP}/")
    ]
    variables = (*filter(None, (row.visible_devices,)), *row.runtime_variables)
    found += [
        f"{name!r} is no environment variable, such as ROCR_VISIBLE_DEVICES"
        for name in variables
        if not _VARIABLE.fullmatch(name)
    ]
    ids = (*filter(None, (row.pci_vendor,)), *(pci for model in row.models for pci in model.pci))
    found += [
        f"{each!r} is no PCI id: four hexadecimal digits in lower case, such as 74a1"
        for each in ids
        if not _PCI.fullmatch(each)
    ]
    found += [
        f"model {model.name!r}: memoryMiB is {model.memory_mib}; 0 (not known) or more"
        for model in row.models
        if model.memory_mib < 0
    ]
    return found
