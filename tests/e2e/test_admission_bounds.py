# SPDX-License-Identifier: Apache-2.0
"""What a tenant writes costs the others no more than a stated bound.

Tried as an ordinary tenant, without effect (dry run).
"""

import json

import pytest
from admission import GPU, asking, pod
from manifests import gpujob

from gpupack_crds.names import SHARE_WITH_ANNOTATION as SHARE_WITH

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
MAX_VALUES = 4096
TEMPLATE_BYTES = 262144


def condition(values=1, key="zone"):
    return {"key": key, "operator": "In", "values": [f"v{i}" for i in range(values)]}


def required(*terms):
    """Affinity to nodes by these terms."""
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}}


def preferred(count):
    terms = [{"weight": 1, "preference": {"matchExpressions": [condition()]}}] * count
    return {"affinity": {"nodeAffinity": {PREFERRED: terms}}}


def apart(count):
    label = {"matchExpressions": [condition(key="app")]}
    terms = [{"labelSelector": label, "topologyKey": "kubernetes.io/hostname"}] * count
    return {"affinity": {"podAntiAffinity": {REQUIRED: terms}}}


def spread(count):
    return {
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": f"zone-{i}",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": "a"}},
            }
            for i in range(count)
        ]
    }


def tolerated(count):
    return {"tolerations": [{"key": f"k{i}", "operator": "Exists"} for i in range(count)]}


ONE = {"matchExpressions": [condition()]}
TOO_MANY = {
    "terms": required(*[ONE] * 300),
    "30,000 terms": required(*[{"matchExpressions": [{"key": "a", "operator": "Exists"}]}] * 30000),
    "expressions of one term": required({"matchExpressions": [condition()] * 600}),
    "preferences": preferred(300),
    "tolerations": tolerated(600),
    "labels": {"nodeSelector": {f"label-{i}": "a" for i in range(600)}},
    "pods to be apart from": apart(300),
    "rules of spread": spread(300),
}
TOO_WIDE = {
    "in one expression": required({"matchExpressions": [condition(MAX_VALUES + 1)]}),
    "in many": required(*[{"matchExpressions": [condition(50)]}] * 100),
}


def of_a_pod(spec):
    return pod(asking(), schedulerName="gpupack", **spec)


def of_a_job(spec):
    return gpujob("wide", workload={"name": "matmul"}, template={"spec": spec})


def of_a_role(spec):
    job = gpujob("wide")
    del job["spec"]["gpus"]
    leader = {"name": "leader", "gpus": 1, "workload": {"name": "matmul"}}
    job["spec"]["roles"] = [leader, leader | {"name": "worker", "template": {"spec": spec}}]
    return job


KINDS = {"pod": of_a_pod, "job": of_a_job, "role": of_a_role}


@pytest.mark.parametrize("manifest", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("spec", TOO_MANY.values(), ids=TOO_MANY)
def test_the_number_of_node_selector_terms_of_a_pod_is_limited(tenant, manifest, spec):
    answer = tenant.try_to_create(manifest(spec))
    assert "may have 512 terms and expressions in all, not " in answer


@pytest.mark.parametrize("manifest", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("spec", TOO_WIDE.values(), ids=TOO_WIDE)
def test_the_number_of_node_selector_values_of_a_pod_is_limited(tenant, manifest, spec):
    assert "may have 4096 values in all, not " in tenant.try_to_create(manifest(spec))


@pytest.mark.parametrize("manifest", KINDS.values(), ids=KINDS)
def test_within_the_bounds_a_pod_may_be_as_choosy_as_it_likes(tenant, manifest):
    # The tolerations that Kubernetes adds to each pod count too.
    wide = required(*[{"matchExpressions": [condition(16)]}] * 250)
    assert tenant.try_to_create(manifest(wide)) == ""


LATER = {
    "tolerations": [
        {"op": "add", "path": "/spec/tolerations/-", "value": toleration}
        for toleration in tolerated(600)["tolerations"]
    ],
    "terms": [
        {"op": "add", "path": "/spec/affinity", "value": required(*[ONE] * 300)["affinity"]},
    ],
}


@pytest.fixture
def gated(resident):
    """A tenant with a pod that a gate holds back: such a pod may still be given an affinity."""
    gates = [{"name": "example.com/wait"}]
    assert resident.create(pod(asking(), schedulerName="gpupack", schedulingGates=gates)) == ""
    return resident


def change_pod(tenant, change):
    """Return the answer to a dry run of a change of the pod."""
    flags = ("--dry-run=server", "--type=json", "--patch", json.dumps(change))
    return tenant.kubectl("patch", "pod", "idle", *flags).stderr


@pytest.mark.parametrize("change", LATER.values(), ids=LATER)
def test_a_pod_that_exists_is_narrowed_down_within_the_bounds_too(gated, change):
    assert "may have 512 terms and expressions in all, not " in change_pod(gated, change)


def test_a_pod_that_exists_may_tolerate_more(gated):
    assert change_pod(gated, LATER["tolerations"][:1]) == ""


def annotating(key, value):
    path = "/metadata/annotations/" + key.replace("/", "~1")
    return [{"op": "add", "path": path, "value": value}]


def test_the_isolation_of_an_existing_pods_share_is_fixed(gated):
    refused = change_pod(gated, annotating(SHARE_WITH, "namespace"))
    assert "cannot change after the pod is created" in refused
    assert change_pod(gated, annotating("example.com/a", "b")) == ""


def test_a_template_does_not_change_by_an_unknown_key(resident):
    template = {"spec": {"first": 1}}
    manifest = gpujob("first", workload={"name": "matmul"}, suspend=True, template=template)
    assert resident.create(manifest) == ""
    change = {"template": {"spec": {"first": None, "second": 1}}}

    def patched(**more):
        body = json.dumps({"spec": change | more})
        return resident.kubectl("patch", "gpujob", "first", "--type=merge", "--patch", body).stderr

    assert "template can change only with a higher revision" in patched()
    assert patched(revision=1) == ""


def test_a_pod_that_requests_no_gpu_is_not_checked(tenant):
    assert tenant.try_to_create(pod(**required(*[ONE] * 300))) == ""


@pytest.mark.parametrize("count", ["129", "1048576", "1M"])
def test_a_container_requests_no_more_gpus_than_a_node_can_have(tenant, count):
    answer = tenant.try_to_create(pod(asking(limits={GPU: count}), schedulerName="gpupack"))
    assert f"no node has {count} GPUs: set gpupack.dev/gpu to at most 128" in answer


def test_a_template_is_bounded_as_a_whole(tenant):
    volumes = [{"name": f"v{i}", "hostPath": {"path": "/data/" + "x" * 500}} for i in range(600)]
    notes = {f"note-{i}": "x" * 4000 for i in range(30)}
    template = {"metadata": {"annotations": notes}, "spec": {"volumes": volumes[:300]}}
    manifest = gpujob("wide", workload={"name": "matmul"}, template=template)
    assert f"spec.template may have {TEMPLATE_BYTES} characters in all, not " in (
        tenant.try_to_create(manifest)
    )
    answer = tenant.try_to_create(of_a_job({"volumes": volumes}))
    assert f"spec.template may have {TEMPLATE_BYTES} characters in all, not " in answer
    answer = tenant.try_to_create(of_a_role({"volumes": volumes}))
    assert f"spec.roles may have {TEMPLATE_BYTES} characters in all, not " in answer


def test_roles_do_not_change_by_an_unknown_key(resident):
    manifest = of_a_role({"first": 1})
    manifest["spec"]["suspend"] = True
    assert resident.create(manifest) == ""
    roles = manifest["spec"]["roles"]
    roles[1]["template"] = {"spec": {"second": 1}}
    change = ("--type=merge", "--patch", json.dumps({"spec": {"roles": roles, "revision": 1}}))
    answer = resident.kubectl("patch", "gpujob", "wide", *change).stderr
    assert "roles cannot change after the job is created" in answer
    change = ("--type=merge", "--patch", '{"spec": {"suspend": false}}')
    assert resident.kubectl("patch", "gpujob", "wide", *change).stderr == ""


@pytest.mark.parametrize("manifest", KINDS.values(), ids=KINDS)
def test_the_grace_period_of_gpu_pods_is_limited(tenant, manifest):
    answer = tenant.try_to_create(manifest({"terminationGracePeriodSeconds": 3601}))
    assert "terminationGracePeriodSeconds" in answer
    assert "3600" in answer
    assert tenant.try_to_create(manifest({"terminationGracePeriodSeconds": 3600})) == ""


@pytest.mark.parametrize("priority", [1, 1_000_000_000])
def test_a_priority_of_a_job_above_the_maximum_is_refused(tenant, priority):
    manifest = gpujob("first", workload={"name": "matmul"}, priority=priority)
    answer = tenant.try_to_create(manifest)
    assert f"spec.priority is at most 0 on this cluster (it is {priority})" in answer
    assert "use a PriorityClass (spec.priorityClassName)" in answer
    assert "admission.maxPriority" in answer


@pytest.mark.parametrize("priority", [0, -1, -1_000_000_000])
def test_a_priority_of_a_job_within_the_maximum_is_accepted(tenant, priority):
    manifest = gpujob("first", workload={"name": "matmul"}, priority=priority)
    assert tenant.try_to_create(manifest) == ""


def test_a_job_does_not_raise_its_priority_beyond_the_bound_later(resident):
    manifest = gpujob("first", workload={"name": "matmul"}, suspend=True, priority=-5)
    assert resident.create(manifest) == ""
    change = ("--type=merge", "--patch", '{"spec": {"priority": 1000000000}}')
    answer = resident.kubectl("patch", "gpujob", "first", *change).stderr
    assert "spec.priority is at most 0" in answer
