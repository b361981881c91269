# SPDX-License-Identifier: Apache-2.0
"""The users of a namespace take turns, by the name that admission records."""

import json

import pytest

CREATED_BY = "gpupack.dev/created-by"


@pytest.fixture
def users(kube):
    """Two users of this namespace, whose users take turns."""
    kube.submit(
        {
            "apiVersion": "gpupack.dev/v1beta1",
            "kind": "GPUQuota",
            "metadata": {"name": "default"},
            "spec": {"jobOrder": "UserFairShare", "gpus": [{"model": "*", "borrowingLimit": 1}]},
        }
    )
    kube.insist("create", "role", "gpujobs", "--verb=*", "--resource=gpujobs.gpupack.dev")
    kube.insist("create", "rolebinding", "gpujobs", "--role=gpujobs", "--user=ann", "--user=bob")


def submit(kube, judged, tmp_path, user, name):
    """Submit a job as this user, which writes another name."""
    body = judged.job(name, seconds=8)
    body["metadata"].setdefault("annotations", {})[CREATED_BY] = "another-user"
    path = tmp_path / f"{name}.json"
    path.write_text(json.dumps(body))
    kube.insist("--as", user, "create", "-f", str(path))


def test_the_user_without_running_jobs_goes_before_an_older_job_of_another_user(
    kube, users, judged, tmp_path
):
    submit(kube, judged, tmp_path, "ann", "first")
    kube.wait_phase("first", "Running")
    submit(kube, judged, tmp_path, "ann", "second")
    submit(kube, judged, tmp_path, "bob", "third")
    assert kube.gpujob("third")["metadata"]["annotations"][CREATED_BY] == "bob"
    third = kube.wait_phase("third", "Running", "Succeeded", seconds=90)["status"]
    second = kube.wait_phase("second", "Running", "Succeeded", seconds=90)["status"]
    assert third["startedAt"] < second["startedAt"]
