# SPDX-License-Identifier: Apache-2.0
"""What one namespace may have in the queue."""

import pytest

from gpupack_crds.plan import PlanResponse
from gpupack_scheduler.queueing.pending import pending_requests


@pytest.fixture
def full(world):
    """All GPUs are held."""
    world.asks("holder", workers=2, gpus=4)
    world.written("holder")
    return world


def affinity(number, values):
    words = [f"{number}-{each}" for each in range(values)]
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": words}]}
    required = {"nodeSelectorTerms": [term]}
    node = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    return {"containers": [{"name": "worker"}], "affinity": node}


def test_jobs_that_ask_for_the_same_are_one_kind(full, monkeypatch):
    monkeypatch.setattr(pending_requests, "MAX_KINDS", 2)
    for number in range(20):
        assert full.asks(f"same-{number}").reason == "TooFewFreeGpus"
    assert full.asks("other", gpus=2).reason == "TooFewFreeGpus"
    refusal = full.asks("third", gpus=3)
    assert (refusal.reason, "ask for 2 different things" in refusal.message) == ("QueueFull", True)
    assert full.asks("third", gpus=3, namespace="elsewhere").reason == "TooFewFreeGpus"


def test_an_order_of_models_counts_as_many_requests_as_it_has_models(full, monkeypatch):
    monkeypatch.setattr(pending_requests, "MAX_KINDS", 4)
    ordered = {"gpuModels": ["H100", "A100", "L4"], "gpuModelFallback": {"afterSeconds": 10}}
    for number in range(3):
        assert full.asks(f"ordered-{number}", **ordered).reason == "TooFewFreeGpus"
    assert full.asks("one", gpus=2).reason == "TooFewFreeGpus"
    assert full.asks("second", gpus=3).reason == "QueueFull"
    assert full.asks("more", gpus=2, **ordered).reason == "QueueFull"
    full.owner.observed.withdraw_all()
    assert full.owner.observed.waiting._capacity._kinds == {}


def test_a_job_that_the_full_queue_refused_is_notified_when_the_queue_has_space(full, monkeypatch):
    monkeypatch.setattr(pending_requests, "MAX_KINDS", 1)
    full.asks("first")
    full.asks("second", gpus=2)
    full.ends("holder")
    full.decide()
    assert (set(full.called()), len(full.owner.observed)) == ({"first", "second"}, 0)
    assert isinstance(full.asks("second", gpus=2), PlanResponse)


def test_labels_of_nodes_that_are_kept_for_a_namespace_are_bounded(full):
    reasons = [
        full.asks(f"j{number}", pod_spec=affinity(number, 4000)).reason for number in range(20)
    ]
    kept = pending_requests.MAX_VALUES // 4002
    assert reasons[:kept] == [reasons[0]] * kept
    assert set(reasons[kept:]) == {"QueueFull"}


def test_a_job_that_no_longer_waits_frees_its_queue_entry(full):
    for number in range(300):
        full.asks(f"j{number}", gpus=1 + number % 3, attempt=1 + number)
        full.asks(f"j{number}", gpus=2 + number % 3, attempt=2 + number)
    full.owner.observed.withdraw_all()
    assert full.owner.observed.waiting._capacity._kinds == {}
