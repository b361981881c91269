# SPDX-License-Identifier: Apache-2.0
"""GPUJobs with roles in the scheduler: planned together, and found again after a restart."""

import msgspec
import pytest
from extender_builders import job, places, plan_request, pod, share_limits, whole

from gpupack_crds.plan import PlanRefusal, PlanRequest, PlanResponse
from gpupack_scheduler.errors import RequestInvalid
from gpupack_scheduler.ledger import claims
from gpupack_scheduler.ledger.placed_job import PlacedJob
from gpupack_scheduler.requests import gang_request

SHARE = {"percent": 40, "memory": "8Gi"}
ROLES = [{"name": "leader", "share": SHARE}, {"name": "worker", "workers": 2, "gpus": 3}]


def cpu(number):
    return {"containers": [{"name": "w", "resources": {"requests": {"cpu": str(number)}}}]}


PODS = [cpu(1), cpu(8)]


def request(name="train", *, roles=ROLES, pods=PODS, attempt=1, **spec):
    built = msgspec.json.decode(msgspec.json.encode(plan_request(name, attempt=attempt)))
    built |= {"spec": {"roles": roles, **spec}, "podSpec": {}, "rolePods": pods}
    return msgspec.json.decode(msgspec.json.encode(built), type=PlanRequest)


def shown(world, name="train", *, restarted=True, planned=PODS, phase="Admitted", **spec):
    """The watch shows the job as the operator wrote it."""
    held = world.ledger.plan_of(world.attempt(name))
    placed = [(claim.placement.node, claims.shares(claim.placement)) for claim in held]
    built = msgspec.to_builtins(job(name, attempt=1, phase=phase, placed=placed))
    whole_job = {
        "metadata": built["metadata"],
        "spec": {"roles": ROLES, **spec},
        "status": {
            "attempt": 1,
            "phase": phase,
            "placement": built["status"]["placement"],
            "roles": [
                {"name": role["name"], "plannedPod": {"spec": pod}}
                for role, pod in zip(ROLES, planned, strict=True)
            ],
        },
    }
    read = msgspec.json.decode(msgspec.json.encode(whole_job), type=type(job(name)))
    if restarted:
        restart(world)
    world.ledger.jobs.upsert(read)
    world.decide()
    return read


def restart(world):
    """Another process, which knows only what the watch shows."""
    world.use(world.new_ledger())
    for each in ("a", "b"):
        world.add_node(each)


def running(world):
    (found,) = world.owner.queue.state.running
    return found


def sizes(placements):
    return [(len(each.devices), each.devices[0].milli, each.cpu) for each in placements]


def test_workers_of_all_roles_get_places_of_their_size(world):
    answer = world.plan(request())
    assert isinstance(answer, PlanResponse)
    held = [(each.worker, len(each.devices), each.devices[0].percent) for each in places(answer)]
    assert held == [(0, 1, 40), (1, 3, 100), (2, 3, 100)]
    assert world.plan(request()) == answer


def test_a_gang_of_roles_gets_all_places_or_none(world):
    world.asks("other", gpus=2)
    assert isinstance(world.plan(request()), PlanRefusal)
    assert world.ledger.plan_of(world.attempt("train")) == ()


def test_limits_hold_for_a_role_and_for_the_whole_job(world):
    apart = [ROLES[0], {**ROLES[1], "gpus": 1, "spread": {"oneWorkerPerNode": True}}]
    nodes = [each.node for each in places(world.plan(request(roles=apart)))]
    assert len(set(nodes[1:])) == 2
    together = [ROLES[0], {**ROLES[1], "gpus": 1}]
    one = world.plan(request("one", roles=together, spread={"maxNodes": 1}))
    assert len({each.node for each in places(one)}) == 1
    with pytest.raises(RequestInvalid, match=r"max_nodes"):
        world.plan(request("never", roles=apart, spread={"maxNodes": 1}))


@pytest.mark.parametrize("pods", [[], PODS[:1]])
def test_each_role_needs_a_pod(world, pods):
    with pytest.raises(RequestInvalid, match=f"2 roles have {len(pods)} pods"):
        world.plan(request(pods=pods))


def test_an_admitted_job_is_found_with_the_size_of_each_role(world):
    answer = world.plan(request())
    before = sizes(running(world).placements)
    shown(world)
    found = running(world)
    assert sizes(found.placements) == before == [(1, 400, 1000), (3, 1000, 8000), (3, 1000, 8000)]
    assert [(r.workers, r.request.gpus) for r in found.job.gang.roles] == [(1, None), (2, 3)]
    assert not found.job.movable
    assert places(answer)[0].node in {"a", "b"}


def test_a_movable_job_is_found_with_its_request(world):
    world.plan(request(movable=True))
    asked = running(world).job.gang
    shown(world, movable=True)
    found = running(world).job
    assert found.movable
    assert found.gang == asked
    assert [role.name for role in found.gang.roles] == ["leader", "worker"]


def test_a_job_whose_pod_is_too_large_to_be_stored_does_not_move(world):
    world.plan(request(movable=True))
    built = shown(world, restarted=False, movable=True)
    large = msgspec.structs.replace(built.status.roles[0].planned_pod, omitted=True)
    roles = (
        msgspec.structs.replace(built.status.roles[0], planned_pod=large),
        built.status.roles[1],
    )
    job_ = msgspec.structs.replace(built, status=msgspec.structs.replace(built.status, roles=roles))
    assert gang_request.of_placed(built, ()) is not None
    assert gang_request.of_placed(job_, ()) is None


def test_a_pod_gets_the_place_of_its_worker_only_with_the_gpus_of_its_role(world):
    world.plan(request())
    shown(world, restarted=False)
    node = places(world.plan(request()))[0].node
    worker = ("train", 1, 0)
    wrong = pod("wrong", gpus=3, worker=worker)
    assert not world.filter(wrong).node_names
    right = pod("right", asking=share_limits(40), worker=worker)
    assert list(world.filter(right).node_names) == [node]


def test_a_preemption_for_a_job_with_roles_is_found_again(world):
    """The places are reserved with the needs of each role's pod."""
    built = msgspec.to_builtins(job("train"))
    placed = [("a", whole("a", 0)), ("b", whole("b", 0, 1))]
    placement = msgspec.to_builtins(job("train", attempt=1, placed=placed).status.placement)
    roles = [{"name": "leader", "gpus": 1}, {"name": "worker", "gpus": 2}]
    whole_job = {
        "metadata": built["metadata"],
        "spec": {"roles": roles},
        "status": {
            "phase": "Pending",
            "preemption": {
                "since": "1970-01-01T00:16:00Z",
                "victims": [{"reason": "Priority", "attempts": ["uid-other/1"]}],
                "placement": placement,
            },
            "roles": [
                {"name": role["name"], "plannedPod": {"spec": pod}}
                for role, pod in zip(roles, PODS, strict=True)
            ],
        },
    }
    world.ledger.jobs.upsert(
        msgspec.json.decode(msgspec.json.encode(whole_job), type=type(job("train")))
    )
    needs = world.ledger.jobs.shown("uid-train").needs_of_workers
    assert [next(needs).cpu for _ in range(4)] == [1000, 8000, 8000, 8000]


def test_of_each_role_one_of_template_and_planned_pod_is_stored():
    """All jobs are in memory; the job ends within the longest grace period of a role."""
    template = {"spec": {"terminationGracePeriodSeconds": 600, "nodeSelector": {"a": "x" * 9000}}}
    written = {
        "metadata": {"name": "train", "namespace": "lab", "uid": "1"},
        "spec": {"roles": [each | {"template": template} for each in ROLES]},
        "status": {"roles": [{"name": "leader", "plannedPod": {"spec": cpu(1)}}]},
    }
    read = msgspec.json.decode(msgspec.json.encode(written), type=PlacedJob)
    assert [role.template is None for role in read.spec.roles] == [True, False]
    assert read.grace == 600
