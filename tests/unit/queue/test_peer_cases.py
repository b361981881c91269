# SPDX-License-Identifier: Apache-2.0
"""Reports of users of other queues, each as a cluster, quotas and jobs: the placements, and why
others wait. The tests are named after the reports. Those of the same names in
tests/e2e/test_peer_cases.py have the eight cases on a real cluster.
"""

import pytest
from placement_builders import node
from queue_world import World, cohort, quota

from gpupack_placement import Spread
from gpupack_queue import WaitReason

ONE_NODE = Spread(max_nodes=1)


def test_kueue_10815_a_gang_reclaims_its_quota_where_its_clique_fits():
    """Freed GPUs that are scattered over cliques do not help a job that needs a whole clique."""
    cliques = (0, 0, 0, 0, 1, 1, 1, 1)
    world = World(
        node("n1", cliques=cliques),
        quotas=[quota("gec", 4, cohort="gpus"), quota("unified", 4, cohort="gpus")],
    )
    for index, gpu in enumerate((0, 1, 4, 5, 2, 6, 3, 7)):
        world.now = float(index)
        world.runs(f"u{gpu}", f"n1/{gpu}", "unified")
    world.submit("slice", 4, "gec", spread=Spread(same_clique=True)).decide(at=100)
    # u4 to u7 have run for 97 + 96 + 95 + 93 s, u0 to u3 for longer.
    assert world.log == ["slice stops u4 u5 u6 u7", "slice starts"]
    assert world.where["slice"] == "n1/4 n1/5 n1/6 n1/7"


def test_kueue_1309_victims_free_gpus_on_one_node():
    world = World(
        node("n1", 4),
        node("n2", 4),
        quotas=[quota("a", 4, cohort="ab"), quota("b", 4, cohort="ab")],
    )
    world.runs("old1", "n1/0 n1/1", "b").runs("old2", "n2/0 n2/1", "b")
    world.now = 50
    world.runs("new1", "n1/2 n1/3", "b").runs("new2", "n2/2 n2/3", "b")
    world.submit("whole-node", 4, "a").decide(at=60)
    assert world.log[0] in {"whole-node stops new1 old1", "whole-node stops new2 old2"}
    assert len({uuid.split("/")[0] for uuid in world.where["whole-node"].split()}) == 1


def test_marin_8925_a_gang_preempts_for_its_rack_while_the_fleet_has_free_gpus():
    """Quota is left and GPUs are free, but nowhere as many as the gang needs together."""
    world = World(node("rack1", 4), node("rack2", 4), quotas=[quota("marin", 8)])
    world.runs("batch1", "rack1/0", "marin").runs("batch2", "rack2/0 rack2/1", "marin")
    world.submit("production", 2, "marin", workers=2, spread=ONE_NODE, priority=10)
    world.decide(at=10)
    assert world.log == ["production stops batch1", "production starts", "batch1 starts"]
    assert world.where["batch1"].startswith("rack2")


@pytest.mark.parametrize("first", ["a", "b"])
def test_kueue_13662_a_victim_does_not_get_the_reservation_of_its_preemptor(first):
    """Victims end one after the other; the first to end must not take what it left."""
    world = World(
        node("n1", 2),
        quotas=[quota("owner", 2, cohort="c"), quota("borrower", 0, cohort="c")],
        grace=30,
    )
    world.runs("a", "n1/0", "borrower", priority=5).runs("b", "n1/1", "borrower", priority=5)
    world.submit("pair", 2, "owner").decide(at=1)
    assert world.log == ["pair stops a b"]
    world.ending[first] = 10
    world.decide(at=10).decide(at=20)
    assert world.log == ["pair stops a b"]
    assert world.explain("pair").reason is WaitReason.PREEMPTION_PENDING
    assert world.explain(first).reason is WaitReason.DOES_NOT_FIT
    world.decide(at=31)
    assert world.log == ["pair stops a b", "pair starts"]


def test_kueue_1974_no_extra_victim_is_preempted_for_a_tenant_that_borrows():
    """A tenant above its nominal quota stops one job of lower priority, not all of them."""
    quotas = [quota("team", 4, cohort="c"), quota("other", 4, cohort="c")]
    world = World(node("n1", 8), quotas=quotas)
    for gpu in range(8):
        world.runs(f"low{gpu}", f"n1/{gpu}", "team")
        world.now += 1
    world.submit("urgent", 1, "team", priority=10).decide(at=20)
    assert world.log == ["urgent stops low7", "urgent starts"]


def test_kueue_10131_the_victims_are_always_those_with_the_least_loss():
    def victims():
        world = World(node("n1", 4), node("n2", 4), quotas=[quota("owner", 4)])
        for number, uuid in enumerate(["n2/3", "n1/1", "n2/0", "n1/0", "n1/2", "n2/1"]):
            world.now = number * 10.0
            world.runs(f"job{number}", uuid, f"tenant{number % 2}")
        world.runs("whole", "n1/3 n2/2", "tenant1")
        world.submit("mine", 2, "owner").decide(at=100)
        return world.log

    assert victims()[:2] == ["mine stops job2 job5", "mine starts"]
    assert victims() == victims()


def test_kai_1934_a_fair_share_is_reclaimed_without_any_quota():
    world = World(node("n1", 8))
    for gpu in range(8):
        world.now = float(gpu)
        world.runs(f"alice{gpu}", f"n1/{gpu}", "alice")
    for number in range(8):
        world.submit(f"bob{number}", 1, "bob")
    world.decide(at=100)
    mine = [name for name in world.where if name.startswith("bob")]
    assert len(mine) == 4
    assert [entry for entry in world.log if "stops" in entry] == [
        "bob0 stops alice7",
        "bob1 stops alice6",
        "bob2 stops alice5",
        "bob3 stops alice4",
    ]
    assert world.explain("bob4").reason is WaitReason.DOES_NOT_FIT


def test_kai_1565_small_requests_do_not_move_many_times_their_own_size():
    """48 GPUs of requests end 48 GPUs of work where whole nodes of 8 are asked for."""
    nodes = [node(f"n{number}", 8) for number in range(12)]
    world = World(*nodes, quotas=[quota("reclaimer", 48), quota("spread", 48)])
    for number in range(12):
        world.now = float(number)
        gpus = " ".join(f"n{number}/{gpu}" for gpu in range(8))
        world.runs(f"job{number}", gpus, "spread")
    for number in range(6):
        world.submit(f"want{number}", 8, "reclaimer")
    world.decide(at=100)
    stopped = {name for entry in world.log if " stops " in entry for name in entry.split()[2:]}
    assert stopped == {f"job{number}" for number in range(6, 12)}
    assert sum(name.startswith("want") for name in world.where) == 6


def test_no_job_is_preempted_for_a_job_that_would_still_not_fit():
    world = World(
        node("n1", 4),
        node("n2", 4),
        quotas=[quota("owner", 8), quota("fixed", 2), quota("guest")],
    )
    world.runs("fixed1", "n1/0", "fixed").runs("fixed2", "n2/0", "fixed")
    world.runs("guest1", "n1/1 n1/2 n1/3", "guest").runs("guest2", "n2/1 n2/2 n2/3", "guest")
    world.submit("node", 4, "owner").decide(at=100)
    assert world.log == []
    assert world.explain("node").reason is WaitReason.DOES_NOT_FIT


def test_a_cohort_gets_back_what_it_lent_before_its_tenants_divide_it():
    world = World(
        node("n1", 8),
        cohorts=[cohort("left"), cohort("right")],
        quotas=[
            quota("l1", 2, cohort="left"),
            quota("l2", 2, cohort="left"),
            quota("r1", 4, cohort="right"),
        ],
    )
    for gpu in range(8):
        world.now = float(gpu)
        world.runs(f"r{gpu}", f"n1/{gpu}", "r1")
    world.submit("big", 4, "l1").decide(at=100)
    assert world.log == ["big stops r4 r5 r6 r7", "big starts"]
