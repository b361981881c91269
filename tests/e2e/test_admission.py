# SPDX-License-Identifier: Apache-2.0
"""What the API server refuses for gpupack's sake, whoever asks.

Devices: a pod's annotation comes with the scheduler's Binding or not at all. Tried as the
administrator; the pods name a scheduler that does not exist.
Agents: each writes for its own node alone. Tried without effect (dry run), since real agents and
real elections use the same objects.
"""

import json

import pytest
from harness import DEVICES_ANNOTATION, SYSTEM_NAMESPACE

AGENT = f"system:serviceaccount:{SYSTEM_NAMESPACE}:gpupack-agent"
NODE_NAME = "authentication.kubernetes.io/node-name"
REFUSAL = "only gpupack's scheduler writes it"
SCHEDULER = f"--as=system:serviceaccount:{SYSTEM_NAMESPACE}:gpupack-scheduler"


def pod(**annotations):
    """A pod that no kubelet will ever see, so that nothing delays its deletion."""
    container = {"name": "main", "image": "docker.io/gpupack/judge:dev"}
    spec = {"schedulerName": "nobody", "terminationGracePeriodSeconds": 0}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "idle", "annotations": annotations},
        "spec": spec | {"containers": [container]},
    }


def bind(kube, *flags):
    path = f"/api/v1/namespaces/{kube.namespace}/pods/idle/binding"
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "idle", "annotations": {DEVICES_ANNOTATION: "[]"}},
        "target": {"kind": "Node", "name": "no-such-node"},
    }
    return kube.kubectl("create", "--raw", path, "-f", "-", *flags, stdin=json.dumps(binding))


def test_a_pod_cannot_be_created_with_devices(kube):
    assert REFUSAL in kube.apply(pod(**{DEVICES_ANNOTATION: "[]"})).stderr


def test_a_binding_with_devices_is_the_schedulers_alone(kube):
    kube.submit(pod())
    assert REFUSAL in bind(kube).stderr
    assert bind(kube, SCHEDULER).returncode == 0


@pytest.mark.parametrize("change", ["=[1]", "-"], ids=["changed", "taken away"])
def test_devices_of_a_bound_pod_stay_what_they_are(kube, change):
    kube.submit(pod())
    bind(kube, SCHEDULER)
    wish = f"{DEVICES_ANNOTATION}{change}"
    assert REFUSAL in kube.kubectl("annotate", "--overwrite", "pod", "idle", wish).stderr


def test_a_status_update_is_no_way_around(kube):
    kube.submit(pod())
    patch = json.dumps({"metadata": {"annotations": {DEVICES_ANNOTATION: "[]"}}})
    arguments = ("patch", "pod", "idle", "--subresource=status", "--type=merge", "--patch", patch)
    assert REFUSAL in kube.kubectl(*arguments).stderr


def test_everything_else_of_a_bound_pod_can_be_annotated(kube):
    kube.submit(pod(owner="a"))
    bind(kube, SCHEDULER)
    done = kube.kubectl("annotate", "--overwrite", "pod", "idle", "owner=b")
    assert (done.returncode, done.stderr) == (0, "")


def as_agent_of(node):
    return (f"--as={AGENT}", f"--as-user-extra={NODE_NAME}={node}")


def gpunode(name):
    return {
        "apiVersion": "gpupack.dev/v1alpha1",
        "kind": "GPUNode",
        "metadata": {"name": name},
        "spec": {},
    }


def lease(name):
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": SYSTEM_NAMESPACE},
        "spec": {"holderIdentity": "me"},
    }


def patch(kube, manifest, *flags):
    """A patch that creates what is missing, tried without effect."""
    command = ("apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-")
    return kube.kubectl(*command, *flags, stdin=json.dumps(manifest)).stderr


def write_status(kube, name, *flags):
    path = f"/apis/gpupack.dev/v1alpha1/gpunodes/{name}/status?dryRun=All"
    body = kube.kubectl("get", "gpunode", name, "--output=json").stdout
    return kube.kubectl("replace", "--raw", path, "-f", "-", *flags, stdin=body).stderr


def test_the_token_of_an_agents_pod_names_its_node(system):
    selector = "--selector=app.kubernetes.io/component=agent"
    found = json.loads(system.kubectl("get", "pods", selector, "--output=json").stdout)
    (agent, *_) = found["items"]
    bound = ("--bound-object-kind=Pod", f"--bound-object-name={agent['metadata']['name']}")
    token = system.kubectl("create", "token", "gpupack-agent", *bound).stdout
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview"}
    review = json.dumps(review | {"spec": {"token": token}})
    answer = system.kubectl("create", "-f", "-", "--output=json", stdin=review).stdout
    extra = json.loads(answer)["status"]["user"]["extra"]
    assert extra[NODE_NAME] == [agent["spec"]["nodeName"]]


@pytest.mark.parametrize("name", ["gpunode-b", "gpupack-operator", "gpupack-scheduler"])
def test_an_agent_writes_no_lease_but_its_nodes(system, name):
    refusal = f'the agent of node "a" may write leases "gpunode-a", not "{name}"'
    assert refusal in patch(system, lease(name), *as_agent_of("a"))
    created = system.kubectl(
        "create", "--dry-run=server", "-f", "-", *as_agent_of("a"), stdin=json.dumps(lease(name))
    )
    assert refusal in created.stderr


def test_an_agent_writes_its_nodes_lease(system):
    assert patch(system, lease("gpunode-a"), *as_agent_of("a")) == ""


def test_an_agent_makes_no_gpunode_but_its_nodes(system):
    flags = ("create", "--dry-run=server", "-f", "-", *as_agent_of("a"))
    assert system.kubectl(*flags, stdin=json.dumps(gpunode("a"))).stderr == ""
    refused = system.kubectl(*flags, stdin=json.dumps(gpunode("b"))).stderr
    assert 'may write gpunodes "a", not "b"' in refused


def test_an_agent_reports_the_gpus_of_its_own_node_alone(system):
    (own, *_) = (node["metadata"]["name"] for node in system.gpunodes())
    assert write_status(system, own, *as_agent_of(own)) == ""
    assert f'not "{own}"' in write_status(system, own, *as_agent_of("other"))


def test_a_token_that_names_no_node_writes_nothing(system):
    assert 'of node "" may write' in patch(system, lease("gpunode-a"), f"--as={AGENT}")
