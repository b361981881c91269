# SPDX-License-Identifier: Apache-2.0
"""The common /dev/shm of a gang's pods on this node.

NCCL passes data between processes through memory only if they see the same /dev/shm. Workers in
separate pods have separate ones: the kubelet makes a tmpfs for each pod's volume `shm`. So the
first pod of the gang keeps its own, and the CDI specs of the others mount that one over theirs:

    pod a   shm ─► tmpfs of pod a ◄─┐    owner: its record names itself
    pod b   shm ─► tmpfs of pod a ──┘    its record names pod a

Nothing is mounted on the host and no privilege is needed. The kubelet limits the size (sizeLimit
of the owner's volume). The kernel charges pages to the pod that writes them. The tmpfs disappears
with the last container that mounts it.

Pods share memory only within a namespace, and only if the scheduler's Binding names them as pods
of the same gang. No other component can write that annotation. A pod without the volume `shm` in
memory at /dev/shm takes no part.
"""

import dataclasses

from gpupack_agent.holders import NodeView, Record, is_live
from gpupack_agent.inventory.base import Injection, Mount
from gpupack_agent.kubelet_config import ROOT_DIR
from gpupack_agent.pods import PodView
from gpupack_crds import names


@dataclasses.dataclass(frozen=True, slots=True)
class GangMemory:
    """The mounts of the memory of a gang's first pod into its other pods.

    Attributes:
        kubelet_root: the kubelet's root folder on the host.
    """

    kubelet_root: str = ROOT_DIR

    def with_shared_memory(self, injection: Injection, record: Record) -> Injection:
        """Return the injection with the owner's memory, if the owner is another pod."""
        if record.memory_owner_uid in {"", record.uid}:
            return injection
        mount = Mount(self.shm_path(record.memory_owner_uid), names.SHM_PATH, writable=True)
        return dataclasses.replace(injection, mounts=(*injection.mounts, mount))

    def shm_path(self, uid: str) -> str:
        """Return the path of a pod's /dev/shm on the host."""
        volumes = f"{self.kubelet_root.rstrip('/')}/pods/{uid}/volumes"
        return f"{volumes}/kubernetes.io~empty-dir/{names.SHM_VOLUME}"


def memory_owner(pod: PodView, node: NodeView) -> str:
    """Return the UID of the pod whose /dev/shm a pod uses; empty: the pod shares none.

    A container that restarts keeps the same memory while the owner lives.
    """
    if not pod.gang:
        return ""
    own = next((each for each in node.records if each.uid == pod.uid), None)
    if own is not None and own.memory_owner_uid and _has_volumes(own.memory_owner_uid, node):
        return own.memory_owner_uid
    owners = (each for each in node.records if _is_memory_owner(each, pod))
    usable = sorted(each.uid for each in owners if _has_volumes(each.uid, node))
    return usable[0] if usable else pod.uid


def _is_memory_owner(record: Record, pod: PodView) -> bool:
    same_gang = (record.namespace, record.gang) == (pod.namespace, pod.gang)
    return same_gang and record.memory_owner_uid == record.uid


def _has_volumes(uid: str, node: NodeView) -> bool:
    """Tell whether the kubelet still has the pod's volumes: it removes those of ended pods."""
    pod = node.pods.get(uid)
    return pod is not None and not pod.finished and is_live(uid, node)
