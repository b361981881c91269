# SPDX-License-Identifier: Apache-2.0
import pytest

from gpupack_placement import WHOLE_GPU, DeviceUuid, Grant, MiB, NodeName, Placement
from gpupack_scheduler.ledger.claims import Allocation, PodClaim, State
from gpupack_scheduler.ledger.workers import AttemptKey, WorkerKey
from gpupack_scheduler.queueing.running import membership

ATTEMPT = AttemptKey(namespace="team", job="train", job_uid="uid-train", number=1)
WORKERS = 256
PER_NODE = 8


def place(index):
    grant = Grant(DeviceUuid(f"GPU-{index}"), WHOLE_GPU, MiB(80 * 1024))
    return Allocation(Placement(NodeName(f"n{index // PER_NODE}"), (grant,)))


def pod(index):
    return PodClaim(
        uid=f"uid-{index}",
        namespace="team",
        name=f"train-1-{index}",
        allocation=place(index),
        state=State.BOUND,
        worker=WorkerKey(ATTEMPT, index),
    )


@pytest.mark.parametrize("lasts", [True, False])
def test_each_worker_is_compared_with_few_others(monkeypatch, lasts):
    """The queue looks at a gang each time that one of its pods is bound, and when it has ended."""
    before = tuple(map(place, range(WORKERS)))
    places = {WorkerKey(ATTEMPT, n): place(n) for n in reversed(range(WORKERS)) if lasts}
    compared = []
    is_within = membership._is_within
    equal = Placement.__eq__
    monkeypatch.setattr(Placement, "__eq__", lambda a, b: compared.append(a) or equal(a, b))
    monkeypatch.setattr(
        membership, "_is_within", lambda a, b: compared.append(a) or is_within(a, b)
    )
    held, others = membership.divide(places, map(pod, range(WORKERS)), before)
    assert (len(held), others) == (WORKERS, {})
    assert len(compared) <= 3 * PER_NODE * WORKERS
