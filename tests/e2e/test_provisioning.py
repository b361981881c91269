# SPDX-License-Identifier: Apache-2.0
"""GPUJobs that fit only after the cluster has grown, and a stand-in for cluster-autoscaler.

The nodes that come are simulated (kwok), and so are their GPUs.
"""

import json
import time

import pytest
from autoscaler import (
    answering,
    grown,
    identity,
    kind_installed,
    requests_of,
    wait_shrunk,
)
from harness import wait_for
from parts import OPERATOR, all_up, environment, leader
from simulated_gpus import job, nodes_up, shapes

pytestmark = [pytest.mark.alone, pytest.mark.slow]

AFTER_SECONDS = 1
SETTINGS = {
    "GPUPACK_PROVISIONING_AFTER_SECONDS": str(AFTER_SECONDS),
    "GPUPACK_PROVISIONING_BACKOFF_SECONDS": "2",
    "GPUPACK_PROVISIONING_MAX_FAILURES": "2",
}
REQUEST, TEMPLATE = (
    "provisioningrequest.autoscaling.x-k8s.io/train-nodes-{}",
    "podtemplate/train-nodes-{}",
)
BOTH = [TEMPLATE.format(1), REQUEST.format(1)]


@pytest.fixture(scope="module")
def impatient(system):
    """The operator asks for nodes soon, and pauses for seconds."""
    with environment(system, OPERATOR, "operator", SETTINGS):
        yield


@pytest.fixture(scope="module")
def kwok_runs(cluster):
    """Simulated nodes can come, and go with the module."""
    with nodes_up(cluster, shapes(large=0, small=1)):
        yield


@pytest.fixture(scope="module")
def kubeconfig(system, tmp_path_factory):
    with identity(system, tmp_path_factory.mktemp("stand-in")) as path:
        yield path


@pytest.fixture(scope="module")
def kind(system, impatient, kwok_runs):
    with kind_installed(system):
        yield


@pytest.fixture
def autoscaler(system, kubeconfig, kind, kube):
    """Answers after five seconds; what it made is gone afterwards."""
    with answering(kubeconfig, after_seconds=5):
        yield
        kube.kubectl("delete", "gpujobs", "--all", "--wait=true")
        wait_shrunk(system)


def large(name="train", **spec):
    """Two workers of eight A100s, which no node of the cluster has."""
    return job(name, seconds=600, workers=2, gpus=8, gpuModels=["A100"], **spec)


def nodes_condition(kube):
    found = kube.gpujob("train").get("status", {}).get("conditions", ())
    return next((each for each in found if each["type"] == "NodesRequested"), None)


def wait_nodes(kube, reason, *, seconds=60):
    def look():
        found = nodes_condition(kube)
        return found if found and found["reason"] == reason else None

    return wait_for(look, seconds=seconds, what=f"NodesRequested says {reason}")


def test_a_missing_provisioning_kind_is_reported_and_other_jobs_continue(
    kube, system, impatient, judged
):
    kube.submit(large())
    found = wait_nodes(kube, "ProvisioningFailed")
    assert "the cluster has no ProvisioningRequests" in found["message"]
    assert kube.insist("get", "podtemplates", "--output=name") == ""
    kube.submit(judged.job("small", gpus=1))
    kube.wait_phase("small", "Succeeded")


def test_a_job_runs_on_the_nodes_that_it_requested(kube, system, autoscaler, tell):
    begin = time.monotonic()
    kube.submit(large())
    asked = wait_nodes(kube, "ProvisioningRequested")
    assert asked["status"] == "True"
    seconds_asked = time.monotonic() - begin
    assert "requests nodes for 16 GPUs" in kube.gpujob("train")["status"]["message"]
    assert requests_of(kube) == BOTH
    found = kube.wait_phase("train", "Running")
    tell(
        f"from apply to the request {seconds_asked:.1f} s, to running "
        f"{time.monotonic() - begin:.1f} s, with a stand-in that answers after 5 s"
    )
    assert {each["node"] for each in found["status"]["placement"]} == {
        name.removeprefix("node/") for name in grown(system)
    }
    (annotations,) = {
        json.dumps(
            pod["metadata"]["annotations"].get("autoscaling.x-k8s.io/consume-provisioning-request")
        )
        for pod in kube.pods("train")
    }
    assert annotations == '"train-nodes-1"'
    wait_nodes(kube, "ProvisioningWithdrawn")
    wait_for(lambda: not requests_of(kube), seconds=60, what="the request is deleted")
    kube.delete("gpujob", "train")
    wait_shrunk(system)


def test_a_deleted_job_removes_its_provisioning_request(kube, system, autoscaler):
    kube.submit(large())
    wait_nodes(kube, "ProvisioningRequested")
    kube.delete("gpujob", "train")
    wait_for(lambda: not requests_of(kube), seconds=60, what="both objects are gone")
    time.sleep(6)
    assert grown(system) == []


def test_a_suspended_job_removes_its_provisioning_request(kube, autoscaler):
    kube.submit(large())
    wait_nodes(kube, "ProvisioningRequested")
    kube.insist("patch", "gpujob", "train", "--type=merge", "-p", '{"spec":{"suspend":true}}')
    wait_for(lambda: not requests_of(kube), seconds=60, what="both objects are gone")
    assert kube.phase("train") == "Suspended"


def kill_operators(system):
    for pod in json.loads(system.insist("get", "pods", "--output=json"))["items"]:
        if pod["metadata"]["labels"].get("app.kubernetes.io/component") == "operator":
            system.kubectl("delete", "pod", pod["metadata"]["name"], "--grace-period=0", "--force")


@pytest.mark.parametrize("step", [TEMPLATE, REQUEST, "Provisioned"])
def test_no_provisioning_request_is_repeated_when_the_operator_is_killed(
    kube, system, autoscaler, step
):
    kube.submit(large())
    if step == "Provisioned":
        wait_nodes(kube, "Provisioned")
    else:
        wait_for(
            lambda: step.format(1) in requests_of(kube), seconds=60, every_seconds=0.05, what=step
        )
    kill_operators(system)
    seen = set()

    def runs():
        seen.update(requests_of(kube))
        return kube.phase("train") == "Running" or None

    wait_for(runs, seconds=120, what="train runs")
    assert seen <= set(BOTH)
    assert kube.gpujob("train")["status"]["nodesRequest"]["number"] == 1
    assert len(grown(system)) == 2
    all_up(system)
    assert leader(system, "operator")


def test_a_failed_provisioning_request_is_reported_repeated_and_given_up(kube, kind, kubeconfig):
    with answering(kubeconfig, "Failed", after_seconds=0):
        kube.submit(large())
        found = wait_nodes(kube, "ProvisioningStopped", seconds=90)
    assert "Failed (StandIn): the stand-in is set to fail; 2 requests in a row" in found["message"]
    status = kube.gpujob("train")["status"]
    assert status["message"].endswith(found["message"])
    assert (status["nodesRequest"]["number"], status["nodesRequest"]["failures"]) == (2, 2)
    assert requests_of(kube) == []
    assert "ProvisioningFailed" in kube.events("train")


def test_provisioning_requests_respect_the_quota_of_a_model_without_nodes(kube, kind, kubeconfig):
    quota = {
        "apiVersion": "gpupack.dev/v1beta1",
        "kind": "GPUQuota",
        "metadata": {"name": "default"},
        "spec": {"gpus": [{"model": "*", "nominal": 1, "borrowingLimit": 0}]},
    }
    kube.submit(quota)
    wait_for(
        lambda: kube.get("gpuquota", "default").get("status"), seconds=30, what="the quota counts"
    )
    with answering(kubeconfig, after_seconds=0):
        kube.submit(large())
        found = wait_nodes(kube, "ProvisioningDeferred")
        assert "the quota does not allow it" in found["message"]
        time.sleep(AFTER_SECONDS + 3)
        assert requests_of(kube) == []
