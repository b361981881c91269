# SPDX-License-Identifier: Apache-2.0
"""The REST API as a client calls it: by a port-forward, with tokens of service accounts."""

import pytest
from harness import wait_for
from rest_clients import client, viewer


@pytest.fixture
def api(system):
    with client(system) as calling:
        yield calling


def test_a_tenant_sees_the_cluster_and_its_own_jobs(kube, system, api, judged):
    with viewer(kube) as token:
        bearer = {"Authorization": f"Bearer {token}"}
        kube.submit(judged.job("seen", gpus=1, workers=1, seconds=20))
        kube.wait_phase("seen", "Running")
        status = api.get("status", headers=bearer)
        assert status.status_code == 200, status.text
        assert status.json()["total_gpus"] > status.json()["available_gpus"]
        (job,) = api.get("jobs", headers=bearer).json()["jobs"]
        assert (job["namespace"], job["name"], job["phase"]) == (kube.namespace, "seen", "Running")
        held = [
            gpu
            for node in api.get("nodes", headers=bearer).json()["nodes"]
            if node["node_name"] == job["nodes"]
            for gpu in node["devices"]
            if gpu["free_percent"] == 0
        ]
        assert held
        refused = api.get("jobs", params={"namespace": system.namespace}, headers=bearer)
        assert refused.status_code == 403
        assert refused.headers["content-type"] == "application/problem+json"


def test_unauthenticated_callers_get_only_the_health(api):
    assert api.get("health").json() == {"status": "ok", "missing": ""}
    for path in ("status", "nodes", "jobs", "queue", "quotas", "monitoring"):
        assert api.get(path).status_code == 401
        forged = {"Authorization": "Bearer forged"}
        assert api.get(path, headers=forged).status_code in {401, 429}


def test_a_pending_job_shows_the_reason(kube, api, judged):
    with viewer(kube) as token:
        bearer = {"Authorization": f"Bearer {token}"}
        kube.submit(judged.job("too-big", gpus=8, workers=9, seconds=1))
        (waiting,) = wait_for(
            lambda: (
                [
                    each
                    for each in api.get("queue", headers=bearer).json()["waiting"]
                    if each["message"]
                ]
                or None
            ),
            seconds=60,
            what="the queue tells why",
        )
        assert waiting["reason"] == "Unsatisfiable"


def test_gpus_are_held_for_a_caller_until_their_release(kube, api):
    with viewer(kube, "gpupack-edit") as token:
        bearer = {"Authorization": f"Bearer {token}", "Idempotency-Key": "the-same"}
        asked = {"gpu_count": 2, "gpu_type": "H100", "seconds": 300}
        made = api.post("allocate", json=asked, headers=bearer)
        assert made.status_code == 201, made.text
        # Parallel tests may hold the GPUs for a while.
        path = f"allocations/{made.json()['allocation_id']}"
        held = wait_for(
            lambda: found if (found := api.get(path, headers=bearer).json())["success"] else None,
            seconds=120,
            what="the GPUs are held",
        )
        (worker,) = held["gpu_config"]["workers"]
        assert len(worker["device_uuids"]) == 2
        again = api.post("allocate", json=asked, headers=bearer).json()
        assert again["gpu_config"] == held["gpu_config"]
        namespace, name = held["allocation_id"].split("/")
        assert namespace == kube.namespace
        assert kube.gpujob(name)["status"]["phase"] == "Running"
        released = api.delete(path, headers=bearer)
        assert released.status_code == 204, released.text
        wait_for(
            lambda: kube.kubectl("get", "gpujob", name).returncode != 0,
            seconds=60,
            what="the allocation is gone",
        )


def test_the_callers_program_runs_on_the_gpus_that_were_held_for_it(kube, api, judged):

    with viewer(kube, "gpupack-edit") as token:
        bearer = {"Authorization": f"Bearer {token}"}
        asked = {"gpu_count": 1, "seconds": 300}
        made = api.post("allocate", json=asked, headers=bearer)
        assert made.status_code == 201, made.text
        path = f"allocations/{made.json()['allocation_id']}"

        def begun():
            answer = api.get(path, headers=bearer)
            assert answer.status_code == 200, answer.text
            found = answer.json()
            return found if found["success"] else None

        held = wait_for(begun, seconds=120, what="the GPU is held")
        name = held["allocation_id"].partition("/")[2]
        (worker,) = judged.job("any", gpus=1, seconds=0)["spec"]["template"]["spec"]["containers"]
        own = {"image": worker["image"], "command": ["sleep", "3600"], "environment": {"A": "b"}}
        keyed = bearer | {"Idempotency-Key": "once"}
        for _ in range(2):
            answer = api.post(f"{path}/workload", json=own, headers=keyed)
            assert answer.status_code == 200, answer.text
        after = wait_for(begun, seconds=120, what="the program has begun")
        assert after["gpu_config"] == held["gpu_config"]
        (pod,) = [pod for pod in kube.pods(name) if pod["status"]["phase"] == "Running"]
        (container,) = pod["spec"]["containers"]
        assert (container["image"], container["command"]) == (own["image"], own["command"])
        assert {"name": "A", "value": "b"} in container["env"]
        status = kube.gpujob(name)["status"]
        assert [each.get("outcome") for each in status["attempts"]] == ["Revised", None]
        assert (status["revision"], status["restarts"]) == (1, 0)
        assert api.delete(path, headers=bearer).status_code == 204


def test_a_caller_without_the_right_to_create_gpujobs_gets_no_allocation(kube, api):
    with viewer(kube) as token:
        bearer = {"Authorization": f"Bearer {token}"}
        refused = api.post("allocate", json={"gpu_count": 1}, headers=bearer)
        assert refused.status_code == 403
        assert "cannot create resource" in refused.json()["detail"]
