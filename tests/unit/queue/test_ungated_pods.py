# SPDX-License-Identifier: Apache-2.0
"""An ungated pod, which is not in the queue, requests immediate admission."""

from placement_builders import A100, H100, node
from queue_world import World, cohort, limit, quota, with_rules

from gpupack_placement import Gang, Request
from gpupack_placement.feasibility import worker_slots
from gpupack_queue import NO_PREEMPTION, Job, JobId, OrderPolicy, Tenant, Wait, WaitReason
from gpupack_queue.admission import strict_order

MAX_CLASSES_COMPUTED = 64
PATIENCE = with_rules(preemption=NO_PREEMPTION, reserve_after_seconds=10)


def visit(world, gpus=1, tenant="", *, priority=0, starts=False, request=None):
    gang = Gang.of(1, request or Request(gpus=gpus))
    job = Job(JobId("pod"), gang, world.now, Tenant(tenant), priority)
    found = world.queue.try_admit(job, world.cluster, world.now, world.plan)
    if starts and not isinstance(found, Wait):
        world.jobs["pod"] = job
        world._start("pod", found)
    return found


def test_an_ungated_pod_goes_where_a_job_of_its_tenant_could():
    world = World(node("n1", 2), quotas=[quota("a", limit(1, borrowing=0))])
    assert [place.node for place in visit(world, tenant="a")] == ["n1"]
    assert visit(world, 2, "a").reason is WaitReason.UNSATISFIABLE
    assert visit(world, 3).reason is WaitReason.UNSATISFIABLE
    world.runs("own", "n1/0", "a")
    assert visit(world, 1, "a").reason is WaitReason.BORROWING_LIMIT_EXCEEDED
    assert visit(world, 2).reason is WaitReason.DOES_NOT_FIT


def test_an_ungated_pod_takes_no_gpus_reserved_for_a_job_that_has_waited_long():
    world = World(node("n1", 2), node("n2", 2), rules=PATIENCE)
    world.runs("a", "n1/0", duration=100).runs("b", "n2/0", duration=500)
    world.submit("pair", 2).decide(at=20)
    found = visit(world, starts=True)
    assert [place.devices[0].uuid for place in found] == ["n2/1"]
    refused = visit(world)
    assert (refused.reason, refused.message_without_times) == (
        WaitReason.RESERVED,
        "blocked by the reservation of pair; its start time is expected",
    )
    world.end("a").decide(at=100)
    assert "pair" in world.where


def test_an_ungated_pod_takes_no_gpus_of_victims():
    world = World(node("n1", 2), quotas=[quota("owner", 2)], grace=60)
    world.runs("guest1", "n1/0", "guest").runs("guest2", "n1/1", "guest")
    world.submit("mine", 2, "owner").decide(at=10)
    world.end("guest1")
    assert visit(world, tenant="guest").reason is WaitReason.DOES_NOT_FIT


def test_in_strict_order_an_ungated_pod_goes_behind_all_pending_jobs():
    world = World(
        node("n1", 2),
        cohorts=[cohort("strict", order=OrderPolicy.STRICT)],
        quotas=[quota("a", cohort="strict"), quota("b", cohort="strict")],
        rules=PATIENCE,
    )
    world.runs("old", "n1/0", "a").submit("large", 2, "a").decide()
    assert visit(world, tenant="b").reason is WaitReason.BLOCKED_BY_QUEUE_HEAD
    assert not isinstance(visit(world, tenant="c"), Wait)


def test_an_ungated_pod_that_does_not_fit_says_nothing_about_equal_requests():
    """Another component may have narrowed its choice of nodes."""
    world = World(node("n1", 1), rules=PATIENCE)
    plan, world.plan = world.plan, lambda *_: None
    assert visit(world).reason is WaitReason.DOES_NOT_FIT
    world.plan = plan
    assert "job" in world.submit("job").decide().where


def test_no_job_is_preempted_for_an_ungated_pod():
    world = World(node("n1", 1), quotas=[quota("owner", 1)])
    world.runs("guest", "n1/0", "guest")
    world.now = 100.0
    assert visit(world, tenant="owner").reason is WaitReason.DOES_NOT_FIT
    assert world.decide().log == []


def test_an_ungated_pod_takes_no_gpus_of_a_more_urgent_new_job():
    world = World(
        node("n1", 2), rules=with_rules(preemption=NO_PREEMPTION, reserve_after_seconds=1000)
    )
    world.runs("a", "n1/0", duration=50).submit("urgent", 2, priority=5).decide(at=1)
    assert visit(world).reason is WaitReason.RESERVED
    assert not isinstance(visit(world, priority=5), Wait)


def test_in_strict_order_an_ungated_pod_examines_few_classes_at_a_time(monkeypatch):
    """Jobs of 300 classes wait for another model. Their nodes are computed once."""
    world = World(
        node("h", 1), node("a", 1, model=A100), rules=with_rules(order=OrderPolicy.STRICT)
    )
    world.runs("holder", "h/0")
    for number in range(300):
        asked = Request(gpus=1, cpu=number, models=(H100,))
        world.submit(f"job{number}", request=asked, tenant=f"t{number % 5}")
    computed = []
    monkeypatch.setattr(
        strict_order,
        "worker_slots",
        lambda *given, **kw: computed.append(given) or worker_slots(*given, **kw),
    )
    asked = Request(gpus=1, models=(A100,))
    found = [visit(world, request=asked) for _ in range(6)]
    assert len(computed) < 300 + 6 * 3
    assert [place.node for place in found[-1]] == ["a"]
    computed.clear()
    visit(world, request=asked)
    assert len(computed) <= 2
    world.cluster.set_node(node("b", 1, model=A100))
    world.queue.record_node_change("b", world.cluster)
    computed.clear()
    visit(world, request=asked)
    assert len(computed) <= 2 * (MAX_CLASSES_COMPUTED + 2)
