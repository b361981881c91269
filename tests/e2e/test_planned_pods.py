# SPDX-License-Identifier: Apache-2.0
"""Jobs are planned as the pods that admission makes of them, not as their templates say."""

import contextlib
import json

import pytest
from harness import condition, placed, wait_for
from manifests import JUDGE_IMAGE

from gpupack_crds import quantity

HUGE_CPU = "1000"
"""More than any node has."""


def limit_range(cpu):
    """Containers that say nothing request so much CPU."""
    most = {"type": "Container", "defaultRequest": {"cpu": cpu}, "default": {"cpu": "2000"}}
    return {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "defaults"},
        "spec": {"limits": [most]},
    }


def runtime_class(name, **spec):
    """A RuntimeClass of the runtime that every node has."""
    kind = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": "runc"}
    return kind | {"metadata": {"name": name}} | spec


def policy(name, namespace, *, applied, patched):
    """A MutatingAdmissionPolicy for the pods of a namespace, and its binding.

    `applied`: fields of the spec; `patched`: JSON patches of what these cannot change.
    """
    group = "admissionregistration.k8s.io/v1"
    pods = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"]}
    here = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    expression = f"Object{{spec: Object.spec{{{applied}}}}}"
    spec = {
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "matchConstraints": {
            "namespaceSelector": here,
            "resourceRules": [pods | {"resources": ["pods"]}],
        },
        "mutations": [
            {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}},
            {"patchType": "JSONPatch", "jsonPatch": {"expression": f"[{patched}]"}},
        ],
    }
    shared = {"apiVersion": group, "metadata": {"name": name}}
    binding = {"kind": "MutatingAdmissionPolicyBinding", "spec": {"policyName": name}}
    return {"kind": "MutatingAdmissionPolicy", "spec": spec} | shared, binding | shared


@pytest.fixture
def made(kube):
    """Makes objects that belong to no namespace, deleted afterwards."""
    with contextlib.ExitStack() as stack:

        def make(*manifests):
            for manifest in manifests:
                kube.submit(manifest)
                stack.callback(kube.delete, manifest["kind"], manifest["metadata"]["name"])

        yield make


def dry_run(kube):
    """A pod of this namespace as admission makes it, without effect."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "tried"},
        "spec": {"containers": [{"name": "main", "image": JUDGE_IMAGE}]},
    }
    create = ("create", "--dry-run=server", "--output=json", "--filename=-")
    return json.loads(kube.insist(*create, stdin=json.dumps(pod)))["spec"]


def waits_for_cpu(kube, name):
    """The job, once it waits for CPU and holds nothing."""
    job = kube.wait_reason(name, "Unsatisfiable", seconds=60)
    assert "CPU" in condition(job, "Admitted")["message"]
    assert "attempts" not in job["status"]
    assert kube.insist("get", "jobs", "--output=name") == ""
    return job


def requests(job):
    """Return what each container of the planned pod requests, by name."""
    spec = job["status"]["plannedPod"]["spec"]
    containers = (*spec["containers"], *spec.get("initContainers", ()))
    return {each["name"]: each.get("resources", {}).get("requests", {}) for each in containers}


@pytest.mark.slow
def test_a_job_that_a_limit_range_makes_too_large_holds_no_gpus(kube, judged):
    kube.submit(limit_range(HUGE_CPU))
    kube.submit(judged.job("greedy", workers=2))
    job = waits_for_cpu(kube, "greedy")
    assert requests(job)["worker"]["cpu"] == "1k"
    kube.delete("limitrange", "defaults")
    job = kube.wait_phase("greedy", "Succeeded", seconds=180)
    assert job["status"]["attempt"] == 1
    assert "plannedPod" not in job["status"]


def test_a_gang_is_placed_by_the_requests_that_a_limit_range_adds(kube, judged):
    nodes = json.loads(kube.insist("get", "nodes", "--output=json"))["items"]
    largest = max(quantity.milli_cpu(node["status"]["allocatable"]["cpu"]) for node in nodes)
    kube.submit(limit_range(f"{largest * 11 // 20}m"))
    kube.submit(judged.job("halves", workers=2))
    job = kube.wait_phase("halves", "Succeeded", seconds=120)
    assert job["status"]["attempt"] == 1
    assert len({worker.node for worker in placed(job)}) == 2


def test_overhead_of_a_runtime_class_is_planned(kube, judged, made):
    name = f"heavy-{kube.namespace}"[:63]
    made(runtime_class(name, overhead={"podFixed": {"cpu": HUGE_CPU}}))
    job = judged.job("sandboxed")
    job["spec"]["template"]["spec"]["runtimeClassName"] = name
    kube.submit(job)
    job = waits_for_cpu(kube, "sandboxed")
    assert job["status"]["plannedPod"]["spec"]["overhead"] == {"cpu": "1k"}


def test_a_job_respects_the_node_selector_of_its_runtime_class(kube, judged, made):
    names = sorted(each["metadata"]["name"] for each in kube.gpunodes())
    for number, node in enumerate(names):
        selector = {"nodeSelector": {"kubernetes.io/hostname": node}}
        name = f"{number}-{kube.namespace}"[:63]
        made(runtime_class(name, scheduling=selector, overhead={"podFixed": {"cpu": "10m"}}))
        job = judged.job(f"on-{number}")
        job["spec"]["template"]["spec"]["runtimeClassName"] = name
        kube.submit(job)
    for number, node in enumerate(names):
        job = kube.wait_phase(f"on-{number}", "Succeeded", seconds=120)
        assert [worker.node for worker in placed(job)] == [node]
        assert job["status"]["attempt"] == 1


def test_additions_of_a_mutating_policy_are_planned(kube, judged, made):
    """A sidecar that fits on no node, a selector and a toleration."""
    sidecar = (
        'Object.spec.initContainers{name: "mesh", image: "example.test/mesh:1", '
        'restartPolicy: "Always", resources: Object.spec.initContainers.resources{'
        f'requests: {{"cpu": "{HUGE_CPU}"}}}}}}'
    )
    added = (
        'JSONPatch{op: "add", path: "/spec/nodeSelector", value: {"kubernetes.io/os": "linux"}}, '
        'JSONPatch{op: "add", path: "/spec/tolerations/-", '
        'value: Object.spec.tolerations{key: "gold", operator: "Exists"}}'
    )
    name, applied = f"adds-{kube.namespace}"[:63], f"initContainers: [{sidecar}]"
    made(*policy(name, kube.namespace, applied=applied, patched=added))
    wait_for(lambda: dry_run(kube).get("initContainers"), seconds=60, what="the policy in force")
    kube.submit(judged.job("meshed"))
    job = waits_for_cpu(kube, "meshed")
    spec = job["status"]["plannedPod"]["spec"]
    assert requests(job)["mesh"] == {"cpu": "1k"}
    assert spec["nodeSelector"] == {"kubernetes.io/os": "linux"}
    assert {"key": "gold", "operator": "Exists"} in spec["tolerations"]
