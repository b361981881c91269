# SPDX-License-Identifier: Apache-2.0
"""Changes of a GPUNode's maintenance entries.

Pure: entries in, entries out. An entry in `spec.maintenance` stays until it is removed
(docs/maintenance.md).
"""

import datetime as dt
from collections.abc import Sequence
from typing import Protocol, TypeVar

import msgspec

from gpupack_cli.errors import NotThere, UsageWrong
from gpupack_crds.gpunode import MAX_MAINTENANCE, Drain, GpuDevice, Maintenance
from gpupack_crds.kinds import GpuNode

Entries = tuple[Maintenance, ...]


class Device(Protocol):
    """An object with an index and a UUID."""

    @property
    def index(self) -> int:
        """Index on its node."""

    @property
    def uuid(self) -> str:
        """UUID of the GPU."""


D = TypeVar("D", bound=Device)


def device(node: GpuNode, which: str) -> GpuDevice:
    """Return the GPU with this index or UUID.

    Raises:
        NotThere: the node has no such GPU.
    """
    return one_of(node.metadata.name, node.status.devices, which)


def one_of(node: str, devices: Sequence[D], which: str) -> D:
    """Return the one of a node's GPUs with this index or UUID.

    Raises:
        NotThere: the node has no such GPU.
    """
    for each in devices:
        if which in {str(each.index), each.uuid}:
            return each
    there = ", ".join(str(each.index) for each in devices) or "none"
    raise NotThere(f"node {node} has no GPU {which!r}; it has {there}")


def cordoned(node: GpuNode, uuids: tuple[str, ...], reason: str) -> Entries:
    """Return the entries with one that cordons these GPUs; none named: all.

    Raises:
        UsageWrong: on an observed node a GPU cannot be named.
    """
    if uuids and node.status.mode == "observed":
        raise UsageWrong(
            f"node {node.metadata.name} is observed: another device plugin hands out its GPUs, so "
            "that only the whole node can be taken out of service; name no GPU"
        )
    return _with(node, Maintenance(reason=reason, gpus=uuids))


def drained(node: GpuNode, reason: str, drain: Drain, stop_at: dt.datetime | None) -> Entries:
    """Return the entries with one that drains the whole node."""
    moment = None if stop_at is None else stop_at.strftime("%Y-%m-%dT%H:%M:%SZ")
    return _with(node, Maintenance(reason=reason, drain=drain, stop_at=moment))


def uncordoned(node: GpuNode, uuids: tuple[str, ...]) -> Entries:
    """Return the entries without these GPUs; none named: no entry is left.

    Raises:
        UsageWrong: the whole node is out of service, by an entry that names no GPU.
        NotThere: nothing is out of service there.
    """
    entries = node.spec.maintenance
    if not entries:
        raise NotThere(f"nothing of node {node.metadata.name} is in maintenance")
    if not uuids:
        return ()
    for each in entries:
        if not each.gpus:
            raise UsageWrong(
                f"the whole node {node.metadata.name} is in maintenance ({each.reason}); bring it "
                f"back by `gpupack gpu uncordon {node.metadata.name}`"
            )
    if not any(uuid in each.gpus for uuid in uuids for each in entries):
        raise NotThere(f"no such GPU of node {node.metadata.name} is in maintenance")
    left = (
        msgspec.structs.replace(each, gpus=tuple(u for u in each.gpus if u not in uuids))
        for each in entries
    )
    return tuple(each for each in left if each.gpus)


def _with(node: GpuNode, entry: Maintenance) -> Entries:
    """Add an entry; it replaces one for the same GPUs with the same drain."""
    alike = tuple(
        each
        for each in node.spec.maintenance
        if (each.gpus, each.drain) != (entry.gpus, entry.drain)
    )
    if len(alike) >= MAX_MAINTENANCE:
        raise UsageWrong(
            f"node {node.metadata.name} has {len(alike)} entries of maintenance already, as many "
            "as there can be; take some out by `gpupack gpu uncordon`"
        )
    return (*alike, entry)
