# SPDX-License-Identifier: Apache-2.0
"""How a node's GPUs are used, for the columns of `kubectl get gpunodes`. Pure.

It is told as the ledger counts, from the pods' annotations and from who lingers; nothing is decided
by it.
"""

from collections.abc import Iterable
from typing import TypedDict

from gpupack_agent.holders import annotated
from gpupack_agent.pods import PodView
from gpupack_crds.gpunode import TAKES_WORK, GpuDevice, GpuHolder

HELD_BY_CHARACTERS = 256
"""As many as GPUNode takes."""


class Usage(TypedDict):
    """Fields of a GPUNode's status.

    Attributes:
        free: Healthy GPUs of which nothing is held.
        shared: GPUs of which shares are held.
        held: GPUs that are held whole.
        held_by: the pods that hold any, as NAMESPACE/NAME.
    """

    free: int
    shared: int
    held: int
    held_by: str


def usage(
    devices: Iterable[GpuDevice], pods: Iterable[PodView], holders: Iterable[GpuHolder]
) -> Usage:
    """Sum up who holds what.

    Args:
        devices: the node's GPUs.
        pods: its pods; those that have not finished hold what their annotations say.
        holders: who holds GPUs beside that.
    """
    held = {each.uid: (f"{each.namespace}/{each.name}", each.devices) for each in holders}
    for pod in pods:
        if not pod.finished and (theirs := annotated(pod)):
            held[pod.uid] = (pod.title, theirs)
    shares = [share for _, theirs in held.values() for share in theirs]
    whole = {share.uuid for share in shares if share.whole}
    used = {share.uuid for share in shares}
    names = sorted({title for title, theirs in held.values() if theirs})
    return Usage(
        free=sum(each.health in TAKES_WORK and each.uuid not in used for each in devices),
        shared=len(used - whole),
        held=len(whole),
        held_by=shortened(names),
    )


def shortened(names: list[str]) -> str:
    """All of the names, or the first few and how many more."""
    shown: list[str] = []
    characters = 0
    for number, name in enumerate(names):
        characters += len(name) + 1
        more = f"+{len(names) - number}"
        if characters + len(more) > HELD_BY_CHARACTERS:
            return ",".join([*shown, more])
        shown.append(name)
    return ",".join(shown)
