# SPDX-License-Identifier: Apache-2.0
"""A GPUJob whose pods are forbidden holds nothing, and says what forbids them."""

import json

import pytest
from harness import SYSTEM_NAMESPACE, condition, wait_for
from manifests import JUDGE_IMAGE

AS_OPERATOR = f"--as=system:serviceaccount:{SYSTEM_NAMESPACE}:gpupack-operator"
NO_PODS = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "nothing"},
    "spec": {"hard": {"pods": "0"}},
}
NO_GPUS = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "no-gpus"},
    "spec": {"hard": {"requests.gpupack.dev/gpu": "0"}},
}


@pytest.mark.parametrize("quota", [NO_PODS, NO_GPUS], ids=["no pods", "no GPUs"])
def test_a_job_without_quota_holds_nothing_and_starts_when_it_has_one(kube, judged, quota):
    kube.submit(quota)
    kube.submit(judged.job("poor", workers=2))
    job = kube.wait_reason("poor", "CreationForbidden")
    name = quota["metadata"]["name"]
    assert f"exceeded quota: {name}" in condition(job, "Admitted")["message"]
    assert "attempts" not in job["status"]
    assert kube.insist("get", "jobs", "--output=name") == ""
    kube.delete("resourcequota", name)
    job = kube.wait_phase("poor", "Succeeded", seconds=90)
    assert job["status"]["attempt"] == 1


def test_a_quota_too_small_for_a_gang_pauses_its_namespace_and_not_only_the_job(kube, judged):
    one_pod = NO_PODS | {"spec": {"hard": {"pods": "1"}}}
    kube.submit(one_pod)
    kube.submit(judged.job("poor", workers=2, seconds=60, podPerWorker=True))
    job = kube.wait_reason("poor", "Restarting")
    assert job["status"]["attempts"][0]["reason"] == "CreationForbidden"
    kube.delete("gpujob", "poor")
    kube.submit(judged.job("again", workers=2, podPerWorker=True), judged.job("alone"))
    job = kube.wait_reason("again", "CreationForbidden", seconds=60)
    assert "attempts" not in job["status"]
    assert "1 of 2 pods exist" in condition(job, "Admitted")["message"]
    kube.wait_phase("alone", "Succeeded")
    kube.delete("resourcequota", "nothing")
    kube.wait_phase("again", "Succeeded", seconds=90)


@pytest.mark.parametrize("how", ["deadline", "suspended", "Job deleted", "GPUJob deleted"])
def test_however_a_gang_ends_before_all_its_pods_exist_its_namespace_pauses(kube, judged, how):
    kube.submit(NO_PODS | {"spec": {"hard": {"pods": "1"}}})
    limit = {"activeDeadlineSeconds": 5} if how == "deadline" else {}
    kube.submit(judged.job("poor", workers=2, seconds=60, podPerWorker=True, **limit))
    kube.wait_phase("poor", "Admitted")
    wait_for(lambda: kube.pods("poor"), seconds=60, what="the one pod that the quota allows")
    match how:
        case "deadline":
            kube.wait_phase("poor", "Failed", seconds=60)
        case "suspended":
            suspend = ("--type=merge", "--patch", '{"spec": {"suspend": true}}')
            kube.insist("patch", "gpujob", "poor", *suspend)
            kube.wait_phase("poor", "Suspended", seconds=60)
        case "Job deleted":
            kube.delete("job", "poor-1")
            kube.wait_phase("poor", "Pending", seconds=60)
        case "GPUJob deleted":
            kube.delete("gpujob", "poor")
    kube.submit(judged.job("fresh", workers=2, podPerWorker=True))
    job = kube.wait_reason("fresh", "CreationForbidden", seconds=60)
    assert "ended before all its pods existed" in condition(job, "Admitted")["message"]
    assert "attempts" not in job["status"]


def test_the_operator_tries_pods_out_and_cannot_create_one(kube):
    container = {"name": "worker", "image": JUDGE_IMAGE}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "tried"},
        "spec": {"containers": [container]},
    }
    create = ("create", "-f", "-", AS_OPERATOR)
    done = kube.kubectl(*create, stdin=json.dumps(pod))
    assert "the operator may create pods only as a dry run" in done.stderr
    tried = kube.kubectl(*create, "--dry-run=server", stdin=json.dumps(pod))
    assert (tried.returncode, tried.stderr) == (0, "")
    assert kube.pods() == []
