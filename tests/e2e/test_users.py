# SPDX-License-Identifier: Apache-2.0
"""The users of a namespace take turns, by the name that admission records."""

import json

import pytest

CREATED_BY = "gpupack.dev/created-by"


@pytest.fixture
def users(kube):
    """Users of this namespace, which take turns and together have two GPUs at a time."""
    kube.submit(
        {
            "apiVersion": "gpupack.dev/v1beta1",
            "kind": "GPUQuota",
            "metadata": {"name": "default"},
            "spec": {"jobOrder": "UserFairShare", "gpus": [{"model": "*", "borrowingLimit": 2}]},
        }
    )
    kube.insist("create", "role", "gpujobs", "--verb=*", "--resource=gpujobs.gpupack.dev")
    users = [f"--user={name}" for name in ("ann", "bob", "carol")]
    kube.insist("create", "rolebinding", "gpujobs", "--role=gpujobs", *users)


def submit(kube, judged, tmp_path, user, name):
    """Submit a job as this user, which writes another name."""
    body = judged.job(name, seconds=300)
    body["metadata"].setdefault("annotations", {})[CREATED_BY] = "another-user"
    path = tmp_path / f"{name}.json"
    path.write_text(json.dumps(body))
    kube.insist("--as", user, "create", "-f", str(path))


def test_the_user_without_running_jobs_goes_before_an_older_job_of_another_user(
    kube, users, judged, tmp_path
):
    for user, name in (("ann", "first"), ("carol", "ends")):
        submit(kube, judged, tmp_path, user, name)
        kube.wait_phase(name, "Running")
    submit(kube, judged, tmp_path, "ann", "second")
    kube.wait_reason("second", "BorrowingLimitExceeded")
    submit(kube, judged, tmp_path, "bob", "third")
    assert kube.gpujob("third")["metadata"]["annotations"][CREATED_BY] == "bob"
    kube.wait_reason("third", "BorrowingLimitExceeded")
    kube.insist("annotate", "--overwrite", "gpujob/third", f"{CREATED_BY}=ann")
    assert kube.gpujob("third")["metadata"]["annotations"][CREATED_BY] == "bob"
    kube.delete("gpujob", "ends")
    kube.wait_phase("third", "Running")
    assert kube.phase("second") == "Pending"
