# SPDX-License-Identifier: Apache-2.0
"""Maximum run times by cohorts: their end in the queue, and evictions of standalone pods."""

import datetime as dt
import math

import msgspec
import pytest
from extender_builders import gated, job, pod, whole

from gpupack_crds.kinds import GpuCohort
from gpupack_scheduler.queueing.pending.request import pod_id

BEGUN = 1000.0


def allow(world, seconds, name="cluster"):
    spec = {} if seconds is None else {"maxRunSeconds": seconds}
    meta = {"name": name, "uid": name, "resourceVersion": "1"}
    world.quotas.cohorts.upsert(msgspec.convert({"metadata": meta, "spec": spec}, GpuCohort))


def holds(world, name="notebook", gpu=0, *, restart="Always", deadline=None, begun=BEGUN):
    shown = pod(name, on="a", devices=whole("a", gpu), gpus=1)
    spec = msgspec.structs.replace(
        shown.spec, restart_policy=restart, active_deadline_seconds=deadline
    )
    start = dt.datetime.fromtimestamp(begun, dt.UTC)
    status = msgspec.structs.replace(shown.status, start_time=start)
    world.ledger.pods.upsert(msgspec.structs.replace(shown, spec=spec, status=status))
    world.decide()


def end(world, name="notebook"):
    """Return when a running pod is expected to end."""
    running = world.owner.queue.state.running.get(pod_id(f"uid-{name}"))
    return running.job.expected_end(running.started)


def evictions(world, now):
    world.now = BEGUN + now
    return list(world.owner.evictions())


@pytest.fixture
def world(world):
    world.now = BEGUN
    return world


def test_a_pod_that_has_run_for_the_limit_is_evicted_with_a_reason_that_names_the_cohort(world):
    allow(world, 600)
    holds(world)
    assert evictions(world, 599) == []
    (found,) = evictions(world, 600)
    assert (found.name, found.reason, found.why) == (
        "notebook",
        "MaxRunTimeExceeded",
        "since it has run for the 600 s that GPUCohort cluster allows (maxRunSeconds)",
    )


def test_without_a_limit_no_pod_is_evicted(world):
    allow(world, None)
    holds(world)
    assert evictions(world, 10**8) == []


@pytest.mark.parametrize(
    ("restart", "deadline", "expected"),
    [("Always", None, 600), ("OnFailure", None, 600), ("Always", 900, 600), ("Always", 60, 60)],
)
def test_a_pod_is_expected_to_end_at_the_limit_or_at_its_own_earlier_deadline(
    world, restart, deadline, expected
):
    allow(world, 600)
    holds(world, restart=restart, deadline=deadline)
    assert end(world) == BEGUN + expected


def test_a_budget_may_delay_the_eviction_so_the_limit_is_no_latest_end(world):
    allow(world, 600)
    holds(world)
    (running,) = world.owner.queue.state.running
    assert (running.latest_end, running.job.is_endless) == (math.inf, False)


def test_a_change_of_the_limit_counts_for_pods_that_run(world):
    holds(world)
    found = [end(world)]
    for seconds in (600, 300, None):
        allow(world, seconds)
        world.decide()
        found.append(end(world))
    assert found == [math.inf, BEGUN + 600, BEGUN + 300, math.inf]


def test_a_change_of_the_limit_counts_for_pods_that_wait(world):
    world.asks("holder", workers=2, gpus=4)
    world.written("holder")
    world.ledger.pods.upsert(gated("late"))
    world.decide()
    found = []
    for seconds in (None, 600, 300):
        allow(world, seconds)
        world.decide()
        found.append(world.owner.queue.state.pending.get(pod_id("uid-late")).job.estimate)
    assert found == [None, 600.0, 300.0]


def test_evictions_that_one_namespaces_budgets_delay_are_bounded(world, monkeypatch):
    monkeypatch.setattr("gpupack_scheduler.queueing.pods.conditions.MAX_EVICTIONS", 1)
    allow(world, 600)
    holds(world, "one", 0)
    holds(world, "two", 1)
    assert [each.name for each in evictions(world, 9999)] == ["one"]


def test_workers_of_gpujobs_are_ended_by_the_operator_alone(world):
    allow(world, 600)
    world.ledger.jobs.upsert(job("train", attempt=1, phase="Running", placed=[("a", [0])]))
    shown = pod("w", on="a", devices=whole("a", 0), worker=("train", 1, 0, "uid-train"))
    start = dt.datetime.fromtimestamp(BEGUN, dt.UTC)
    status = msgspec.structs.replace(shown.status, start_time=start)
    world.ledger.pods.upsert(msgspec.structs.replace(shown, status=status))
    world.decide()
    assert evictions(world, 9999) == []


@pytest.mark.parametrize(("own", "expected"), [({}, 600), ({"activeDeadlineSeconds": 60}, 60)])
def test_a_gpujob_ends_by_the_limit_in_its_status(world, own, expected):
    placed = {"phase": "Running", "placed": [("a", [0])]} | own
    shown = world.with_times(job("train", attempt=1, **placed), startedAt="1970-01-01T00:16:40Z")
    limit = {"seconds": 600, "cohort": "batch"}
    body = msgspec.to_builtins(shown)
    body["status"]["runLimit"] = limit
    world.ledger.jobs.upsert(msgspec.convert(body, type(shown)))
    world.decide()
    (running,) = world.owner.queue.state.running
    assert running.latest_end == BEGUN + expected
