# SPDX-License-Identifier: Apache-2.0
"""The queue on top of the ledger: pending jobs, admissions, and what counts as running."""

import msgspec
import pytest
from extender_builders import gpu_node, job, pod, whole

from gpupack_crds.plan import PlanRefusal, PlanResponse
from gpupack_scheduler.ledger.ledger import Outcome
from gpupack_scheduler.queueing.pending.request import job_id


@pytest.fixture
def full(world):
    """Two nodes of 4 GPUs, all held by one job since it was admitted."""
    world.asks("holder", workers=2, gpus=4)
    world.written("holder")
    return world


def test_a_pending_job_is_admitted_when_gpus_are_released(full):
    assert isinstance(full.asks("next"), PlanRefusal)
    full.ends("holder")
    full.decide()
    assert full.called() == ["next"]
    assert isinstance(full.asks("next"), PlanResponse)


def test_a_job_with_a_request_in_progress_is_not_notified(world):
    world.asks("train")
    assert world.called() == []


def test_the_job_that_was_created_first_is_admitted_first(full):
    full.asks("late", gpus=4, submitted=20)
    full.asks("early", gpus=4, submitted=10)
    full.ends("holder", nodes=["a"])
    full.decide()
    assert full.called() == ["early"]


def test_the_larger_priority_goes_first(full):
    full.asks("ordinary", gpus=4, submitted=10)
    full.asks("urgent", gpus=4, submitted=20, priority=5)
    full.ends("holder", nodes=["a"])
    full.decide()
    assert full.called() == ["urgent"]


def test_a_lower_priority_takes_no_gpus_for_which_a_higher_one_waits(full):
    """However short it has waited: small jobs would take its GPUs one by one."""
    full.asks("urgent", workers=2, gpus=4, priority=5)
    full.ends("holder", nodes=["a"])
    refusal = full.asks("ordinary")
    assert (refusal.reason, "blocked by the reservation of urgent" in refusal.message) == (
        "Reserved",
        True,
    )
    assert isinstance(full.asks("equal", priority=5), PlanResponse)


def test_a_job_that_no_end_would_admit_blocks_no_other_job(full):
    """One GPU of its two nodes is broken: nothing is kept for it."""
    full.ledger.gpus.upsert(gpu_node("b", failed=[3]))
    full.asks("urgent", workers=2, gpus=4, priority=5)
    full.ends("holder", nodes=["a"])
    assert isinstance(full.asks("ordinary"), PlanResponse)


def test_an_admission_that_is_not_used_ends_with_its_plan(full):
    full.asks("absent")
    full.asks("next", submitted=99)
    full.ends("holder", nodes=["a", "b"])
    full.decide()
    assert full.called() == ["absent", "next"]
    full.settle("absent", Outcome.NOT_LANDED)
    full.decide()
    assert (len(full.owner.observed), len(full.free("a")), len(full.free("b"))) == (0, 3, 4)


@pytest.mark.parametrize(
    "change",
    [{"suspend": True}, {"phase": "Failed"}, {"deleted": True}],
    ids=["suspended", "ended", "being deleted"],
)
def test_a_job_that_may_no_longer_wait_is_not_notified(full, change):
    full.asks("next")
    full.ledger.jobs.upsert(job("next", **change))
    full.ends("holder")
    full.decide()
    assert (full.called(), len(full.owner.observed)) == ([], 0)


def test_a_job_that_is_gone_waits_no_longer(full):
    full.ledger.jobs.upsert(job("next"))
    full.asks("next")
    full.ledger.jobs.remove(job("next"))
    full.ends("holder")
    full.decide()
    assert full.called() == []


def test_a_job_that_no_watch_ever_shows_is_forgotten(full):
    full.asks("ghost")
    full.ledger.jobs.upsert(job("real"))
    full.asks("real")
    full.now += 61
    full.owner.forget_unknown()
    assert len(full.owner.observed) == 1


def test_an_edited_job_waits_as_it_is_now_and_only_once(full):
    full.asks("next", priority=0)
    full.asks("next", priority=7)
    full.asks("other", priority=3)
    full.ends("holder", nodes=["a"])
    full.decide()
    assert (full.called()[0], len(full.owner.observed)) == ("next", 0)


def test_a_repeated_request_does_not_restart_the_wait(full):
    full.asks("gang", workers=2, gpus=4, seconds_left=500.0)
    full.now += 301
    full.asks("gang", workers=2, gpus=4, seconds_left=500.0)
    full.ends("holder", nodes=["a"])
    refusal = full.asks("small")
    assert refusal.reason == "Reserved"


@pytest.mark.parametrize(("before", "after"), [(None, 60.0), (600.0, 60.0), (600.0, None)])
def test_a_deadline_that_was_edited_counts_from_then_on(full, before, after):
    full.asks("job", seconds_left=before)
    full.now += 20
    full.asks("job", seconds_left=after)
    (waiting,) = full.owner.queue.jobs()
    assert waiting.duration == after


def test_the_end_of_a_standalone_pod_notifies_pending_jobs(world):
    world.ledger.pods.upsert(pod("p", on="a", devices=whole("a", 0, 1, 2, 3), gpus=4))
    world.ledger.pods.upsert(pod("q", on="b", devices=whole("b", 0, 1, 2, 3), gpus=4))
    world.asks("next", gpus=4)
    world.ledger.pods.remove(pod("p"))
    world.decide()
    assert world.called() == ["next"]


def test_an_attempt_that_ended_runs_until_its_pods_are_gone(world):
    world.ledger.jobs.upsert(job("old", attempt=1, phase="Admitted", placed=[("a", [0, 1, 2, 3])]))
    last = pod("p", on="a", devices=whole("a", 0, 1, 2, 3), gpus=4, worker=("old", 1, 0))
    world.ledger.pods.upsert(last)
    world.decide()
    world.ledger.jobs.upsert(job("old", attempt=1, phase="Pending"))
    world.decide()
    assert world.running() == ["old"]
    world.ledger.pods.remove(last)
    world.decide()
    assert world.running() == []


def test_a_running_job_found_at_the_start_counts_since_its_admission(world):
    """As after a restart of this process."""
    started = {"startedAt": "1970-01-01T00:10:00Z"}
    found = job("old", attempt=2, phase="Running", placed=[("a", [0])], activeDeadlineSeconds=900)
    shown = world.with_times(found, **started)
    status = msgspec.structs.replace(shown.status, active_seconds=300.0)
    world.ledger.jobs.upsert(msgspec.structs.replace(shown, status=status))
    world.decide()
    (running,) = world.owner.queue.state.running
    assert (running.started, running.latest_end) == (600.0, 1200.0)
    assert (running.job.name, running.job.tenant) == ("old", "team")


def test_gpus_of_another_plugin_count_as_those_that_it_took(world):
    world.add_observed_node("o", gpus=4)
    world.ledger.pods.upsert(pod("p", on="o", asking={"nvidia.com/gpu": "3"}))
    world.decide()
    (running,) = world.owner.queue.state.running
    assert [len(place.devices) for place in running.placements] == [3]


def test_the_queue_is_empty_after_the_lease_is_lost(full):
    full.asks("next")
    full.owner.observed.withdraw_all()
    full.ends("holder")
    full.decide()
    assert (full.called(), len(full.owner.observed)) == ([], 0)


def test_a_new_leader_keeps_the_reservations_of_jobs_that_waited_before(full):
    full.asks("gang", workers=2, gpus=4, since=1000)
    full.now += 301
    full.owner.observed.withdraw_all()
    full.asks("gang", workers=2, gpus=4, since=1000)
    full.ends("holder", nodes=["a"])
    assert full.asks("small").reason == "Reserved"


def test_an_edited_job_has_waited_since_it_was_made(full):
    full.asks("next", since=900)
    full.now += 10
    full.asks("next", gpus=2, since=900)
    assert came(full, "next") == 900


def test_a_job_that_was_suspended_for_days_keeps_its_order_and_has_no_reservation(full):
    """It was made before the others, and resumed a second ago."""
    full.asks("others", gpus=4, workers=2, submitted=500, since=999)
    full.asks("parked", gpus=4, workers=2, submitted=1, since=999)
    full.ends("holder", nodes=["a"])
    assert [each.name for each in full.owner.queue.jobs()] == ["parked", "others"]
    assert full.asks("small", since=1000).placement


@pytest.mark.parametrize("since", [None, 2000], ids=["unknown", "by a clock before ours"])
def test_a_job_without_a_known_creation_time_waits_from_now_on(full, since):
    full.asks("next", since=since)
    assert came(full, "next") == 1000


def came(world, name):
    """Since when it waits."""
    return world.owner.queue.state.pending.get(job_id(world.attempt(name))).pending_since


def test_a_job_goes_to_a_node_that_it_avoids_only_if_it_fits_nowhere_else(world):
    answers = [world.asks(name, gpus=4, avoid=["a"]) for name in ("first", "second")]
    assert [answer.placement[0].node for answer in answers] == ["b", "a"]


def test_a_pending_attempt_keeps_its_order_when_avoided_nodes_are_cleared(full):
    full.asks("next", avoid=["a"])
    entry = full.owner.queue.state.pending.get(job_id(full.attempt("next")))
    full.asks("next")
    assert full.owner.queue.state.pending.get(job_id(full.attempt("next"))) is entry
    full.ends("holder")
    full.decide()
    assert full.asks("next").placement[0].node == "b"
