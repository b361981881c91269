# SPDX-License-Identifier: Apache-2.0
"""What reflectors fill: the inventory's stores and the book's."""

from gpupack_api.accounts.book import Book
from gpupack_api.shown_job import ShownJob
from gpupack_crds.kinds import GpuNode
from gpupack_kube import objects
from gpupack_scheduling.ledger.ledger import Ledger


class NodeStore:
    """Nodes."""

    def __init__(self, ledger: Ledger, book: Book) -> None:
        self._ledger, self._book = ledger, book

    def replace(self, items: list[objects.Node], /) -> None:
        """These are all."""
        self._ledger.nodes.replace(items)
        self._book.resolve()

    def upsert(self, item: objects.Node, /) -> None:
        """A node appeared or changed."""
        self._ledger.nodes.upsert(item)
        self._book.resolve()

    def remove(self, item: objects.Node, /) -> None:
        """A node is gone."""
        self._ledger.nodes.remove(item)


class GpuStore:
    """GPUNodes."""

    def __init__(self, ledger: Ledger, book: Book) -> None:
        self._ledger, self._book = ledger, book

    def replace(self, items: list[GpuNode], /) -> None:
        """These are all."""
        self._ledger.gpus.replace(items)
        self._book.resolve()
        self._book.gpus_listed(items)

    def upsert(self, item: GpuNode, /) -> None:
        """A GPUNode appeared or changed."""
        self._ledger.gpus.upsert(item)
        self._book.resolve()
        self._book.see_gpus(item.metadata.name, item)

    def remove(self, item: GpuNode, /) -> None:
        """A GPUNode is gone."""
        self._ledger.gpus.remove(item)
        self._book.see_gpus(item.metadata.name, None)


class PodStore:
    """Pods."""

    def __init__(self, book: Book) -> None:
        self._book = book

    def replace(self, items: list[objects.Pod], /) -> None:
        """These are all."""
        self._book.pods_listed(items)

    def upsert(self, item: objects.Pod, /) -> None:
        """A pod appeared or changed."""
        self._book.see_pod(item)

    def remove(self, item: objects.Pod, /) -> None:
        """A pod is gone; its last state may tell when it ended."""
        self._book.see_pod(item)
        self._book.pod_gone(item.metadata.uid)


class GpuJobStore:
    """GPUJobs."""

    def __init__(self, book: Book) -> None:
        self._book = book

    def replace(self, items: list[ShownJob], /) -> None:
        """These are all."""
        self._book.jobs_listed(items)

    def upsert(self, item: ShownJob, /) -> None:
        """A GPUJob appeared or changed."""
        self._book.see_job(item)

    def remove(self, item: ShownJob, /) -> None:
        """A GPUJob is gone."""
        self._book.see_job(item)
        self._book.job_gone(item.metadata.uid)
