# SPDX-License-Identifier: Apache-2.0
"""Who takes the operator over makes and deletes what belongs to GPUJobs, and nothing else.

Tried without effect (dry run), with the operator's own account.
"""

import json

import pytest
from harness import SYSTEM_NAMESPACE
from manifests import JUDGE_IMAGE, gpujob

AS_OPERATOR = f"--as=system:serviceaccount:{SYSTEM_NAMESPACE}:gpupack-operator"
AS_SCHEDULER = f"--as=system:serviceaccount:{SYSTEM_NAMESPACE}:gpupack-scheduler"
UID = "6a7c7a0e-2f3c-4a52-9d0e-0d8f1d2d8c11"
REFUSAL = "the operator may CREATE only objects that a GPUJob controls and that are named after it"


def owner(**changes):
    return {
        "apiVersion": "gpupack.dev/v1beta1",
        "kind": "GPUJob",
        "name": "train",
        "uid": UID,
        "controller": True,
    } | changes


def job(*owners, name="train-1"):
    container = {"name": "worker", "image": JUDGE_IMAGE}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "ownerReferences": list(owners)},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    }


def service(*owners, name="train"):
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "ownerReferences": list(owners)},
        "spec": {"clusterIP": "None", "ports": [{"port": 1}]},
    }


def pod_template(*owners, name="train-nodes-1"):
    container = {"name": "worker", "image": JUDGE_IMAGE}
    return {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": {"name": name, "ownerReferences": list(owners)},
        "template": {"spec": {"containers": [container]}},
    }


def key(*owners, name=f"gpupack-mpi-{UID}-1", type_="gpupack.dev/mpi"):
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": type_,
        "metadata": {
            "name": name,
            "ownerReferences": list(owners),
            # What a token of a service account needs.
            "annotations": {"kubernetes.io/service-account.name": "default"},
        },
        "data": {"key": "AAAA"},
    }


def saved_log(*owners, name=f"gpupack-log-{UID}"):
    meta = {"name": name, "ownerReferences": list(owners)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"worker-0": "x"}}


def create(kube, manifest, *flags):
    flags = ("--dry-run=server", "-f", "-", AS_OPERATOR, *flags)
    return kube.kubectl("create", *flags, stdin=json.dumps(manifest)).stderr


MADE = {
    "job": job(owner()),
    "worker": job(owner(), name="train-1-x2"),
    "service": service(owner()),
    "template": pod_template(owner()),
    "key": key(owner()),
    "saved log": saved_log(owner()),
}


@pytest.mark.parametrize("manifest", MADE.values(), ids=MADE)
def test_the_operator_creates_objects_that_a_gpujob_controls(kube, manifest):
    assert create(kube, manifest) == ""


FOREIGN = {
    "a Job without an owner": job(),
    "a Job of a Deployment's": job(owner(kind="Deployment", apiVersion="apps/v1")),
    "a Job of another group's GPUJob": job(owner(apiVersion="example.test/v1")),
    "a Job that a GPUJob owns and does not control": job(owner(controller=False)),
    "a Job of another name": job(owner(), name="other-1"),
    "a Job without a number": job(owner(), name="train-x"),
    "a worker's Job without an attempt": job(owner(), name="train-x2"),
    "a worker's Job without a number": job(owner(), name="train-1-x"),
    "a Job that is named like a request for nodes": job(owner(), name="train-nodes-1"),
    "a PodTemplate without an owner": pod_template(),
    "a PodTemplate of another name": pod_template(owner(), name="train-1"),
    "a Service without an owner": service(),
    "a Service of another name": service(owner(), name="database"),
    "a Secret without an owner": key(),
    "a Secret of another name": key(owner(), name="database"),
    "a key of another GPUJob": key(owner(uid="1"), name=f"gpupack-mpi-{UID}-1"),
    "a ConfigMap without an owner": saved_log(),
    "a ConfigMap of another name": saved_log(owner(), name="settings"),
    "a log of another GPUJob": saved_log(owner(uid="1")),
    "a token of a service account": key(owner(), type_="kubernetes.io/service-account-token"),
}


@pytest.mark.parametrize("manifest", FOREIGN.values(), ids=FOREIGN)
def test_the_operator_creates_no_other_objects(kube, manifest):
    assert REFUSAL in create(kube, manifest)


def test_only_the_operator_creates_keys_of_mpi_workers(kube):
    manifest = json.dumps(key(owner(), type_="Opaque"))
    answer = kube.kubectl("create", "--dry-run=server", "-f", "-", stdin=manifest).stderr
    assert "hold the keys of GPUJobs, which only the operator creates" in answer


def test_the_operator_deletes_no_secret_but_a_key(kube):
    mine = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "mine"}}
    kube.submit(mine)
    answer = kube.kubectl("delete", "secret", "mine", AS_OPERATOR).stderr
    assert "the operator may DELETE only objects that a GPUJob controls" in answer


def test_the_operator_deletes_no_configmap_but_a_saved_log(kube):
    kube.submit({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "mine"}})
    answer = kube.kubectl("delete", "configmap", "mine", AS_OPERATOR).stderr
    assert "the operator may DELETE only objects that a GPUJob controls" in answer


@pytest.mark.parametrize("namespace", ["kube-system", SYSTEM_NAMESPACE])
def test_the_operator_creates_nothing_in_system_namespaces(kube, namespace):
    answer = create(kube, job(owner()), f"--namespace={namespace}")
    assert "GPUJobs cannot run in a namespace with the cluster's own service accounts" in answer


@pytest.mark.parametrize("namespace", ["kube-system", SYSTEM_NAMESPACE])
def test_no_user_submits_a_gpujob_to_system_namespaces(kube, namespace):
    manifest = json.dumps(gpujob("first", workload={"name": "matmul"}))
    flags = ("--dry-run=server", "-f", "-", f"--namespace={namespace}")
    answer = kube.kubectl("create", *flags, stdin=manifest).stderr
    assert f"GPUJobs cannot run in namespace {namespace}, which has" in answer


def test_the_operator_neither_changes_nor_deletes_objects_of_others(kube):
    kube.submit(job(name="backup"))
    suspended = ("--type=merge", "--patch", '{"spec": {"suspend": true}}')
    answer = kube.kubectl("patch", "job", "backup", *suspended, AS_OPERATOR).stderr
    assert "the operator may UPDATE only objects that a GPUJob controls" in answer
    answer = kube.kubectl("delete", "job", "backup", AS_OPERATOR).stderr
    assert "the operator may DELETE only objects that a GPUJob controls" in answer


def test_the_operator_deletes_no_gpujob_that_has_not_ended_or_is_to_stay(kube):
    kube.submit(gpujob("keep", workload={"name": "matmul"}, suspend=True))
    answer = kube.kubectl("delete", "gpujob", "keep", AS_OPERATOR).stderr
    assert "only if it has ended and has ttlSecondsAfterFinished" in answer


SPEC_OF_OTHERS = {
    "maintenance": {"spec": {"maintenance": [{"reason": "mine"}]}},
    "a label": {"metadata": {"labels": {"mine": "true"}}},
    "an annotation": {"metadata": {"annotations": {"mine": "true"}}},
    "a finalizer": {"metadata": {"finalizers": ["mine.dev/stays"]}},
    "another owner": {
        "metadata": {
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "x", "uid": "x"}]
        }
    },
}


@pytest.mark.parametrize("change", SPEC_OF_OTHERS.values(), ids=SPEC_OF_OTHERS)
def test_of_a_gpunode_the_operator_writes_the_quarantine_alone(system, change):
    (node, *_) = (each["metadata"]["name"] for each in system.gpunodes())
    kept = {"spec": {"quarantine": [{"gpu": "GPU-0", "cause": "XID 79"}]}}
    assert apply_as_operator(system, node, kept) == ""
    answer = apply_as_operator(system, node, change)
    assert "the operator may change only spec.quarantine of a GPUNode" in answer


def test_the_operator_deletes_no_gpunode_that_a_node_owns(system):
    (node, *_) = (each["metadata"]["name"] for each in system.gpunodes())
    answer = system.kubectl("delete", "gpunode", node, "--dry-run=server", AS_OPERATOR).stderr
    assert "delete a GPUNode only if it has no owner" in answer


def test_of_a_gpunode_the_scheduler_writes_the_conditions_alone(system):
    (node, *_) = (each["metadata"]["name"] for each in system.gpunodes())
    condition = {"type": "InventoryRejected", "status": "False", "reason": "InventoryAccepted"}
    condition |= {"message": "", "lastTransitionTime": "2026-11-24T00:00:00Z"}
    for status, refusal in (
        ({"conditions": [condition]}, ""),
        ({"gpus": 99}, "the scheduler may change only status.conditions"),
    ):
        answer = apply_as(AS_SCHEDULER, system, node, {"status": status}, "--subresource=status")
        assert refusal in answer if refusal else answer == ""


@pytest.mark.parametrize("change", [{"gpus": 99}, {"devices": []}, {"driverVersion": "1"}])
def test_of_a_gpunodes_status_the_operator_writes_what_was_measured_alone(system, change):
    (node, *_) = (each["metadata"]["name"] for each in system.gpunodes())
    at = "2026-11-24T00:00:00Z"
    measured = {"measured": [{"gpu": "GPU-0", "at": at, "outcome": "Passed", "tflops": 1.5}]}
    status = "--subresource=status"
    assert apply_as_operator(system, node, {"status": measured}, status) == ""
    together = {"allReduce": {"at": at, "gpus": 2, "busGbPerS": 1.5}}
    assert apply_as_operator(system, node, {"status": together}, status) == ""
    answer = apply_as_operator(system, node, {"status": measured | change}, status)
    assert "the operator may change only measured and allReduce" in answer


def apply_as_operator(system, node, change, *more):
    """Return the answer to a patch by the operator."""
    return apply_as(AS_OPERATOR, system, node, change, *more)


def apply_as(account, system, node, change, *more):
    """Return the answer to a server-side apply, since other patches read the object first."""
    metadata = {"name": node, **change.get("metadata", {})}
    kind = {"apiVersion": "gpupack.dev/v1beta1", "kind": "GPUNode"}
    flags = (
        "--server-side",
        "--force-conflicts",
        "--dry-run=server",
        "-f",
        "-",
        account,
        *more,
    )
    manifest = json.dumps({**kind, **change, "metadata": metadata})
    return system.kubectl("apply", *flags, stdin=manifest).stderr
