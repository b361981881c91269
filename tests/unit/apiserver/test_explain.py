# SPDX-License-Identifier: Apache-2.0
import datetime as dt

import msgspec
import pytest
from extender_builders import job as placed_job

from gpupack_apiserver.shown_job import ShownJob
from gpupack_scheduler.queueing.pending.pending_requests import MAX_KINDS
from gpupack_scheduler.queueing.read_only_queue import MAX_TRIED
from gpupack_scheduler.requests import gang_request


@pytest.fixture
def full(model):
    """Run jobs of another namespace on all GPUs of both nodes."""
    for name in ("a", "b"):
        shown = placed_job(
            f"on-{name}",
            attempt=1,
            phase="Running",
            placed=[(name, (0, 1, 2, 3))],
            namespace="other",
        )
        built = msgspec.to_builtins(shown)
        model.jobs.upsert(msgspec.json.decode(msgspec.json.encode(built), type=ShownJob))


@pytest.fixture
def explain(call):
    async def asked(name, namespace="team", *, user="tenant"):
        found = await call(f"jobs/{namespace}/{name}/explain", user=user)
        assert found.status == 200, found.body
        return found.body

    return asked


async def test_a_pending_job_gets_its_position_and_advice(explain, full, job):
    job("first", spec={"gpus": 4})
    job("second", spec={"gpus": 4})
    found = await explain("second")
    assert (found["phase"], found["reason"]) == ("Pending", "TooFewFreeGpus")
    assert (found["position"], found["waiting"]) == (2, 2)
    assert found["ahead"] == [{"namespace": "team", "name": "first", "kind": "GPUJob"}]
    assert found["fits_now"] is False
    assert "0 of 2 nodes fit" in found["message"]


async def test_a_job_with_an_order_of_models_shows_which_it_may_use(explain, full, job):
    order = {"gpuModels": ["H300", "H100"], "gpuModelFallback": {"afterSeconds": 600}}
    job("first", spec={"gpus": 4, **order})
    job("second", spec={"gpus": 4})
    found = await explain("first")
    assert found["models"] == {
        "permitted": ["H300", "H100"],
        "following": [],
        "following_at": None,
        "skipped": ["H300"],
    }
    assert "it does not wait for H300, on which it can never start" in found["message"]
    assert (await explain("second"))["models"] is None


async def test_jobs_of_hidden_namespaces_are_only_counted(explain, full, job):
    for name in ("x", "y"):
        job(name, namespace="aside", spec={"gpus": 4})
    job("mine", spec={"gpus": 4})
    found = await explain("mine")
    assert (found["ahead"], found["ahead_hidden"]) == ([], 2)
    seen = await explain("mine", user="admin")
    assert [each["name"] for each in seen["ahead"]] == ["x", "y"]


async def test_a_job_that_fits_is_blocked_by_the_queue_head(explain, model, full, job):
    job("first", spec={"gpus": 4})
    job("small", spec={"gpus": 1})
    model.jobs.remove(model.jobs.by_key["other", "on-a"])
    found = await explain("first")
    assert found["fits_now"] is True
    assert found["reason"] == "AdmissionPending"


async def test_explain_and_queue_show_the_same_positions(call, explain, job):
    for name in ("first", "second"):
        job(name, spec={"gpus": 4})
    listed = (await call("queue", user="tenant")).body["waiting"]
    for each in listed:
        found = await explain(each["name"])
        assert found["reason"] == "AdmissionPending"
        assert (found["position"], found["waiting"]) == (each["position"], 2)
        assert len(found["ahead"]) == each["position"] - 1


@pytest.mark.parametrize("reason", ["CreationForbidden", "PriorityClassMissing"])
async def test_a_job_outside_the_queue_is_explained_by_its_status(explain, job, reason):
    job("odd", reason=reason, message="see to it")
    found = await explain("odd")
    assert (found["reason"], found["message"]) == (reason, "see to it")
    assert (found["position"], found["fits_now"]) == (None, None)


def test_a_revised_job_is_explained_by_its_status(model, full, job):
    job("revised", heldSince="2026-11-24T11:00:00Z")
    model.queue_copy.follow()
    (waiting,) = model.queue_copy.observed.queue.jobs()
    assert waiting.held_since - waiting.submitted == 3600


@pytest.mark.parametrize(("ago", "avoided"), [(590, {"a"}), (610, set())])
def test_a_pending_job_avoids_the_node_of_its_last_failure(model, full, job, ago, avoided):
    ended = dt.datetime.fromtimestamp(model.queue_copy.observed.now() - ago, dt.UTC).isoformat()
    broke = {"number": 1, "finishedAt": ended, "fault": {"worker": 0, "node": "a"}}
    job("again", reason="TooFewFreeGpus", attempt=1, attempts=[broke])
    model.queue_copy.follow()
    (waiting,) = model.queue_copy.observed.queue.jobs()
    assert waiting.avoid == avoided


async def test_a_running_job_is_not_explained_as_pending(explain, full, job):
    found = await explain("on-a", namespace="other", user="admin")
    assert (found["phase"], found["position"], found["would_help"]) == ("Running", None, [])


async def test_explaining_a_missing_job_is_answered_404(call):
    found = await call("jobs/team/none/explain", user="tenant")
    assert found.status == 404


async def test_a_tenant_may_not_explain_another_tenants_job(call, job):
    job("theirs", namespace="other")
    found = await call("jobs/other/theirs/explain", user="tenant")
    assert found.status == 403


def test_jobs_beyond_the_queue_limit_enter_when_others_leave(model, job, monkeypatch):
    for number in range(MAX_KINDS + 100):
        job(f"j-{number:03}", spec={"gpus": 1, "workers": number + 1})
    model.queue_copy.follow()
    queue = model.queue_copy.observed.queue
    assert len(queue) == MAX_KINDS
    tried = []

    def asked(shown, *given, of=gang_request.of_placed):
        tried.append(shown.metadata.name)
        return of(shown, *given)

    monkeypatch.setattr(gang_request, "of_placed", asked)
    model.queue_copy.follow()
    assert len(tried) == MAX_TRIED
    for number in range(MAX_KINDS):
        model.jobs.remove(model.jobs.by_key["team", f"j-{number:03}"])
    rounds = -(-100 // MAX_TRIED) + 1
    for _ in range(rounds):
        model.queue_copy.follow()
    assert len(queue) == MAX_KINDS
    assert len(tried) <= (rounds + 1) * MAX_TRIED
