# SPDX-License-Identifier: Apache-2.0
"""GPUs that a file describes: for demo, tests and clusters without GPUs.

    nodes:
    - match: "gpupack-*"          # the first entry whose pattern fits the node's name counts
      devices:
      - {model: NVIDIA H200, memoryMiB: 143771, count: 8, nvlinkClique: 0, numaNode: 0}
      - {model: NVIDIA H200, memoryMiB: 143771, mig: [3g.71gb, 1g.18gb, 1g.18gb]}  # cut into slices

Nothing outside this module treats simulated GPUs differently, but everything says that they are:
each carries `simulated: true` into GPUNode, container environment and results.
"""

import asyncio
import fnmatch
import hashlib
import itertools
import pathlib
from collections.abc import Iterator, Sequence

import msgspec

from gpupack_agent.errors import InventoryUnavailable
from gpupack_agent.inventory.base import Findings, Injection
from gpupack_crds.gpunode import GpuDevice, Health
from gpupack_crds.wire import Wire


class SimulatedGroup(Wire, frozen=True, forbid_unknown_fields=True):
    """`count` GPUs that are alike. `health` and `cause` let a test make them fail.

    `mig`: profiles of the slices that each is cut into, at NVIDIA's places in this order.
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
    """The GPUs of all nodes whose name fits `match`, a shell pattern."""

    match: str
    devices: tuple[SimulatedGroup, ...]


class SimulatedFile(Wire, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    nodes: tuple[SimulatedNodes, ...]


class SimulatedInventory:
    """The GPUs that a file gives this node. The file is read again at each scan."""

    def __init__(self, path: pathlib.Path, *, node: str, scan_seconds: float) -> None:
        self._path = path
        self._node = node
        self._scan_seconds = scan_seconds

    async def scan(self) -> Findings:
        """Read the file; a node that no entry fits has no GPUs."""
        for entry in (await asyncio.to_thread(self._read)).nodes:
            if fnmatch.fnmatchcase(self._node, entry.match):
                return Findings(devices=tuple(self._devices(entry.devices)))
        return Findings(devices=())

    def injection(self, uuids: Sequence[str]) -> Injection:  # noqa: ARG002 - nothing is there
        """Nothing: the environment is all that a simulated GPU consists of."""
        return Injection()

    def forget(self) -> None:
        """Nothing: the file says what is."""

    async def changed(self) -> None:
        """Wait until the file is due to be read again."""
        await asyncio.sleep(self._scan_seconds)

    async def close(self) -> None:
        """Nothing is open."""

    def _read(self) -> SimulatedFile:
        try:
            return msgspec.yaml.decode(self._path.read_bytes(), type=SimulatedFile)
        except (OSError, msgspec.MsgspecError) as error:
            raise InventoryUnavailable(f"simulated inventory {self._path}: {error}") from error

    def _devices(self, groups: tuple[SimulatedGroup, ...]) -> Iterator[GpuDevice]:
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
            yield from self._cut(whole, group.mig) if group.mig else (whole,)

    def _cut(self, whole: GpuDevice, profiles: Sequence[str]) -> Iterator[GpuDevice]:
        """The slices of a GPU, which has no shares and no NVLink any more."""
        # With core comes numpy, which an agent of real GPUs does without.
        from gpupack_core import InvalidInventory, MiB, mig  # noqa: PLC0415

        memory = MiB(whole.memory_mib)
        try:
            layout, family = mig.layout(memory, profiles), mig.family_of(memory)
        except InvalidInventory as error:
            raise InventoryUnavailable(f"simulated inventory {self._path}: {error}") from error
        for number, slot in enumerate(layout):
            yield msgspec.structs.replace(
                whole,
                uuid=f"MIG{whole.uuid.removeprefix('GPU')}-{number}",
                model=f"{whole.model} MIG {slot.profile}",
                memory_mib=whole.memory_mib * slot.size // (family.slots if family else slot.size),
                nvlink_clique=None,
                limits="None",
                mig_parent=whole.uuid,
                mig_profile=slot.profile,
                mig_start=slot.start,
                mig_size=slot.size,
            )


def simulated_uuid(node: str, index: int) -> str:
    """Name a GPU that does not exist: the same at each start, another on each node.

    The node's name is shortened and followed by a hash of all of it: a UUID has at most 63
    characters, so that it can also be a label's value.
    """
    digest = hashlib.sha256(node.encode()).hexdigest()[:8]
    return f"GPU-sim-{node[:36]}-{digest}-{index}"
