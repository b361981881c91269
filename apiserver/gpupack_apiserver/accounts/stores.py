# SPDX-License-Identifier: Apache-2.0
"""The stores of reflectors: they update the inventory and the claims."""

from gpupack_apiserver.accounts.claim_tracker import ClaimTracker
from gpupack_apiserver.shown_job import ShownJob
from gpupack_crds.kinds import GpuNode
from gpupack_kubeclient import objects
from gpupack_scheduler.ledger.ledger import Ledger


class NodeStore:
    """The store of nodes."""

    def __init__(self, ledger: Ledger, tracker: ClaimTracker) -> None:
        self._ledger, self._tracker = ledger, tracker

    def replace(self, items: list[objects.Node], /) -> None:
        """Replace all nodes."""
        self._ledger.nodes.replace(items)
        self._tracker.resolve_models()

    def upsert(self, item: objects.Node, /) -> None:
        """Add or update a node."""
        self._ledger.nodes.upsert(item)
        self._tracker.resolve_models()

    def remove(self, item: objects.Node, /) -> None:
        """Remove a node."""
        self._ledger.nodes.remove(item)


class GpuStore:
    """The store of GPUNodes."""

    def __init__(self, ledger: Ledger, tracker: ClaimTracker) -> None:
        self._ledger, self._tracker = ledger, tracker

    def replace(self, items: list[GpuNode], /) -> None:
        """Replace all GPUNodes."""
        self._ledger.gpus.replace(items)
        self._tracker.resolve_models()
        self._tracker.replace_gpus(items)

    def upsert(self, item: GpuNode, /) -> None:
        """Add or update a GPUNode."""
        self._ledger.gpus.upsert(item)
        self._tracker.resolve_models()
        self._tracker.update_gpus(item.metadata.name, item)

    def remove(self, item: GpuNode, /) -> None:
        """Remove a GPUNode."""
        self._ledger.gpus.remove(item)
        self._tracker.update_gpus(item.metadata.name, None)


class PodStore:
    """The store of pods."""

    def __init__(self, tracker: ClaimTracker) -> None:
        self._tracker = tracker

    def replace(self, items: list[objects.Pod], /) -> None:
        """Replace all pods."""
        self._tracker.replace_pods(items)

    def upsert(self, item: objects.Pod, /) -> None:
        """Add or update a pod."""
        self._tracker.update_pod(item)

    def remove(self, item: objects.Pod, /) -> None:
        """Remove a pod; its last state may contain its end."""
        self._tracker.update_pod(item)
        self._tracker.remove_pod(item.metadata.uid)


class GpuJobStore:
    """The store of GPUJobs."""

    def __init__(self, tracker: ClaimTracker) -> None:
        self._tracker = tracker

    def replace(self, items: list[ShownJob], /) -> None:
        """Replace all GPUJobs."""
        self._tracker.replace_jobs(items)

    def upsert(self, item: ShownJob, /) -> None:
        """Add or update a GPUJob."""
        self._tracker.update_job(item)

    def remove(self, item: ShownJob, /) -> None:
        """Remove a GPUJob."""
        self._tracker.update_job(item)
        self._tracker.remove_job(item.metadata.uid)
