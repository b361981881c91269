# SPDX-License-Identifier: Apache-2.0
"""Agents: each writes for its own node alone.

Tried without effect (dry run), since real agents and real elections use the same objects.
"""

import json

import pytest
from harness import SYSTEM_NAMESPACE, wait_for

AGENT = f"system:serviceaccount:{SYSTEM_NAMESPACE}:gpupack-agent"
NODE_NAME = "authentication.kubernetes.io/node-name"


def as_agent_of(node):
    return (f"--as={AGENT}", f"--as-user-extra={NODE_NAME}={node}")


def gpunode(name):
    return {
        "apiVersion": "gpupack.dev/v1beta1",
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
    """Dry-run a patch that creates what is missing."""
    command = ("apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-")
    return kube.kubectl(*command, *flags, stdin=json.dumps(manifest)).stderr


def write_status(kube, name, *flags):
    """Return the answer to a write of the present status; the agent may write in between."""
    path = f"/apis/gpupack.dev/v1beta1/gpunodes/{name}/status?dryRun=All"

    def judged():
        body = kube.kubectl("get", "gpunode", name, "--output=json").stdout
        done = kube.kubectl("replace", "--raw", path, "-f", "-", *flags, stdin=body)
        return None if "(Conflict)" in done.stderr else done

    return wait_for(judged, seconds=60, what=f"no other component writes GPUNode {name}").stderr


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


def test_an_agent_creates_only_the_gpunode_of_its_node(system):
    flags = ("create", "--dry-run=server", "-f", "-", *as_agent_of("a"))
    assert system.kubectl(*flags, stdin=json.dumps(gpunode("a"))).stderr == ""
    refused = system.kubectl(*flags, stdin=json.dumps(gpunode("b"))).stderr
    assert 'may write gpunodes "a", not "b"' in refused


@pytest.mark.parametrize(
    "spec",
    [
        {"maintenance": [{"reason": "mine", "drain": "All"}]},
        {"quarantine": [{"gpu": "GPU-0", "phase": "Probation"}]},
    ],
    ids=["maintenance", "quarantine"],
)
def test_an_agent_cannot_write_maintenance(system, spec):
    flags = ("create", "--dry-run=server", "-f", "-", *as_agent_of("a"))
    refused = system.kubectl(*flags, stdin=json.dumps(gpunode("a") | {"spec": spec})).stderr
    assert "an agent must not set spec.maintenance or spec.quarantine" in refused


def test_an_agent_changes_no_spec(system):
    (own, *_) = (node["metadata"]["name"] for node in system.gpunodes())
    patch = '{"spec":{"maintenance":[{"reason":"mine"}]}}'
    flags = ("--type=merge", f"--patch={patch}", "--dry-run=server", *as_agent_of(own))
    assert "forbidden" in system.kubectl("patch", "gpunode", own, *flags).stderr


def test_an_agent_reports_only_the_gpus_of_its_own_node(system):
    (own, *_) = (node["metadata"]["name"] for node in system.gpunodes())
    assert write_status(system, own, *as_agent_of(own)) == ""
    assert f'not "{own}"' in write_status(system, own, *as_agent_of("other"))


OWNERS = {
    "another Node": {"apiVersion": "v1", "kind": "Node", "name": "b", "uid": "u"},
    "a ConfigMap": {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "u"},
    "another group": {"apiVersion": "example.org/v1", "kind": "Node", "name": "a", "uid": "u"},
}


def owned_by(owner, manifest):
    manifest["metadata"]["ownerReferences"] = [owner]
    return json.dumps(manifest)


def create(kube, manifest, *flags):
    """Dry-run a creation."""
    command = ("create", "--dry-run=server", "-f", "-")
    return kube.kubectl(*command, *flags, stdin=manifest).stderr


@pytest.mark.parametrize("owner", OWNERS.values(), ids=OWNERS)
def test_an_agent_names_no_owner_but_its_node(system, owner):
    for made in (gpunode("a"), lease("gpunode-a")):
        refused = create(system, owned_by(owner, made), *as_agent_of("a"))
        assert 'that only Node "a" owns' in refused


def test_an_agent_makes_its_node_the_owner_of_its_gpunode(system):
    owner = {"apiVersion": "v1", "kind": "Node", "name": "a", "uid": "u"}
    for made in (gpunode("a"), lease("gpunode-a")):
        assert create(system, owned_by(owner, made), *as_agent_of("a")) == ""


def test_a_token_that_names_no_node_writes_nothing(system):
    assert 'of node "" may write' in patch(system, lease("gpunode-a"), f"--as={AGENT}")
