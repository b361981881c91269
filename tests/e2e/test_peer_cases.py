# SPDX-License-Identifier: Apache-2.0
"""Reports of users of other queues on the real cluster: quotas, running jobs and new jobs, and then
placements, reasons to wait and reasons of preemptions.

The tests are named after the reports, as those of the queue alone are
(tests/unit/queue/test_peer_cases.py). A node of the dev cluster is one NVLink clique of
eight GPUs.
"""

import datetime as dt
import time

import pytest
from peer_world import World

pytestmark = [pytest.mark.alone, pytest.mark.slow]

NOMINAL, FAIR, PRIORITY = "InCohortReclamation", "InCohortFairSharing", "Priority"
NO_ROOM, VICTIMS_END, GATED = "TooFewFreeGpus", "PreemptionPending", "SchedulingGated"
ENDING = "Restarting"
"""Its workers are not gone yet."""


@pytest.fixture
def world(others):
    made = World(others)
    yield made
    made.end()


@pytest.fixture
def job(judged):
    """A GPUJob that does not end by itself.

    It goes to the node with the most free GPUs and may run on any node: a job that is limited to
    one node waits for another reason.
    """

    def make(name, gpus, **spec):
        return judged.job(name, gpus=gpus, seconds=600, policy="worst-fit", **spec)

    return make


def test_kueue_10815_a_gang_reclaims_its_quota_where_its_clique_fits(world, job):
    """The jobs that would lose least run on two cliques."""
    world.promise(gec=8, unified=8)
    for name, node in {"u1": "n1", "u2": "n2", "u3": "n1", "u4": "n2"}.items():
        world.runs("unified", job(name, 4), node)
    world.submit("gec", job("slice", 4, workers=2, spread={"oneClique": True}))
    world.comes_to(
        runs={"slice": "n2 n2", "u1": "n1", "u3": "n1"},
        waits={"u2": NO_ROOM, "u4": NO_ROOM},
        stopped={"u2": NOMINAL, "u4": NOMINAL},
    )


def test_kueue_477_the_job_that_saved_its_work_last_is_the_victim(world, job):
    """Without its checkpoint `new` would lose less."""
    world.promise(a=8, b=8)
    world.runs("b", job("old", 8), "n1")
    time.sleep(2)
    world.runs("b", job("new", 8), "n2")
    world.saves("b", "old", dt.datetime.now(dt.UTC).isoformat())
    world.submit("a", job("mine", 8))
    world.comes_to(
        runs={"new": "n2", "mine": "n1"}, waits={"old": NO_ROOM}, stopped={"old": NOMINAL}
    )


def test_kueue_1309_victims_free_gpus_on_one_node(world, job, judged):
    world.promise(a=8, b=8)
    for name, node in {"old1": "n1", "old2": "n2", "new1": "n1", "new2": "n2"}.items():
        world.runs("b", judged.deployment(name, gpus=4), node, bound=True)
    world.submit("a", job("wholenode", 8))
    world.comes_to(
        runs={"wholenode": "n2", "old1": "n1", "new1": "n1"},
        waits={"old2": GATED, "new2": GATED},
        stopped={"old2": NOMINAL, "new2": NOMINAL},
    )


def test_marin_8925_a_gang_preempts_for_its_rack_while_the_fleet_has_free_gpus(world, job):
    """Quota is left and eight GPUs are free, but not on one node."""
    world.promise(marin=16)
    world.runs("marin", job("large", 6, priority=-10), "n1")
    world.runs("marin", job("small", 2, priority=-10), "n2")
    world.submit("marin", job("production", 4, workers=2, spread={"maxNodes": 1}))
    world.comes_to(
        runs={"production": "n2 n2", "large": "n1", "small": "n1"},
        waits={},
        stopped={"small": PRIORITY},
    )


def test_kueue_13662_a_victim_does_not_get_the_reservation_of_its_preemptor(world, job):
    """The first victim to end is before the preemptor in the queue; it must not get its GPUs."""
    world.promise(owner=16, borrower=0)
    slow = job("slow", 8)
    slow["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 20
    world.runs("borrower", slow, "n1")
    world.runs("borrower", job("quick", 8), "n2")
    world.submit("owner", job("pair", 8, workers=2, priority=-5))
    world.comes_to(
        runs={},
        waits={"pair": VICTIMS_END, "slow": ENDING, "quick": NO_ROOM},
        stopped={"slow": NOMINAL, "quick": NOMINAL},
    )
    world.comes_to(
        runs={"pair": "n1 n2"},
        waits={"slow": NO_ROOM, "quick": NO_ROOM},
        stopped={"slow": NOMINAL, "quick": NOMINAL},
    )


def test_kueue_1974_no_extra_victim_is_preempted_for_a_tenant_that_borrows(world, job):
    world.promise(team=8, other=8)
    for name, node in {"low1": "n1", "low2": "n2", "low3": "n1", "low4": "n2"}.items():
        world.runs("team", job(name, 4, priority=-10), node)
    world.submit("team", job("urgent", 1))
    world.comes_to(
        runs={"urgent": "n2", "low1": "n1", "low2": "n2", "low3": "n1"},
        waits={"low4": NO_ROOM},
        stopped={"low4": PRIORITY},
    )


def test_kueue_10131_the_victims_are_always_those_with_the_least_loss(world, job):
    """The victim of the first job runs again after it, and is the victim of the second one."""
    world.promise(owner=4, red=0, blue=0)
    world.runs("red", job("old1", 4), "n1")
    world.runs("blue", job("old2", 4), "n2")
    world.runs("blue", job("new1", 2), "n1")
    world.runs("red", job("new2", 2), "n2")
    world.runs("red", job("new3", 2), "n1")
    world.runs("blue", job("new4", 2), "n2")
    others = {"old1": "n1", "old2": "n2", "new1": "n1", "new3": "n1"}
    world.submit("owner", job("first", 4))
    world.comes_to(
        runs={"first": "n2", **others},
        waits={"new2": NO_ROOM, "new4": NO_ROOM},
        stopped={"new2": NOMINAL, "new4": NOMINAL},
    )
    world.cancel("owner", "first")
    world.comes_to(
        runs={"new2": "n2", "new4": "n2", **others},
        waits={},
        stopped={"new2": NOMINAL, "new4": NOMINAL},
    )
    world.submit("owner", job("second", 4))
    world.comes_to(
        runs={"second": "n2", **others},
        waits={"new2": NO_ROOM, "new4": NO_ROOM},
        stopped={"new2": f"{NOMINAL} {NOMINAL}", "new4": f"{NOMINAL} {NOMINAL}"},
    )


def test_kai_1934_a_fair_share_is_reclaimed_without_any_quota(world, job, judged):
    world.promise(alice=0, bob=0)
    for name, node in {"a1": "n1", "a2": "n2", "a3": "n1", "a4": "n2"}.items():
        world.runs("alice", job(name, 4), node)
    world.submit("bob", judged.deployment("b", replicas=4, gpus=4))
    world.comes_to(
        runs={"b": "n1 n2", "a1": "n1", "a2": "n2"},
        waits={"b": f"{GATED} {GATED}", "a3": NO_ROOM, "a4": NO_ROOM},
        stopped={"a3": FAIR, "a4": FAIR},
    )


def test_kai_1565_small_requests_do_not_move_many_times_their_own_size(world, job, judged):
    """Twelve requests of one GPU end one job of eight, which is all that is promised."""
    world.promise(reclaimer=8, spread=8)
    world.runs("spread", job("s1", 8), "n1")
    world.runs("spread", job("s2", 8), "n2")
    world.submit("reclaimer", judged.deployment("want", replicas=12))
    world.comes_to(
        runs={"want": " ".join(8 * ["n2"]), "s1": "n1"},
        waits={"want": " ".join(4 * [GATED]), "s2": NO_ROOM},
        stopped={"s2": NOMINAL},
    )
