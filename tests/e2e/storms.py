# SPDX-License-Identifier: Apache-2.0
"""Storms: gangs of whole GPUs and of shares, and servers that come and go among them.

Sizes are drawn so that everything fits in the end in any order: no gang needs more than the empty
cluster of 16 GPUs, and all servers fit together at their largest scale.
"""

import contextlib
import dataclasses
import random
from collections.abc import Callable, Iterator
from itertools import zip_longest
from typing import Any, NamedTuple

from background import running
from harness import Kube
from manifests import Judged, Manifest, Share

SERVER_GPUS = (1, 1, 2, 2)
"""Of servers with whole GPUs. Two replicas of each take 12 GPUs and leave 4 to the others."""
SERVER_SHARES = 6
"""Servers with shares. Three replicas of each, of a fifth of a GPU at most, fit on 4 GPUs."""
LINGER_SECONDS = 0.5
BATCH = 20


class Server(NamedTuple):
    """A Deployment of the storm."""

    name: str
    most: int
    """Replicas at its largest."""
    manifest: Manifest


@dataclasses.dataclass(frozen=True)
class Storm:
    """Everything that one storm applies."""

    jobs: list[Manifest]
    servers: list[Server]

    @property
    def names(self) -> list[str]:
        """Names of the jobs."""
        return [job["metadata"]["name"] for job in self.jobs]

    def submit(self, kube: Kube) -> None:
        """Apply everything; servers begin without a pod.

        In small batches: between two kills of the API server a large one would never get through.
        """
        manifests = [*(server.manifest for server in self.servers), *self.jobs]
        for first in range(0, len(manifests), BATCH):
            kube.submit(*manifests[first : first + BATCH])


def mixed(judged: Judged, *, jobs: int, servers: int, seed: int) -> Storm:
    """Return that many jobs, every second one with shares, and the first so many servers."""
    chance = random.Random(seed)
    gangs = [_gang(judged, f"storm-{index}", index, chance) for index in range(jobs)]
    return Storm(gangs, _servers(judged, chance)[:servers])


def _gang(judged: Judged, name: str, index: int, chance: random.Random) -> Manifest:
    workers = chance.choices((1, 2, 3, 4), (4, 3, 2, 1))[0]
    seconds = round(chance.uniform(0.2, 1.5), 2)
    if index % 2:
        share = _share(judged, chance, max_percent=95)
        return judged.job(name, workers=workers, share=share, seconds=seconds)
    return judged.job(name, workers=workers, gpus=chance.randint(1, 4), seconds=seconds)


def _servers(judged: Judged, chance: random.Random) -> list[Server]:
    """All servers, in an order that mixes those of whole GPUs and of shares."""
    whole = [(2, {"gpus": gpus}) for gpus in SERVER_GPUS]
    shares = [(3, {"share": _share(judged, chance, max_percent=20)}) for _ in range(SERVER_SHARES)]
    sizes = [size for pair in zip_longest(shares, whole) for size in pair if size]
    return [
        Server(
            name=f"server-{index}",
            most=most,
            manifest=judged.deployment(
                f"server-{index}", replicas=0, linger_seconds=LINGER_SECONDS, **size
            ),
        )
        for index, (most, size) in enumerate(sizes)
    ]


def _share(judged: Judged, chance: random.Random, *, max_percent: int) -> Share:
    """A share of at most so much of a GPU's time, and as much of its memory."""
    max_mib = judged.gpu_memory_mib * max_percent // 100
    return Share(chance.randint(1, max_percent), chance.randint(64, max_mib))


@contextlib.contextmanager
def tide(
    kube: Kube, servers: list[Server], *, seed: int, every_seconds: tuple[float, float]
) -> Iterator[Callable[[], int]]:
    """Scale servers up and down, one at a time; yields a look at how often that was done."""
    chance = random.Random(seed)
    scaled: list[str] = []

    def scale_one() -> None:
        server = chance.choice(servers)
        kube.scale("deployment", server.name, chance.randint(0, server.most))
        scaled.append(server.name)

    with running(scale_one, lambda: chance.uniform(*every_seconds)):
        yield lambda: len(scaled)


def ebb(kube: Kube, servers: list[Server]) -> None:
    """Scale all servers to nothing, so that the largest gang fits."""
    for server in servers:
        kube.scale("deployment", server.name, 0)


def flood(kube: Kube, servers: list[Server], *, seconds: float) -> list[dict[str, Any]]:
    """Scale all servers to their most, and wait until all their pods are Ready; returns those."""
    for server in servers:
        kube.scale("deployment", server.name, server.most)
    return [
        pod
        for server in servers
        for pod in kube.wait_scale("deployment", server.name, seconds=seconds)
    ]
