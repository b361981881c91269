# SPDX-License-Identifier: Apache-2.0
"""The stores of reflectors: those of the inventory and of the book."""

from gpupack_apiserver.accounts.book import Book
from gpupack_apiserver.shown_job import ShownJob
from gpupack_crds.kinds import GpuNode
from gpupack_kubeclient import objects
from gpupack_scheduler.ledger.ledger import Ledger


class NodeStore:
    """The store of nodes."""

    def __init__(self, ledger: Ledger, book: Book) -> None:
        self._ledger, self._book = ledger, book

    def replace(self, items: list[objects.Node], /) -> None:
        """Take in the complete list of nodes."""
        self._ledger.nodes.replace(items)
        self._book.resolve()

    def upsert(self, item: objects.Node, /) -> None:
        """Take in a new or changed node."""
        self._ledger.nodes.upsert(item)
        self._book.resolve()

    def remove(self, item: objects.Node, /) -> None:
        """Remove a node."""
        self._ledger.nodes.remove(item)


class GpuStore:
    """The store of GPUNodes."""

    def __init__(self, ledger: Ledger, book: Book) -> None:
        self._ledger, self._book = ledger, book

    def replace(self, items: list[GpuNode], /) -> None:
        """Take in the complete list of GPUNodes."""
        self._ledger.gpus.replace(items)
        self._book.resolve()
        self._book.gpus_listed(items)

    def upsert(self, item: GpuNode, /) -> None:
        """Take in a new or changed GPUNode."""
        self._ledger.gpus.upsert(item)
        self._book.resolve()
        self._book.see_gpus(item.metadata.name, item)

    def remove(self, item: GpuNode, /) -> None:
        """Remove a GPUNode."""
        self._ledger.gpus.remove(item)
        self._book.see_gpus(item.metadata.name, None)


class PodStore:
    """The store of pods."""

    def __init__(self, book: Book) -> None:
        self._book = book

    def replace(self, items: list[objects.Pod], /) -> None:
        """Take in the complete list of pods."""
        self._book.pods_listed(items)

    def upsert(self, item: objects.Pod, /) -> None:
        """Take in a new or changed pod."""
        self._book.see_pod(item)

    def remove(self, item: objects.Pod, /) -> None:
        """Remove a pod; its last state may contain its end."""
        self._book.see_pod(item)
        self._book.pod_gone(item.metadata.uid)


class GpuJobStore:
    """The store of GPUJobs."""

    def __init__(self, book: Book) -> None:
        self._book = book

    def replace(self, items: list[ShownJob], /) -> None:
        """Take in the complete list of GPUJobs."""
        self._book.jobs_listed(items)

    def upsert(self, item: ShownJob, /) -> None:
        """Take in a new or changed GPUJob."""
        self._book.see_job(item)

    def remove(self, item: ShownJob, /) -> None:
        """Remove a GPUJob."""
        self._book.see_job(item)
        self._book.job_gone(item.metadata.uid)
