# SPDX-License-Identifier: Apache-2.0
"""What the outside watcher reads of pods and GPUJobs, from the API's JSON.

Names are written out here on purpose: none of the code that is judged says what it is judged by.
"""

import dataclasses
import datetime as dt
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

Json = dict[str, Any]

ENDED = {"Succeeded", "Failed"}
GPU = "gpupack.dev/gpu"
INDEX_LABEL = "batch.kubernetes.io/job-completion-index"


@dataclasses.dataclass(frozen=True, slots=True)
class Held:
    """So much of one GPU."""

    uuid: str
    percent: int
    memory_mib: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SeenPod:
    """A pod.

    Attributes:
        job_uid: of its GPUJob; empty for others.
        attempt: of its GPUJob; -1 for others.
        workers: indices of the workers that are its containers; empty for others.
        created, deleted_by: POSIX seconds; `deleted_by` is when it should be gone.
        victims: attempts that are to end for it, as UID/NUMBER, and by which right.
    """

    uid: str
    namespace: str
    name: str
    node: str
    job_uid: str = ""
    attempt: int = -1
    workers: frozenset[int] = frozenset()
    held: tuple[Held, ...] = ()
    ended: bool = False
    created: float = 0.0
    deleted_by: float | None = None
    victims: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def holds(self) -> tuple[Held, ...]:
        """What is not to be given to others."""
        return () if self.ended or not self.node else self.held


@dataclasses.dataclass(frozen=True, slots=True)
class SeenAttempt:
    """One attempt of a GPUJob; `outcome` is empty while it runs, and `ended` infinite."""

    number: int
    started: float
    outcome: str = ""
    reason: str = ""
    ended: float = math.inf


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SeenJob:
    """A GPUJob.

    Attributes:
        least: workers that start together; others up to `workers` come and go.
        gpus: for each worker; 1 where it asks for a share.
        placed: workers that have a place by its status, and how many GPUs these have together.
        places: the nodes and GPUs of those.
        kept: the nodes and GPUs that are kept for it while others end.
        victims: attempts that are to end for it, as UID/NUMBER, and by which right; of workers that
            come and go UID/NUMBER+WORKER.
        resized: why workers came or went last.
    """

    uid: str
    namespace: str
    name: str
    workers: int = 1
    least: int = 1
    gpus: int = 1
    priority: int = 0
    movable: bool = False
    max_restarts: int = 0
    phase: str = ""
    reason: str = ""
    attempt: int = 0
    restarts: int = 0
    attempts: tuple[SeenAttempt, ...] = ()
    placed: tuple[tuple[int, ...], int] = ((), 0)
    places: frozenset[str] = frozenset()
    kept: frozenset[str] = frozenset()
    victims: Mapping[str, str] = dataclasses.field(default_factory=dict)
    resized: str = ""

    @property
    def key(self) -> str:
        """For a message."""
        return f"{self.namespace}/{self.name}"

    @property
    def has_ended(self) -> bool:
        """For good."""
        return self.phase in ENDED

    @property
    def extra_workers(self) -> frozenset[int]:
        """Indices of the extra workers that have places."""
        workers, _ = self.placed
        return frozenset(index for index in workers if index >= self.least)

    @property
    def running(self) -> tuple[SeenAttempt, ...]:
        """Attempts that have not ended."""
        return tuple(each for each in self.attempts if not each.outcome)


def read_pod(pod: Json) -> SeenPod:
    """From the API's JSON."""
    metadata, spec = pod["metadata"], pod["spec"]
    labels = metadata.get("labels", {})
    annotations = metadata.get("annotations", {})
    devices = annotations.get("gpupack.dev/devices", "[]")
    deleted_by = metadata.get("deletionTimestamp")
    return SeenPod(
        uid=metadata["uid"],
        namespace=metadata["namespace"],
        name=metadata["name"],
        node=spec.get("nodeName", ""),
        job_uid=labels.get("gpupack.dev/job-uid", ""),
        attempt=int(labels.get("gpupack.dev/attempt", -1)),
        workers=_workers(labels, spec.get("containers", ())),
        held=tuple(
            Held(each["uuid"], each["percent"], each["memoryMiB"]) for each in json.loads(devices)
        ),
        ended=pod.get("status", {}).get("phase") in ENDED,
        created=seconds(metadata["creationTimestamp"]),
        deleted_by=seconds(deleted_by) if deleted_by else None,
        victims=_victims(json.loads(annotations.get("gpupack.dev/preemption", "{}"))),
    )


def _workers(labels: Json, containers: Sequence[Json]) -> frozenset[int]:
    """Indices of a pod's workers.

    A container of a pod with several workers has the index at the end of its name.
    """
    names = [
        each["name"] for each in containers if GPU in each.get("resources", {}).get("limits", {})
    ]
    if len(names) > 1:
        return frozenset(int(name.rpartition("-")[2]) for name in names)
    index = labels.get(INDEX_LABEL)
    return frozenset() if index is None else frozenset({int(index)})


def read_job(job: Json, priorities: Mapping[str, int]) -> SeenJob:
    """From the API's JSON; `priorities` are those of PriorityClasses, by name."""
    metadata, spec, status = job["metadata"], job["spec"], job.get("status", {})
    by_class = priorities.get(spec.get("priorityClassName", ""))
    return SeenJob(
        uid=metadata["uid"],
        namespace=metadata["namespace"],
        name=metadata["name"],
        workers=spec.get("workers", 1),
        least=spec.get("minWorkers", spec.get("workers", 1)),
        gpus=spec.get("gpus", 1),
        priority=spec.get("priority", 0) if by_class is None else by_class,
        movable=spec.get("movable", False),
        max_restarts=spec.get("maxRestarts", 0),
        phase=status.get("phase", ""),
        reason=status.get("reason", ""),
        attempt=status.get("attempt", 0),
        restarts=status.get("restarts", 0),
        attempts=tuple(map(_attempt, status.get("attempts", ()))),
        placed=_placed(status.get("placement", ())),
        places=_places(status.get("placement", ())),
        kept=_places(status.get("preemption", {}).get("placement", ())),
        victims=_victims(status.get("preemption", {})),
        resized=status.get("width", {}).get("reason", ""),
    )


def seconds(text: str) -> float:
    """POSIX seconds of a Kubernetes timestamp."""
    return dt.datetime.fromisoformat(text).timestamp()


def _attempt(status: Json) -> SeenAttempt:
    ended = status.get("finishedAt")
    return SeenAttempt(
        number=status["number"],
        started=seconds(status["startedAt"]),
        outcome=status.get("outcome", ""),
        reason=status.get("reason", ""),
        ended=seconds(ended) if ended else math.inf,
    )


def _victims(preemption: Json) -> dict[str, str]:
    return {
        name: each.get("reason", "")
        for each in preemption.get("victims", ())
        for name in each["attempts"]
    }


def _placed(placement: list[Json]) -> tuple[tuple[int, ...], int]:
    workers = [
        index
        for entry in placement
        for first, last in re.findall(r"(\d+)(?:-(\d+))?", entry["workers"])
        for index in range(int(first), int(last or first) + 1)
    ]
    return tuple(sorted(workers)), sum(len(entry.get("gpus", ())) for entry in placement)


def _places(placement: list[Json]) -> frozenset[str]:
    nodes = {entry["node"] for entry in placement}
    return frozenset(nodes.union(*(entry.get("gpus", ()) for entry in placement)))
