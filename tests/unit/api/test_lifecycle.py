# SPDX-License-Identifier: Apache-2.0
"""Suspend, resume and rerun, against an API server on loopback that takes the caller's token."""

import pytest
from aiohttp import web


@pytest.fixture
def stored(server):
    """A GPUJob that the API server holds."""

    def store(name, phase, **spec):
        server.jobs[name] = {
            "metadata": {
                "name": name,
                "namespace": "team",
                "uid": f"uid-{name}",
                "resourceVersion": "1",
                "labels": {"app": "x", "gpupack.dev/acceptance-of": "a"},
                "annotations": {},
            },
            "spec": {"gpus": 1, "revision": 3, **spec},
            "status": {"phase": phase, "results": [{"worker": 0}]},
        }

    return store


@pytest.fixture(autouse=True)
def patched(server):
    """A merge of the spec alone."""

    async def patch(request):
        made, body = server.jobs[request.match_info["name"]], await request.json()
        server.patched_by.append(request.headers["authorization"])
        made["spec"] |= body["spec"]
        return web.json_response(made)

    server.patch = patch


@pytest.mark.parametrize(("call_of", "says"), [("suspend", True), ("resume", False)])
async def test_a_job_is_suspended_and_resumed_with_the_callers_token(
    call, server, stored, call_of, says
):
    stored("train", "Running", suspend=not says)
    found = await call(f"jobs/team/train/{call_of}", user="tenant", method="POST")
    assert (found.status, found.body["suspended"]) == (200, says)
    assert server.jobs["train"]["spec"]["suspend"] is says
    assert server.patched_by == ["Bearer tenant-token"]
    again = await call(f"jobs/team/train/{call_of}", user="tenant", method="POST")
    assert (again.status, len(server.patched_by)) == (200, 1)


@pytest.mark.parametrize("call_of", ["suspend", "resume"])
async def test_a_job_that_has_ended_is_not_suspended(call, stored, call_of):
    stored("train", "Failed")
    found = await call(f"jobs/team/train/{call_of}", user="tenant", method="POST")
    assert (found.status, found.body["field"]) == (400, "name")
    assert "gpupack rerun" in found.body["fix"]


async def test_a_rerun_is_a_new_job_of_the_same_spec_and_the_old_one_stays(call, server, stored):
    stored("train", "Failed", suspend=False)
    before = str(server.jobs["train"])
    first = await call("jobs/team/train/rerun", user="tenant", body={})
    assert (first.status, first.body["name"]) == (201, "train-rerun-1")
    made = server.jobs["train-rerun-1"]
    assert made["spec"] == {"gpus": 1}
    assert made["metadata"]["labels"] == {"app": "x"}
    assert made["metadata"]["annotations"] == {"gpupack.dev/rerun-of": "train"}
    assert "status" not in made
    assert str(server.jobs["train"]) == before
    second = await call("jobs/team/train/rerun", user="tenant", body={})
    assert second.body["name"] == "train-rerun-2"


async def test_a_rerun_that_is_sent_twice_makes_one_job(call, server, stored):
    stored("train", "Succeeded")
    names = {
        (await call("jobs/team/train/rerun", user="tenant", body={}, key="k")).body["name"]
        for _ in range(2)
    }
    assert len(names) == 1
    assert len(server.jobs) == 2


async def test_what_runs_is_not_rerun(call, server, stored):
    stored("train", "Running")
    found = await call("jobs/team/train/rerun", user="tenant", body={})
    assert found.status == 400
    assert "has not ended (Running)" in found.body["fix"]
    assert list(server.jobs) == ["train"]


async def test_a_taken_name_is_refused(call, server, stored):
    stored("train", "Failed")
    stored("other", "Running")
    found = await call("jobs/team/train/rerun", user="tenant", body={"name": "other"})
    assert (found.status, found.body["value"]) == (400, "other")
