# SPDX-License-Identifier: Apache-2.0
"""The place of each worker of a job: its pod and container, node and GPUs."""

import datetime as dt
from collections.abc import Iterable, Iterator

import msgspec

from gpupack_cli.text import plain
from gpupack_cli.worker import Worker, workers_of
from gpupack_crds.devices import WHOLE_PERCENT, DeviceShare
from gpupack_crds.kinds import GpuJob
from gpupack_crds.placement import WorkerPlacement, by_worker
from gpupack_kubeclient.objects import Pod

EARLIEST = dt.datetime.min.replace(tzinfo=dt.UTC)


class PlacedWorker(msgspec.Struct, frozen=True):
    """One worker of the current attempt, or of the last one.

    Attributes:
        gpus: UUIDs, those of shares with their percent; empty: it holds none now, or another device
            plugin chose them.
        pod: name of its pod; empty: it has none, or none that the caller may see.
        container: container of that pod, with its GPUs.
        ended: whether that container has ended.
        exit_code: exit code of that container; None: it has not ended, or its exit code is unknown.
    """

    worker: int
    node: str
    gpus: tuple[str, ...] = ()
    pod: str = ""
    container: str = ""
    ended: bool = False
    exit_code: int | None = None

    @property
    def line(self) -> str:
        """One line: «0: pod train-1-p0-x7k2p, container worker-0, on a, GPUs GPU-…; ended»."""
        pod = f"pod {plain(self.pod)}, container {plain(self.container)}, " if self.pod else ""
        gpus = f", GPUs {plain(', '.join(self.gpus))}" if self.gpus else ""
        code = "" if self.exit_code is None else f", exit code {self.exit_code}"
        return f"{self.worker}: {pod}on {plain(self.node)}{gpus}" + (
            f"; ended{code}" if self.ended else ""
        )


def placed_workers(job: GpuJob, pods: Iterable[Pod]) -> Iterator[PlacedWorker]:
    """Yield the workers that have a place or a pod, by index; of several pods the newest counts."""
    status = job.status
    places = by_worker(status.placement) if status.holds_placement else ()
    placed = {each.worker: each for each in places}
    seen = {
        worker.index: worker
        for pod in sorted(pods, key=_age)
        for worker in workers_of(pod, job.spec)
        if worker.attempt == status.attempt
    }
    for index in sorted(placed.keys() | seen.keys()):
        yield _shown(index, placed.get(index), seen.get(index))


def _shown(index: int, place: WorkerPlacement | None, worker: Worker | None) -> PlacedWorker:
    gpus = tuple(map(_gpu, place.devices)) if place else ()
    if worker is None:
        return PlacedWorker(index, place.node if place else "", gpus)
    return PlacedWorker(
        worker=index,
        node=place.node if place else worker.pod.spec.node_name,
        gpus=gpus,
        pod=worker.pod.metadata.name,
        container=worker.container,
        ended=worker.ended,
        exit_code=worker.exit_status,
    )


def _gpu(device: DeviceShare) -> str:
    whole = device.percent >= WHOLE_PERCENT
    return device.uuid if whole else f"{device.uuid} ({device.percent}%)"


def _age(pod: Pod) -> tuple[bool, dt.datetime]:
    """Return the order of pods: finished ones first, then by creation; a running one is current."""
    return not pod.finished, pod.metadata.creation_timestamp or EARLIEST
