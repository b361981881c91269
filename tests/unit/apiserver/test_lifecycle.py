# SPDX-License-Identifier: Apache-2.0
"""Suspend, resume and rerun, against an API server on loopback that accepts the caller's token."""

import asyncio

import pytest
from aiohttp import web
from fake_api import connected

from gpupack_crds import lifecycle


@pytest.fixture
def stored(server):
    """Return a GPUJob that the API server has."""

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
    """Merge annotations and the spec."""

    async def patch(request):
        made, body = server.jobs[request.match_info["name"]], await request.json()
        server.patched_by.append(request.headers["authorization"])
        made["spec"] |= body["spec"]
        notes = made["metadata"]["annotations"] | body["metadata"].get("annotations", {})
        made["metadata"]["annotations"] = {key: notes[key] for key in notes if notes[key]}
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
async def test_a_finished_job_cannot_be_suspended(call, stored, call_of):
    stored("train", "Failed")
    found = await call(f"jobs/team/train/{call_of}", user="tenant", method="POST")
    assert (found.status, found.body["field"]) == (400, "name")
    assert "gpupack rerun" in found.body["fix"]


async def test_a_rerun_creates_a_job_of_the_same_spec_and_keeps_the_old_one(call, server, stored):
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


async def test_a_repeated_rerun_creates_one_job(call, server, stored):
    stored("train", "Succeeded")
    names = {
        (await call("jobs/team/train/rerun", user="tenant", body={}, key="k")).body["name"]
        for _ in range(2)
    }
    assert len(names) == 1
    assert len(server.jobs) == 2


async def test_a_running_job_cannot_be_rerun(call, server, stored):
    stored("train", "Running")
    found = await call("jobs/team/train/rerun", user="tenant", body={})
    assert found.status == 400
    assert "has not ended (Running)" in found.body["fix"]
    assert list(server.jobs) == ["train"]


async def test_a_rerun_with_an_existing_name_is_refused(call, server, stored):
    stored("train", "Failed")
    stored("other", "Running")
    found = await call("jobs/team/train/rerun", user="tenant", body={"name": "other"})
    assert (found.status, found.body["value"]) == (400, "other")


@pytest.fixture
def scripted(server, stored):
    """Store GPUJob `train`, which has ended and mounts its scripts."""
    volumes = [{"name": "scripts", "configMap": {"name": "train"}}]
    stored("train", "Failed", template={"spec": {"volumes": volumes}})
    server.config_maps["train"] = {"metadata": {"name": "train"}, "data": {"a.py": "print()"}}


async def test_a_repeated_rerun_with_scripts_keeps_the_job(call, server, scripted):
    for _ in range(2):
        found = await call("jobs/team/train/rerun", user="tenant", body={}, key="k")
        assert (found.status, found.body["suspended"]) == (201, False)
    name = found.body["name"]
    made, scripts = server.jobs[name], server.config_maps[name]
    assert (made["spec"]["suspend"], server.deleted_by) == (False, [])
    assert made["metadata"]["annotations"] == {"gpupack.dev/rerun-of": "train"}
    assert scripts["data"] == {"a.py": "print()"}
    assert scripts["metadata"]["ownerReferences"][0]["uid"] == f"uid-{name}"


async def test_a_repeated_rerun_does_not_resume_a_suspended_job(call, server, scripted):
    found = await call("jobs/team/train/rerun", user="tenant", body={}, key="k")
    server.jobs[found.body["name"]]["spec"]["suspend"] = True
    again = await call("jobs/team/train/rerun", user="tenant", body={}, key="k")
    assert (again.status, again.body["suspended"]) == (201, True)


async def test_an_interrupted_rerun_stays_suspended_until_it_is_repeated(
    server, scripted, monkeypatch
):
    async def cut_off(*given):
        raise asyncio.CancelledError

    async with connected(server.app()) as (own, _):
        asked = {"namespace": "team", "identity": "k"}
        api = own.on_behalf("Bearer tenant-token")
        with monkeypatch.context() as patch:
            patch.setattr(lifecycle, "_copy", cut_off)
            with pytest.raises(asyncio.CancelledError):
                await lifecycle.rerun(api, "train", **asked)
        (name,) = server.jobs.keys() - {"train"}
        assert server.jobs[name]["spec"]["suspend"] is True
        assert (await lifecycle.rerun(api, "train", **asked)).metadata.name == name
    assert server.jobs[name]["spec"]["suspend"] is False
    assert name in server.config_maps


@pytest.mark.parametrize("is_deleted", [True, False])
async def test_a_rerun_with_refused_scripts_reports_the_reason(call, server, scripted, is_deleted):
    server.forbids_config_maps, server.fails_deletes = True, not is_deleted
    found = await call("jobs/team/train/rerun", user="tenant", body={})
    assert (found.status, "create configmaps" in str(found.body)) == (403, True)
    others = [job["spec"]["suspend"] for name, job in server.jobs.items() if name != "train"]
    assert others == ([] if is_deleted else [True])


async def test_a_rerun_does_not_overwrite_an_existing_config_map(call, server, scripted):
    server.config_maps["other"] = {"metadata": {"name": "other"}, "data": {"a.py": "others"}}
    found = await call("jobs/team/train/rerun", user="tenant", body={"name": "other"})
    assert (found.status, found.body["field"]) == (400, "name")
    assert "ConfigMap team/other exists" in found.body["fix"]
    assert list(server.jobs) == ["train"]
