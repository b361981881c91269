# SPDX-License-Identifier: Apache-2.0
"""Properties of windows on random clusters. GPUPACK_TEST_CASES sets the number of cases.

What a window needs is counted here by node: the GPUs without those of other jobs, in whole units.
"""

from hypothesis import assume, given, note
from hypothesis import strategies as st
from placement_builders import node
from placement_strategies import cases
from queue_world import World, quota, window, with_rules

from gpupack_queue import ReservationId

GRACES = (0.0, 2.0)
LAST = 13
"""The last second of a run; all windows have ended before."""

asks = st.fixed_dictionaries(
    {
        "at": st.integers(0, 10),
        "gpus": st.sampled_from([1, 1, 2, 3]),
        "workers": st.sampled_from([1, 1, 2]),
        "tenant": st.sampled_from(["a", "b", "c"]),
        "priority": st.integers(0, 2),
        "duration": st.sampled_from([None, 2.0, 4.0, 7.0, 20.0]),
        "preemptible": st.booleans(),
        "named": st.booleans(),
    }
)


@st.composite
def reserved_worlds(draw, *, declared):
    """A cluster, one or two windows of namespace a, and jobs that come later."""
    sizes = [draw(st.integers(1, 3)) for _ in range(draw(st.integers(1, 3)))]
    nodes = [node(f"n{number}", size) for number, size in enumerate(sizes)]
    rules = with_rules(reserve_after_seconds=draw(st.sampled_from([0, 5])))
    owned = draw(st.integers(1, sum(sizes)))
    quotas = [quota("a", owned), quota("b", sum(sizes) - owned)]
    world = World(*nodes, quotas=quotas, rules=rules, grace=draw(st.sampled_from(GRACES)))
    windows, left = [], owned
    for name in draw(st.sampled_from(["x", "xy"])):
        gpus = draw(st.integers(1, 3))
        units = draw(st.integers(1, 3))
        if gpus * units > left:
            continue
        left -= gpus * units
        start = draw(st.integers(4, 7))
        end = start + draw(st.integers(1, 5))
        windows.append(window(f"a/{name}", gpus, start, end, units=units, declared=draw(declared)))
    assume(windows)
    return world, windows, draw(st.lists(asks, max_size=8))


def whole_units(drawn):
    """Let no job use a part of a reserved node, which may leave the rest elsewhere."""
    world, windows, jobs = drawn
    if any(each.request.gpus > 1 for each in windows):
        jobs = [ask | {"named": False} for ask in jobs]
    return world, windows, jobs


def fits(world, reserved, others):
    """Tell whether the units of a window fit together with these jobs."""
    free = {n.name: len(n.devices) for n in world.cluster.nodes()}
    for name in others:
        for place in world.running[name]:
            free[place.node] -= len(place.devices)
    return sum(left // reserved.request.gpus for left in free.values()) >= reserved.units


def run(world, windows, jobs, check, *, known_at=0):
    """Let a second after the other pass; jobs end at their deadlines."""
    note(f"{world}\ngrace {world.grace}\n{windows}\n{jobs}")
    started = {}
    for second in range(LAST + 1):
        world.now = float(second)
        for name in [n for n in world.running if ends(world, started, n) <= second]:
            world.end(name)
        if second == known_at:
            world.reserve(*windows)
        for number, ask in enumerate(jobs):
            if ask["at"] == second:
                asked = {key: of for key, of in ask.items() if key not in {"at", "named"}}
                if ask["named"] and ask["tenant"] == "a":
                    asked["reservation"] = windows[0].reservation
                world.submit(f"j{number}", **asked)
        world.decide(at=float(second))
        for name in world.running:
            started.setdefault(name, second)
        started = {name: at for name, at in started.items() if name in world.running}
        check(second)


def ends(world, started, name):
    duration = world.jobs[name].duration
    return float("inf") if duration is None else started[name] + duration


def victims_of_its_jobs(world, reserved):
    """Return the jobs that end for jobs of the window: what these reserve counts as used."""
    reservations = world.queue.state.reserved.values()
    own = [each for each in reservations if each.job.reservation == reserved.reservation]
    return {victim for each in own for victim in each.victims}


@cases
@given(reserved_worlds(declared=st.just(0.0)))
def test_a_job_that_started_on_notice_never_delays_a_window(drawn):
    world, windows, jobs = whole_units(drawn)
    world.reserve(*windows)
    assume(all(report.missing == 0 for report in world.reports().values()))

    def check(second):
        for each in windows:
            if each.start <= second < each.end:
                others = [n for n in world.running if world.jobs[n].reservation != each.reservation]
                report = world.reports()[each.reservation]
                assert (report.missing, report.victims) == (0, ())
                assert fits(world, each, others)

    run(world, windows, jobs, check)


@cases
@given(reserved_worlds(declared=st.just(3.0)))
def test_what_other_jobs_take_of_a_window_is_reported(drawn):
    """The reservation stands only from 3 s on, when jobs run that nothing may preempt."""
    world, windows, jobs = whole_units(drawn)

    def check(second):
        reports = world.reports()
        for each in windows:
            if second >= 3 and each.start <= second < each.end:
                leaving = victims_of_its_jobs(world, each)
                others = [
                    name
                    for name in world.running
                    if world.jobs[name].reservation != each.reservation and name not in leaving
                ]
                report = reports[each.reservation]
                if not fits(world, each, others):
                    # Victims for one window may leave GPUs to another.
                    assert report.missing or any(one.victims for one in reports.values())

    run(world, windows, jobs, check, known_at=3)


@cases
@given(reserved_worlds(declared=st.just(0.0)))
def test_the_jobs_of_a_window_never_wait_for_others_within_its_amount(drawn):
    world, windows, jobs = drawn
    windows = windows[:1]
    world.reserve(*windows)
    assume(world.reports()[windows[0].reservation].missing == 0)

    def check(second):
        (each,) = windows
        if not each.start <= second < each.end:
            return
        used = sum(
            len(place.devices)
            for name, places in world.running.items()
            if world.jobs[name].reservation == each.reservation
            for place in places
        )
        waiting = [job for job in world.queue.jobs() if job.reservation == each.reservation]
        if used == 0 and waiting:
            smallest = min(job.gang.milli // 1000 for job in waiting)
            fits_a_unit = min(job.gang.requests[0].gpus for job in waiting) <= each.request.gpus
            assert smallest > each.units * each.request.gpus or not fits_a_unit

    run(world, windows, jobs, check)


@cases
@given(reserved_worlds(declared=st.just(0.0)))
def test_usage_counts_what_windows_hold_and_nothing_after_their_end(drawn):
    world, windows, jobs = drawn

    def check(second):
        if second < LAST:
            return
        usage = world.queue.state.quota.usage
        for tenant in "abc":
            leaf = usage.tree.tenant(tenant)
            running = sum(
                len(place.devices) * 1000
                for name, places in world.running.items()
                if world.jobs[name].tenant == tenant
                and name not in world.queue.state.running_victims()
                for place in places
            )
            reserved = sum(
                sum(each.charge.values())
                for each in world.queue.state.reserved.values()
                if each.job.tenant == tenant
            )
            assert sum(usage.used_by(leaf).values()) == running + reserved
        assert not world.queue.state.window_charges

    run(world, windows, jobs, check)


def test_names_of_reservations_have_their_namespace():
    assert window("a/x", 1, 0, 1).reservation == ReservationId("a/x")
