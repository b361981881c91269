# SPDX-License-Identifier: Apache-2.0
"""What metrics say of the queue and of quotas."""

import msgspec
import pytest
from extender_builders import pod, whole
from prometheus_client import CollectorRegistry

from gpupack_crds.kinds import GpuQuota
from gpupack_extender.queueing import queue_metrics
from gpupack_extender.queueing.queue_metrics import QueueCollector, QueueMetrics


def quota(namespace, *, promised=0, name="default", **status):
    limits = [{"model": "*", "nominal": promised}] if promised else []
    meta = {"name": name, "namespace": namespace, "uid": f"uid-{namespace}-{name}"}
    body = {"metadata": meta, "spec": {"gpus": limits}, "status": status}
    return msgspec.convert(body, GpuQuota)


@pytest.fixture
def deciding():
    return {"now": True}


@pytest.fixture
def value(world, deciding):
    registry = CollectorRegistry()
    collector = QueueCollector(world.owner.observed, world.quotas, decides=lambda: deciding["now"])
    registry.register(collector)
    return lambda name, **labels: registry.get_sample_value(f"gpupack_queue_{name}", labels)


def test_quota_metrics_by_namespace_match_the_quota_status(world, value):
    status = {"nominal": "8", "used": "9.5", "borrowed": "1.5", "lent": "0"}
    world.quotas.quotas.upsert(quota("team", running=3, waiting=2, **status))
    found = {amount: value("quota_gpus", namespace="team", amount=amount) for amount in status}
    assert found == {"nominal": 8, "used": 9.5, "borrowed": 1.5, "lent": 0}
    assert value("quota_jobs", namespace="team", state="running") == 3
    assert value("quota_jobs", namespace="team", state="waiting") == 2


def test_of_more_quotas_than_are_shown_those_that_use_most_are(world, value, monkeypatch):
    monkeypatch.setattr(queue_metrics, "MAX_NAMESPACES", 2)
    for number in range(4):
        world.quotas.quotas.upsert(quota(f"n{number}", used=str(number), waiting=number))
    shown = {
        n for n in range(4) if value("quota_gpus", namespace=f"n{n}", amount="used") is not None
    }
    assert shown == {2, 3}
    assert value("quota_gpus", namespace="(others)", amount="used") == 1
    assert value("quota_jobs", namespace="(others)", state="waiting") == 1


def test_a_quota_of_another_name_counts_nothing_and_is_not_shown(world, value):
    world.quotas.quotas.upsert(quota("team", name="mine", used="5"))
    assert value("quota_gpus", namespace="team", amount="used") is None


def test_pending_requests_are_counted_by_kind(world, value):
    world.asks("train", gpus=4, workers=3)
    assert value("waiting", kind="gang") == 1
    assert value("waiting", kind="group") == 0
    assert value("waiting", kind="pod") == 0


def test_a_cycle_is_timed():
    registry = CollectorRegistry()
    with QueueMetrics(registry).timed_cycle():
        pass
    assert registry.get_sample_value("gpupack_queue_cycle_seconds_count") == 1


def test_only_jobs_that_wait_within_their_quota_count_as_starving(world, value, deciding):
    for namespace, promised in (("team", 16), ("poor", 1)):
        world.quotas.quotas.upsert(quota(namespace, promised=promised))
    world.ledger.pods.upsert(pod("p", on="a", devices=whole("a", 0)))
    world.asks("train", gpus=4, workers=5, namespace="team")
    world.asks("small", gpus=4, workers=2, namespace="team")
    world.asks("other", gpus=4, workers=2, namespace="poor")
    world.owner.see()
    world.now += 90
    starving = {each: value("starving_seconds", namespace=each) for each in ("team", "poor")}
    assert starving == {"team": pytest.approx(90, abs=1), "poor": None}
    deciding["now"] = False
    assert value("starving_seconds", namespace="team") is None
