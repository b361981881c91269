# SPDX-License-Identifier: Apache-2.0
"""What the kubelet counts.

A ticket is not a GPU: ids are opaque (`gpu-0` may stand for any GPU), and the only thing that a set
of them says is whose container it belongs to. Therefore no NUMA topology is promised for them, and
they are never UUIDs, so that nobody reads a placement out of them.

A GPU has one ticket as a whole and several slots for shares, and is used in one of the two ways at
a time; the ledger sees to that.

The number of tickets of a resource never shrinks while the agent runs. When a GPU fails, or cannot
be looked at because its driver is away, as many tickets become Unhealthy as nobody holds of it, so
that the node's allocatable count is right. Which ones does not matter. Held ones stay Healthy even
if their GPU failed: the kubelet would not stop the pod, but the scheduler would subtract the ticket
from what is left.
"""

import dataclasses
import hashlib
from collections import Counter
from collections.abc import Collection, Iterable

from gpupack_agent.known_devices import NOT_SEEN_RULE
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


def grade(ids: Iterable[str], *, held: Collection[str], unusable: int) -> tuple[Ticket, ...]:
    """Mark so many tickets that nobody holds as Unhealthy, the last first."""
    ordered = list(ids)
    spare = [each for each in reversed(ordered) if each not in held]
    unhealthy = set(spare[:unusable])
    return tuple(Ticket(each, healthy=each not in unhealthy) for each in ordered)


def handed_out(devices: Iterable[GpuDevice], resource: str) -> list[GpuDevice]:
    """The devices that tickets of a resource stand for: GPUs, or the MIG slices of one profile."""
    return [device for device in devices if _is_of(device, resource)]


def slice_resources(devices: Iterable[GpuDevice]) -> set[str]:
    """The resources of the MIG slices among them."""
    return {names.mig_resource(device.mig_profile) for device in devices if device.mig_profile}


def _is_of(device: GpuDevice, resource: str) -> bool:
    if device.mig_parent:
        return bool(device.mig_profile) and names.mig_resource(device.mig_profile) == resource
    return resource in {names.GPU, names.GPU_SHARE}


def unusable(
    devices: Iterable[GpuDevice], held_uuids: Iterable[str], *, tickets_per_gpu: int
) -> int:
    """Count the tickets of failed GPUs that nobody has.

    Args:
        devices: all GPUs of the node.
        held_uuids: the GPU of each holder, as often as it has holders.
        tickets_per_gpu: how many tickets stand for one GPU.
    """
    holders = Counter(held_uuids)
    failed = [device for device in devices if _is_unusable(device)]
    return sum(max(tickets_per_gpu - holders[device.uuid], 0) for device in failed)


def _is_unusable(device: GpuDevice) -> bool:
    return device.health == "Failed" or NOT_SEEN_RULE in device.causes


def cdi_name(ids: Iterable[str]) -> str:
    """Name the CDI device of a set of tickets, the same in whatever order they come."""
    digest = hashlib.sha256("\n".join(sorted(ids)).encode()).hexdigest()[:16]
    return f"{CDI_KIND}={digest}"
