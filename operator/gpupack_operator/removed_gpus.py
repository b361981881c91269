# SPDX-License-Identifier: Apache-2.0
"""GPUs that were in quarantine when their GPUNode was deleted, until they appear again.

An administrator deletes a GPUNode after repairing its GPUs, while its Node stays. The garbage
collector deletes it with its Node, which repairs nothing: wherever such a GPU appears again, it is
in quarantine as before. The owner of the next GPUNode that lists the GPU distinguishes the two.

The memory is that of one process. After a restart only the agent's grade decides, as for a new
node.
"""

import dataclasses
from typing import Final

from gpupack_crds.gpunode import Quarantine
from gpupack_crds.kinds import GpuNode
from gpupack_kubeclient import objects
from gpupack_kubeclient.node_owner import went_with_node

MAX_REMOVED: Final = 2048
"""Limit of remembered GPUs; an autoscaler's nodes do not come back."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Removed:
    """Entry of a GPU, with its GPUNode."""

    gpunode: objects.ObjectMeta
    entry: Quarantine


class RemovedGpus:
    """Removed GPUs by UUID."""

    def __init__(self) -> None:
        self._removed: dict[str, _Removed] = {}

    def __len__(self) -> int:
        return len(self._removed)

    def add(self, gone: GpuNode) -> None:
        """Remember the quarantine of a deleted GPUNode."""
        for entry in gone.spec.quarantine:
            self._removed.pop(entry.gpu, None)
            self._removed[entry.gpu] = _Removed(gone.metadata, entry)
        for oldest in list(self._removed)[:-MAX_REMOVED]:
            del self._removed[oldest]

    def update(self, node: GpuNode) -> None:
        """Forget GPUs that are in quarantine again, or that their node does not list any more.

        Before its first scan an agent lists no GPU at all.
        """
        listed, name = _listed(node), node.metadata.name
        for entry in node.spec.quarantine:
            self._removed.pop(entry.gpu, None)
        if not listed:
            return
        for gpu, removed in list(self._removed.items()):
            is_missing = removed.gpunode.name == name and gpu not in listed
            if is_missing and not _is_kept(removed, node):
                del self._removed[gpu]

    def repaired(self, node: GpuNode) -> frozenset[str]:
        """Return GPUs of a node whose GPUNode an administrator deleted."""
        return frozenset(gpu for gpu, removed in self._of(node) if not _is_kept(removed, node))

    def kept(self, node: GpuNode) -> tuple[Quarantine, ...]:
        """Return the entries of a node's GPUs that have outlived their previous Node."""
        return tuple(removed.entry for _, removed in self._of(node) if _is_kept(removed, node))

    def _of(self, node: GpuNode) -> list[tuple[str, _Removed]]:
        """Return the GPUs that the node lists; before its agent's first scan, those that it had."""
        if not self._removed:
            return []
        listed, name = _listed(node), node.metadata.name
        return [
            (gpu, removed)
            for gpu, removed in self._removed.items()
            if (gpu in listed if listed else removed.gpunode.name == name)
        ]


def _is_kept(removed: _Removed, node: GpuNode) -> bool:
    return went_with_node(removed.gpunode, node.metadata)


def _listed(node: GpuNode) -> set[str]:
    return {each.mig_parent or each.uuid for each in node.status.devices}
