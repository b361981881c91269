# SPDX-License-Identifier: Apache-2.0
"""Replicas per GPU of another device plugin, from the node's labels.

    nvidia.com/gpu.sharing-strategy: none, time-slicing or mps
    nvidia.com/gpu.replicas: 4

NVIDIA's GPU feature discovery writes these labels. Where GPUs are shared, each unit of the resource
is a replica and not a whole GPU. With renameByDefault the resource is nvidia.com/gpu.shared, and
this name alone means the same. Without labels, GPUs count as shared where the kubelet hands out a
multiple of the number of GPUs that the agent sees.
"""

from collections.abc import Mapping
from typing import Final

from gpupack_crds import names

SHARED: Final = frozenset({"time-slicing", "mps"})
MAX_REPLICAS: Final = 1024


def replicas_of_a_gpu(
    labels: Mapping[str, str], resource: str, *, number: int, gpus: int
) -> int | None:
    """Return how many replicas each GPU has; None if the units are whole GPUs.

    Args:
        labels: labels of the node.
        resource: name under which the kubelet hands out the GPUs.
        number: number of units.
        gpus: number of GPUs of this resource that the agent sees; 0 if it sees none.
    """
    base = resource.removesuffix(names.SHARED_SUFFIX)
    labelled = _whole(labels.get(f"{base}.replicas", ""))
    replicas = max(-(-number // max(gpus, 1)), 1) if labelled is None else labelled
    if base != resource:
        return replicas
    strategy = labels.get(f"{base}.sharing-strategy")
    is_multiple = gpus > 0 and number % gpus == 0
    is_shared = is_multiple if strategy is None else strategy in SHARED
    return replicas if is_shared and replicas > 1 else None


def _whole(text: str) -> int | None:
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(MAX_REPLICAS))):
        return None
    return number if 1 <= (number := int(text)) <= MAX_REPLICAS else None
