# SPDX-License-Identifier: Apache-2.0
"""GPUNodes and Leases of Nodes that are removed, and two GPUNodes that list the same GPUs.

The two Nodes are objects without a host; garbage collector, operator and scheduler are real.
"""

import json

import pytest
from harness import condition, wait_for
from node_faults import gpus_ready

from gpupack_devcluster.driver import NodeComponent

OLD, NEW = "removed-old", "removed-new"
PATIENCE_SECONDS = 60


def node(name):
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"type": "kwok"}},
        "spec": {"unschedulable": True},
    }


def gpu_node(name):
    return {
        "apiVersion": "gpupack.dev/v1beta1",
        "kind": "GPUNode",
        "metadata": {"name": name},
        "spec": {},
    }


DEVICE = {"uuid": "GPU-removed-0", "index": 0, "model": "simulated", "memoryMiB": 1024}


@pytest.fixture
def host(system):
    """Makes a Node and what its agent would report; both are gone afterwards."""

    def joins(name):
        system.submit(node(name), gpu_node(name))
        status = json.dumps({"status": {"devices": [DEVICE], "gpus": 1, "healthy": 1}})
        patch = ("--subresource=status", "--type=merge", f"--patch={status}")
        system.insist("patch", "gpunode", name, *patch)

    yield joins
    for name in (OLD, NEW):
        system.kubectl("delete", "node", name, "--ignore-not-found")
        system.kubectl("delete", "gpunode", name, "--ignore-not-found")


def read(system, kind, name):
    done = system.kubectl("get", kind, name, "--output=json")
    return json.loads(done.stdout) if done.returncode == 0 else None


def owners(item):
    return [
        (owner["kind"], owner["name"], owner["uid"])
        for owner in item["metadata"].get("ownerReferences", [])
    ]


def owned_by_its_node(system, name):
    return owners(read(system, "gpunode", name)) == [
        ("Node", name, read(system, "node", name)["metadata"]["uid"])
    ]


def rejection(system, name):
    """Return status and message of the GPUNode's condition about why the node gets no work."""
    found = condition(read(system, "gpunode", name), "InventoryRejected")
    return found.get("status"), found.get("message", "")


def test_a_node_owns_its_gpunode_and_its_agents_lease(cluster, system):
    for name in cluster.nodes():
        uid = read(system, "node", name)["metadata"]["uid"]
        for item in (read(system, "gpunode", name), read(system, "lease", f"gpunode-{name}")):
            assert owners(item) == [("Node", name, uid)]


@pytest.mark.alone
def test_the_gpunode_of_a_removed_node_takes_no_gpus_from_others(system, host):
    host(OLD)
    wait_for(lambda: owned_by_its_node(system, OLD), seconds=PATIENCE_SECONDS, what="an owner")
    host(NEW)
    wait_for(
        lambda: rejection(system, NEW)[0] == "True",
        seconds=PATIENCE_SECONDS,
        what="the later node shows why it gets no work",
    )
    assert f"the agent of node {OLD} lists too" in rejection(system, NEW)[1]
    assert rejection(system, OLD)[0] is None
    system.delete("node", OLD)
    wait_for(
        lambda: rejection(system, NEW)[0] == "False",
        seconds=PATIENCE_SECONDS,
        what="the later node gets work",
    )
    wait_for(
        lambda: read(system, "gpunode", OLD) is None,
        seconds=PATIENCE_SECONDS,
        what="the GPUNode is gone",
    )


@pytest.mark.alone
@pytest.mark.slow
def test_a_gpunode_that_no_node_owns_is_deleted_after_a_while(system, host):
    system.submit(gpu_node(NEW))
    wait_for(lambda: read(system, "gpunode", NEW) is None, seconds=120, what="the GPUNode is gone")


@pytest.mark.alone
@pytest.mark.slow
def test_gpunode_and_lease_are_deleted_and_created_with_their_node(cluster, system):
    name = cluster.nodes()[-1]
    before = read(system, "node", name)
    labels = {
        key: value
        for key, value in before["metadata"]["labels"].items()
        if "kubernetes.io/" not in key
    }
    cluster.kill(name, NodeComponent.KUBELET)
    try:
        system.delete("node", name)
        for kind, gone in (("gpunode", name), ("lease", f"gpunode-{name}")):
            wait_for(
                lambda kind=kind, gone=gone: read(system, kind, gone) is None,
                seconds=PATIENCE_SECONDS,
                what=f"{kind} {gone} is gone",
            )
    finally:
        cluster.start(name, NodeComponent.KUBELET)
        wait_for(lambda: read(system, "node", name), seconds=PATIENCE_SECONDS, what="the Node")
        for key, value in labels.items():
            system.insist("label", "node", name, f"{key}={value}", "--overwrite")
        wait_for(
            lambda: read(system, "gpunode", name) and not gpus_ready(system, name),
            seconds=180,
            what="the node hands out its GPUs again",
        )
    assert owned_by_its_node(system, name)
