# SPDX-License-Identifier: Apache-2.0
"""What a storm of the queue applies, and how each of its jobs is to end.

Most jobs are for simulated nodes, every fifth runs containers. Each job fits in the end: no gang is
larger than its quota or the empty cluster, and all servers fit together at their largest scale.
"""

import dataclasses
import json
import random
from collections.abc import Mapping
from typing import Any

import simulated_gpus
from harness import Kube
from manifests import Judged, Share
from queue_judge import End
from queue_tenants import A100, PRIORITIES, QUOTAS, REAL, T4, max_gpus_of
from storms import BATCH, Server, mixed

Manifest = dict[str, Any]

SUCCEEDED = End("Succeeded", "Completed")
TOO_LATE = End("Failed", "DeadlineExceeded")
REAL_EVERY = 5
MOVABLE, ELASTIC = 0.4, 0.4
"""Parts of the jobs, and of the gangs of whole GPUs."""
FATES = {
    "ends": 66,
    "fails": 12,
    "ignored": 3,
    "late": 5,
    "resumed": 5,
    "suspended": 5,
    "deleted": 4,
}
"""What becomes of jobs, in percent."""
TURN_AFTER = 8
"""Acts on other jobs between two on one."""
DEADLINE_SECONDS = (20, 40)
"""Of jobs that are too late. With less, all pods of a gang might not exist by then, for which its
namespace pauses (the operator's creation_backoff): that is for other tests."""
GPUS = {A100: ((1, 2, 4, 8), (4, 3, 2, 2)), T4: ((1, 2), (2, 1)), REAL: ((1, 2, 4), (3, 2, 1))}
"""Of one worker: how many, and how often."""


@dataclasses.dataclass(frozen=True)
class StormJob:
    """A GPUJob of the storm.

    Attributes:
        tenant: its namespace.
        end: how it ends; None: it is deleted.
        acts: what is done to it, one after the other: suspend, resume, delete.
    """

    tenant: str
    manifest: Manifest
    end: End | None = SUCCEEDED
    acts: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """In its namespace."""
        return self.manifest["metadata"]["name"]


@dataclasses.dataclass(frozen=True)
class QueueStorm:
    """Everything that one storm applies."""

    jobs: list[StormJob]
    servers: list[tuple[str, Server]]
    """With the namespace in which each is."""

    def serve(self, tenants: Mapping[str, Kube]) -> None:
        """Apply the servers, which begin without a pod."""
        for tenant, server in self.servers:
            tenants[tenant].submit(server.manifest)

    def submit(self, tenants: Mapping[str, Kube]) -> None:
        """Apply the jobs, in small batches that tenants take turns with."""
        batches = [
            (tenant, manifests[first : first + BATCH])
            for tenant in tenants
            if (manifests := [job.manifest for job in self.jobs if job.tenant == tenant])
            for first in range(0, len(manifests), BATCH)
        ]
        turns = sorted(range(len(batches)), key=lambda index: _turn(batches, index))
        for index in turns:
            tenant, manifests = batches[index]
            tenants[tenant].submit(*manifests)

    def ends(self, tenants: Mapping[str, Kube]) -> dict[str, End | None]:
        """How each job is to end, by NAMESPACE/NAME."""
        return {f"{tenants[job.tenant].namespace}/{job.name}": job.end for job in self.jobs}


class Meddling:
    """Suspends, resumes and deletes jobs, one act at a time, in an order that a seed decides."""

    def __init__(self, storm: QueueStorm, tenants: Mapping[str, Kube], seed: int) -> None:
        self._tenants = tenants
        self._jobs = [job for job in storm.jobs if job.acts]
        self._left = [(job, job.acts) for job in self._jobs]
        random.Random(seed).shuffle(self._left)
        self.done = 0

    def act(self) -> None:
        """Do the next thing; a job that is not there yet, or to be resumed, has its turn later."""
        if not self._left:
            return
        job, acts = self._left.pop(0)
        if _do(self._tenants[job.tenant], job.name, acts[0]):
            self.done += 1
            acts = acts[1:]
        if acts:
            self._left.insert(TURN_AFTER, (job, acts))

    def finish(self) -> None:
        """Do all remaining acts; all jobs exist.

        An apply whose answer was lost was done again, and so may have undone what was done here.
        """
        while self._left:
            self.act()
        for tenant in {job.tenant for job in self._jobs}:
            there = {each["metadata"]["name"]: each for each in self._tenants[tenant].gpujobs()}
            for job in self._jobs:
                if job.tenant == tenant and _is_undone(there.get(job.name), job.acts[-1]):
                    _do(self._tenants[tenant], job.name, job.acts[-1])


def drawn(judged: Judged, *, jobs: int, servers: int, seed: int) -> QueueStorm:
    """So many jobs and Deployments; half of these run containers."""
    chance = random.Random(f"{seed}:queue")
    fates = chance.choices(list(FATES), list(FATES.values()), k=jobs)
    made = [_job(judged, index, fate, chance) for index, fate in enumerate(fates)]
    containers = mixed(judged, jobs=0, servers=servers // 2, seed=seed).servers
    simulated = [_server(index, chance) for index in range(servers - len(containers))]
    owners = list(QUOTAS)
    unlimited = [name for name in owners if name != "physics"]
    placed = [(unlimited[i % len(unlimited)], server) for i, server in enumerate(containers)]
    placed += [(owners[i % len(owners)], server) for i, server in enumerate(simulated)]
    return QueueStorm(made, placed)


def _job(judged: Judged, index: int, fate: str, chance: random.Random) -> StormJob:
    tenant, name, real = chance.choice(list(QUOTAS)), f"storm-{index}", index % REAL_EVERY == 0
    models = (REAL,) if real else chance.choices(((A100,), (T4,), (A100, T4)), (7, 2, 1))[0]
    spec: Manifest = {"gpuModels": list(models)} | _priority(chance) | _size(tenant, models, chance)
    spec |= _going_along(name, spec)
    if fate == "fails":
        spec["maxRestarts"] = chance.randint(0, 2)
    elif fate == "ignored":
        spec["failurePolicy"] = [{"exitCodes": [3], "action": "Ignore"}]
    elif fate == "late":
        spec["activeDeadlineSeconds"] = chance.randint(*DEADLINE_SECONDS)
    elif chance.random() < 0.2:
        spec["activeDeadlineSeconds"] = 3600
    if fate == "resumed":
        spec["suspend"] = True
    code = 3 if fate in {"fails", "ignored"} else 0
    seconds = 600.0 if fate == "late" else _seconds(chance, real=real)
    make = judged.job if real else simulated_gpus.job
    manifest = make(name, seconds=seconds, exit_code=code, **spec)
    end: End | None = SUCCEEDED
    if fate == "fails":
        end = End("Failed", "WorkerFailed", spec["maxRestarts"])
    elif fate == "ignored":
        end = End("Succeeded", "FailuresIgnored")
    elif fate == "late":
        end = TOO_LATE
    elif fate == "deleted":
        end = None
    acts = {"resumed": ("resume",), "suspended": ("suspend", "resume"), "deleted": ("delete",)}
    return StormJob(tenant, manifest, end, acts.get(fate, ()))


def _going_along(name: str, spec: Manifest) -> Manifest:
    """How it lets itself be moved and resized."""
    chance = random.Random(name)
    found: Manifest = {"movable": True} if chance.random() < MOVABLE else {}
    if "gpus" in spec and spec["workers"] > 1 and chance.random() < ELASTIC:
        found["minWorkers"] = chance.randint(1, spec["workers"] - 1)
    return found


def _seconds(chance: random.Random, *, real: bool) -> float:
    if real:
        return round(chance.uniform(0.2, 1.5), 2)
    longest = chance.choices((15, 45), (6, 1))[0]
    return round(chance.uniform(3, longest), 1)


def _priority(chance: random.Random) -> Manifest:
    return chance.choices(
        ({}, {"priority": -5}, *({"priorityClassName": name} for name in PRIORITIES)),
        (6, 1, *(2 for _ in PRIORITIES)),
    )[0]


def _size(tenant: str, models: tuple[str, ...], chance: random.Random) -> Manifest:
    workers = chance.choices((1, 2, 3, 4), (4, 3, 2, 1))[0]
    if chance.random() < 0.25:
        return {"workers": workers, "share": _share(chance, max_percent=95)}
    # Of several models, what a worker of the smallest node can have.
    numbers, weights = GPUS[T4 if T4 in models else models[0]]
    gpus = chance.choices(numbers, weights)[0]
    return {"workers": min(workers, max_gpus_of(tenant, models) // gpus), "gpus": gpus}


def _share(chance: random.Random, *, max_percent: int) -> Share:
    """Of any model's memory."""
    return Share(chance.randint(1, max_percent), chance.randint(64, 10_000))


def _server(index: int, chance: random.Random) -> Server:
    name, most = f"simulated-{index}", chance.randint(1, 3)
    size: Any = {"gpus": chance.randint(1, 2)}
    if index % 2:
        size = {"share": _share(chance, max_percent=40)}
    return Server(name, most, simulated_gpus.deployment(name, **size))


def _do(kube: Kube, name: str, act: str) -> bool:
    """Do an act; return False if its job does not exist yet."""
    there = kube.insist("get", "gpujob", name, "--ignore-not-found", "-o", "name").strip()
    if not there:
        return False
    if act == "delete":
        kube.insist("delete", "gpujob", name, "--wait=false", "--ignore-not-found")
    else:
        patch = json.dumps({"spec": {"suspend": act == "suspend"}})
        kube.insist("patch", "gpujob", name, "--type=merge", "--patch", patch)
    return True


def _is_undone(job: Manifest | None, act: str) -> bool:
    if job is None:
        return False
    return act == "delete" or bool(job["spec"].get("suspend"))


def _turn(batches: list[tuple[str, list[Manifest]]], index: int) -> tuple[int, int]:
    """The first batch of each tenant, then the second of each."""
    tenant = batches[index][0]
    return sum(other == tenant for other, _ in batches[:index]), index
