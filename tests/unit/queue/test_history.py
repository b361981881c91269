# SPDX-License-Identifier: Apache-2.0
"""The recent usage of tenants, and its decay."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from placement_builders import node
from placement_strategies import cases
from queue_world import World, quota, with_rules

from gpupack_queue import ANY, Quotas, Tenant, UsageHistory
from gpupack_queue.quotas.usage_history import MAX_TENANTS

A = Tenant("a")
WEEK = 604_800.0


def test_an_average_counts_an_instant_half_as_much_a_half_life_later():
    history = UsageHistory(half_life=100.0)
    history.advance(100.0, {A: {ANY: 8000}})
    assert history.averages[A][ANY] == pytest.approx(4000)
    history.advance(200.0, {})
    assert history.averages[A][ANY] == pytest.approx(2000)
    assert history.effective(A, {ANY: 1000}) == {ANY: pytest.approx(1500)}


uses = st.lists(
    st.tuples(st.floats(0.01, 500.0), st.sampled_from([0, 250, 1000, 8000])), max_size=20
)


@cases
@given(uses, st.sampled_from([10.0, 3600.0, WEEK]), st.integers(1, 10))
def test_an_average_is_that_of_the_definition_however_often_one_looks(drawn, half_life, looks):
    history, now, expected = UsageHistory(half_life), 0.0, 0.0
    for seconds, milli in drawn:
        used = {A: {ANY: milli}} if milli else {}
        for look in range(1, looks + 1):
            history.advance(now + seconds * look / looks, used)
        now += seconds
        decay = 0.5 ** (seconds / half_life)
        expected = expected * decay + milli * (1 - decay)
    found = history.averages.get(A, {}).get(ANY, 0.0)
    assert found == pytest.approx(expected, rel=1e-6, abs=0.5)
    assert found <= max((milli for _, milli in drawn), default=0) + 1e-6


def test_jobs_of_seconds_count_although_each_is_little_of_a_week():
    history = UsageHistory(half_life=WEEK)
    for second in range(0, 100_000, 10):
        history.advance(second + 5.0, {A: {ANY: 8000}})
        history.advance(second + 10.0, {})
    steady = UsageHistory(half_life=WEEK)
    steady.advance(100_000.0, {A: {ANY: 4000}})
    assert history.averages[A][ANY] == pytest.approx(steady.averages[A][ANY], rel=0.01)


def test_averages_of_deleted_tenants_are_dropped():
    history = UsageHistory(half_life=1.0)
    history.advance(1.0, {A: {ANY: 1000}})
    history.advance(20.0, {})
    assert history.averages == {}


def test_beyond_the_limit_namespaces_with_the_least_usage_are_dropped():
    history = UsageHistory(half_life=100.0)
    many = {Tenant(f"t{n:04}"): {ANY: 1000} for n in range(MAX_TENANTS)}
    history.advance(100.0, many | {A: {ANY: 100}, Tenant("z"): {ANY: 2000}})
    assert len(history.averages) == MAX_TENANTS
    assert A not in history.averages
    assert "z" in history.averages


def test_a_restored_average_continues_with_the_running_jobs():
    history, restarted = UsageHistory(half_life=100.0), UsageHistory(half_life=100.0)
    history.advance(60.0, {A: {ANY: 8000}})
    kept = {tenant: dict(averages) for tenant, averages in history.averages.items()}
    history.advance(90.0, {A: {ANY: 4000}})
    restarted.advance(90.0, {})
    restarted.restore(kept, 60.0, {A: {ANY: 4000}})
    assert restarted.averages == history.averages


def test_without_a_half_life_no_average_is_restored():
    history = UsageHistory()
    history.restore({A: {ANY: 8000}}, 0.0, {})
    assert history.averages == {}


def world(*quotas):
    return World(
        node("n1", 4, model="H100"), quotas=quotas, rules=with_rules(half_life_seconds=100.0)
    )


def felt(of, tenant="a"):
    """Return the tenant's share with its recent usage at the top cohort."""
    quota = of.queue.state.quota
    return quota.effective_usage(of.queue.state.running).shares(Tenant(tenant))


def recalled(of, at=0.0, **milli):
    of.queue.restore_usage({A: milli}, at, of.cluster, of.now)
    return of.queue.averages(of.now)


@pytest.mark.parametrize("milli", [-1000.0, math.nan, -math.inf, 0.0])
def test_an_average_that_is_no_amount_counts_nothing(milli):
    assert recalled(world(quota("b", H100=1)), H100=milli) == {}


@pytest.mark.parametrize("milli", [5000.0, 1e300, math.inf])
def test_no_tenant_used_more_than_the_cluster_has(milli):
    built = world(quota("b", H100=1))
    assert recalled(built, H100=milli) == {A: {"H100": 4000}}
    assert felt(built) == (0.5,)


def test_an_average_of_a_model_that_the_cluster_lacks_counts_nothing():
    assert recalled(world(quota("b", H100=1, T4=1)), B200=9000.0) == {}


def test_a_model_that_no_quota_names_any_more_counts_as_its_gpus_do():
    built = world(quota("b", H100=1))
    recalled(built, H100=2000.0)
    built.queue.configure(Quotas(), built.cluster, built.now)
    assert built.queue.averages(built.now) == {A: {ANY: 2000}}
    assert felt(built) == (0.25,)


def test_an_average_of_a_model_whose_gpus_count_otherwise_now_is_no_infinite_share():
    built = world(quota("b", H100=1))
    recalled(built, H100=2000.0)
    longer = World(
        node("n1", 4, model="NVIDIA H100 80GB"), rules=with_rules(half_life_seconds=100.0)
    )
    quotas = Quotas((quota("b", H100=0), quota("c", **{"H100 80GB": 0})))
    longer.queue.configure(quotas, longer.cluster, 0.0)
    longer.queue.state.quota.history.averages = {A: {"H100": 2000.0}}
    assert felt(longer) == (0.0,)


def test_the_time_between_two_processes_counts_with_the_current_usage():
    built = world().runs("j", "n1/0 n1/1", "a")
    built.now = 200.0
    assert recalled(built, at=100.0, **{"": 4000.0}) == {A: {ANY: 3000.0}}


def test_a_moment_to_come_is_now():
    built = world()
    built.now = 100.0
    assert recalled(built, at=1e12, **{"": 2000.0}) == {A: {ANY: 2000.0}}
