# SPDX-License-Identifier: Apache-2.0
"""Preemption: decided, recorded, kept, given up."""

import dataclasses

import msgspec
import pytest
from extender_builders import World, job, node, pod, whole

from gpupack_crds.gpujob_status import Preemption
from gpupack_crds.kinds import GpuQuota
from gpupack_crds.placement import by_worker
from gpupack_crds.plan import PlanRefusal, PlanResponse
from gpupack_scheduler.ledger import claims
from gpupack_scheduler.ledger.placed_job import PlacedJob
from gpupack_scheduler.queueing import admissions
from gpupack_scheduler.queueing.settings import QueueSettings

AT_ONCE = {"minRunSeconds": 0, "victimTimeoutSeconds": 100}


def settings(**preemption):
    return msgspec.convert({"preemption": AT_ONCE | preemption}, QueueSettings)


@pytest.fixture
def world():
    """One node of 4 GPUs, which namespace `guest` has borrowed; `team` has a quota of 2 of them."""
    built = World()
    built.decisions = dataclasses.replace(built.decisions, queue=settings())
    built.use(built.new_ledger())
    built.add_node("a")
    promise(built)
    for name in ("one", "two"):
        built.asks(name, gpus=2, namespace="guest")
        built.written(name, namespace="guest")
        built.now += 10
    return built


def promise(world):
    meta = {"name": "default", "namespace": "team", "uid": "q", "resourceVersion": "1"}
    spec = {"gpus": [{"model": "*", "nominal": 2}]}
    world.quotas.quotas.upsert(msgspec.convert({"metadata": meta, "spec": spec}, GpuQuota))


def pending(name, preemption, **shown):
    """Build the preemptor with the preemption in its status."""
    built = msgspec.json.decode(msgspec.json.encode(job(name, **shown)))
    if preemption is not None:
        built["status"]["preemption"] = msgspec.to_builtins(preemption)
    return msgspec.json.decode(msgspec.json.encode(built), type=PlacedJob)


def test_the_answer_names_the_victims_and_the_placement(world):
    refusal = world.asks("mine", gpus=2)
    assert isinstance(refusal, PlanRefusal)
    assert (refusal.reason, refusal.expires_seconds) == ("PreemptionPending", 10.0)
    (victims,) = refusal.preemption.victims
    assert (victims.reason, victims.attempts) == ("InCohortReclamation", ("uid-two/1",))
    (place,) = by_worker(refusal.preemption.placement)
    assert (place.node, len(place.devices)) == ("a", 2)
    assert refusal.preemption.names("uid-two", 1) == "InCohortReclamation"
    assert refusal.preemption.names("uid-one", 1) is None


def test_no_job_is_preempted_for_a_job_that_would_still_not_fit(world):
    assert world.asks("large", gpus=8).preemption is None


def test_once_the_victim_is_gone_the_beneficiary_runs_there(world):
    preemption = world.asks("mine", gpus=2).preemption
    world.ledger.jobs.upsert(pending("mine", preemption))
    world.ends("two", namespace="guest")
    world.asks("thief", gpus=2, namespace="guest", submitted=0)
    world.decide()
    assert world.called() == ["mine"]
    answer = world.asks("mine", gpus=2)
    assert isinstance(answer, PlanResponse)
    assert answer.placement == preemption.placement


def test_a_preemption_that_is_not_recorded_expires(world):
    world.asks("mine", gpus=2)
    world.now += 11
    world.decide()
    world.ends("one", namespace="guest")
    world.decide()
    assert world.called()[-1] == "mine"
    assert isinstance(world.asks("mine", gpus=2), PlanResponse)


def test_a_recorded_preemption_does_not_expire(world):
    preemption = world.asks("mine", gpus=2).preemption
    world.ledger.jobs.upsert(pending("mine", preemption))
    world.now += 60
    world.decide()
    assert world.asks("mine", gpus=2).preemption == preemption


def test_after_a_restart_the_reservation_belongs_to_the_preemptor_in_the_status(world):
    preemption = world.asks("mine", gpus=2).preemption
    after = World()
    after.decisions = world.decisions
    after.use(after.new_ledger())
    after.add_node("a")
    promise(after)
    for name in ("one", "two"):
        held = world.ledger.plan_of(world.attempt(name, namespace="guest"))
        after.shows(name, held, namespace="guest")
    after.ledger.jobs.upsert(pending("mine", preemption))
    again = after.asks("mine", gpus=2)
    assert (again.reason, again.preemption.victims) == ("PreemptionPending", preemption.victims)
    assert again.preemption.placement == preemption.placement
    after.ends("two", namespace="guest")
    after.asks("thief", gpus=2, namespace="guest", submitted=0)
    after.decide()
    assert after.called() == ["mine"]


def test_a_victim_that_does_not_end_is_left_alone_and_another_way_is_taken(world, caplog):
    preemption = world.asks("mine", gpus=2).preemption
    world.ledger.jobs.upsert(pending("mine", preemption))
    world.now += 131
    world.decide()
    assert "uid-two/1 were to end and did not" in caplog.text
    (victims,) = world.asks("mine", gpus=2).preemption.victims
    assert victims.attempts == ("uid-one/1",)


def test_a_deleted_preemptor_keeps_no_reservation(world):
    preemption = world.asks("mine", gpus=2).preemption
    world.ledger.jobs.upsert(pending("mine", preemption))
    world.ledger.jobs.remove(pending("mine", preemption))
    world.ends("two", namespace="guest")
    world.decide()
    assert isinstance(world.asks("next", gpus=2, namespace="guest"), PlanResponse)


def test_a_preemption_reason_of_a_newer_release_preempts_no_job(world):
    preemption = world.asks("mine", gpus=2).preemption
    built = msgspec.to_builtins(preemption)
    built["victims"][0]["reason"] = "Newest"
    shown = msgspec.to_builtins(job("mine"))
    shown["status"]["preemption"] = built
    world.ledger.jobs.upsert(msgspec.json.decode(msgspec.json.encode(shown), type=PlacedJob))
    world.decide()
    assert isinstance(world.asks("mine", gpus=2), PlanRefusal)


def test_a_disabled_policy_preempts_no_job():
    other = World()
    other.decisions = dataclasses.replace(
        other.decisions, queue=settings(reclaim=False, fairShare=False, priority=False)
    )
    other.use(other.new_ledger())
    other.add_node("a")
    promise(other)
    other.asks("one", gpus=4, namespace="guest")
    other.written("one", namespace="guest")
    other.now += 10
    assert other.asks("mine", gpus=2).preemption is None


def test_the_preemption_is_what_the_status_takes(world):
    preemption = world.asks("mine", gpus=2).preemption
    written = msgspec.json.decode(msgspec.json.encode(preemption), type=Preemption)
    assert written == preemption


def test_an_incomplete_placement_of_a_preemptor_is_not_reserved(world):
    preemption = world.asks("mine", gpus=2).preemption
    short = msgspec.structs.replace(preemption, placement=())
    world.owner.observed.withdraw_all()
    world.ledger.jobs.upsert(pending("mine", short))
    refusal = world.asks("mine", gpus=2)
    assert refusal.preemption.placement == preemption.placement


def test_a_preemption_that_was_given_up_does_not_come_back_from_its_status(world):
    preemption = world.asks("mine", gpus=2).preemption
    world.ledger.jobs.upsert(pending("mine", preemption))
    world.now += 131
    world.decide()
    again = world.asks("mine", gpus=2).preemption
    assert again.victims != preemption.victims
    world.ledger.jobs.upsert(pending("mine", preemption))
    world.now += 11
    world.decide()
    assert world.asks("mine", gpus=2).preemption.victims != preemption.victims


def test_a_victim_whose_pods_go_one_by_one_counts_no_more_and_is_waited_for(world):
    world = World()
    world.decisions = dataclasses.replace(world.decisions, queue=settings())
    world.use(world.new_ledger())
    world.add_node("a", gpus=8)
    promise(world)
    world.asks("gang", workers=4, gpus=2, namespace="guest")
    world.written("gang", namespace="guest")
    claims_of = world.ledger.plan_of(world.attempt("gang", namespace="guest"))
    pods = [
        pod(
            f"p{index}",
            gpus=2,
            on="a",
            devices=claims.shares(claim.placement),
            worker=("gang", 1, index),
            namespace="guest",
        )
        for index, claim in enumerate(claims_of)
    ]
    for each in pods:
        world.ledger.pods.upsert(each)
    world.now += 10
    preemption = world.asks("mine", gpus=2).preemption
    world.ledger.jobs.upsert(pending("mine", preemption))
    world.ledger.jobs.upsert(job("gang", attempt=1, phase="Pending", namespace="guest"))
    for each in pods:
        world.decide()
        assert "gang" in world.running()
        world.ledger.pods.remove(each)
    world.decide()
    quota = world.owner.queue.state.quota
    assert not any(quota.usage.used_by(quota.tree.tenant("guest")).values())
    assert world.called()[-1] == "mine"


def restarted(world, shown, *, runs=("one",), **node):
    """Start a process after the victim has ended and before the preemptor's next request."""
    after = World()
    after.decisions = world.decisions
    after.use(after.new_ledger())
    after.add_node("a", **node)
    promise(after)
    for name in runs:
        held = world.ledger.plan_of(world.attempt(name, namespace="guest"))
        after.shows(name, held, namespace="guest")
    after.ledger.jobs.upsert(shown)
    return after


def borrowed(world, tenant):
    """Milli-GPU that count against quotas."""
    quota = world.owner.queue.state.quota
    return sum(quota.usage.used_by(quota.tree.tenant(tenant)).values())


def test_after_a_restart_no_earlier_request_gets_the_gpus_of_a_preemptor(world):
    preemption = world.asks("mine", gpus=2).preemption
    after = restarted(world, pending("mine", preemption))
    assert isinstance(after.asks("thief", gpus=2, namespace="guest", submitted=0), PlanRefusal)
    assert (borrowed(after, "team"), borrowed(after, "guest")) == (2000, 2000)
    answer = after.asks("mine", gpus=2)
    assert isinstance(answer, PlanResponse)
    assert answer.placement == preemption.placement
    assert (borrowed(after, "team"), borrowed(after, "guest")) == (2000, 2000)


def test_after_a_restart_the_planned_pod_s_cpu_and_other_resources_are_kept_too(world):
    """Of 32 CPUs and two network devices nothing is left for a job of one GPU that asks first."""
    rdma = {"rdma/hca": 2}
    requests = {"cpu": "31", "memory": "8Gi", "rdma/hca": "2"}
    pod_spec = {"containers": [{"name": "worker", "resources": {"requests": requests}}]}
    world.ledger.nodes.upsert(node("a", **rdma))
    preemption = world.asks("mine", gpus=1, pod_spec=pod_spec).preemption
    mine = pending("mine", preemption, planned={"spec": pod_spec})
    after = restarted(world, mine, runs=(), **rdma)
    after.decide()
    (kept,) = after.owner.queue.state.reserved.values()
    place = kept.placements[0]
    assert (place.cpu, place.memory, place.extended) == (31_000, 8192, (("rdma/hca", 2),))
    small = {"containers": [{"name": "worker", "resources": {"requests": {"cpu": "2"}}}]}
    assert isinstance(after.asks("thief", gpus=1, pod_spec=small, submitted=0), PlanRefusal)


def test_a_victim_that_runs_on_is_counted_once_before_and_after_the_beneficiary_asks(world):
    preemption = world.asks("mine", gpus=2).preemption
    after = restarted(world, pending("mine", preemption), runs=("one", "two"))
    after.decide()
    assert (borrowed(after, "team"), borrowed(after, "guest")) == (2000, 2000)
    assert after.asks("mine", gpus=2).preemption.victims == preemption.victims
    assert (borrowed(after, "team"), borrowed(after, "guest")) == (2000, 2000)
    after.ends("two", namespace="guest")
    assert after.asks("mine", gpus=2).placement == preemption.placement


def test_a_leader_that_pauses_keeps_the_reservation(world):
    preemption = world.asks("mine", gpus=2).preemption
    world.ledger.jobs.upsert(pending("mine", preemption))
    world.ends("two", namespace="guest")
    world.owner.observed.withdraw_all()
    assert isinstance(world.asks("thief", gpus=2, namespace="guest", submitted=0), PlanRefusal)
    world.owner.restart()
    assert isinstance(world.asks("thief", gpus=2, namespace="guest", submitted=0), PlanRefusal)
    assert world.asks("mine", gpus=2).placement == preemption.placement


@pytest.mark.parametrize("end", ["gone", "suspended", "unsaid", "late"])
def test_the_reservation_of_a_preemptor_without_requests_expires(world, end):
    preemption = world.asks("mine", gpus=2).preemption
    after = restarted(world, pending("mine", preemption))
    after.decide()
    if end == "gone":
        after.ledger.jobs.remove(job("mine"))
    elif end == "suspended":
        after.ledger.jobs.upsert(job("mine", suspend=True))
    elif end == "unsaid":
        after.ledger.jobs.upsert(pending("mine", None))
    else:
        after.now += 131
        after.decide()
        after.ledger.jobs.upsert(pending("mine", preemption))
    assert isinstance(after.asks("next", gpus=2, namespace="guest"), PlanResponse)
    assert (borrowed(after, "team"), borrowed(after, "guest")) == (0, 4000)


def test_a_preemptor_with_another_request_after_a_restart_waits_like_others(world):
    preemption = world.asks("mine", gpus=2).preemption
    after = restarted(world, pending("mine", preemption))
    after.decide()
    assert isinstance(after.asks("mine", gpus=2, workers=2), PlanRefusal)
    assert isinstance(after.asks("next", gpus=2, namespace="guest"), PlanResponse)


def test_a_pod_that_is_to_end_waits_for_the_beneficiary_to_ask(world):
    preemption = world.asks("mine", gpus=2).preemption
    built = msgspec.to_builtins(preemption)
    built["victims"] = [{"reason": "InCohortReclamation", "attempts": ["pod/uid-notebook"]}]
    after = restarted(world, pending("mine", msgspec.convert(built, Preemption)))
    after.ledger.pods.upsert(
        pod("notebook", on="a", devices=whole("a", 2, 3), namespace="guest", uid="uid-notebook")
    )
    after.decide()
    assert not list(after.owner.evictions())
    assert after.asks("mine", gpus=2).reason == "PreemptionPending"
    assert [each.name for each in after.owner.evictions()] == ["notebook"]


@pytest.mark.parametrize("is_pending", [True, False], ids=["submitted", "not submitted"])
@pytest.mark.parametrize(("seconds", "is_kept"), [(69, True), (71, False)])
def test_a_restart_neither_shortens_nor_lengthens_the_time_of_the_victims(
    world, is_pending, seconds, is_kept
):
    """The victim's grace period of 30 s and the timeout of 100 s began with the decision."""
    preemption = world.asks("mine", gpus=2).preemption
    after = restarted(world, pending("mine", preemption), runs=("one", "two"))
    after.now = world.now + 60
    after.decide()
    if is_pending:
        assert after.asks("mine", gpus=2).preemption == preemption
    after.now += seconds
    after.decide()
    assert ("uid-two/1" in after.owner.queue.state.stuck) != is_kept


def test_a_preemptor_has_time_to_be_submitted_after_a_long_restart(world):
    """Its victim has ended, and no process led for longer than the timeout."""
    preemption = world.asks("mine", gpus=2).preemption
    after = restarted(world, pending("mine", preemption))
    after.now = world.now + 1000
    after.decide()
    assert isinstance(after.asks("thief", gpus=2, namespace="guest", submitted=0), PlanRefusal)
    assert after.asks("mine", gpus=2).placement == preemption.placement


@pytest.mark.parametrize("since", ["", "yesterday", "2999-01-01T00:00:00Z", "1970-01-01T00:00:00"])
def test_a_time_that_cannot_be_right_counts_as_the_time_of_the_restart(world, since):
    preemption = world.asks("mine", gpus=2).preemption
    shown = msgspec.structs.replace(preemption, since=since)
    after = restarted(world, pending("mine", shown), runs=("one", "two"))
    after.now = world.now
    after.decide()
    after.now += 129
    after.decide()
    assert "uid-mine/1" in after.owner.queue.state.reserved
    after.now += 2
    after.decide()
    assert "uid-two/1" in after.owner.queue.state.stuck


def test_a_preemption_is_discarded_with_an_admission_that_is_held_back(world, monkeypatch):
    """It was planned with the admission in place; the next cycle decides again."""
    world.decisions = dataclasses.replace(world.decisions, queue=settings(minRunSeconds=100))
    world.use(world.new_ledger())
    world.add_node("a")
    promise(world)
    for name in ("one", "two"):
        world.asks(name, gpus=2, namespace="guest")
        world.written(name, namespace="guest")
    assert world.asks("mine", gpus=2).preemption is None
    assert isinstance(world.asks("other", namespace="guest"), PlanRefusal)
    world.now += 101
    world.add_node("c", gpus=1)
    mine = world.attempt("mine")
    monkeypatch.setattr(admissions, "MAX_UNWRITTEN", 0)
    world.owner.decide()
    assert (world.called(), world.owner.preemption(mine)) == ([], None)
    monkeypatch.undo()
    world.decide()
    assert set(world.called()) == {"mine", "other"}
    assert world.owner.preemption(mine) is not None
