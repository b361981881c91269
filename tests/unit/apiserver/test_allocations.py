# SPDX-License-Identifier: Apache-2.0
import msgspec
import pytest
from extender_builders import uuid

from gpupack_apiserver.routes import allocations
from gpupack_apiserver.shown_job import ShownJob

TEAM = {"namespace": "team", "gpu_count": 2, "gpu_type": "H100", "memory_gb": 80}


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(allocations, "WAIT_SECONDS", 0.3)
    monkeypatch.setattr(allocations, "POLL_SECONDS", 0.01)


@pytest.fixture
def operator(model, server):
    """Run created jobs on node a, like operator and kubelet; `places` False: they wait."""

    class Operator:
        places = True

        def run(self, body):
            status = {"phase": "Pending", "message": "no room"}
            if self.places:
                placed = {"node": "a", "workers": "0", "gpus": [uuid("a", 1), uuid("a", 2)]}
                status = {
                    "phase": "Running",
                    "attempt": 1,
                    "placement": [placed | {"memoryMiB": [81559]}],
                    "attempts": [{"number": 1, "startedAt": "2026-11-24T10:00:00Z"}],
                }
            shown = msgspec.json.encode(body | {"status": status})
            model.jobs.upsert(msgspec.json.decode(shown, type=ShownJob))

    made = Operator()
    server.on_created = made.run
    return made


async def test_an_allocation_is_a_gpujob_of_the_caller(call, operator, server):
    found = await call("allocate", user="tenant", body=TEAM)
    assert (found.status, found.body["success"], found.body["node_name"]) == (201, True, "a")
    assert found.body["gpu_config"]["workers"] == [
        {"node_name": "a", "device_ids": [1, 2], "device_uuids": [uuid("a", 1), uuid("a", 2)]}
    ]
    assert found.body["expires"] == "2026-11-24T11:00:00Z"
    assert server.created_by == ["Bearer tenant-token"]
    (made,) = server.jobs.values()
    assert made["spec"]["gpus"] == 2
    assert made["spec"]["gpuModels"] == ["H100"]
    assert made["spec"]["activeDeadlineSeconds"] == 3600
    pod = made["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == "hold:1"
    assert pod["containers"][0]["imagePullPolicy"] == "Always"
    assert pod["imagePullSecrets"] == [{"name": "mine"}]


async def test_an_allocation_without_free_gpus_is_pending_with_its_reason(call, operator):
    operator.places = False
    found = await call("allocate", user="tenant", body=TEAM)
    assert (found.status, found.body["success"], found.body["node_name"]) == (201, False, "")
    assert found.body["message"] == "no room"
    assert found.body["gpu_config"]["workers"] == []


async def test_an_allocation_is_shown_and_released_by_its_id(call, operator, server):
    made = (await call("allocate", user="tenant", body=TEAM)).body["allocation_id"]
    assert (await call(f"allocations/{made}", user="tenant")).body["success"]
    gone = await call(f"allocations/{made}", user="tenant", method="DELETE")
    assert gone.status == 204
    assert server.deleted_by == ["Bearer tenant-token"]
    assert server.jobs == {}


async def test_one_key_of_a_user_creates_one_allocation(call, operator, server):
    first = (await call("allocate", user="tenant", body=TEAM, key="k")).body["allocation_id"]
    second = (await call("allocate", user="tenant", body=TEAM, key="k")).body["allocation_id"]
    of_other = (await call("allocate", user="admin", body=TEAM, key="k")).body["allocation_id"]
    assert first == second != of_other
    assert len(server.jobs) == 2


async def test_a_refusal_of_the_api_server_is_passed_on(call, operator):
    found = await call("allocate", user="tenant", body=TEAM | {"namespace": "others"})
    assert (found.status, found.type) == (403, "application/problem+json")
    assert found.body["detail"] == "you may not create gpujobs in others"


async def test_a_user_that_is_no_service_account_has_to_name_a_namespace(call):
    found = await call("allocate", user="tenant", body={"gpu_count": 1})
    assert (found.status, found.body["field"]) == (400, "namespace")


async def test_a_service_account_needs_no_namespace(call, operator, server):
    name = "system:serviceaccount:team:trainer"
    server.users[f"{name}-token"] = (name, [])
    found = await call("allocate", user=name, body={"gpu_count": 1})
    assert found.body["allocation_id"].startswith("team/allocation-")


async def test_a_gpujob_that_is_no_allocation_is_neither_shown_nor_released(call, job, server):
    job("training", phase="Running")
    for method in ("GET", "DELETE"):
        found = await call("allocations/team/training", user="tenant", method=method)
        assert (found.status, server.deleted_by) == (404, [])


@pytest.mark.parametrize("seconds", [1, 10**7])
async def test_the_time_of_an_allocation_is_limited(call, seconds):
    found = await call("allocate", user="tenant", body=TEAM | {"seconds": seconds})
    assert (found.status, found.body["field"]) == (400, "seconds")


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_a_tenant_cannot_reach_an_allocation_of_another_tenant(call, method):
    found = await call("allocations/others/allocation-1", user="tenant", method=method)
    assert found.status == 403


async def test_a_reused_key_does_not_return_a_deleted_allocation(call, operator, server, model):
    made = (await call("allocate", user="tenant", body=TEAM, key="k")).body["allocation_id"]
    name = made.partition("/")[2]
    before = model.jobs.by_key["team", name]
    server.jobs.clear()
    server.on_created = lambda body: body["metadata"].update(uid="uid-of-the-second")
    found = await call("allocate", user="tenant", body=TEAM, key="k")
    assert model.jobs.by_key["team", name] is before
    assert (found.status, found.body["success"], found.body["node_name"]) == (201, False, "")


async def test_an_allocation_that_is_being_released_is_not_held(call, operator, model, server):
    made = (await call("allocate", user="tenant", body=TEAM, key="k")).body["allocation_id"]
    (body,) = server.jobs.values()
    body["metadata"]["deletionTimestamp"] = "2026-11-24T10:30:00Z"
    operator.run(body)
    found = (await call(f"allocations/{made}", user="tenant")).body
    assert (found["success"], found["message"]) == (False, "it is being released")
    assert found["gpu_config"]["workers"] == []


async def test_a_gpujob_with_an_allocations_name_is_no_allocation(call, operator, server):
    await call("allocate", user="tenant", body=TEAM, key="k")
    (body,) = server.jobs.values()
    del body["metadata"]["labels"]
    found = await call("allocate", user="tenant", body=TEAM, key="k")
    assert (found.status, found.body["field"]) == (400, "Idempotency-Key")
    assert (found.body["value"], "is no allocation" in found.body["fix"]) == ("k", True)
