# SPDX-License-Identifier: Apache-2.0
"""Properties of random clusters, quotas and jobs. GPUPACK_TEST_CASES sets the number of cases."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from placement_builders import FIRST_FIT, node
from placement_strategies import cases
from queue_strategies import TENANTS, quotas, submitted, worlds
from queue_world import World, used, with_rules, within_limits

from gpupack_queue import NO_PREEMPTION, Quotas, place_by_policy
from gpupack_queue.quotas.quota_planner import QuotaPlanner
from gpupack_queue.quotas.usage import Usage

EASY = with_rules(
    by_share=False,
    by_priority=False,
    preemption=NO_PREEMPTION,
    reserve_after_seconds=0.0,
    max_reservations=1,
)


@cases
@given(worlds())
def test_usage_is_counted_exactly_and_no_tenant_borrows_beyond_its_limit(drawn):
    world, jobs = drawn
    for number, ask in enumerate(jobs):
        submitted(world, [ask], at=float(number))
        world.decide()
        if number % 3 == 2 and world.running:
            world.end(min(world.running)).decide()
        quota = world.queue.state.quota
        for tenant in TENANTS:
            leaf = quota.tree.tenant(tenant)
            found = {key: milli for key, milli in quota.usage.used_by(leaf).items() if milli}
            assert found == used(world).get(tenant, {})
        within_limits(world, quota.usage)


@cases
@given(worlds())
def test_while_victims_terminate_no_tenant_holds_more_than_its_limit(drawn):
    world, jobs = drawn
    world.grace = 3.0
    for number, ask in enumerate(jobs):
        submitted(world, [ask], at=float(number))
        world.decide(at=float(number))
        quota = world.queue.state.quota
        for tenant in TENANTS:
            held = quota.held.used_by(quota.tree.tenant(tenant))
            found = {key: milli for key, milli in held.items() if milli}
            assert found == used(world).get(tenant, {})
        within_limits(world, quota.held)


def counted(world):
    """Return tenant and places of running jobs, except victims of a counted preemptor."""
    state = world.queue.state
    stopping = state.running_victims()
    for name, places in world.running.items():
        if name not in stopping:
            yield world.jobs[name].tenant, places
    for held in state.reserved.values():
        yield held.job.tenant, held.placements


def in_use(usage):
    """Milli-GPU by node and key."""
    return [
        {key: milli for key, milli in usage.used_by(node).items() if milli}
        for node in usage.tree.all()
    ]


@cases
@given(worlds(), st.lists(quotas(), min_size=1, max_size=3))
def test_after_a_quota_change_the_usage_counts_running_and_reserved_jobs(drawn, others):
    world, jobs = drawn
    world.grace = 100.0
    half = len(jobs) // 2
    submitted(world, jobs[:half])
    world.decide(at=10)
    submitted(world, [{**ask, "priority": 3} for ask in jobs[half:]], at=20)
    world.decide(at=20)
    for other in others:
        world.queue.configure(Quotas(tuple(other)), world.cluster, 20.0)
        quota = world.queue.state.quota
        recounted = Usage(quota.tree)
        for tenant, places in counted(world):
            recounted.add(tenant, quota.charge(world.cluster, places))
        assert in_use(quota.usage) == in_use(recounted)
        for running in world.queue.state.running:
            assert running.charge == quota.charge(world.cluster, running.placements)


@cases
@given(worlds())
def test_all_workers_of_a_job_run_or_none_and_the_cluster_holds_them_all(drawn):
    world, jobs = drawn
    submitted(world, jobs)
    world.decide()
    for name, places in world.running.items():
        assert len(places) == world.jobs[name].gang.workers
    held = sum(len(places) for places in world.running.values())
    assert len(world.cluster.held()) == held


@cases
@given(worlds())
def test_without_arrivals_and_ends_the_queue_stops_changing(drawn):
    """`decide` fails after a thousand rounds, and every victim waits again at once."""
    world, jobs = drawn
    half = len(jobs) // 2
    submitted(world, jobs[:half])
    world.decide(at=10)
    submitted(world, jobs[half:], at=20)
    for later in range(5):
        before = len(world.log)
        world.decide(at=30.0 + later)
    assert len(world.log) == before


@cases
@given(worlds(), st.integers(1, 4))
def test_without_other_changes_no_two_jobs_preempt_each_other_in_turn(drawn, grace):
    """A victim ends after its grace period, and waits again."""
    world, jobs = drawn
    world.grace = float(grace)
    submitted(world, jobs)
    for second in range(60):
        world.decide(at=float(second))
    stops = [line.split(" stops ") for line in world.log if " stops " in line]
    pairs = [(winner, loser) for winner, losers in stops for loser in losers.split()]
    assert not {(loser, winner) for winner, loser in pairs} & set(pairs)
    before = len(world.log)
    world.decide(at=100.0)
    assert len(world.log) == before


@cases
@given(worlds())
def test_the_same_input_gives_the_same_decisions(drawn):
    world, jobs = drawn
    twin = World(*world.cluster.nodes(), rules=world.queue.rules)
    twin.queue.configure(world.queue.state.quota.quotas, twin.cluster, 0.0)
    for one in (world, twin):
        submitted(one, jobs)
        one.decide(at=10)
    assert world.log == twin.log
    assert world.where == twin.where


@cases
@given(worlds(rules=with_rules(reserve_after_seconds=float("inf"))))
def test_no_job_that_fits_the_cluster_and_the_quota_waits(drawn):
    world, jobs = drawn
    submitted(world, jobs)
    world.decide(at=10)
    within = QuotaPlanner(world.queue.state.quota, world.plan)
    for job in world.queue.jobs():
        assert within.place(world.cluster, job) is None


@cases
@given(worlds())
def test_every_preemptor_runs_once_its_victims_have_ended(drawn):
    world, jobs = drawn
    half = len(jobs) // 2
    submitted(world, jobs[:half])
    world.decide(at=10)
    submitted(world, jobs[half:], at=20)
    world.decide(at=30)
    stops = [n for n, entry in enumerate(world.log) if " stops " in entry]
    for n in stops:
        beneficiary = world.log[n].split()[0]
        assert f"{beneficiary} starts" in world.log[n:]


@cases
@given(worlds(rules=EASY))
def test_the_queue_head_starts_no_later_than_estimated_when_durations_are_exact(drawn):
    """The estimate lets all running jobs end and no other job start: as without backfill."""
    world, jobs = drawn
    world.queue.configure(Quotas(), world.cluster, 0.0)
    exact = [{**ask, "duration": ask["duration"] or 3.0} for ask in jobs]
    arriving = [(number / 2, ask) for number, ask in enumerate(exact)]
    ends, started, promised_at = {}, {}, {}
    while arriving or ends:
        world.now = min([at for at, _ in arriving[:1]] + list(ends.values()))
        for name in [name for name, at in ends.items() if at <= world.now]:
            del ends[name]
            world.end(name)
        if arriving and arriving[0][0] <= world.now:
            submitted(world, [arriving.pop(0)[1]], at=world.now)
        world.decide()
        for room in world.queue.state.backfill_reservations:
            assert room.start_at <= promised_at.setdefault(room.job.id, room.start_at)
        for name in world.running.keys() - started.keys():
            started[name] = world.now
            ends[name] = world.now + world.jobs[name].duration
    assert all(started[name] <= at for name, at in promised_at.items() if name in started)


@cases
@given(
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from([4.0, 5.0, 9.0, 20.0])), max_size=7),
    st.lists(st.tuples(st.integers(1, 3), st.sampled_from([3.0, 6.0, 30.0])), max_size=6),
)
def test_no_gpu_is_idle_that_a_job_could_use_without_a_delay_of_the_queue_head(held, jobs):
    """By brute force: each job that waits is tried on each node, and then the queue head."""
    world = World(*(node(f"n{i}", 3) for i in range(3)), rules=EASY)
    for number, (of, duration) in enumerate(held):
        free = [g.uuid for g in world.cluster.free_devices(f"n{of}") if g.milli == 1000]
        if free:
            world.runs(f"r{number}", free[0], duration=duration)
    for number, (gpus, duration) in enumerate(jobs):
        world.submit(f"j{number}", gpus, duration=duration)
    world.decide(at=1)
    (reservation,) = world.queue.state.backfill_reservations or [None]
    start = assert_no_gpu_is_idle(world)
    assert reservation is None or reservation.start_at == start


@cases
@given(st.data())
def test_no_gpu_is_idle_after_ends_and_changed_deadlines_either(data):
    """What the queue remembers of refused jobs and of reservations hides no start."""
    draw = data.draw
    world = World(*(node(f"n{i}", 3) for i in range(3)), rules=EASY)
    for number in range(12):
        for name in draw(st.sets(st.sampled_from([*sorted(world.running), ""]), max_size=2)) - {""}:
            if draw(st.booleans()):
                world.end(name)
            else:
                may_run_longer(world, name, draw(st.sampled_from([2.0, 8.0, 40.0])))
        gpus, seconds = draw(st.integers(1, 3)), draw(st.sampled_from([3.0, 6.0, 30.0]))
        world.submit(f"j{number}", gpus, duration=seconds).decide()
        assert_no_gpu_is_idle(world)
        world.now += 1
        ended = [
            str(one.job.id) for one in world.queue.state.running if one.latest_end <= world.now
        ]
        for name in ended:
            world.end(name)


def may_run_longer(world, name, left):
    """The job runs for at most this much longer, in seconds."""
    before = world.queue.state.running.get(name)
    job = replace(world.jobs[name], duration=world.now + left - before.started)
    world.jobs[name] = job
    world.queue.update_running(job, before.placements, world.cluster, world.now)


def assert_no_gpu_is_idle(world):
    """Assert that each job that waits would delay the queue head; return the head's start."""
    head, *others = world.queue.jobs() or [None]
    if head is None:
        return None
    start = head_start(world, head, [])
    for job in others:
        for at in (each.name for each in world.cluster.nodes()):
            placed = place_by_policy(FIRST_FIT, world.cluster, job, candidates=[at])
            if placed is not None:
                assert head_start(world, head, [(world.now + job.duration, placed)]) > start
    return start


def head_start(world, head, more):
    """Return when the head fits, if these placements end at these times and no other job starts."""
    ends = [(one.latest_end, one.placements) for one in world.queue.state.running]
    for at in sorted({end for end, _ in [*ends, *more]}):
        cluster = world.cluster.overlay()
        for end, places in ends:
            for place in places if end <= at else ():
                cluster.assume_free(place)
        for end, places in more:
            for place in places if end > at else ():
                cluster.assume_held(place)
        if world.plan(cluster, head) is not None:
            return at
    return float("inf")
