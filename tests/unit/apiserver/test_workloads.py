# SPDX-License-Identifier: Apache-2.0
"""The caller's own program on the GPUs of an allocation."""

import msgspec
import pytest
from extender_builders import uuid

from gpupack_apiserver.routes import allocations
from gpupack_apiserver.shown_job import ShownJob

TEAM = {"namespace": "team", "gpu_count": 1}
TRAIN = {"image": "train:1", "command": ["torchrun", "train.py"], "environment": {"SEED": "1"}}


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(allocations, "WAIT_SECONDS", 0.3)
    monkeypatch.setattr(allocations, "POLL_SECONDS", 0.01)


@pytest.fixture(autouse=True)
def operator(model, server):
    """Run every revision at once, like the operator; `slow`: later ones with a delay."""

    class Operator:
        slow = False

        def run(self, body):
            revision = body["spec"].get("revision", 0)
            placed = {"node": "a", "workers": "0", "gpus": [uuid("a", 1)], "memoryMiB": [81559]}
            body["status"] = {
                "phase": "Running",
                "attempt": 1 + revision,
                "revision": 0 if self.slow else revision,
                "placement": [placed],
                "startedAt": "2026-11-24T10:00:00Z",
            }
            model.jobs.upsert(msgspec.json.decode(msgspec.json.encode(body), type=ShownJob))

    made = Operator()
    server.on_created = made.run
    return made


@pytest.fixture
async def held(call):
    return (await call("allocate", user="tenant", body=TEAM)).body["allocation_id"]


async def run(call, held, *, user="tenant", **more):
    body = TRAIN | more.pop("body", {})
    return await call(f"allocations/{held}/workload", user=user, body=body, **more)


async def test_a_workload_replaces_the_program_that_holds_the_gpus(call, held, server):
    found = await run(call, held)
    assert (found.status, found.body["success"], found.body["node_name"]) == (200, True, "a")
    assert server.patched_by == ["Bearer tenant-token"]
    (made,) = server.jobs.values()
    (worker,) = made["spec"]["template"]["spec"]["containers"]
    assert (worker["image"], worker["command"]) == ("train:1", ["torchrun", "train.py"])
    assert worker["env"] == [{"name": "SEED", "value": "1"}]
    assert made["spec"]["revision"] == 1
    assert made["spec"]["activeDeadlineSeconds"] == 3600


async def test_a_workload_that_does_not_run_yet_is_reported(call, held, operator):
    operator.slow = True
    found = await run(call, held)
    assert (found.status, found.body["success"], found.body["phase"]) == (200, False, "Running")


async def test_a_new_program_is_a_new_revision_and_a_repeated_key_is_not(call, held, server):
    (made,) = server.jobs.values()
    await run(call, held, key="k")
    await run(call, held, key="k")
    assert made["spec"]["revision"] == 1
    await run(call, held, key="l")
    await run(call, held)
    await run(call, held)
    assert made["spec"]["revision"] == 4


async def test_a_workload_is_written_despite_concurrent_writes(call, held, server):
    server.conflicts = 2
    assert (await run(call, held)).body["success"]
    server.conflicts = 99
    assert (await run(call, held)).status == 409


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"image": ""}, "image"),
        ({"image": "a b"}, "image"),
        ({"command": []}, "command"),
        ({"command": "torchrun"}, "command"),
        ({"environment": {"A": 1}}, "environment"),
        ({"environment": {"A=B": "1"}}, "environment"),
        ({"environment": {"": "1"}}, "environment"),
        ({"command": ["x"] * 65}, "command"),
        ({"gpus": 2}, "gpus"),
    ],
)
async def test_an_invalid_workload_is_refused_without_a_change(call, held, server, body, field):
    found = await run(call, held, body=body)
    assert (found.status, server.patched_by) == (400, [])
    assert field in found.body["detail"] + found.body.get("field", "")


async def test_a_repeated_call_returns_the_answer_of_a_finished_program(call, held, server):
    await run(call, held, key="k")
    (made,) = server.jobs.values()
    made["status"]["phase"] = "Succeeded"
    assert (await run(call, held, key="k")).status == 200
    assert (await run(call, held, key="l")).status == 400


async def test_pods_declare_a_non_root_user_on_request(call, held, server):
    (made,) = server.jobs.values()
    await run(call, held)
    assert made["spec"]["template"]["spec"]["securityContext"] is None
    assert made["spec"]["template"]["spec"]["imagePullSecrets"] is None
    await run(call, held, body={"non_root": True})
    assert made["spec"]["template"]["spec"]["securityContext"] == {"runAsNonRoot": True}


async def test_a_finished_allocation_runs_no_workload(call, held, server):
    (made,) = server.jobs.values()
    made["status"]["phase"] = "Failed"
    found = await run(call, held)
    assert (found.status, server.patched_by) == (400, [])


async def test_a_gpujob_that_is_no_allocation_gets_no_workload(call, job, server):
    job("training", phase="Running")
    server.jobs["training"] = {"metadata": {"name": "training", "namespace": "team", "uid": "u"}}
    assert (await run(call, "team/training")).status == 404
    assert server.patched_by == []


async def test_a_tenant_cannot_reach_an_allocation_of_another_tenant(call, held, server):
    assert (await run(call, "others/allocation-1")).status == 403
    assert (await run(call, held, user="other")).status == 403
    assert server.patched_by == []
