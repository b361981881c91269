# SPDX-License-Identifier: Apache-2.0
"""Gangs of several roles wait, start, preempt, are preempted and move as one job."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from placement_builders import node
from placement_strategies import cases
from queue_strategies import TENANTS, worlds
from queue_world import World, gang_of, limit, quota, used, with_rules, within_limits

from gpupack_placement import InvalidRequest, MilliCpu, Request, Spread
from gpupack_queue import (
    NO_PREEMPTION,
    At,
    ConsolidationRules,
    Job,
    JobId,
    Never,
    PredictedStart,
    WaitReason,
    WhatIf,
)

MOVES = with_rules(
    reserve_after_seconds=0.0,
    preemption=NO_PREEMPTION,
    consolidation=ConsolidationRules(
        ratio=1.0, min_wait_seconds=0.0, cooldown_seconds=0.0, retry_seconds=0.0
    ),
)
TRAINING = (("leader", 1, 1), ("worker", 2, 3))
SERVING = (
    ("router", 1, Request(gpus=0, cpu=MilliCpu(1000))),
    ("prefill", 1, Request(gpus=2, models=("H100",))),
    ("decode", 2, Request(gpus=1, models=("T4",))),
)


def mixed(**kw):
    """Return a world with GPUs of two models."""
    return World(node("n1", 2), node("n2", 2, model="Tesla T4"), **kw)


@pytest.mark.parametrize(
    ("world", "roles", "where"),
    [
        (World(node("n1", 4), node("n2", 4)), TRAINING, "n1/3 n1/0 n1/1 n1/2 n2/0 n2/1 n2/2"),
        (mixed(), SERVING, "n1/0 n1/1 n2/0 n2/1"),
    ],
    ids=["leader and workers", "router, prefill and decode"],
)
def test_all_roles_start_together_in_the_order_of_the_roles(world, roles, where):
    world.submit("job", roles=roles).decide()
    assert world.where == {"job": where}
    assert world.end("job").where == {}


def test_a_gang_of_which_one_role_does_not_fit_holds_nothing():
    world = mixed().runs("old", "n2/0", duration=60.0).submit("job", roles=SERVING).decide()
    assert list(world.running) == ["old"]
    wait = world.explain("job")
    assert (wait.reason, wait.refusal.role) == (WaitReason.DOES_NOT_FIT, "decode")
    assert "role decode: 2 workers × 1 GPU: 1 of 2 workers fit now" in wait.message  # noqa: RUF001
    assert "its role decode would fit with 1 worker less: 1 of 2 fit now" in wait.remedies
    assert wait.start == At(60.0, is_estimated=True)
    assert world.end("old").decide(at=60).where == {"job": "n1/0 n1/1 n2/0 n2/1"}


def test_a_gang_that_fits_on_no_empty_cluster_blocks_no_other_job():
    world = World(node("n1", 4), rules=with_rules(reserve_after_seconds=0))
    world.submit("job", roles=TRAINING).submit("later", 4).decide()
    assert world.where == {"later": "n1/0 n1/1 n1/2 n1/3"}
    assert isinstance(world.explain("job").start, Never)


def test_its_reservation_is_for_all_roles():
    world = World(node("n1", 4), node("n2", 4), rules=with_rules(reserve_after_seconds=0))
    world.runs("old", "n1/0 n1/1", duration=100.0).submit("job", roles=TRAINING).decide()
    world.submit("long", 2, duration=500.0).submit("short", 2, duration=50.0).decide(at=10)
    assert sorted(world.running) == ["old", "short"]
    world.end("short").end("old").decide(at=100)
    assert "job" in world.running


def test_it_preempts_for_all_roles_and_spares_the_others():
    world = World(node("n1", 4), node("n2", 4), node("n3", 2))
    world.runs("a", "n1/0 n1/1").runs("b", "n2/0 n2/1").runs("c", "n3/0 n3/1")
    world.submit("job", roles=TRAINING, priority=1).decide(at=10)
    assert world.log[:2] == ["job stops a b", "job starts"]
    assert world.where["c"] == "n3/0 n3/1"


def test_victims_are_found_on_the_nodes_of_each_role():
    world = mixed().runs("a", "n1/0").runs("b", "n2/0").runs("c", "n2/1")
    world.submit("job", roles=SERVING, priority=1).decide(at=10)
    assert world.log == ["job stops a b c", "job starts"]


def test_many_candidates_are_preempted_role_by_role():
    nodes = [node(f"h{n}", 2) for n in range(6)]
    world = World(*nodes, *(node(f"t{n}", 2, model="Tesla T4") for n in range(6)))
    for each in [*(f"h{n}" for n in range(6)), *(f"t{n}" for n in range(6))]:
        world.runs(f"{each}-0", f"{each}/0").runs(f"{each}-1", f"{each}/1")
    roles = (
        ("prefill", 2, Request(gpus=2, models=("H100",))),
        ("decode", 3, Request(gpus=1, models=("T4",))),
    )
    world.submit("job", roles=roles, priority=1).decide(at=10)
    stopped = world.log[0].removeprefix("job stops ").split()
    assert sorted(name[0] for name in stopped) == list("hhhhttt")
    assert len(world.running["job"]) == 5


def test_it_is_preempted_as_a_whole_and_comes_back_as_a_whole():
    world = mixed().submit("job", roles=SERVING).decide()
    world.submit("urgent", 2, priority=1, duration=5.0).decide(at=10)
    assert list(world.running) == ["urgent"]
    world.end("urgent").decide(at=15)
    assert len(world.running["job"]) == 4


def test_jobs_move_for_it():
    world = World(node("n0", 4), node("n1", 4), rules=MOVES)
    world.runs("a", "n0/0", movable=True)
    world.submit("job", roles=(("leader", 1, 1), ("worker", 1, 4)), movable=False)
    world.decide(at=10)
    assert "job" in world.running
    world = World(node("n0", 3), node("n1", 3), rules=MOVES)
    world.runs("a", "n0/0", movable=True).runs("b", "n1/0", movable=True)
    world.submit("job", roles=(("leader", 1, 1), ("worker", 1, 3))).decide(at=10)
    assert world.log[0] in {"job moves a", "job moves b"}
    assert "job" in world.running


def test_it_moves_as_a_whole():
    world = World(node("n0", 4), node("n1", 4))
    world.submit("job", roles=(("leader", 1, 1), ("worker", 1, 2)), movable=True).decide()
    assert {place.node for place in world.running["job"]} == {"n0"}
    world.maintain("n0/0", "n0/1", "n0/2", "n0/3").decide(at=10)
    assert {place.node for place in world.running["job"]} == {"n1"}
    assert [len(place.devices) for place in world.running["job"]] == [1, 2]


def test_its_quota_counts_all_roles():
    allowed = mixed(quotas=[quota("team", H100=limit(2, borrowing=0), T4=limit(2, borrowing=0))])
    allowed.submit("job", tenant="team", roles=SERVING).decide()
    assert used(allowed) == {"team": {"H100": 2000, "T4": 2000}}
    short = mixed(quotas=[quota("team", H100=limit(2, borrowing=0), T4=limit(1, borrowing=0))])
    short.submit("job", tenant="team", roles=SERVING).decide()
    assert not short.running
    assert short.explain("job").reason is WaitReason.UNSATISFIABLE


def test_the_quota_of_one_role_holds_the_gang_back():
    world = mixed(
        quotas=[quota("team", H100=limit(2, borrowing=0), T4=limit(2, borrowing=0))],
        rules=with_rules(preemption=NO_PREEMPTION),
    )
    world.submit("first", tenant="team", request=Request(gpus=1, models=("T4",))).decide()
    world.submit("job", tenant="team", roles=SERVING).decide(at=1)
    assert list(world.running) == ["first"]
    wait = world.explain("job")
    assert wait.reason is WaitReason.BORROWING_LIMIT_EXCEEDED
    assert "2 GPUs requested, 1 T4 GPU left" in wait.message


def test_extra_workers_belong_to_one_role():
    world = World(node("n1", 4), node("n2", 4))
    roles = (("leader", 1, 1), ("worker", 1, 2))
    world.submit("job", roles=roles, extra_workers=9, extra_of="worker").decide()
    extras = [name for name in world.running if "+" in name]
    assert extras
    assert {len(world.running[name][0].devices) for name in extras} == {2}


@pytest.mark.parametrize("extra_of", ["", "router"])
def test_extra_workers_of_no_role_are_refused(extra_of):
    gang = gang_of(TRAINING)
    with pytest.raises(InvalidRequest, match="belong to one of the roles leader, worker, not to"):
        Job(JobId("a"), gang, extra_workers=1, extra_of=extra_of)


def test_models_in_order_of_preference_are_for_one_role():
    with pytest.raises(InvalidRequest, match="gangs of one role"):
        Job(JobId("a"), gang_of(SERVING), model_fallback_seconds=60.0)


def test_a_what_if_answers_for_all_roles():
    world = mixed().runs("old", "n2/0")
    subject = WhatIf(
        world.queue.copy(max_reservations=4), world.cluster.fork(), world.plan, world.now
    )
    subject.settle()
    found = subject.answer(Job(JobId("asked"), gang_of(SERVING), priority=1, number=9))
    assert isinstance(found, PredictedStart)
    assert {victim.job for victim in found.victims} == {"old"}
    assert [place.node for place in found.places] == ["n1", "n1", "n2", "n2"]


def test_gangs_that_differ_only_in_a_role_are_different_requests():
    world = World(node("n1", 4), node("n2", 4)).runs("old", "n1/0 n1/1", duration=50.0)
    world.submit("large", roles=TRAINING).submit(
        "small", roles=(("leader", 1, 1), ("worker", 1, 3))
    )
    world.decide()
    assert sorted(world.running) == ["old", "small"]
    assert len(world.queue.gangs()) == 1


role_asks = st.fixed_dictionaries(
    {
        "roles": st.sampled_from(
            [
                (("leader", 1, 1), ("worker", 2, 2)),
                (("leader", 1, 1), ("worker", 1, 3)),
                (("one", 2, 1), ("two", 1, 2)),
                (("router", 1, 0), ("prefill", 1, 1), ("decode", 1, 2)),
            ]
        ),
        "spread": st.sampled_from([None, None, Spread(max_nodes=2)]),
        "tenant": st.sampled_from(TENANTS),
        "priority": st.integers(0, 2),
        "duration": st.sampled_from([None, 2.0, 5.0, 9.0]),
    }
)


@cases
@given(worlds(most=4), st.lists(role_asks, min_size=1, max_size=5))
def test_all_workers_of_all_roles_run_or_none_within_quotas(drawn, gangs):
    world, jobs = drawn
    world.grace = 1.0
    for number, ask in enumerate([*jobs, *gangs]):
        world.submit(f"j{number}", **ask)
    for second in range(12):
        world.decide(at=float(second))
        within_limits(world, world.queue.state.quota.usage)
        for name, places in world.running.items():
            roles = list(world.jobs[name].gang.role_of_each_worker())
            assert [len(p.devices) for p in places] == [r.request.devices for r in roles]
            limit_of = world.jobs[name].gang.spread.max_nodes
            assert limit_of is None or len({place.node for place in places}) <= limit_of
        ended = [n for n in world.running if world.jobs[n].latest_end(second - 6) <= second]
        for name in ended[:1]:
            world.end(name)
    for entry in world.queue.state.pending:
        assert world.explain(entry.job.id).message
