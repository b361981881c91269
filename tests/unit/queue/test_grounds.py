# SPDX-License-Identifier: Apache-2.0
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from placement_builders import node
from placement_strategies import cases
from queue_world import World, limit, quota

from gpupack_queue.preemption.policies import PreemptionPolicy


def grounds_of(world):
    """Of a job of tenant a that comes late."""
    world.submit("late", 4, tenant="a")
    state, job = world.queue.state, world.jobs["late"]
    keys = frozenset(state.quota.keys.allowed(world.cluster, job.gang.roles[0].request.models))
    return PreemptionPolicy(state.quota, job, keys, may_preempt_own=False)


@pytest.mark.parametrize(("promised", "losable"), [(0, 4000), (1, 3000), (3, 1000), (4, 0)])
def test_of_a_tenant_no_more_can_be_lost_than_it_borrows(promised, losable):
    world = World(node("n0", 4), quotas=[quota("a", limit(4)), quota("b", limit(promised))])
    for gpu in range(4):
        world.runs(f"j{gpu}", f"n0/{gpu}", "b")
    running = list(world.queue.state.running)
    assert grounds_of(world).max_preemptible(running, [1000] * 4) == losable


@cases
@given(
    st.integers(0, 4), st.integers(0, 4), st.lists(st.sampled_from("bc"), min_size=4, max_size=4)
)
def test_no_set_that_may_be_stopped_loses_more(promised, of_c, tenants):
    quotas = [quota("a", limit(4)), quota("b", limit(promised)), quota("c", limit(of_c))]
    world = World(node("n0", 6), quotas=quotas)
    world.runs("two", "n0/4 n0/5", "b")
    for gpu, tenant in enumerate(tenants):
        world.runs(f"j{gpu}", f"n0/{gpu}", tenant)
    running = list(world.queue.state.running)
    lost = {one.job.id: 1000 * one.job.gang.roles[0].request.gpus for one in running}
    grounds = grounds_of(world)
    sets = [
        s
        for size in range(1, 6)
        for s in combinations(running, size)
        if grounds.may_preempt_together(s)
    ]
    most = max((sum(lost[one.job.id] for one in subset) for subset in sets), default=0)
    assert most <= grounds.max_preemptible(running, [lost[one.job.id] for one in running])
