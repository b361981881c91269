# SPDX-License-Identifier: Apache-2.0
"""Jobs that can never start, and jobs that nothing known lets start, hold no other job back."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st
from placement_builders import A100, node
from placement_strategies import cases
from queue_strategies import asks
from queue_world import World, cohort, limit, quota, with_rules
from test_ungated_pods import visit

from gpupack_placement import Request
from gpupack_queue import (
    NO_PREEMPTION,
    Never,
    OrderPolicy,
    Quotas,
    Unsatisfied,
    WaitReason,
    WhenReleased,
)

TYPO = Request(gpus=1, models=("H300",))
EASY = with_rules(preemption=NO_PREEMPTION, by_share=False, reserve_after_seconds=0)
IMPOSSIBLE = (
    {"request": TYPO},
    {"request": Request(gpus=9)},
    {"gpus": 8, "workers": 3},
    {"request": Request(gpus=1, cpu=10**6)},
    {"gpus": 4, "tenant": "poor"},
)
"""A model that the cluster lacks, too many GPUs for a node, too many for all nodes, too many CPUs,
and more than the quota allows."""


def stream(rules, impossible, *, until=3000, holders=()):
    """`large` needs all of n1. Jobs of one GPU keep coming. Return when it starts, or None."""
    world = World(node("n1"), quotas=[quota("poor", limit(2, borrowing=0))], rules=rules)
    for uuid in holders:
        world.runs(f"on-{uuid}", uuid, duration=inf)
    for number, kw in enumerate(impossible):
        world.submit(f"never{number}", duration=600.0, priority=9, **kw)
    ends, small = {}, 0
    for now in range(0, until, 50):
        world.now = float(now)
        for name in [name for name, at in ends.items() if at <= now]:
            del ends[name]
            world.end(name)
        while small < 8 + now // 50:
            world.submit(f"small{small}", tenant="b", duration=600.0 + 75 * (small % 3))
            small += 1
        if now == 50:
            world.submit("large", 8, "a", duration=600.0)
        world.decide()
        if "large" in world.running:
            return now
        for name in world.running.keys() - ends.keys():
            if name.startswith("small"):
                ends[name] = now + world.jobs[name].duration
    return None


@pytest.mark.parametrize("count", [1, 4, 5, 12])
@pytest.mark.parametrize("maximum", [1, 2, 4])
def test_a_job_starts_at_the_same_time_with_any_number_of_impossible_jobs(count, maximum):
    rules = with_rules(reserve_after_seconds=300, max_reservations=maximum)
    many = [IMPOSSIBLE[number % len(IMPOSSIBLE)] for number in range(count)]
    alone = stream(rules, [])
    assert alone is not None
    assert stream(rules, many) == alone


def test_an_urgent_job_has_a_reservation_before_its_time_in_spite_of_impossible_jobs():
    world = World(node("n1", 2), rules=with_rules(preemption=NO_PREEMPTION))
    world.runs("a", "n1/0", duration=50)
    for number in range(6):
        world.submit(f"never{number}", tenant=f"t{number}", request=TYPO, priority=7)
    world.submit("urgent", 2, priority=5).submit("low").decide(at=1)
    assert world.explain("low").reason is WaitReason.RESERVED


@pytest.mark.parametrize("workers", range(1, 7))
def test_jobs_that_only_endless_jobs_prevent_leave_reservations_to_others(workers):
    """Services hold a GPU of n1 and of n2 forever; n3 becomes free."""
    world = World(node("n1", 4), node("n2", 4), node("n3", 2, model=A100), rules=EASY)
    world.runs("s1", "n1/0", duration=inf).runs("s2", "n2/0", duration=inf)
    world.runs("a", "n3/0", duration=100)
    for number in range(workers):
        h100 = Request(gpus=4, cpu=number, models=("H100",))
        world.submit(f"blocked{number}", request=h100)
    pair = Request(gpus=2, models=("A100",))
    world.submit("pair", request=pair).submit("long", request=Request(gpus=1, models=("A100",)))
    world.decide(at=1)
    assert world.explain("long").blocked_by == "pair"
    assert world.end("a").decide(at=100).where["pair"] == "n3/0 n3/1"


def test_jobs_of_many_different_requests_behind_notebooks_do_not_stop_other_jobs_for_long():
    rules = with_rules(preemption=NO_PREEMPTION, reserve_after_seconds=0)
    world = World(node("n1", 2), node("n2", 2), rules=rules)
    world.runs("notebook1", "n1/0", duration=inf).runs("notebook2", "n2/0", duration=inf)
    for number in range(200):
        asked = Request(gpus=2, cpu=1 + number)
        world.submit(f"large{number}", request=asked, tenant="many", duration=600.0)
    world.submit("small", 1, "other", duration=60.0)
    admitted = (world.queue.cycle(world.cluster, 0.0, world.plan).admitted for _ in range(30))
    assert [admit.job for found in admitted for admit in found][:1] == ["small"]


@pytest.mark.parametrize("kw", IMPOSSIBLE)
@pytest.mark.parametrize("scope", ["cohort", "cluster"])
def test_in_strict_order_an_impossible_job_blocks_no_other_job(kw, scope):
    strict = OrderPolicy.STRICT
    tenants = ("poor", "b") if kw.get("tenant") else ("a", "b")
    limits = limit(2, borrowing=0) if kw.get("tenant") else 8
    world = World(
        node("n1"),
        cohorts=[cohort("line", order=strict)] if scope == "cohort" else [],
        quotas=[
            quota(tenants[0], limits, cohort="line" if scope == "cohort" else ""),
            quota("b", 8, cohort="line" if scope == "cohort" else ""),
        ],
        rules=with_rules(order=strict) if scope == "cluster" else with_rules(),
    )
    world.submit("never", **({"tenant": tenants[0]} | kw), priority=3)
    world.submit("own", tenant=tenants[0]).submit("other", tenant="b").decide()
    assert sorted(world.where) == ["other", "own"]
    wait = world.explain("never")
    assert (wait.reason, type(wait.start)) == (WaitReason.UNSATISFIABLE, Never)
    assert "; needs " in wait.message


def test_an_impossible_job_counts_again_when_a_node_that_fits_it_is_added():
    world = World(node("n1", 1), rules=with_rules(order=OrderPolicy.STRICT))
    world.runs("old", "n1/0", duration=100.0)
    world.submit("pair", 2).submit("next").decide(at=1)
    assert world.explain("next").reason is WaitReason.DOES_NOT_FIT
    world.cluster.set_node(node("n2", 2))
    world.queue.record_node_change("n2", world.cluster)
    assert world.decide(at=2).where["pair"] == "n2/0 n2/1"


def test_an_impossible_job_counts_again_when_its_quota_allows_it():
    world = World(node("n1", 4), quotas=[quota("a", limit(1, borrowing=0))])
    world.submit("job", 2, "a").decide()
    assert world.explain("job").start == Never(Unsatisfied.QUOTA)
    world.queue.configure(Quotas((quota("a", limit(2, borrowing=0)),)), world.cluster, 1.0)
    assert world.decide(at=1).where["job"] == "n1/0 n1/1"


def test_a_job_that_fits_only_on_a_model_that_its_quota_forbids_can_never_start():
    quotas = [quota("a", H100=limit(0, borrowing=0), A100=limit(8))]
    world = World(node("n1", 4), node("n2", 2, model=A100), quotas=quotas)
    wait = world.submit("job", 4, "a").decide().explain("job")
    assert wait.start == Never(Unsatisfied.QUOTA)
    assert wait.message == (
        "can never start within its quota: namespace a may use GPUs only of models that it does "
        "not fit on; needs a larger quota or a smaller request"
    )
    assert wait.remedies == ("a larger GPUQuota of its namespace allows 4 GPUs",)


def strict_models(*, cohorts=True):
    rules = with_rules() if cohorts else with_rules(order=OrderPolicy.STRICT)
    names = {"cohort": "line"} if cohorts else {}
    world = World(
        node("h", 2),
        node("a", 2, model=A100),
        cohorts=[cohort("line", order=OrderPolicy.STRICT)] if cohorts else [],
        quotas=[quota("x", H100=2, A100=2, **names), quota("y", A100=2, H100=2, **names)],
        rules=rules,
    )
    return world.runs("holder", "h/0 h/1", "x").submit(
        "first", tenant="x", request=Request(gpus=1, models=("H100",))
    )


@pytest.mark.parametrize("tenant", ["x", "y"])
@pytest.mark.parametrize("cohorts", [False, True])
def test_strict_order_holds_among_jobs_that_compete_for_the_same_devices(tenant, cohorts):
    world = strict_models(cohorts=cohorts)
    world.submit("idle", tenant=tenant, request=Request(gpus=1, models=("A100",)))
    world.submit("any", tenant=tenant).submit("more", tenant=tenant).decide()
    assert world.where["idle"] == "a/0"
    assert world.explain("any").reason is WaitReason.BLOCKED_BY_QUEUE_HEAD
    assert not {"any", "more"} & world.where.keys()


def test_an_ungated_pod_passes_a_strict_queue_head_that_waits_for_other_devices():
    world = strict_models().decide()
    found = visit(world, tenant="y", request=Request(gpus=1, models=("A100",)))
    assert [place.node for place in found] == ["a"]
    assert visit(world, tenant="y").reason is WaitReason.BLOCKED_BY_QUEUE_HEAD


def notebooks(duration, *, nodes=2, gpus=8, large=1, rules=EASY):
    """A notebook on each node; jobs that need whole nodes wait."""
    world = World(*(node(f"n{i}", gpus) for i in range(nodes)), rules=rules)
    for i in range(nodes):
        world.runs(f"notebook{i}", f"n{i}/0", "svc", preemptible=False, duration=duration)
    for i in range(large):
        world.submit(f"large{i}", gpus, "team")
    return world.decide(at=1)


@pytest.mark.parametrize("duration", [None, inf])
@pytest.mark.parametrize(("nodes", "gpus", "large"), [(2, 8, 1), (4, 8, 4), (3, 2, 6)])
def test_behind_notebooks_jobs_with_a_deadline_use_every_idle_gpu(duration, nodes, gpus, large):
    world = notebooks(duration, nodes=nodes, gpus=gpus, large=large)
    idle = nodes * (gpus - 1)
    for number in range(idle):
        world.submit(f"small{number}", tenant="team", duration=3600.0)
    world.decide(at=500)
    assert sum(name.startswith("small") for name in world.where) == idle


def test_a_job_that_waits_for_notebooks_says_what_holds_its_gpus_and_what_would_help():
    wait = notebooks(inf, rules=with_rules()).explain("large0")
    assert wait.start == WhenReleased(("notebook0",))
    assert "no start time is known: 1 job or pod without a deadline" in wait.message
    assert any("consolidation" in text for text in wait.remedies)
    assert any("nominal quota" in text for text in wait.remedies)


def test_a_job_without_a_deadline_takes_no_gpus_of_a_head_that_waits_for_an_unknown_end():
    world = notebooks(None).submit("endless", tenant="team").decide(at=2)
    taken = world.where["endless"].partition("/")[0]
    world.submit("more", 7, "team").decide(at=3)
    assert (taken, world.explain("more").blocked_by) == ("n1", "large0")


def test_once_a_job_without_a_deadline_has_ended_no_job_passes_the_head_that_waited_for_it():
    """The head then waits only for jobs with deadlines, and starts when they have ended."""
    world = World(node("n1", 3), rules=EASY)
    world.runs("unknown", "n1/0").submit("large", 3)
    world.submit("short", duration=100.0).decide(at=1)
    assert "short" in world.where
    world.end("unknown").submit("next", duration=100.0).submit("last", duration=300.0)
    world.decide(at=2)
    assert "last" not in world.where
    assert world.explain("large").start.at == 101
    for name in ("short", "next"):
        if name in world.where:
            world.end(name)
    assert "large" in world.decide(at=101).where


def replayed(rules, jobs, impossible, *, ends_at=200):
    """Return the start of each job; all durations are exact."""
    world = World(node("n1", 3), node("n2", 2, model=A100), node("n3", 2), rules=rules)
    arriving = sorted(enumerate(jobs), key=lambda of: of[1]["at"])
    ends, started, failing = {}, {}, list(impossible)
    for now in range(ends_at):
        world.now = float(now)
        for name in [name for name, at in ends.items() if at <= now]:
            del ends[name]
            world.end(name)
        while failing and failing[0] <= now:
            failing.pop(0)
            name = f"never{len(world.jobs)}"
            kw = IMPOSSIBLE[len(world.jobs) % 4]
            world.submit(name, priority=len(world.jobs) % 3, duration=3.0, **kw)
        while arriving and arriving[0][1]["at"] <= now:
            number, ask = arriving.pop(0)
            given_by = {key: value for key, value in ask.items() if key != "at"}
            world.submit(f"j{number}", **given_by | {"duration": ask["duration"] or 4.0})
        world.decide()
        for name in world.running.keys() - started.keys():
            started[name] = now
            ends[name] = now + world.jobs[name].duration
    return started


arrivals = st.lists(
    st.builds(lambda ask, at: {**ask, "at": at}, asks, st.integers(0, 12)), max_size=10
)


@cases
@given(
    arrivals,
    st.lists(st.integers(0, 12), min_size=1, max_size=8).map(sorted),
    st.builds(
        with_rules,
        order=st.sampled_from(OrderPolicy),
        reserve_after_seconds=st.sampled_from([0, 5]),
        max_reservations=st.integers(1, 3),
        preemption=st.just(NO_PREEMPTION),
    ),
)
def test_a_job_that_can_never_run_changes_no_other_start_time(jobs, impossible, rules):
    assert replayed(rules, jobs, impossible, ends_at=60) == replayed(rules, jobs, [], ends_at=60)


@cases
@given(
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from([None, inf, 5.0, 20.0])), max_size=6),
    st.lists(st.tuples(st.integers(1, 3), st.sampled_from([None, 3.0, 8.0])), max_size=6),
)
def test_no_gpu_is_idle_that_a_job_could_use_which_ends_before_the_first_reservation(held, jobs):
    """By brute force: the first waits until all jobs that end by a time, and no other, are gone."""
    world = World(*(node(f"n{i}", 3) for i in range(3)), rules=EASY)
    for number, (of, duration) in enumerate(held):
        free = [g.uuid for g in world.cluster.free_devices(f"n{of}") if g.milli == 1000]
        if free:
            world.runs(f"r{number}", free[0], duration=duration)
    for number, (gpus, duration) in enumerate(jobs):
        world.submit(f"j{number}", gpus, duration=duration)
    world.decide(at=1)
    waiting = world.queue.jobs()
    if not waiting:
        return
    first, *others = waiting
    starts = earliest(world, first)
    for job in others:
        if job.duration is not None and 1 + job.duration <= starts:
            assert world.plan(world.cluster, job) is None


def earliest(world, job):
    """Return when the job fits as jobs with a deadline end; infinity: never."""
    running = list(world.queue.state.running)
    for at in sorted({one.latest_end for one in running if one.latest_end < inf}):
        cluster = world.cluster.overlay()
        for one in running:
            if one.latest_end <= at:
                for placement in one.placements:
                    cluster.assume_free(placement)
        if world.plan(cluster, job) is not None:
            return at
    return inf
