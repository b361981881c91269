# SPDX-License-Identifier: Apache-2.0
"""The use of a node's GPUs, for the columns of `kubectl get gpunodes`. Pure.

It is counted as in the ledger, from the pods' annotations and the holders. No decision depends on
it.
"""

from collections.abc import Iterable
from typing import TypedDict

from gpupack_agent.holders import annotated_devices
from gpupack_agent.pods import PodView
from gpupack_crds.gpunode import TAKES_WORK, GpuDevice, GpuHolder

HELD_BY_CHARACTERS = 256
"""The largest number of characters that GPUNode accepts."""


class Usage(TypedDict):
    """The fields of a GPUNode's status that show the use of GPUs.

    Attributes:
        free: number of GPUs that take work and that no pod holds, whole or in part.
        shared: number of GPUs of which pods hold shares.
        held: number of GPUs that pods hold whole.
        held_by: the pods that hold any GPU or share, as NAMESPACE/NAME.
    """

    free: int
    shared: int
    held: int
    held_by: str


def compute_usage(
    devices: Iterable[GpuDevice], pods: Iterable[PodView], holders: Iterable[GpuHolder]
) -> Usage:
    """Compute the use of the node's GPUs.

    Args:
        devices: the node's GPUs.
        pods: its pods; those that have not finished hold the devices of their annotations.
        holders: further pods that hold GPUs.
    """
    held = {each.uid: (f"{each.namespace}/{each.name}", each.devices) for each in holders}
    for pod in pods:
        if not pod.finished and (pod_devices := annotated_devices(pod)):
            held[pod.uid] = (pod.title, pod_devices)
    shares = [share for _, pod_devices in held.values() for share in pod_devices]
    whole = {share.uuid for share in shares if share.whole}
    used = {share.uuid for share in shares}
    names = sorted({title for title, pod_devices in held.values() if pod_devices})
    return Usage(
        free=sum(each.health in TAKES_WORK and each.uuid not in used for each in devices),
        shared=len(used - whole),
        held=len(whole),
        held_by=shorten_names(names),
    )


def shorten_names(names: list[str]) -> str:
    """Join the names; if they are too long, return the first ones and the number of the others."""
    shown: list[str] = []
    characters = 0
    for number, name in enumerate(names):
        characters += len(name) + 1
        more = f"+{len(names) - number}"
        if characters + len(more) > HELD_BY_CHARACTERS:
            return ",".join([*shown, more])
        shown.append(name)
    return ",".join(shown)
