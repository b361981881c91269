# SPDX-License-Identifier: Apache-2.0
"""GPUs that a file describes, for demo, tests and clusters without GPUs.

    nodes:
    - match: "gpupack-*"          # the first entry whose pattern matches the node's name counts
      devices:
      - {model: NVIDIA H200, memoryMiB: 143771, count: 8, nvlinkClique: 0, numaNode: 0}
      - {model: NVIDIA H200, memoryMiB: 143771, mig: [3g.71gb, 1g.18gb, 1g.18gb]}  # MIG slices

Each simulated GPU has `simulated: true` in GPUNode, in the container's environment and in results,
so that every place that shows it says so.
"""

import asyncio
import fnmatch
import hashlib
import itertools
import pathlib
import threading
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from gpupack_agent.errors import InventoryUnavailable
from gpupack_agent.inventory.base import Findings, Injection
from gpupack_agent.inventory.layout import MigGpu, Place, Profile
from gpupack_crds.gpunode import GpuDevice, Health
from gpupack_crds.wire import Wire
from gpupack_devices import mig
from gpupack_devices.errors import InvalidInventory
from gpupack_devices.units import MiB


class SimulatedGroup(Wire, frozen=True, forbid_unknown_fields=True):
    """Identical GPUs of a node.

    Attributes:
        count: number of these GPUs.
        health: their health; a test can make them fail.
        cause: the cause of that health.
        mig: profiles of the slices of each, at NVIDIA's places in this order; empty: no slices.
    """

    model: str
    memory_mib: int
    count: int = 1
    nvlink_clique: int | None = None
    numa_node: int | None = None
    health: Health = "Healthy"
    cause: str = ""
    mig: tuple[str, ...] = ()


class SimulatedNodes(Wire, frozen=True, forbid_unknown_fields=True):
    """The GPUs of all nodes whose name matches `match`, a shell pattern."""

    match: str
    devices: tuple[SimulatedGroup, ...]


class SimulatedFile(Wire, frozen=True, forbid_unknown_fields=True):
    """The content of the file."""

    nodes: tuple[SimulatedNodes, ...]


class SimulatedLayout(msgspec.Struct, frozen=True):
    """A changed MIG layout of a GPU.

    Attributes:
        of: the GPU's layout in the file at that time; if the file differs now, the change is void.
        number: number of changes; 0: the file's own layout.
        places: the present slices.
    """

    of: tuple[str, ...]
    number: int
    places: tuple[Place, ...]


class SimulatedInventory:
    """The GPUs that a file gives this node. The file is read again at each scan.

    Args:
        path: the file.
        node: name of the node.
        scan_seconds: time between two scans.
        layouts: the file that records changed MIG layouts, because a real GPU keeps its slices when
            its agent restarts.
    """

    def __init__(
        self, path: pathlib.Path, *, node: str, scan_seconds: float, layouts: pathlib.Path
    ) -> None:
        self._path, self._layouts_path = path, layouts
        self._layouts_lock = threading.Lock()
        """Guards the file of changed layouts: a scan and a change each read and write it."""
        self._node = node
        self._scan_seconds = scan_seconds

    async def scan(self) -> Findings:
        """Read the file; a node that matches no entry has no GPUs."""
        return await asyncio.to_thread(self._scan)

    def injection(self, uuids: Sequence[str]) -> Injection:  # noqa: ARG002 - always empty
        """Return an empty injection: a simulated GPU consists only of environment variables."""
        return Injection()

    def forget(self) -> None:
        """Do nothing: the file describes the state."""

    async def partition(self, uuid: str, places: Sequence[Place]) -> None:
        """Record the new layout."""
        await asyncio.to_thread(self._record_layout, uuid, tuple(places))

    async def changed(self) -> None:
        """Wait until the file is due to be read again."""
        await asyncio.sleep(self._scan_seconds)

    async def close(self) -> None:
        """Do nothing: nothing is open."""

    def _scan(self) -> Findings:
        devices, mig_gpus = list[GpuDevice](), list[MigGpu]()
        gpus = list(self._gpus())
        layouts = self._valid_layouts({whole.uuid: group.mig for whole, group in gpus})
        for whole, group in gpus:
            if not group.mig:
                devices.append(whole)
                continue
            layout = layouts.get(whole.uuid) or self._layout_from_file(whole, group.mig)
            mig_gpus.append(MigGpu(whole.uuid, _profiles(whole)))
            devices += _slices(whole, layout)
        return Findings(devices=tuple(devices), mig_gpus=tuple(mig_gpus))

    def _gpus(self) -> Iterator[tuple[GpuDevice, SimulatedGroup]]:
        """Iterate over the GPUs of the first entry that matches the node, as whole GPUs."""
        fits = (each for each in self._read().nodes if fnmatch.fnmatchcase(self._node, each.match))
        entry = next(fits, None)
        groups = entry.devices if entry else ()
        copies = itertools.chain.from_iterable((group,) * group.count for group in groups)
        for index, group in enumerate(copies):
            whole = GpuDevice(
                uuid=simulated_uuid(self._node, index),
                index=index,
                model=group.model,
                memory_mib=group.memory_mib,
                health=group.health,
                cause=group.cause,
                numa_node=group.numa_node,
                nvlink_clique=group.nvlink_clique,
                limits="Simulated",
                simulated=True,
            )
            yield whole, group

    def _read(self) -> SimulatedFile:
        try:
            return msgspec.yaml.decode(self._path.read_bytes(), type=SimulatedFile)
        except (OSError, msgspec.MsgspecError) as error:
            raise InventoryUnavailable(f"simulated inventory {self._path}: {error}") from error

    def _read_layouts(self) -> dict[str, SimulatedLayout]:
        try:
            return msgspec.json.decode(
                self._layouts_path.read_bytes(), type=dict[str, SimulatedLayout]
            )
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.MsgspecError) as error:
            raise InventoryUnavailable(
                f"simulated layouts {self._layouts_path}: {error}"
            ) from error

    def _valid_layouts(self, by_file: Mapping[str, tuple[str, ...]]) -> dict[str, SimulatedLayout]:
        """Return the changed layouts of GPUs whose layout in the file is the same as then.

        The others are deleted.
        """
        with self._layouts_lock:
            recorded = self._read_layouts()
            valid = {
                uuid: partition
                for uuid, partition in recorded.items()
                if by_file.get(uuid) == partition.of
            }
            if valid != recorded:
                self._write_layouts(valid)
        return valid

    def _record_layout(self, uuid: str, places: tuple[Place, ...]) -> None:
        group = next((group for whole, group in self._gpus() if whole.uuid == uuid), None)
        if group is None or not group.mig:
            raise InventoryUnavailable(f"{uuid} is no simulated GPU in MIG mode")
        with self._layouts_lock:
            layouts = self._read_layouts()
            number = layouts[uuid].number + 1 if uuid in layouts else 1
            layouts[uuid] = SimulatedLayout(of=group.mig, number=number, places=places)
            self._write_layouts(layouts)

    def _write_layouts(self, layouts: Mapping[str, SimulatedLayout]) -> None:
        temporary = self._layouts_path.with_suffix(".new")
        try:
            temporary.write_bytes(msgspec.json.encode(layouts))
            temporary.replace(self._layouts_path)
        except OSError as error:
            raise InventoryUnavailable(
                f"simulated layouts {self._layouts_path}: {error}"
            ) from error

    def _layout_from_file(self, whole: GpuDevice, wanted: tuple[str, ...]) -> SimulatedLayout:
        try:
            layout = mig.layout(MiB(whole.memory_mib), wanted)
        except InvalidInventory as error:
            raise InventoryUnavailable(f"simulated inventory {self._path}: {error}") from error
        places = tuple(Place(slot.profile, slot.start, slot.size) for slot in layout)
        return SimulatedLayout(of=wanted, number=0, places=places)


def _profiles(whole: GpuDevice) -> dict[str, Profile]:
    """Return the MIG profiles of a GPU of this memory size."""
    family = mig.family_of(MiB(whole.memory_mib))
    rules = family.profiles.items() if family else ()
    return {
        name: Profile(number=number, size=rule.size, starts=rule.starts, max_count=rule.most)
        for number, (name, rule) in enumerate(rules)
    }


def _slices(whole: GpuDevice, layout: SimulatedLayout) -> Iterator[GpuDevice]:
    """Iterate over the slices of a GPU; they have no shares and no NVLink."""
    family = mig.family_of(MiB(whole.memory_mib))
    for number, place in enumerate(layout.places):
        yield msgspec.structs.replace(
            whole,
            uuid=f"{_slice_prefix(whole.uuid, layout.number)}-{number}",
            model=f"{whole.model} MIG {place.profile}",
            memory_mib=whole.memory_mib * place.size // (family.slots if family else place.size),
            nvlink_clique=None,
            limits="None",
            mig_parent=whole.uuid,
            mig_profile=place.profile,
            mig_start=place.start,
            mig_size=place.size,
        )


def _slice_prefix(gpu: str, layout_number: int) -> str:
    """Return the beginning of the slices' UUIDs, which differs for each layout as on real GPUs.

    After a change it is a hash: a UUID has at most 63 characters, whatever the number is.
    """
    if layout_number == 0:
        return f"MIG{gpu.removeprefix('GPU')}"
    return f"MIG-sim-{hashlib.sha256(f'{gpu}/{layout_number}'.encode()).hexdigest()[:32]}"


def simulated_uuid(node: str, index: int) -> str:
    """Return the UUID of a simulated GPU, which is stable over restarts and unique to the node.

    The node's name is shortened and followed by a hash of the whole name: a UUID has at most 63
    characters, so that it can also be a label's value.
    """
    digest = hashlib.sha256(node.encode()).hexdigest()[:8]
    return f"GPU-sim-{node[:36]}-{digest}-{index}"
