# SPDX-License-Identifier: Apache-2.0
"""How many times another device plugin hands out each GPU of a node, as the node's labels say.

    nvidia.com/gpu.sharing-strategy: none, time-slicing or mps
    nvidia.com/gpu.replicas: 4

NVIDIA's GPU feature discovery writes them. Where GPUs are shared, each unit of the resource is a
replica, no whole GPU. With renameByDefault the resource is nvidia.com/gpu.shared: that name alone
says the same. So does, where there is no label, a kubelet that hands out several times as many
units as the agent sees GPUs.
"""

from collections.abc import Mapping
from typing import Final

from gpupack_crds import names

SHARED: Final = frozenset({"time-slicing", "mps"})
MAX_REPLICAS: Final = 1024


def replicas_of_a_gpu(
    labels: Mapping[str, str], resource: str, *, number: int, gpus: int
) -> int | None:
    """Return how many replicas each GPU has; None: the units are whole GPUs.

    Args:
        labels: of the node.
        resource: by which its kubelet hands them out.
        number: how many units there are.
        gpus: how many GPUs of it the agent sees; 0: it sees none of them.
    """
    base = resource.removesuffix(names.SHARED_SUFFIX)
    told = _whole(labels.get(f"{base}.replicas", ""))
    replicas = max(-(-number // max(gpus, 1)), 1) if told is None else told
    if base != resource:
        return replicas
    told_how = labels.get(f"{base}.sharing-strategy")
    is_multiple = gpus > 0 and number % gpus == 0
    is_shared = is_multiple if told_how is None else told_how in SHARED
    return replicas if is_shared and replicas > 1 else None


def _whole(text: str) -> int | None:
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(MAX_REPLICAS))):
        return None
    return number if 1 <= (number := int(text)) <= MAX_REPLICAS else None
