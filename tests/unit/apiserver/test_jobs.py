# SPDX-License-Identifier: Apache-2.0
import httpx
import pytest
from extender_builders import pod, uuid, whole

from gpupack_apiserver.app import application


@pytest.fixture
def three(job, quota):
    job("one", phase="Running", gpus="2", nodes="a", attempt=1, headline="5 TFLOP/s")
    job("two", priority=5, reason="TooFewFreeGpus", message="no room")
    job("secret", namespace="others", message="of the others")
    for namespace in ("team", "others"):
        quota(namespace, nominal="8", used="2", running=1, waiting=1)


async def test_jobs_are_listed_with_the_values_of_kubectl(call, three):
    found = (await call("jobs", namespace="team")).body["jobs"]
    assert [(each["name"], each["phase"]) for each in found] == [
        ("one", "Running"),
        ("two", "Pending"),
    ]
    assert (found[0]["gpus"], found[0]["result"]) == (2, "5 TFLOP/s")
    assert found[0]["workload"] == "matmul"


async def test_a_caller_that_may_list_all_namespaces_sees_all_jobs(call, three):
    found = (await call("jobs")).body["jobs"]
    assert {each["namespace"] for each in found} == {"team", "others"}


PATHS = ["status", "nodes", "monitoring", "jobs", "queue", "jobs/team/one"]
PATHS += ["quotas", "quotas/history", "holders"]


@pytest.mark.parametrize("path", [*PATHS, "jobs/others/secret"])
async def test_a_tenant_sees_no_job_of_another_tenant(call, three, path):
    found = await call(path, user="tenant")
    text = str(found.body)
    assert "secret" not in text.replace("jobs/others/secret", "")
    assert "of the others" not in text
    assert found.status == (403 if path == "jobs/others/secret" else 200)
    if path in {"jobs", "queue", "quotas"}:
        assert "'team'" in text


@pytest.mark.parametrize("path", ["jobs", "queue", "quotas"])
async def test_a_request_for_a_forbidden_namespace_is_refused(call, three, path):
    found = await call(path, user="tenant", namespace="others")
    assert found.status == 403
    kind = "gpuquotas" if path == "quotas" else "gpujobs"
    assert found.body["detail"] == (
        f"tenant may not list {kind} in namespace others; a RoleBinding there to the ClusterRole "
        "gpupack-view grants it"
    )


async def test_a_caller_without_namespaces_gets_an_empty_list(call, three):
    assert (await call("jobs", user="other")).body["jobs"] == []


@pytest.mark.parametrize("path", ["jobs", "queue", "quotas"])
@pytest.mark.parametrize(("user", "may_list"), [("other", False), ("tenant", True)])
async def test_may_list_distinguishes_missing_permissions_from_an_empty_list(
    call, three, path, user, may_list
):
    assert (await call(path, user=user)).body["may_list"] is may_list


@pytest.mark.parametrize("path", ["jobs", "queue", "quotas"])
@pytest.mark.parametrize(("namespace", "may_list"), [("team", True), ("others", False)])
async def test_in_an_empty_cluster_a_service_accounts_own_namespace_decides_may_list(
    call, server, path, namespace, may_list
):
    name = f"system:serviceaccount:{namespace}:trainer"
    server.users["trainer-token"] = (name, [])
    server.rights |= {(name, kind, "team") for kind in ("gpujobs", "gpuquotas")}
    assert (await call(path, user="trainer")).body["may_list"] is may_list


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("user", ["", "unknown"])
async def test_calls_without_a_valid_token_are_refused(call, three, path, user):
    found = await call(path, user=user)
    assert (found.status, found.headers["www-authenticate"]) == (401, "Bearer")


async def test_the_queue_lists_pending_jobs_with_their_reasons(call, three):
    found = (await call("queue", user="tenant")).body
    assert found["total"] == 1
    assert found["waiting"][0]["message"] == "no room"


async def test_pages_of_jobs_are_complete(call, three):
    first = (await call("jobs", limit=2)).body
    second = (await call("jobs", limit=2, after=first["next"])).body
    names = [each["name"] for each in (*first["jobs"], *second["jobs"])]
    assert names == ["secret", "one", "two"]
    assert second["next"] == ""


async def test_one_job_is_shown_with_its_attempts(call, job):
    job("tried", attempts=[{"number": 1, "outcome": "Failed", "reason": "ExitCode", "nodes": "a"}])
    (attempt,) = (await call("jobs/team/tried")).body["attempts"]
    assert (attempt["number"], attempt["outcome"], attempt["nodes"]) == (1, "Failed", "a")
    missing = await call("jobs/team/absent")
    assert (missing.status, missing.body["detail"]) == (404, "there is no GPUJob team/absent")


@pytest.mark.parametrize(
    "query", [{"namespace": "No Name"}, {"phase": "Sleeping"}, {"limit": 10**6}]
)
async def test_an_invalid_namespace_phase_or_limit_is_refused_by_name(call, query):
    found = await call("jobs", **query)
    assert (found.status, found.body["field"]) == (400, next(iter(query)))


async def test_a_token_behind_a_proxy_is_read_from_another_header(parts, three):
    transport = httpx.ASGITransport(application(parts))
    headers = {"Gpupack-Authorization": "Bearer tenant-token", "Authorization": "Basic cHJveHk6"}
    async with httpx.AsyncClient(transport=transport, base_url="https://api") as client:
        answer = await client.get("/api/v1/gpu/jobs", headers=headers)
    assert answer.status_code == 200
    assert {each["namespace"] for each in answer.json()["jobs"]} == {"team"}


SLOWLY = 0.001
"""Calls per second: so low that a slow test gets no further call."""


async def test_a_caller_with_too_many_requests_has_to_wait(call, parts, server):
    parts.rights.limit(at_once=50, per_second=SLOWLY)
    answers = [await call("health", user="")] + [await call("jobs") for _ in range(60)]
    assert answers[-1].status in {200, 429}
    assert 429 in {each.status for each in answers}


async def test_service_accounts_of_a_namespace_share_a_rate_limit(call, parts, server):
    parts.rights.limit(at_once=50, per_second=SLOWLY)
    names = [f"system:serviceaccount:team:{number}" for number in range(60)]
    server.users |= {f"{name}-token": (name, []) for name in names}
    found = [(await call("jobs", user=name)).status for name in names]
    assert found[0] == 200
    assert 429 in found
    assert (await call("jobs", user="tenant")).status == 200


async def test_permissions_are_cached(call, server, three):
    for _ in range(5):
        await call("jobs", user="tenant")
    assert server.reviews == 1 + 1 + 2


async def test_a_job_is_shown_with_the_gpus_of_its_workers(call, job):
    held = {"node": "a", "workers": "0-1", "gpus": [uuid("a", 2), "GPU-gone"], "memoryMiB": [81559]}
    job("placed", phase="Running", attempt=1, placement=[held])
    first, second = (await call("jobs/team/placed")).body["workers"]
    assert (first["worker"], first["node"], second["worker"]) == (0, "a", 1)
    assert first["devices"] == [
        {"index": 2, "uuid": uuid("a", 2), "percent": 100, "memory_mib": 81559}
    ]
    assert second["devices"][0]["index"] is None


@pytest.mark.parametrize("sharing", [True, False], ids=["one pod", "a pod for each"])
async def test_a_job_is_shown_with_the_pods_of_its_workers(call, job, model, server, sharing):
    held = {"node": "a", "workers": "0-1", "gpus": [uuid("a", 2), uuid("a", 1)]}
    attempts = [{"number": 1, "sharesPods": sharing}]
    placement = [held | {"memoryMiB": [81559]}]
    job("gang", phase="Running", attempt=1, placement=placement, attempts=attempts)
    pods = {"p0": (0, (2, 1))} if sharing else {"w0": (0, (2,)), "w1": (1, (1,))}
    for name, (index, devices) in pods.items():
        model.ledger.pods.upsert(
            pod(
                name,
                on="a",
                gpus=len(devices),
                devices=whole("a", *devices),
                phase="Running",
                worker=("gang", 1, index, "uid-team-gang"),
            )
        )
    shown = (await call("jobs/team/gang", user="tenant")).body["workers"]
    assert [each["pod"] for each in shown] == (["p0", "p0"] if sharing else ["w0", "w1"])
    holders = (await call("holders")).body["holders"]
    assert {each["uuid"]: (each["job"], each["worker"]) for each in holders} == {
        uuid("a", 2): ("gang", 0),
        uuid("a", 1): ("gang", 1),
    }
    server.rights.add(("other", "gpujobs", "team"))
    shown = (await call("jobs/team/gang", user="other")).body["workers"]
    assert [each["pod"] for each in shown] == ["", ""], "the caller may not list pods"


async def test_a_finished_job_has_no_workers(call, job):
    held = {"node": "a", "workers": "0", "gpus": [uuid("a", 2)], "memoryMiB": [81559]}
    job("over", phase="Succeeded", attempt=1, placement=[held])
    assert (await call("jobs/team/over")).body["workers"] == []
