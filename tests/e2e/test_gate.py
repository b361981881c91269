# SPDX-License-Identifier: Apache-2.0
"""Pods of their own wait in the queue behind a scheduling gate, with the real API server."""

import json
import time

import pytest
from harness import annotated_devices, pod_condition, wait_for, why_it_waits
from manifests import Share
from test_queue import limit, quota

GATE = "gpupack.dev/queue"
PLACE = "gpupack.dev/placement"
SCHEDULER = "system:serviceaccount:gpupack-system:gpupack-scheduler"


def gates(pod):
    return [gate["name"] for gate in pod["spec"].get("schedulingGates", [])]


def said(kube, name):
    """Return the pod's message about why it waits."""
    return wait_for(
        lambda: why_it_waits(kube.pod(name)), seconds=30, what=f"{name} says why it waits"
    )


def merge(kube, name, patch, *flags):
    return kube.kubectl(
        "patch", "pod", name, "--type=merge", f"--patch={json.dumps(patch)}", *flags
    )


@pytest.fixture
def one_gpu(kube, judged):
    """This namespace may use one GPU, and a pod does; another waits for it."""
    kube.submit(quota(limit(1, borrowingLimit=0)))
    kube.submit(judged.pod("first"))
    kube.wait_pod("first", "Running")
    kube.submit(judged.pod("second"))
    return kube


def test_a_pod_is_admitted_to_the_node_in_its_annotation_and_affinity(kube, judged):
    kube.submit(judged.pod("notebook", gpus=2))
    pod = kube.wait_pod("notebook", "Running")
    place = json.loads(pod["metadata"]["annotations"][PLACE])
    (term,) = pod["spec"]["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]["nodeSelectorTerms"]
    assert gates(pod) == []
    assert place["node"] == pod["spec"]["nodeName"]
    assert place["gpus"] == annotated_devices(pod)
    assert term["matchFields"] == [
        {"key": "metadata.name", "operator": "In", "values": [place["node"]]}
    ]


def test_a_gated_pod_shows_the_reason_and_kube_scheduler_ignores_it(one_gpu):
    text = said(one_gpu, "second")
    assert f"borrowing limit of namespace {one_gpu.namespace} reached: 1 GPU requested" in text
    pod = one_gpu.pod("second")
    assert gates(pod) == [GATE]
    assert pod_condition(pod, "PodScheduled")["reason"] == "SchedulingGated"
    assert "FailedScheduling" not in one_gpu.events("second")
    one_gpu.delete("pod", "first")
    one_gpu.wait_pod("second", "Running")


def test_pods_and_jobs_share_one_queue(one_gpu, judged):
    """Create pods in this order, a second apart, as creation times have whole seconds."""
    said(one_gpu, "second")
    time.sleep(1)
    one_gpu.submit(judged.job("job", seconds=1))
    one_gpu.wait_reason("job", "BorrowingLimitExceeded")
    one_gpu.submit(judged.pod("third"))
    said(one_gpu, "third")
    one_gpu.delete("pod", "first")
    one_gpu.wait_pod("second", "Running")
    assert one_gpu.phase("job") == "Pending"
    one_gpu.delete("pod", "second")
    one_gpu.wait_phase("job", "Succeeded")
    one_gpu.wait_pod("third", "Running")


def test_a_gate_that_a_tenant_takes_off_buys_nothing(one_gpu, resident):
    said(one_gpu, "second")
    assert merge(resident, "second", {"spec": {"schedulingGates": None}}).returncode == 0

    def refused():
        condition = pod_condition(one_gpu.pod("second"), "PodScheduled")
        return condition if condition["reason"] == "Unschedulable" else None

    condition = wait_for(refused, seconds=60, what="filter refuses the pod")
    assert (
        f"borrowing limit of namespace {one_gpu.namespace} reached: 1 GPU requested"
        in condition["message"]
    )


@pytest.mark.parametrize("annotation", [PLACE, "gpupack.dev/preemption"])
def test_a_tenant_can_neither_place_a_pod_nor_preempt_by_an_annotation(
    one_gpu, resident, judged, annotation
):
    written = {annotation: '{"node":"gpupack-1","workers":"0"}'}
    refused = merge(resident, "second", {"metadata": {"annotations": written}})
    assert f"metadata.annotations[{annotation}]" in refused.stderr
    made = judged.pod("third")
    made["metadata"]["annotations"] = written
    assert f"metadata.annotations[{annotation}]" in resident.create(made)


@pytest.mark.parametrize(
    "patch",
    [
        [{"op": "replace", "path": "/spec/containers/0/image", "value": "example.com/other"}],
        {"metadata": {"labels": {"app": "other"}}},
        {"metadata": {"annotations": {"other": "x"}}},
        {"metadata": {"finalizers": ["example.com/kept"]}},
        {"spec": {"activeDeadlineSeconds": 1}},
    ],
    ids=["image", "label", "annotation", "finalizer", "deadline"],
)
def test_the_scheduler_s_account_changes_no_other_part_of_a_pod(one_gpu, patch):
    kind = "json" if isinstance(patch, list) else "merge"
    patch_options = (f"--type={kind}", f"--patch={json.dumps(patch)}", f"--as={SCHEDULER}")
    refused = one_gpu.kubectl("patch", "pod", "second", *patch_options)
    assert "gpupack's scheduler" in refused.stderr


def test_the_scheduler_s_account_changes_no_pod_that_does_not_wait(one_gpu):
    patch = {"metadata": {"annotations": {PLACE: "x"}}}
    refused = merge(one_gpu, "first", patch, f"--as={SCHEDULER}")
    assert "only pods with the scheduling gate" in refused.stderr


def test_a_pod_with_its_own_volume_is_admitted_without_a_node(kube, judged):
    made = judged.pod("notebook", share=Share(10, 1024))
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    volume = {"name": "data", "ephemeral": {"volumeClaimTemplate": {"spec": claim}}}
    made["spec"].setdefault("volumes", []).append(volume)
    kube.submit(made)
    pod = wait_for(
        lambda: (pod := kube.pod("notebook")) and not gates(pod) and pod,
        seconds=60,
        what="the gate is open",
    )
    assert PLACE in pod["metadata"]["annotations"]
    assert "affinity" not in pod["spec"]


@pytest.fixture
def guest(kube, others, judged):
    """Another namespace, whose Deployment has borrowed all GPUs; this one has a quota of four."""
    name = kube.namespace
    cohort = {
        "apiVersion": "gpupack.dev/v1beta1",
        "kind": "GPUCohort",
        "metadata": {"name": name},
        "spec": {"minRunSeconds": 0},
    }
    kube.submit(cohort, quota(limit(4)))
    found = others("guest")
    found.submit(quota(cohort=name))
    found.submit(judged.deployment("web", replicas=4, gpus=4))
    found.wait_scale("deployment", "web", seconds=120)
    yield found
    kube.delete("gpucohort", name)


@pytest.mark.slow
@pytest.mark.alone
def test_a_pod_that_borrows_is_evicted_for_a_job_that_reclaims_quota(kube, guest, judged):
    kube.submit(judged.job("owner", gpus=4, seconds=30))
    kube.wait_phase("owner", "Running", seconds=60)
    evicted = guest.event_texts()
    assert "evicted for a job of another namespace, which reclaims its nominal quota" in evicted
    assert kube.namespace not in evicted
    waiting = [pod for pod in guest.pods_of_app("web") if gates(pod) == [GATE]]
    assert len(waiting) == 1
    kube.wait_phase("owner", "Succeeded", seconds=60)
    guest.wait_scale("deployment", "web", seconds=60)


@pytest.mark.alone
def test_a_budget_keeps_pods_from_being_evicted(kube, guest, judged):
    guest.submit(
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "web"},
            "spec": {"minAvailable": 4, "selector": {"matchLabels": {"app": "web"}}},
        }
    )
    wait_for(
        lambda: guest.get("pdb", "web").get("status", {}).get("currentHealthy") == 4,
        seconds=60,
        what="the budget counts",
    )
    kube.submit(judged.job("owner", gpus=4))
    wait_for(
        lambda: "a PodDisruptionBudget does not allow it now" in guest.event_texts(),
        seconds=60,
        what="the budget is met",
    )
    assert len(guest.pods_of_app("web")) == 4
    guest.delete("pdb", "web")
    kube.wait_phase("owner", "Succeeded", seconds=60)


@pytest.mark.alone
def test_a_pod_within_its_quota_preempts_a_job(kube, others, judged):
    kube.submit(quota(limit(4)))
    guest = others("guest")
    cohort = {
        "apiVersion": "gpupack.dev/v1beta1",
        "kind": "GPUCohort",
        "metadata": {"name": kube.namespace},
        "spec": {"minRunSeconds": 0},
    }
    kube.submit(cohort)
    try:
        guest.submit(quota(cohort=kube.namespace))
        guest.submit(judged.job("borrower", workers=2, gpus=8, seconds=300))
        guest.wait_phase("borrower", "Running")
        kube.submit(judged.pod("notebook", gpus=4))
        pod = kube.wait_pod("notebook", "Running", seconds=60)
        (attempt, *_) = guest.gpujob("borrower")["status"]["attempts"]
        assert (attempt["outcome"], attempt["reason"]) == ("Preempted", "InCohortReclamation")
        assert "gpupack.dev/preemption" not in pod["metadata"]["annotations"]
    finally:
        kube.delete("gpucohort", kube.namespace)


def test_the_condition_of_a_pod_whose_only_node_is_gone_says_what_to_do(kube, judged):
    """The scheduler's own write lets it in to a node that is gone when kube-scheduler looks."""
    kept, gone = "example.test/kept", "gone-before-the-binding"
    pod = judged.pod("stranded")
    pod["spec"]["schedulingGates"] = [{"name": kept}]
    kube.submit(pod)
    place = {"node": gone, "workers": "0", "gpus": [], "pinned": True}
    field = {"key": "metadata.name", "operator": "In", "values": [gone]}
    required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    let_in = {
        "metadata": {"annotations": {PLACE: json.dumps(place)}},
        "spec": {"schedulingGates": [{"name": kept}], "affinity": affinity},
    }
    done = merge(kube, "stranded", let_in, f"--as={SCHEDULER}")
    assert done.returncode == 0, done.stderr
    assert merge(kube, "stranded", {"spec": {"schedulingGates": None}}).returncode == 0
    condition = wait_for(
        lambda: pod_condition(kube.pod("stranded"), "gpupack.dev/Stranded") or None,
        seconds=60,
        what="the pod gets its condition",
    )
    assert (condition["status"], condition["reason"]) == ("True", "NodeDeleted")
    assert f"node {gone}, to which the queue let the pod in, is gone" in condition["message"]
    assert "delete the pod and create it again" in condition["message"]
    wait_for(lambda: "NodeDeleted" in kube.events("stranded"), seconds=30, what="an event says so")
