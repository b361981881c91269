# SPDX-License-Identifier: Apache-2.0
"""What the kubelet counts.

A ticket is not a GPU: ids are opaque (`gpu-0` may stand for any GPU), and the only thing that a set
of them says is whose container it belongs to. Therefore no NUMA topology is promised for them, and
they are never UUIDs, so that nobody reads a placement out of them.

The number of tickets of a resource never shrinks while the agent runs. When a GPU fails that nobody
holds, some ticket that nobody holds becomes Unhealthy, so that the node's allocatable count is
right. Which one does not matter. Held ones stay Healthy even if their GPU failed: the kubelet would
not stop the pod, but the scheduler would subtract the ticket from what is left.
"""

import dataclasses
import hashlib
from collections.abc import Collection, Iterable

from gpupack_crds import names
from gpupack_crds.gpunode import GpuDevice

CDI_KIND = f"{names.GROUP}/alloc"


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Ticket:
    """One id that the kubelet may hand out."""

    id: str
    healthy: bool = True


def issue(prefix: str, count: int) -> tuple[str, ...]:
    """Number the tickets of one resource."""
    return tuple(f"{prefix}-{number}" for number in range(count))


def grade(ids: Iterable[str], *, held: Collection[str], failed_and_free: int) -> tuple[Ticket, ...]:
    """Mark as many tickets as there are GPUs that failed and that nobody holds, the last first."""
    ordered = list(ids)
    spare = [each for each in reversed(ordered) if each not in held]
    unhealthy = set(spare[:failed_and_free])
    return tuple(Ticket(each, healthy=each not in unhealthy) for each in ordered)


def whole(devices: Iterable[GpuDevice]) -> list[GpuDevice]:
    """The GPUs that can be handed out whole; MIG slices are resources of their own."""
    return [device for device in devices if not device.mig_parent]


def failed_and_free(devices: Iterable[GpuDevice], held_uuids: Collection[str]) -> int:
    """Count the GPUs that nobody should get and nobody has."""
    return sum(device.health == "Failed" and device.uuid not in held_uuids for device in devices)


def cdi_name(ids: Iterable[str]) -> str:
    """Name the CDI device of a set of tickets, the same in whatever order they come."""
    digest = hashlib.sha256("\n".join(sorted(ids)).encode()).hexdigest()[:16]
    return f"{CDI_KIND}={digest}"
