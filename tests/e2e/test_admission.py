# SPDX-License-Identifier: Apache-2.0
"""What the API server refuses for gpupack's sake, whoever asks.

Devices: a pod's annotation comes with the scheduler's Binding or not at all. Tried as the
administrator; the pods name a scheduler that does not exist.
Pods that ask for GPUs: they come to gpupack's scheduler, and it can serve them, or not at all.
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


def asking(name="main", *, resource="gpupack.dev/gpu", **container):
    """A container that asks for GPUs."""
    image = "docker.io/gpupack/judge:dev"
    return {"name": name, "image": image, "resources": {"limits": {resource: "1"}}} | container


PLAIN = {"name": "plain", "image": "docker.io/gpupack/judge:dev"}


def try_pod(kube, *containers, **spec):
    """What is said to a pod for gpupack's scheduler, tried without effect."""
    manifest = pod()
    manifest["spec"] |= {"schedulerName": "gpupack", "containers": containers} | spec
    return kube.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(manifest)).stderr


ASKS = {
    "a container": ((asking(),), {}),
    "one of two containers": ((PLAIN, asking()), {}),
    "a sidecar": ((PLAIN,), {"initContainers": [asking(restartPolicy="Always")]}),
    "with variables of its own": ((asking(env=[{"name": "GPUPACK_JOB", "value": "a"}]),), {}),
    "beside a container that hides GPUs from itself": (
        (asking(), PLAIN | {"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]}),
        {},
    ),
}
WAYS_ROUND = {
    "another scheduler": ((asking(),), {"schedulerName": "a"}, '"gpupack" (it is "a")'),
    "the default scheduler": (
        (asking(),),
        {"schedulerName": None},
        'set spec.schedulerName to "gpupack" (it is "default-scheduler")',
    ),
    "a node": ((asking(),), {"nodeName": "a"}, "remove spec.nodeName"),
    "a sidecar of another scheduler": (
        (PLAIN,),
        {"schedulerName": "a", "initContainers": [asking(restartPolicy="Always")]},
        "set spec.schedulerName",
    ),
    "an init container of another scheduler": (
        (PLAIN,),
        {"schedulerName": "a", "initContainers": [asking()]},
        "set spec.schedulerName",
    ),
    "an init container": (
        (PLAIN,),
        {"initContainers": [asking("early")]},
        "init container early cannot have GPUs",
    ),
    "two containers": ((asking("a"), asking("b")), {}, "let only one of a, b ask"),
    "a container and a sidecar": (
        (asking("a"),),
        {"initContainers": [asking("b", restartPolicy="Always")]},
        "let only one of a, b ask",
    ),
    "a container that asks for none": (
        (asking(resources={"limits": {"gpupack.dev/gpu": "0"}}),),
        {"schedulerName": "a"},
        "set spec.schedulerName",
    ),
}


@pytest.mark.parametrize(("containers", "spec"), ASKS.values(), ids=ASKS)
def test_a_pod_that_gpupack_can_serve_may_ask(kube, containers, spec):
    assert try_pod(kube, *containers, **spec) == ""


@pytest.mark.parametrize(("containers", "spec", "refusal"), WAYS_ROUND.values(), ids=WAYS_ROUND)
def test_no_pod_gets_gpus_past_the_ledger(kube, containers, spec, refusal):
    assert refusal in try_pod(kube, *containers, **spec)


@pytest.mark.parametrize("resource", ["gpu-share", "gpu-percent", "gpu-memory"])
def test_shares_are_refused_until_they_are_served(kube, resource):
    limits = {"gpupack.dev/gpu": "1", f"gpupack.dev/{resource}": "1"}
    refused = try_pod(kube, asking(resources={"limits": limits}))
    assert "shares are not served by this release" in refused
    assert f"in place of gpupack.dev/{resource}" in refused


@pytest.mark.parametrize(
    "variable",
    [
        "NVIDIA_VISIBLE_DEVICES",
        "CUDA_VISIBLE_DEVICES",
        "GPUPACK_SIMULATED",
        "GPUPACK_DEVICES",
        "GPUPACK_DEVICE_PERCENT",
    ],
)
def test_a_pod_does_not_say_which_gpus_it_sees(kube, variable):
    environment = [{"name": "A", "value": "a"}, {"name": variable, "value": "all"}]
    refusal = f"remove the variables {variable} from container main"
    assert refusal in try_pod(kube, asking(env=environment))


@pytest.mark.parametrize("kind", ["requests", "limits"])
def test_the_needs_of_a_pod_as_a_whole_name_no_gpus(kube, kind):
    amounts = {kind: {"gpupack.dev/gpu": "1"}}
    assert "spec.resources" in try_pod(kube, PLAIN, resources=amounts)


@pytest.mark.parametrize(
    ("subresource", "field"),
    [("resize", "containers"), ("ephemeralcontainers", "ephemeralContainers")],
)
def test_a_pod_that_runs_does_not_begin_to_ask(kube, subresource, field):
    kube.submit(pod())
    container = asking("main" if field == "containers" else "late")
    change = json.dumps({"spec": {field: [container]}})
    flags = ("--type=strategic", f"--subresource={subresource}", "--patch", change)
    done = kube.kubectl("patch", "pod", "idle", *flags)
    assert done.returncode != 0
    assert "resources" in done.stderr


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
