# SPDX-License-Identifier: Apache-2.0
"""Device tokens: the opaque IDs that the kubelet counts.

A device token is not a GPU. Its ID is opaque: `gpu-0` may stand for any GPU. A set of device tokens
only identifies the container that has it. Therefore device tokens have no NUMA topology, and they
are never UUIDs, so that they suggest no placement.

A GPU has one device token as a whole and several for shares. It is used in one of the two ways at a
time; the ledger ensures that.

The number of device tokens of a resource never shrinks while the agent runs. A GPU can fail, or its
state can be unknown because the driver is unavailable. Then as many device tokens become Unhealthy
as no container holds of that GPU, so that the node's allocatable count is right. Any of them may be
chosen. Held ones stay Healthy even if their GPU failed: the kubelet would not stop the pod, but the
scheduler would subtract the device token from the rest.
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
class DeviceToken:
    """One device token: an ID that the kubelet may hand out."""

    id: str
    healthy: bool = True


def number_tokens(prefix: str, count: int) -> tuple[str, ...]:
    """Number the device tokens of one resource."""
    return tuple(f"{prefix}-{number}" for number in range(count))


def mark_unhealthy(
    ids: Iterable[str], *, held: Collection[str], unusable: int
) -> tuple[DeviceToken, ...]:
    """Mark `unusable` device tokens that no container holds as Unhealthy, the last first."""
    ordered = list(ids)
    unheld = [each for each in reversed(ordered) if each not in held]
    unhealthy = set(unheld[:unusable])
    return tuple(DeviceToken(each, healthy=each not in unhealthy) for each in ordered)


def devices_of(devices: Iterable[GpuDevice], resource: str) -> list[GpuDevice]:
    """Return the devices of a resource's device tokens: GPUs, or MIG slices of one profile."""
    return [device for device in devices if _is_of(device, resource)]


def slice_resources(devices: Iterable[GpuDevice]) -> set[str]:
    """Return the resources of the MIG slices among these devices."""
    return {names.mig_resource(device.mig_profile) for device in devices if device.mig_profile}


def _is_of(device: GpuDevice, resource: str) -> bool:
    if device.mig_parent:
        return bool(device.mig_profile) and names.mig_resource(device.mig_profile) == resource
    return resource in {names.GPU, names.GPU_SHARE}


def count_unusable(
    devices: Iterable[GpuDevice], held_uuids: Iterable[str], *, tokens_per_gpu: int
) -> int:
    """Count the device tokens of unusable GPUs that no container holds.

    Args:
        devices: the devices that the resource's device tokens stand for.
        held_uuids: the GPUs that are held, each as often as it has holders.
        tokens_per_gpu: number of device tokens that stand for one GPU.
    """
    holders = Counter(held_uuids)
    failed = [device for device in devices if _is_unusable(device)]
    return sum(max(tokens_per_gpu - holders[device.uuid], 0) for device in failed)


def _is_unusable(device: GpuDevice) -> bool:
    return device.health == "Failed" or NOT_SEEN_RULE in device.causes


def cdi_name(ids: Iterable[str]) -> str:
    """Return the name of the CDI device of a set of device tokens, which ignores their order."""
    digest = hashlib.sha256("\n".join(sorted(ids)).encode()).hexdigest()[:16]
    return f"{CDI_KIND}={digest}"
