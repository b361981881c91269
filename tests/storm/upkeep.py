# SPDX-License-Identifier: Apache-2.0
"""What administrators and hardware do to simulated nodes in a storm: maintenance, GPUs that fail.

The judge gets each beginning before and after it is written, and each end before. A node that all
jobs must leave is one on which a job runs then that cannot be moved: jobs are short and nodes are
many, so that a node chosen at random is often empty.
"""

import json
import random
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from harness import AWAY, Kube
from queue_judge import Judge
from queue_watcher import Watcher

MOST: Final = 3
"""So many nodes are out of service at a time, wholly or in part."""
SECONDS: Final = (8.0, 25.0)
GPU_FAILS, DRAIN_ALL = "gpu fails", "drain All"
KINDS: Final = (
    *(GPU_FAILS, GPU_FAILS),
    *("drain Never", "drain Movable", "drain Movable", DRAIN_ALL),
)
"""What is done, each as often as it stands here."""
FAILED: Final = "Failed"


class Upkeep:
    """Takes nodes, or GPUs, out of service and back, in an order that a seed decides.

    A drain of all jobs is put off while none runs that it would stop, unless nothing else is left.

    Args:
        times: so often; jobs that need all nodes of a kind get them when that is over.
    """

    def __init__(
        self, kube: Kube, watcher: Watcher, nodes: Sequence[str], *, times: int, seed: int
    ) -> None:
        self._kube, self._watcher = kube, watcher
        self._nodes = sorted(nodes)
        self._chance = random.Random(f"{seed}:upkeep")
        self._left = [KINDS[number % len(KINDS)] for number in range(times)]
        self._chance.shuffle(self._left)
        self._out: dict[str, tuple[str, float]] = {}
        """By node, what is out of service (itself, or a GPU), and until when."""
        self.done: Counter[str] = Counter()

    def act(self) -> None:
        """End a maintenance or failure whose time is over, or begin another."""
        over = [node for node, (_, until) in self._out.items() if time.monotonic() >= until]
        if over:
            self._back(over[0])
        elif len(self._out) < MOST and self._left:
            in_service = [each for each in self._nodes if each not in self._out]
            stopping = self._watcher.look(lambda judge: nodes_to_stop(judge, in_service))
            kind = next((each for each in self._left if each != DRAIN_ALL or stopping), DRAIN_ALL)
            wanted = stopping if kind == DRAIN_ALL else []
            self._take(self._chance.choice(wanted or in_service), kind)

    @property
    def is_over(self) -> bool:
        """All are in service, and stay so."""
        return not self._left and not self._out

    def _take(self, node: str, kind: str) -> None:
        until = time.monotonic() + self._chance.uniform(*SECONDS)
        if kind == GPU_FAILS:
            devices = self._devices(node)
            if not devices:
                return
            name, drain = self._chance.choice(devices)["uuid"], "Never"
            what: dict[str, Any] = {"devices": _graded(devices, name, FAILED)}
        else:
            name, drain = node, kind.removeprefix("drain ")
            what = {"maintenance": [{"reason": "the storm", "drain": drain}]}
        window = self._watcher.look(lambda judge: judge.service.ask(name, drain, time.time()))
        # It is taken back in any case: a write whose answer was lost may have been done.
        self._out[node] = name, until
        if self._write(node, **what):
            self._watcher.look(lambda judge: judge.service.out(window, time.time()))
            self._left.remove(kind)
            self.done[kind] += 1

    def _back(self, node: str) -> bool:
        name, _ = self._out[node]
        self._watcher.look(lambda judge: judge.service.back(name, time.time()))
        if name == node:
            is_back = self._write(node, maintenance=None)
        else:
            devices = self._devices(node)
            is_back = bool(devices) and self._write(node, devices=_graded(devices, name, "Healthy"))
        if is_back:
            del self._out[node]
        return is_back

    def _devices(self, node: str) -> list[dict[str, Any]]:
        """Of its GPUNode; nothing where the API server was away."""
        done = self._kube.kubectl("get", "gpunode", node, "--output=json")
        return json.loads(done.stdout)["status"]["devices"] if done.returncode == 0 else []

    def _write(self, node: str, *, devices: Any = None, **spec: Any) -> bool:
        """False: the API server was away."""
        where = ("gpunode", node, "--type=merge")
        if devices is None:
            patch: Mapping[str, Any] = {"spec": spec}
        else:
            patch, where = {"status": {"devices": devices}}, (*where, "--subresource=status")
        done = self._kube.kubectl("patch", *where, "--patch", json.dumps(patch))
        away = any(words in done.stderr for words in AWAY)
        assert done.returncode == 0 or away, done.stderr
        return done.returncode == 0


def nodes_to_stop(judge: Judge, nodes: Collection[str]) -> list[str]:
    """Return those of the nodes on which a GPUJob runs that is not movable."""
    unmovable = {uid for uid, job in judge.jobs.items() if not job.movable and not job.has_ended}
    running = {pod.node for pod in judge.pods.values() if pod.holds and pod.job_uid in unmovable}
    return sorted(running.intersection(nodes))


def _graded(devices: list[dict[str, Any]], uuid: str, health: str) -> list[dict[str, Any]]:
    def graded(device: dict[str, Any]) -> dict[str, Any]:
        if device["uuid"] != uuid:
            return device
        kept = {name: value for name, value in device.items() if name != "cause"}
        cause = {"cause": "broken by the storm"} if health == FAILED else {}
        return kept | {"health": health} | cause

    return [graded(device) for device in devices]
