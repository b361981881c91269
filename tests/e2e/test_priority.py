# SPDX-License-Identifier: Apache-2.0
"""A job's PriorityClass: what may not be used is said, and quotas govern it."""

import pytest
from admission import asking, try_pod
from harness import condition, wait_for


@pytest.fixture
def priority_class(kube):
    """Makes PriorityClasses of this test's namespace's name."""
    made = []

    def make(policy):
        name = f"{kube.namespace}-{policy.lower()}"
        kube.submit(
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": name},
                "value": 1_000_000,
                "preemptionPolicy": policy,
            }
        )
        made.append(name)
        return name

    yield make
    for name in made:
        kube.delete("priorityclass", name)


def test_a_resource_quota_limits_urgent_priorities_and_no_others(kube, judged, priority_class):
    high = priority_class("Never")
    selector = {"scopeName": "PriorityClass", "operator": "In", "values": [high]}
    kube.submit(
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "no-urgent-pods"},
            "spec": {"hard": {"pods": "0"}, "scopeSelector": {"matchExpressions": [selector]}},
        }
    )
    kube.submit(judged.job("urgent", priorityClassName=high), judged.job("ordinary"))
    kube.wait_phase("ordinary", "Succeeded")
    job = kube.wait_reason("urgent", "CreationForbidden")
    assert "exceeded quota: no-urgent-pods" in condition(job, "Admitted")["message"]
    kube.delete("resourcequota", "no-urgent-pods")
    kube.wait_phase("urgent", "Succeeded", seconds=90)
    (pod,) = kube.pods("urgent")
    assert pod["spec"]["priorityClassName"] == high
    assert (pod["spec"]["priority"], pod["spec"]["preemptionPolicy"]) == (1_000_000, "Never")


def test_a_class_that_is_missing_or_evicts_others_is_refused_by_name(kube, judged, priority_class):
    evicting = priority_class("PreemptLowerPriority")
    kube.submit(judged.job("evicting", priorityClassName=evicting))
    kube.submit(judged.job("missing", priorityClassName="there-is-none"))
    job = kube.wait_reason("evicting", "PriorityClassPreempts")
    assert "preemptionPolicy: Never" in condition(job, "Admitted")["message"]
    job = kube.wait_reason("missing", "PriorityClassMissing")
    assert "there-is-none" in condition(job, "Admitted")["message"]
    assert kube.pods() == []


def dry_run(tenant, name):
    """Return the answer to a pod with GPUs and this class, once the API server has the class."""

    def look():
        answer = try_pod(tenant, asking(), priorityClassName=name)
        return None if "no PriorityClass with name" in answer else answer

    return wait_for(look, seconds=60, what=f"PriorityClass {name}")


@pytest.mark.parametrize("name", ["system-node-critical", "system-cluster-critical"])
def test_a_pod_with_gpus_has_no_class_of_the_clusters_own(tenant, name):
    assert f"PriorityClass {name} is for the cluster's own components" in dry_run(tenant, name)


def test_a_pod_with_gpus_has_any_class_of_an_administrator(kube, tenant, judged, priority_class):
    assert dry_run(tenant, priority_class("PreemptLowerPriority")) == ""
    high = priority_class("Never")
    assert dry_run(tenant, high) == ""
    kube.submit(judged.pod("urgent", seconds=0.5, priorityClassName=high))
    kube.wait_pod("urgent", "Succeeded")


@pytest.mark.alone
def test_no_job_waits_behind_a_gang_that_a_cordoned_node_blocks(kube, judged, priority_class):
    high = priority_class("Never")
    *_, node = kube.nodes()
    kube.insist("cordon", node)
    try:
        kube.submit(judged.job("urgent", workers=2, gpus=8, priorityClassName=high))
        kube.wait_phase("urgent", "Pending")
        kube.submit(judged.job("ordinary", gpus=8))
        kube.wait_phase("ordinary", "Succeeded")
    finally:
        kube.insist("uncordon", node)
    kube.wait_phase("urgent", "Succeeded")


@pytest.mark.alone  # with other tests' pods its own may be among those that are only counted
def test_the_list_of_gpunodes_shows_held_gpus(kube, judged):
    kube.submit(judged.job("holder", gpus=2, seconds=60))
    job = kube.wait_phase("holder", "Running")
    node = job["status"]["nodes"]
    (pod,) = kube.pods("holder")
    title = f"{kube.namespace}/{pod['metadata']['name']}"
    wait_for(
        lambda: title in kube.get("gpunode", node)["status"].get("heldBy", ""),
        seconds=60,
        what="its pod's name",
    )
    header = kube.insist("get", "gn", node, "--output=wide").splitlines()[0]
    assert header.index("FREE") < header.index("SHARED") < header.index("HELD BY")
    kube.delete("gpujob", "holder")
    wait_for(
        lambda: title not in kube.get("gpunode", node)["status"].get("heldBy", ""),
        seconds=60,
        what="that it is gone",
    )
