# SPDX-License-Identifier: Apache-2.0
"""Jobs that wait on the real cluster, and which jobs may start before them.

tests/unit/queue has the same cases for the queue alone, with more jobs and other bounds
(test_impossible_jobs.py, test_victims.py). A reservation holds back jobs of lower priority at once,
and those of equal priority only after queue.reserveAfterSeconds: later jobs here have a lower one.
"""

import json

import pytest
from parts import SCHEDULER, environment, environment_of
from peer_world import World
from rest_clients import client, viewer
from simulated_layout import another_model

pytestmark = [pytest.mark.alone, pytest.mark.slow]

NO_ROOM, RESERVED, BEHIND = "TooFewFreeGpus", "Reserved", "BlockedByQueueHead"
NEVER, NOMINAL = "Unsatisfiable", "InCohortReclamation"
OTHER_MODEL = "ModelMismatch"
"""Of one node; the other one is full."""
LOW = -10
HOUR = 3600
A100 = "NVIDIA A100-SXM4-80GB"
GRACE_SECONDS = 45
PATIENCE_SECONDS = 20
"""For victims that have not ended after their grace period."""


@pytest.fixture
def world(others):
    made = World(others)
    yield made
    made.end()


@pytest.fixture
def strict(others):
    """Tenants of a cohort with strict order."""
    made = World(others, order="Strict")
    yield made
    made.end()


@pytest.fixture
def job(judged):
    """A GPUJob that does not end by itself, on the node with the most free GPUs."""

    def make(name, gpus, *, ends=None, **spec):
        deadline = {} if ends is None else {"activeDeadlineSeconds": ends}
        return judged.job(name, gpus=gpus, seconds=600, policy="worst-fit", **deadline, **spec)

    return make


@pytest.fixture
def a100(idle, cluster, system):
    """The last node has GPUs of another model."""
    *_, node = cluster.nodes()
    with another_model(system, node, A100):
        yield


@pytest.fixture
def impatient(idle, system):
    """The queue waits for less than a grace period beyond it."""
    rules = json.loads(environment_of(system, SCHEDULER, "extender")["GPUPACK_QUEUE"])
    rules["preemption"]["victimTimeoutSeconds"] = PATIENCE_SECONDS
    with environment(system, SCHEDULER, "extender", {"GPUPACK_QUEUE": json.dumps(rules)}):
        yield


def test_jobs_that_can_never_run_take_no_reservation_from_the_queue_head(world, job):
    world.promise(team=16)
    never = {f"never{number}": 1 + number for number in range(6)}
    for name, gpus in never.items():
        world.submit("team", job(name, gpus, gpuModels=["H300"]))
    world.comes_to(runs={}, waits=dict.fromkeys(never, NEVER), stopped={})
    world.runs("team", job("full", 8, ends=HOUR), "n1")
    world.runs("team", job("half", 4, ends=HOUR), "n2")
    world.submit("team", job("pair", 8, workers=2))
    waits = {**dict.fromkeys(never, NEVER), "pair": NO_ROOM}
    world.comes_to(runs={"full": "n1", "half": "n2"}, waits=waits, stopped={})
    world.submit("team", job("long", 1, ends=2 * HOUR, priority=LOW))
    world.submit("team", job("short", 1, ends=HOUR // 2, priority=LOW))
    world.comes_to(
        runs={"full": "n1", "half": "n2", "short": "n2"},
        waits={**waits, "long": RESERVED},
        stopped={},
    )
    for name in ("full", "half", "short"):
        world.cancel("team", name)
    waits = {**dict.fromkeys(never, NEVER), "long": NO_ROOM}
    world.comes_to(runs={"pair": "n1 n2"}, waits=waits, stopped={})


def test_in_strict_order_a_job_that_can_never_run_blocks_no_other_job(strict, job):
    strict.promise(first=8, second=8)
    strict.submit("first", job("never", 1, gpuModels=["H300"]))
    strict.comes_to(runs={}, waits={"never": NEVER}, stopped={})
    assert "can never start" in strict.tenant("first").gpujob("never")["status"]["message"]
    strict.runs("first", job("own", 8), "n1")
    strict.runs("second", job("other", 8), "n2")
    strict.comes_to(runs={"own": "n1", "other": "n2"}, waits={"never": NEVER}, stopped={})


def test_in_strict_order_a_job_that_waits_for_one_model_blocks_no_job_for_another(
    strict, a100, job
):
    strict.promise(first=16, second=16)
    strict.runs("first", job("full", 8, gpuModels=["H100"]), "n1")
    strict.submit("first", job("head", 1, gpuModels=["H100"]))
    strict.comes_to(runs={"full": "n1"}, waits={"head": OTHER_MODEL}, stopped={})
    strict.runs("second", job("other", 1, gpuModels=["A100"]), "n2")
    strict.runs("first", job("own", 1, gpuModels=["A100"]), "n2")
    strict.submit("second", job("any", 1))
    strict.comes_to(
        runs={"full": "n1", "other": "n2", "own": "n2"},
        waits={"head": OTHER_MODEL, "any": BEHIND},
        stopped={},
    )


def test_a_job_that_waits_for_notebooks_leaves_idle_gpus_to_jobs_with_a_deadline(
    world, job, judged, system
):
    """A Deployment on each node has no known end."""
    world.promise(team=16)
    notebooks = {"notebook1": "n1", "notebook2": "n2"}
    for name, node in notebooks.items():
        world.runs("team", judged.deployment(name), node, bound=True)
    world.submit("team", job("whole", 8))
    world.comes_to(runs=notebooks, waits={"whole": NO_ROOM}, stopped={})
    message = world.tenant("team").gpujob("whole")["status"]["message"]
    assert "no start time is known: 1 job or pod without a deadline" in message
    would_help = explained(system, world.tenant("team"), "whole")["would_help"]
    for helps in ("activeDeadlineSeconds", "consolidation", "a larger nominal quota"):
        assert any(helps in text for text in would_help), would_help
    timed = {"timed1": "n1", "timed2": "n2"}
    for name, node in timed.items():
        world.runs("team", job(name, 7, ends=HOUR, priority=LOW), node)
    world.comes_to(runs={**notebooks, **timed}, waits={"whole": NO_ROOM}, stopped={})


def explained(system, kube, name):
    """Return the answer of `explain` for a GPUJob."""
    with viewer(kube) as token, client(system) as api:
        path = f"jobs/{kube.namespace}/{name}/explain"
        answer = api.get(path, headers={"Authorization": f"Bearer {token}"})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_victim_within_its_grace_period_is_the_only_one_and_its_preemptor_gets_its_gpus(
    world, impatient, job
):
    """The grace period is longer than the patience; a job of the borrower is first in the queue."""
    world.promise(owner=8, borrower=8)
    places = {"b1": "n1", "b2": "n2", "b3": "n1", "b4": "n2"}
    for name, node in places.items():
        world.runs("borrower", slow(job(name, 4)), node)
    world.submit("borrower", job("next", 4))
    world.comes_to(runs=places, waits={"next": NO_ROOM}, stopped={})
    world.submit("owner", job("mine", 4))
    world.wait_until_runs("owner", "mine", seconds=GRACE_SECONDS + 60)
    (victim,) = places.keys() - world.seen()["runs"].keys()
    left = {name: node for name, node in places.items() if name != victim}
    world.comes_to(
        runs={**left, "mine": places[victim]},
        waits={victim: NO_ROOM, "next": NO_ROOM},
        stopped={victim: NOMINAL},
    )


def slow(job):
    """Let the job use its whole grace period."""
    pod = job["spec"]["template"]["spec"]
    pod["terminationGracePeriodSeconds"] = GRACE_SECONDS
    pod["containers"][0]["command"] = ["sh", "-c", "trap : TERM; while :; do sleep 1; done"]
    return job


def test_a_later_job_uses_an_idle_gpu_that_the_queue_head_does_not_need(world, job):
    """When `ends` is over, four GPUs are free for the three workers of the head."""
    world.promise(team=16)
    runs = {"long1": "n1", "long2": "n2"}
    for name, node in runs.items():
        world.runs("team", job(name, 6, ends=2 * HOUR), node)
    world.runs("team", job("ends", 2, ends=HOUR), "n1", bound=True)
    world.submit("team", job("head", 1, workers=3))
    world.comes_to(runs={**runs, "ends": "n1"}, waits={"head": NO_ROOM}, stopped={})
    world.runs("team", job("later1", 1, ends=2 * HOUR, priority=LOW), "n2")
    world.submit("team", job("later2", 1, ends=2 * HOUR, priority=LOW))
    runs["later1"] = "n2"
    world.comes_to(
        runs={**runs, "ends": "n1"}, waits={"head": NO_ROOM, "later2": RESERVED}, stopped={}
    )
    world.cancel("team", "ends")
    world.comes_to(runs={**runs, "head": "n1 n1 n2"}, waits={"later2": NO_ROOM}, stopped={})
