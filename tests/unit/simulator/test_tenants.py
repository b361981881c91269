# SPDX-License-Identifier: Apache-2.0
"""Quotas, shares and preemption in simulated time."""

from dataclasses import replace

import pytest
from simulator_builders import job, node, run, starts

from gpupack_queue import Limit, PreemptionRules, Quota, Quotas, Rules
from gpupack_simulator import Cause, Sampling
from gpupack_simulator.disciplines import DISCIPLINES, KnownDurations


def queue(**rules):
    """The cluster's rules with others."""
    preemption = rules.pop("preemption", PreemptionRules(min_runtime_seconds=0, retry_seconds=0))
    return replace(DISCIPLINES["fair-share"], rules=Rules(preemption=preemption, **rules))


def of(tenant, *jobs):
    return [replace(one, tenant=tenant) for one in jobs]


def gpu_time(course, tenant, *, until):
    """GPUs times time that the tenant's jobs held, lost work included."""
    jobs = {record.job.id for record in course.jobs if record.job.tenant == tenant}
    return sum(
        (min(until if held.end is None else held.end, until) - held.start) * held.milli / 1000
        for held in course.occupancy
        if held.job in jobs
    )


WEIGHTS = Quotas((Quota("heavy", weight=3.0), Quota("light", weight=1.0)))


@pytest.mark.parametrize("half_life", [0.0, 200.0])
@pytest.mark.parametrize("fair_share", [True, False])
def test_tenants_with_unlimited_demand_get_gpu_seconds_by_their_weights(half_life, fair_share):
    jobs = of("heavy", *(job(f"h{n}", lasts=7 + n % 5) for n in range(600)))
    jobs += of("light", *(job(f"l{n}", lasts=6 + n % 7) for n in range(300)))
    rules = queue(
        half_life_seconds=half_life,
        preemption=PreemptionRules(min_runtime_seconds=0, retry_seconds=0, fair_share=fair_share),
    )
    course = run(
        [node("a", 8), node("b", 8)],
        jobs,
        queue=rules,
        quotas=WEIGHTS,
        until=300,
        sampling=Sampling(),
    )
    heavy, light = (gpu_time(course, tenant, until=300) for tenant in ("heavy", "light"))
    assert heavy + light == pytest.approx(16 * 300, rel=0.01)
    assert heavy / light == pytest.approx(3.0, rel=0.05)


def weighted_gpu_time(course, tenant, *, until, half_life):
    """As `gpu_time`, where an instant counts half as much a half-life before the end."""
    jobs = {record.job.id for record in course.jobs if record.job.tenant == tenant}

    def weight(at):
        return 0.5 ** ((until - min(until if at is None else at, until)) / half_life)

    return sum(
        (weight(held.end) - weight(held.start)) * held.milli
        for held in course.occupancy
        if held.job in jobs
    )


@pytest.mark.parametrize(("half_life", "caught_up"), [(0.0, False), (200.0, True)])
def test_a_tenant_that_was_away_gets_its_weight_from_then_on_or_also_what_it_missed(
    half_life, caught_up
):
    """Light has all GPUs for 1,000 s; then both always want more, for 1,000 s."""
    jobs = of("light", *(job(f"l{n}", lasts=6 + n % 7) for n in range(2600)))
    jobs += of("heavy", *(job(f"h{n}", at=1000, lasts=7 + n % 5) for n in range(1700)))
    never = PreemptionRules(reclaim=False, fair_share=False, priority=False)
    course = run(
        [node("a", 8), node("b", 8)],
        jobs,
        queue=queue(half_life_seconds=half_life, preemption=never),
        quotas=WEIGHTS,
        until=2000,
        sampling=Sampling(),
    )

    def had(tenant, *, since, until):
        return gpu_time(course, tenant, until=until) - gpu_time(course, tenant, until=since)

    at_once = [had(tenant, since=1000, until=1200) for tenant in ("heavy", "light")]
    later = [had(tenant, since=1600, until=2000) for tenant in ("heavy", "light")]
    late = [
        weighted_gpu_time(course, tenant, until=2000, half_life=200.0)
        for tenant in ("heavy", "light")
    ]
    assert (at_once[0] > 4 * at_once[1]) == caught_up
    assert later[0] / later[1] == pytest.approx(3.0, rel=0.05)
    assert late[0] / late[1] == pytest.approx(3.0, rel=0.05 if caught_up else 0.2)


def test_with_a_half_life_a_tenant_without_recent_usage_goes_first():
    """Early has used all GPUs for long; when one comes free, late gets it although both want it."""
    jobs = of("early", *(job(f"e{n}", lasts=50 + 10 * n) for n in range(4)))
    jobs += of("early", job("more", at=10, lasts=5)) + of("late", job("first", at=20, lasts=5))
    never = PreemptionRules(reclaim=False, fair_share=False, priority=False)
    course = run([node("a")], jobs, queue=queue(half_life_seconds=100.0, preemption=never))
    assert (starts(course)["first"], starts(course)["more"]) == (50, 55)


def test_a_borrower_gives_back_after_its_grace_period():
    quotas = Quotas((Quota("owner", {"": Limit(4000)}),))
    jobs = of("guest", *(job(f"g{n}", lasts=1000) for n in range(4)))
    jobs += of("owner", job("mine", 4, at=100, lasts=10))
    course = run([node("a")], jobs, queue=queue(), quotas=quotas, grace=30)
    assert starts(course)["mine"] == 130
    lost = [loss for loss in course.losses if loss.cause is Cause.PREEMPTED]
    assert len(lost) == 4
    assert sum(loss.milli_time for loss in lost) == 4 * 130 * 1000
    assert [record.preemptions for record in course.jobs] == [1, 1, 1, 1, 0]


def test_a_victim_is_preempted_exactly_at_the_minimum_run_time():
    quotas = Quotas((Quota("owner", {"": Limit(4000)}),))
    jobs = of("guest", job("guest", 4, lasts=1000)) + of("owner", job("mine", 4, at=10, lasts=10))
    rules = queue(preemption=PreemptionRules(min_runtime_seconds=60))
    assert starts(run([node("a")], jobs, queue=rules, quotas=quotas))["mine"] == 60


def test_a_job_that_waits_longer_than_the_bound_is_not_overtaken_for_ever():
    small = of("many", *(job(f"s{n}", at=n, lasts=5.5) for n in range(200)))
    jobs = small + of("gang", job("large", 4, at=20, lasts=5))
    never = PreemptionRules(reclaim=False, fair_share=False, priority=False)
    patient, endless = (
        starts(run([node("a")], jobs, queue=queue(reserve_after_seconds=after, preemption=never)))
        for after in (30.0, float("inf"))
    )
    assert patient["large"] <= 20 + 30 + 6
    assert endless["large"] > 200


def test_a_lending_limit_keeps_gpus_for_their_owner():
    quotas = Quotas((Quota("owner", {"": Limit(3000, lending=1000)}),))
    jobs = of("guest", *(job(f"g{n}", lasts=10) for n in range(4)))
    course = run([node("a")], jobs, queue=queue(), quotas=quotas, until=5)
    assert sum(record.started is not None for record in course.jobs) == 2


@pytest.mark.parametrize(
    ("durations", "starts_at"),
    [(KnownDurations.EXACT, 302), (KnownDurations.LEARNED, 302), (KnownDurations.NONE, 370)],
)
def test_the_queue_uses_the_duration_knowledge_of_the_scenario(durations, starts_at):
    """«gang» waits for both GPUs until «old-5» ends; «short-5» would have ended by then."""
    before = [
        job(f"{kind}-{n}", lasts=lasts, at=60 * n)
        for n in range(5)
        for kind, lasts in (("old", 60), ("short", 5))
    ]
    late = [
        job("old-5", lasts=60, at=300),
        job("gang", gpus=2, lasts=10, at=301),
        job("short-5", lasts=5, at=302),
    ]
    easy = replace(DISCIPLINES["backfill"], durations=durations)
    started = starts(run([node("n1", gpus=2)], [*before, *late], queue=easy))
    assert (started["gang"], started["short-5"]) == (360, starts_at)
