# SPDX-License-Identifier: Apache-2.0
"""Where each worker of a job is: its pod, node and GPUs."""

from collections.abc import Iterable, Iterator
from typing import Self

import msgspec

from gpupack_cli.text import plain
from gpupack_crds import names
from gpupack_crds.kinds import GpuJob
from gpupack_crds.placement import WorkerPlacement, by_worker
from gpupack_kube.objects import Pod

WHOLE = 100


class PlacedWorker(msgspec.Struct, frozen=True):
    """One worker of the current attempt.

    `gpus` are UUIDs, those of shares with their percent; empty: another device plugin chose them.
    `pod` is empty where it is not known.
    """

    worker: int
    node: str
    gpus: tuple[str, ...] = ()
    pod: str = ""

    @classmethod
    def of(cls, place: WorkerPlacement, pod: str) -> Self:
        """As the status has it."""
        gpus = tuple(
            each.uuid if each.percent >= WHOLE else f"{each.uuid} ({each.percent}%)"
            for each in place.devices
        )
        return cls(place.worker, place.node, gpus, pod)

    @property
    def line(self) -> str:
        """«0: pod train-1-0-x7k2p on node-a, GPUs GPU-…»."""
        where = f"{self.worker}: " + (f"pod {plain(self.pod)} " if self.pod else "")
        where += f"on {plain(self.node)}"
        return where + (f", GPUs {plain(', '.join(self.gpus))}" if self.gpus else "")


def placed_workers(job: GpuJob, pods: Iterable[Pod]) -> Iterator[PlacedWorker]:
    """In the order of the workers; none where the job holds no places."""
    if not job.status.holds_placement:
        return
    attempt = str(job.status.attempt)
    of_index = {
        pod.metadata.labels.get(names.INDEX_LABEL, ""): pod.metadata.name
        for pod in pods
        if pod.metadata.labels.get(names.ATTEMPT_LABEL) == attempt and not pod.finished
    }
    for place in by_worker(job.status.placement):
        yield PlacedWorker.of(place, of_index.get(str(place.worker), ""))
