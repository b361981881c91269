# SPDX-License-Identifier: Apache-2.0
"""Failed and cordoned GPUs: no new work, drained jobs, evicted pods and notifications."""

import msgspec
import pytest
from extender_builders import OBSERVED, gpu_node, job, pod, uuid, whole

from gpupack_crds.kinds import GpuCohort


def grade(world, name, quarantine=(), **health):
    """The watch shows these GPUs, as gpu0="Failed", and quarantines, as (0, "Probation")."""
    graded = {int(gpu.removeprefix("gpu")): said for gpu, said in health.items()}
    entries = [{"gpu": uuid(name, number), "phase": phase} for number, phase in quarantine]
    world.ledger.gpus.upsert(gpu_node(name, health=graded, quarantine=entries))
    world.decide()


def runs(world, name, on, *numbers):
    world.ledger.jobs.upsert(job(name, attempt=1, phase="Running", placed=[(on, numbers)]))
    world.decide()


def stands(world, name, on, *numbers):
    world.ledger.pods.upsert(pod(name, on=on, devices=whole(on, *numbers), gpus=len(numbers)))
    world.decide()


def drained(world):
    return [(each.attempt, each.node, each.failed) for each in world.turns.orders.drained]


def evicted(world):
    return [(each.name, each.reason) for each in world.owner.evictions()]


def evict_from(world, rule):
    meta = {"name": "cluster", "uid": "cluster", "resourceVersion": "1"}
    spec = {"failedGpuPods": rule}
    world.quotas.cohorts.upsert(msgspec.convert({"metadata": meta, "spec": spec}, GpuCohort))


@pytest.mark.parametrize("health", ["Cordoned", "Failed"])
def test_a_gpu_that_is_not_well_gets_no_new_work(world, health):
    grade(world, "a", gpu0=health, gpu1=health)
    assert world.free("a") == [2, 3]


def test_a_degraded_gpu_is_free_and_used_last(world):
    grade(world, "a", gpu0="Degraded", gpu1="Degraded", gpu2="Degraded")
    assert world.free("a") == [0, 1, 2, 3]
    planned = world.asks("train", gpus=4)
    assert [each.node for each in planned.placement] == ["b"]


def test_a_gpu_in_quarantine_gets_no_new_work_although_its_agent_calls_it_well(world):
    grade(world, "a", quarantine=[(0, "Quarantined")])
    assert world.free("a") == [1, 2, 3]


def test_a_gpu_on_probation_is_used_last(world):
    grade(world, "a", quarantine=[(0, "Probation")])
    assert world.free("a") == [0, 1, 2, 3]
    planned = world.asks("train", gpus=4)
    assert [each.node for each in planned.placement] == ["b"]


def test_probation_makes_no_ill_gpu_better(world):
    grade(
        world, "a", quarantine=[(0, "Probation"), (1, "Probation")], gpu0="Failed", gpu1="Cordoned"
    )
    assert world.free("a") == [2, 3]


def test_the_holder_of_a_failed_gpu_is_drained_and_its_neighbors_stay(world):
    runs(world, "train", "a", 0, 1)
    runs(world, "neighbor", "a", 2)
    grade(world, "a", gpu0="Failed")
    assert drained(world) == [("uid-train/1", "a", True)]
    (order,) = world.turns.orders.drained
    assert order.cause == f"{uuid('a', 0)}: XID 79"


def test_the_holder_of_a_cordoned_or_quarantined_gpu_continues(world):
    runs(world, "train", "a", 0, 1)
    grade(world, "a", quarantine=[(1, "Quarantined")], gpu0="Cordoned")
    assert drained(world) == []


def test_an_ended_attempt_is_no_longer_drained(world):
    runs(world, "train", "a", 0)
    grade(world, "a", gpu0="Failed")
    ended = msgspec.to_builtins(job("train", attempt=1, phase="Pending"))
    finished = "1970-01-01T12:00:00Z"
    ended["status"]["attempts"] = [{"number": 1, "finishedAt": finished}]
    world.ledger.jobs.upsert(msgspec.convert(ended, type(job("train"))))
    world.decide()
    assert drained(world) == []


def test_a_standalone_pod_on_a_failed_gpu_is_notified_and_not_evicted_by_default(world):
    stands(world, "notebook", "a", 0)
    grade(world, "a", gpu0="Failed")
    (note,) = world.owner.failed_pods()
    assert note.text == f"its GPU {uuid('a', 0)} failed: XID 79"
    assert note.advice == "; delete it to have it placed again"
    assert evicted(world) == []


def test_a_pod_on_a_failed_gpu_is_evicted_if_its_cohort_says_so(world):
    stands(world, "notebook", "a", 0)
    stands(world, "neighbour", "a", 1)
    evict_from(world, "Evict")
    grade(world, "a", gpu0="Failed")
    assert evicted(world) == [("notebook", "GpuFailed")]
    assert world.owner.failed_pods()[0].advice == "; it is evicted"


def test_no_job_or_pod_is_notified_after_the_gpu_works_again(world):
    stands(world, "notebook", "a", 0)
    runs(world, "train", "a", 1)
    grade(world, "a", gpu0="Failed", gpu1="Failed")
    assert drained(world)
    grade(world, "a")
    assert (drained(world), world.owner.failed_pods()) == ([], [])


def test_a_removed_node_leaves_no_failed_gpus(world):
    runs(world, "train", "a", 0)
    grade(world, "a", gpu0="Failed")
    world.ledger.gpus.remove(gpu_node("a"))
    assert world.ledger.failed == {}


def test_of_an_observed_node_the_other_plugin_judges_the_gpus(world):
    world.add_observed_node("c")
    shown = pod("web", on="c", asking={OBSERVED: "2"})
    world.ledger.pods.upsert(shown)
    failing_node = gpu_node("c", mode="observed", resource=OBSERVED, failed=(0, 1))
    world.ledger.gpus.upsert(failing_node)
    world.decide()
    assert world.owner.failed_pods() == []
