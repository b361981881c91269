# SPDX-License-Identifier: Apache-2.0
"""A job whose revision changes restarts on its own GPUs, even if other jobs arrive in between."""

import msgspec
import pytest
from extender_builders import World, gpu_node, job, pod, whole

from gpupack_crds.gpujob_status import Preemption, Victims
from gpupack_crds.plan import PlanRefusal
from gpupack_scheduler.ledger.placed_job import PlacedJob

BEGAN, ENDED = "1970-01-01T00:15:00Z", "1970-01-01T00:16:40Z"


@pytest.fixture
def world():
    """One node of 4 GPUs, of which `train` has the third: another would get the first."""
    built = World()
    built.add_node("a")
    shows(built, running())
    built.ledger.pods.upsert(worker())
    built.decide()
    return built


def worker(**changes):
    return pod("w", on="a", devices=whole("a", 2), worker=("train", 1, 0), **changes)


def running():
    return job("train", attempt=1, phase="Running", placed=[("a", (2,))])


def shows(world, shown, *, ended=False):
    """The watch shows the job's first attempt; `ended`: by a revision, with its GPUs reserved."""
    built = msgspec.to_builtins(shown)
    attempt = {"number": 1, "startedAt": BEGAN}
    if ended:
        attempt |= {"finishedAt": ENDED, "outcome": "Revised"}
        built["status"]["preemption"] = msgspec.to_builtins(reserved())
    built["status"]["attempts"] = [attempt]
    world.ledger.jobs.upsert(msgspec.json.decode(msgspec.json.encode(built), type=PlacedJob))


def ends(world):
    """The operator has ended the attempt, and the watch shows it."""
    shows(world, job("train", attempt=1, phase="Pending"), ended=True)
    world.decide()


def reserved():
    victims = (Victims(reason="Revised", attempts=("uid-train/1",)),)
    return Preemption(since=ENDED, victims=victims, placement=running().status.placement)


def has_its_own(answer):
    return not isinstance(answer, PlanRefusal) and answer.placement == reserved().placement


def lists(world, *holders):
    held = {holder: whole("a", 2) for holder in holders}
    world.ledger.gpus.upsert(gpu_node("a", lingering=held))


def test_a_restarting_job_waits_for_its_gpus_while_its_last_pod_exists(world):
    ends(world)
    answer = world.asks("train", attempt=2)
    assert answer.reason == "PreemptionPending"
    assert "restarting on the same GPUs" in answer.message
    world.ledger.pods.remove(worker())
    world.decide()
    assert world.called() == ["train"]
    assert has_its_own(world.asks("train", attempt=2))


def test_a_restarting_job_waits_for_its_gpus_while_its_last_pod_holds_them(world):
    lists(world, "w")
    ends(world)
    world.ledger.pods.remove(worker())
    assert isinstance(world.asks("train", attempt=2), PlanRefusal)
    assert isinstance(world.asks("other", gpus=4), PlanRefusal)
    lists(world)
    world.decide()
    assert has_its_own(world.asks("train", attempt=2))


def test_a_restarting_job_is_not_planned_before_its_last_attempt_has_ended(world):
    world.ledger.pods.remove(worker())
    answer = world.asks("train", attempt=2)
    assert (answer.reason, answer.queued) == ("AdmissionPending", False)
    ends(world)
    assert world.called() == ["train"]
    assert has_its_own(world.asks("train", attempt=2))


def test_no_other_job_gets_them_where_its_plan_is_lost(world):
    ends(world)
    world.ledger.pods.remove(worker())
    assert has_its_own(world.asks("train", attempt=2))
    world.ledger.drop_plans("uid-train")
    assert isinstance(world.asks("large", gpus=4), PlanRefusal)
    assert not isinstance(world.asks("rest", gpus=3), PlanRefusal)
    assert has_its_own(world.asks("train", attempt=2))


def test_own_gpus_are_reserved_until_the_last_pod_has_ended(world):
    ends(world)
    world.now += 1000
    world.decide()
    world.ledger.pods.remove(worker())
    world.decide()
    assert isinstance(world.asks("large", gpus=4), PlanRefusal)
    assert has_its_own(world.asks("train", attempt=2))


def test_a_job_starts_elsewhere_if_its_own_gpus_are_not_free_in_time(world):
    lists(world, "w")
    ends(world)
    world.ledger.pods.remove(worker())
    assert isinstance(world.asks("train", attempt=2), PlanRefusal)
    world.now += 1000
    world.decide()
    answer = world.asks("train", attempt=2)
    assert not isinstance(answer, PlanRefusal)
    assert not has_its_own(answer)


def test_a_restarting_job_starts_elsewhere_at_once_if_its_gpu_fails(world):
    ends(world)
    world.ledger.gpus.upsert(gpu_node("a", failed=[2]))
    answer = world.asks("train", attempt=2)
    assert not isinstance(answer, PlanRefusal)
    assert not has_its_own(answer)


def test_a_restart_that_needs_more_cpu_than_its_node_has_goes_to_another_node(world):
    world.add_node("b", cpu="64")
    ends(world)
    large = {"containers": [{"name": "worker", "resources": {"requests": {"cpu": "48"}}}]}
    answer = world.asks("train", attempt=2, pod_spec=large)
    assert [each.node for each in answer.placement] == ["b"]
