# SPDX-License-Identifier: Apache-2.0
"""When a waiting job starts: now, at a time, when something is released, never, or unknown."""

import re
from dataclasses import replace
from random import Random

import pytest
from placement_builders import node
from queue_world import World, limit, quota, with_rules

from gpupack_placement import Request
from gpupack_queue import (
    NO_PREEMPTION,
    At,
    Never,
    Now,
    OrderPolicy,
    PreemptionRules,
    Unknown,
    Unsatisfied,
    WaitReason,
    WhenReleased,
)
from gpupack_queue.explain.start_estimate import MAX_AHEAD

CALM = with_rules(preemption=NO_PREEMPTION)


def one_node(*, rules=CALM, **kw):
    return World(node("n1", 2), rules=rules, **kw)


def test_the_deadline_of_the_only_holder_bounds_the_start():
    world = one_node().runs("holder", "n1/0 n1/1", duration=200.0)
    assert world.submit("job", 2).decide(at=50).explain("job").start == At(200.0)


def test_a_job_starts_after_those_before_it_have_reached_their_deadlines():
    world = one_node().runs("holder", "n1/0 n1/1", duration=200.0)
    world.submit("first", 2, duration=100.0).submit("second", 2, duration=30.0).submit("job", 1)
    starts = [world.decide().explain(name).start for name in ("first", "second", "job")]
    assert starts == [At(200.0), At(300.0, is_estimated=True), At(330.0, is_estimated=True)]


def test_a_job_that_does_not_touch_earlier_reservations_starts_at_the_same_time():
    world = World(node("n1", 2), node("n2", 1), rules=CALM)
    world.runs("long", "n1/0 n1/1", duration=500.0).runs("short", "n2/0", duration=20.0)
    world.submit("first", 2).submit("job", 1)
    assert world.decide().explain("job").start == At(20.0, is_estimated=True)


def test_in_strict_order_a_job_starts_no_sooner_than_the_first():
    rules = with_rules(preemption=NO_PREEMPTION, order=OrderPolicy.STRICT)
    world = World(node("n1", 2), node("n2", 1), rules=rules)
    world.runs("long", "n1/0 n1/1", duration=500.0).runs("short", "n2/0", duration=20.0)
    world.submit("first", 2).submit("job", 1)
    assert world.decide().explain("job").start == At(500.0, is_estimated=True)


@pytest.mark.parametrize(("since", "certain"), [(0, False), (300, True)])
def test_a_start_is_certain_once_no_other_can_take_a_part_of_what_it_needs(since, certain):
    """A smaller job could take the GPU that is free first, until there is a reservation."""
    world = one_node().runs("one", "n1/0", duration=400.0).runs("two", "n1/1", duration=500.0)
    wait = world.submit("job", 2).decide(at=since).explain("job")
    assert wait.start == At(500.0, is_estimated=not certain)


def one_gpu():
    return World(node("n1", 1), rules=CALM)


def half(world, name, until):
    return world.runs(name, "n1/0", milli=500, memory=40_000, duration=until)


def test_a_start_on_a_half_free_gpu_is_certain_only_with_a_reservation():
    """A job that needs half a GPU could take the free half first."""
    world = half(one_gpu(), "one", 400.0)
    assert world.submit("job").decide().explain("job").start == At(400.0, is_estimated=True)


def test_a_start_after_two_shares_is_certain_only_if_both_end_at_once():
    """The half that ends first could be taken."""
    for first, certain in ((400.0, True), (300.0, False)):
        world = half(half(one_gpu(), "one", first), "two", 400.0)
        start = world.submit("job").decide().explain("job").start
        assert start == At(400.0, is_estimated=not certain)


def test_a_start_that_needs_free_cpus_is_certain_only_with_a_reservation():
    """A pod without a GPU could take them first."""
    world = one_gpu().runs("one", "n1/0", duration=400.0)
    world.submit("job", request=Request(gpus=1, cpu=2000)).decide()
    assert world.explain("job").start == At(400.0, is_estimated=True)


def test_a_start_that_rests_on_learned_durations_says_so():
    world = one_node().runs("holder", "n1/0 n1/1", estimate=300.0)
    wait = world.submit("job", 2).decide().explain("job")
    assert wait.start == At(300.0, is_estimated=True)
    assert wait.message.endswith("it is expected to start at 1970-01-01T00:05:00Z at the latest")


def test_holders_without_a_deadline_are_named_by_the_answer():
    world = World(node("n1", 2), node("n2", 2), rules=CALM)
    world.runs("endless", "n1/0").runs("other", "n2/0 n2/1", duration=60.0)
    world.submit("job", 2, workers=2, request=Request(gpus=2)).decide()
    wait = world.explain("job")
    assert wait.start == WhenReleased(("endless",))
    assert "activeDeadlineSeconds" in wait.remedies[-1]


def test_a_quota_is_waited_for_until_enough_of_its_jobs_have_ended():
    world = World(node("n1", 4), quotas=[quota("a", H100=limit(2, borrowing=0))], rules=CALM)
    world.runs("one", "n1/0", "a", duration=70.0).runs("two", "n1/1", "a", duration=90.0)
    world.submit("job", 2, "a").decide()
    wait = world.explain("job")
    assert (wait.reason, wait.start) == (
        WaitReason.BORROWING_LIMIT_EXCEEDED,
        At(90.0, is_estimated=True),
    )


def test_a_job_that_fits_starts_in_the_next_cycle():
    assert one_node().submit("job").explain("job").start == Now()


@pytest.mark.parametrize("busy", [False, True])
def test_a_model_that_the_cluster_lacks_is_unsatisfiable_whether_or_not_it_is_busy(busy):
    world = one_node()
    if busy:
        world.runs("holder", "n1/0 n1/1", duration=10.0)
    wait = world.submit("job", request=Request(gpus=1, models=("B300",))).decide().explain("job")
    assert (wait.reason, wait.start) == (WaitReason.UNSATISFIABLE, Never(Unsatisfied.NODES))
    assert wait.message == (
        "can never start on these nodes: 0 of 1 node fits: 1 node: model is not B300 "
        "(nearest: NVIDIA H100 80GB HBM3 (80000 MiB)); needs other nodes or another request"
    )
    assert wait.remedies == (
        "nodes with GPUs of model B300 are added, or gpuModels names a model that the cluster has",
    )


NOW = re.compile(r"\bnow\b|\bfree\b|\broom\b")


def test_a_gang_that_the_cluster_can_never_run_is_answered_without_figures_of_now():
    world = one_node().runs("holder", "n1/0", duration=10.0)
    wait = world.submit("job", request=Request(gpus=4), workers=2).decide().explain("job")
    assert wait.message == (
        "can never start on these nodes: gang of 2 workers × 4 GPUs: 0 of 2 workers could ever "  # noqa: RUF001
        "fit; 6 GPUs are missing (2 GPUs in 1 node, 8 requested); 0 of 1 node could run a worker: "
        "1 node: fewer than 4 GPUs that match (most on one node: 2); the gang would fit with 3 "
        "GPUs less for each worker; needs other nodes or another request"
    )
    assert not any(NOW.search(text) for text in (wait.message, *wait.remedies))


@pytest.mark.parametrize(
    ("request_", "best"),
    [
        (Request(gpus=4), "fewer than 4 GPUs that match (most on one node: 2)"),
        (Request(gpus=1, cpu=2000), "fewer than 2000 milli-CPU (most on one node: 1000)"),
        (
            Request(gpus=1, memory=10**9 + 1),
            "less than 1000000001 MiB of memory (most on one node: ",
        ),
    ],
    ids=["GPUs", "CPU", "memory"],
)
def test_the_answer_for_a_job_that_never_fits_names_the_best_node(request_, best):
    world = World(node("n1", 2, cpu=1000), rules=CALM).runs("holder", "n1/0", duration=10.0)
    wait = world.submit("job", request=request_).decide().explain("job")
    assert wait.message.startswith("can never start on these nodes: 0 of 1 node fits: ")
    assert best in wait.message
    assert not any(NOW.search(text) for text in (wait.message, *wait.remedies))


def test_a_request_beyond_the_whole_quota_is_unsatisfiable():
    world = World(node("n1", 8), quotas=[quota("a", H100=limit(2, borrowing=1))], rules=CALM)
    wait = world.submit("job", 4, "a").decide().explain("job")
    assert (wait.reason, wait.start) == (WaitReason.UNSATISFIABLE, Never(Unsatisfied.QUOTA))
    assert wait.message == (
        "can never start within its quota: 4 GPUs requested, namespace a may use at most 3 GPUs of "
        "these models; needs a larger quota or a smaller request"
    )


def test_the_start_estimate_of_a_lent_quota_names_the_preemption():
    rules = with_rules(preemption=PreemptionRules(min_runtime_seconds=60, retry_seconds=5))
    world = World(node("n1", 2), quotas=[quota("owner", 2)], rules=rules)
    world.runs("x", "n1/0", "guest").decide(at=20).runs("y", "n1/1", "guest")
    wait = world.submit("job", 2, "owner").decide(at=30).explain("job")
    assert (wait.reason, wait.start) == (WaitReason.DOES_NOT_FIT, WhenReleased(preempts_at=80.0))
    assert wait.message.endswith(
        "preemption for it begins at 1970-01-01T00:01:20Z at the latest, and it starts when the "
        "preempted jobs have terminated"
    )
    world.decide(at=80)
    assert world.log[-2:] == ["job stops x y", "job starts"]


def test_victims_that_terminate_are_waited_for():
    world = World(node("n1", 1), quotas=[quota("owner", 1)], grace=60)
    world.runs("x", "n1/0", "guest").submit("job", 1, "owner").decide(at=10)
    assert world.explain("job").start == WhenReleased(("x",), preempting=True)


def test_behind_too_many_jobs_the_start_is_unknown():
    world = one_node().runs("holder", "n1/0 n1/1", duration=200.0)
    for number in range(MAX_AHEAD + 1):
        world.submit(f"job{number}", 2, duration=1.0)
    world.decide()
    assert world.explain(f"job{MAX_AHEAD - 1}").start == At(199.0 + MAX_AHEAD, is_estimated=True)
    assert world.submit("last", 2).decide().explain("last").start == Unknown(
        f"more than {MAX_AHEAD} jobs and pods wait before it"
    )


def test_a_start_that_waits_for_maintenance_has_no_known_time():
    world = one_node().runs("holder", "n1/0", duration=100.0).maintain("n1/1")
    assert isinstance(world.submit("job", 2).decide().explain("job").start, Unknown)


@pytest.mark.parametrize("seed", range(60))
def test_no_job_starts_later_than_it_said(seed):
    """All jobs have deadlines and use them up; none comes later. The queue is asked at each end."""
    random = Random(seed)
    rules = with_rules(preemption=NO_PREEMPTION, reserve_after_seconds=0, by_share=False)
    world = World(node("n1", 4), node("n2", 2), quotas=_quotas(random), rules=rules)
    ends, promised, number = {}, {}, 0
    for number in range(14):
        width = random.choice([1, 1, 2, 4])
        world.submit(
            f"j{number}", width, random.choice("ab"), duration=float(random.randint(5, 60))
        )
    world.decide()
    while world.queue.jobs() or ends:
        ends |= {
            name: world.now + world.jobs[name].duration
            for name in world.running
            if name not in ends
        }
        for job in world.queue.jobs():
            start = world.explain(job.id).start
            if isinstance(start, At) and not start.is_estimated:
                promised[job.id] = min(start.at, promised.get(job.id, start.at))
        if not ends:
            break
        name = min(ends, key=lambda each: (ends[each], each))
        at = ends.pop(name)
        before = set(world.running)
        world.now = at
        world.end(name).decide(at=at)
        late = {
            n: (at, promised[n]) for n in set(world.running) - before if at > promised.get(n, at)
        }
        assert not late
    assert promised


def _quotas(random):
    if random.random() < 0.5:
        return ()
    return (quota("a", 3), replace(quota("b", 2), cohort=quota("a").cohort))
