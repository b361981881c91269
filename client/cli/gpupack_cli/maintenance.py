# SPDX-License-Identifier: Apache-2.0
"""Changes of a GPUNode's maintenance entries.

Pure: entries in, entries out. An entry in `spec.maintenance` stays until it is removed
(docs/maintenance.md).
"""

import datetime as dt
from collections.abc import Sequence
from typing import Protocol, TypeVar

import msgspec

from gpupack_cli.errors import ObjectNotFound, UsageInvalid
from gpupack_crds.gpunode import MAX_MAINTENANCE, Drain, GpuDevice, Maintenance
from gpupack_crds.kinds import GpuNode
from gpupack_crds.times import format_time

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


def find_device(node: GpuNode, which: str) -> GpuDevice:
    """Return the GPU with this index or UUID.

    Raises:
        ObjectNotFound: the node has no such GPU.
    """
    return find_gpu(node.metadata.name, node.status.devices, which)


def find_gpu(node: str, devices: Sequence[D], which: str) -> D:
    """Return the one of a node's GPUs with this index or UUID.

    Raises:
        ObjectNotFound: the node has no such GPU.
    """
    for each in devices:
        if which in {str(each.index), each.uuid}:
            return each
    there = ", ".join(str(each.index) for each in devices) or "none"
    raise ObjectNotFound(f"node {node} has no GPU {which!r}; it has {there}")


def cordon_entries(node: GpuNode, uuids: tuple[str, ...], reason: str) -> Entries:
    """Return the entries with one that cordons these GPUs; none named: all.

    Raises:
        UsageInvalid: on an observed node a GPU cannot be named.
    """
    if uuids and node.status.mode == "observed":
        raise UsageInvalid(
            f"node {node.metadata.name} is observed: another device plugin assigns its GPUs, so "
            "only the whole node can be cordoned; leave out the GPUs"
        )
    return _add_entry(node, Maintenance(reason=reason, gpus=uuids))


def drain_entries(node: GpuNode, reason: str, drain: Drain, stop_at: dt.datetime | None) -> Entries:
    """Return the entries with one that drains the whole node."""
    moment = None if stop_at is None else format_time(stop_at)
    return _add_entry(node, Maintenance(reason=reason, drain=drain, stop_at=moment))


def uncordon_entries(node: GpuNode, uuids: tuple[str, ...]) -> Entries:
    """Return the entries without these GPUs; none named: no entry is left.

    Raises:
        UsageInvalid: the whole node is in maintenance, by an entry that names no GPU.
        ObjectNotFound: nothing of the node is in maintenance.
    """
    entries = node.spec.maintenance
    if not entries:
        raise ObjectNotFound(f"nothing of node {node.metadata.name} is in maintenance")
    if not uuids:
        return ()
    for each in entries:
        if not each.gpus:
            raise UsageInvalid(
                f"the whole node {node.metadata.name} is in maintenance ({each.reason}); uncordon "
                f"it by `gpupack gpu uncordon {node.metadata.name}`"
            )
    if not any(uuid in each.gpus for uuid in uuids for each in entries):
        raise ObjectNotFound(f"no such GPU of node {node.metadata.name} is in maintenance")
    left = (
        msgspec.structs.replace(each, gpus=tuple(u for u in each.gpus if u not in uuids))
        for each in entries
    )
    return tuple(each for each in left if each.gpus)


def _add_entry(node: GpuNode, entry: Maintenance) -> Entries:
    """Add an entry; it replaces one for the same GPUs with the same drain."""
    others = tuple(
        each
        for each in node.spec.maintenance
        if (each.gpus, each.drain) != (entry.gpus, entry.drain)
    )
    if len(others) >= MAX_MAINTENANCE:
        raise UsageInvalid(
            f"node {node.metadata.name} has {len(others)} entries of maintenance already, as many "
            "as there can be; take some out by `gpupack gpu uncordon`"
        )
    return (*others, entry)
