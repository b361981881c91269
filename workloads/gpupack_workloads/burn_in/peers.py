# SPDX-License-Identifier: Apache-2.0
"""Compares a GPU with others of its model, in the other workers of one job.

Of a model that no table knows, the others are the measure: on most of them nothing is wrong. Each
worker leaves its speeds in a store that worker 0 holds, waits a while for the others, and compares.
A worker that does not come, for its GPU may be the one that failed, is left out.
"""

import json
import logging
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from torch.distributed import DistError, TCPStore

from gpupack_workloads.distributed.rendezvous import WaitPolicy, wait_for_name
from gpupack_workloads.errors import PeersMissing
from gpupack_workloads.settings import Gang

logger = logging.getLogger(__name__)

WAIT_SECONDS = 120
"""Workers of a job start together, except for the time to pull an image."""
LOOK_SECONDS = 0.5
MIN_PEERS = 2
"""With one other GPU there is no telling which of the two is the slow one."""
PART_OF_MEDIAN = 0.8

Speeds = Mapping[str, float]


@dataclass(frozen=True)
class Peer:
    """Measurements of one worker.

    Attributes:
        model: the driver's name of its GPU.
        speeds: by the names of the limits.
    """

    model: str
    speeds: Speeds


def exchange(own: Peer, gang: Gang, *, wait_seconds: float = WAIT_SECONDS) -> list[Peer]:
    """Return what the other workers have measured, those that came in time."""
    if gang.workers == 1:
        return []
    try:
        return _Exchange(gang, wait_seconds).of(own)
    except (DistError, PeersMissing) as error:
        logger.warning("no comparison with the other workers: %s", error)
        return []


def limits_from(peers: Sequence[Peer], model: str) -> dict[str, float]:
    """Return the least that is healthy of a model, by the median of the others of it."""
    alike = [peer.speeds for peer in peers if peer.model == model]
    if len(alike) < MIN_PEERS:
        return {}
    names = set.intersection(*(set(speeds) for speeds in alike))
    return {
        name: PART_OF_MEDIAN * statistics.median(speeds[name] for speeds in alike)
        for name in sorted(names)
    }


class _Exchange:
    """One worker's part of the exchange."""

    def __init__(self, gang: Gang, wait_seconds: float) -> None:
        self._gang = gang
        self._deadline = time.monotonic() + wait_seconds
        address = wait_for_name(gang.host, WaitPolicy(deadline_seconds=wait_seconds))
        self._store = TCPStore(
            address,
            gang.port,
            is_master=gang.index == 0,
            wait_for_workers=False,
            timeout=timedelta(seconds=wait_seconds),
        )

    def of(self, own: Peer) -> list[Peer]:
        self._store.set(self._key("speeds", self._gang.index), _written(own))
        others = [index for index in range(self._gang.workers) if index != self._gang.index]
        came = self._await("speeds", others)
        peers = [_read(self._store.get(self._key("speeds", index))) for index in came]
        self._store.set(self._key("done", self._gang.index), "")
        if self._gang.index == 0:
            # The store ends with this process: let those read that are here.
            self._await("done", came)
        return peers

    def _await(self, word: str, indices: Sequence[int]) -> list[int]:
        while True:
            came = [index for index in indices if self._store.check([self._key(word, index)])]
            if len(came) == len(indices) or time.monotonic() > self._deadline:
                return came
            time.sleep(LOOK_SECONDS)

    def _key(self, word: str, index: int) -> str:
        return f"{self._gang.run}/{word}/{index}"


def _written(peer: Peer) -> str:
    return json.dumps({"model": peer.model, "speeds": dict(peer.speeds)})


def _read(text: bytes) -> Peer:
    fields = json.loads(text)
    return Peer(fields["model"], fields["speeds"])
