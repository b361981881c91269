# SPDX-License-Identifier: Apache-2.0
"""GPUs that were in quarantine when their GPUNode was deleted, until they are seen again.

An administrator deletes a GPUNode whose GPUs were mended, while its Node stays. The garbage
collector deletes it with its Node, which mends nothing: wherever such a GPU comes back, it is in
quarantine as before. The owner of the next GPUNode that lists the GPU tells the two apart.

This is memory of one process. After a restart the agent's grade decides alone, as for a new node.
"""

import dataclasses
from typing import Final

from gpupack_crds.gpunode import Quarantine
from gpupack_crds.kinds import GpuNode
from gpupack_kube import objects
from gpupack_kube.node_owner import went_with_node

MAX_REMOVED: Final = 2048
"""GPUs that are remembered; an autoscaler's nodes do not come back."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Removed:
    """A GPU's entry, and whose it was."""

    gpunode: objects.ObjectMeta
    entry: Quarantine


class RemovedGpus:
    """By UUID."""

    def __init__(self) -> None:
        self._removed: dict[str, _Removed] = {}

    def __len__(self) -> int:
        return len(self._removed)

    def put(self, gone: GpuNode) -> None:
        """Remember the quarantine of a GPUNode that is gone."""
        for entry in gone.spec.quarantine:
            self._removed.pop(entry.gpu, None)
            self._removed[entry.gpu] = _Removed(gone.metadata, entry)
        for oldest in list(self._removed)[:-MAX_REMOVED]:
            del self._removed[oldest]

    def see(self, node: GpuNode) -> None:
        """Forget what is in quarantine again, and what its node does not list any more.

        Before its first look an agent lists no GPU at all.
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

    def mended(self, node: GpuNode) -> frozenset[str]:
        """Return GPUs of a node whose GPUNode an administrator deleted."""
        return frozenset(gpu for gpu, removed in self._of(node) if not _is_kept(removed, node))

    def kept(self, node: GpuNode) -> tuple[Quarantine, ...]:
        """Return the entries of GPUs of a node that have outlived the Node that they were on."""
        return tuple(removed.entry for _, removed in self._of(node) if _is_kept(removed, node))

    def _of(self, node: GpuNode) -> list[tuple[str, _Removed]]:
        """Those that the node lists, or, before its agent's first look, that were on it."""
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
