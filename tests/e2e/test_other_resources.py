# SPDX-License-Identifier: Apache-2.0
"""Resources besides CPU, memory and GPUs, which one node has and another has not.

They are patched into a Node's status, as an administrator advertises an extended resource; the
kubelet keeps them and counts pods by them.
"""

import contextlib
import json

import pytest
from harness import condition, placed, wait_for

NICS = "example.com/nic"


@pytest.fixture
def advertised(system):
    """Nodes with a resource; `advertised(node, name, number)` gives them more."""
    with contextlib.ExitStack() as stack:

        def advertise(node, name, number):
            paths = [f"/status/{each}/{name.replace('/', '~1')}" for each in _MAPS]
            patch = [{"op": "add", "path": path, "value": str(number)} for path in paths]
            _patch(system, node, patch)
            stack.callback(withdraw, node, paths)

        def withdraw(node, paths):
            _patch(system, node, [{"op": "remove", "path": path} for path in paths])

        yield advertise


_MAPS = ("capacity", "allocatable")


def _patch(system, node, patch):
    def patched():
        done = system.kubectl(
            *("patch", "node", node, "--subresource=status", "--type=json", "-p"),
            json.dumps(patch),
        )
        return done.returncode == 0

    # The kubelet writes the same status all the time.
    wait_for(patched, seconds=60, what=f"node {node} is patched")


def asking(judged, name, resource, **spec):
    job = judged.job(name, **spec)
    limits = {resource: "1"}
    job["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": limits}
    return job


@pytest.mark.alone
def test_workers_go_to_the_node_that_has_their_other_resources(kube, judged, advertised):
    nodes = kube.nodes()
    for number, node in enumerate(nodes):
        resource = f"{NICS}-{number}"
        advertised(node, resource, 2)
        kube.submit(asking(judged, f"gang-{number}", resource, workers=2))
    for number, node in enumerate(nodes):
        job = kube.wait_phase(f"gang-{number}", "Succeeded", "Failed", seconds=90)
        attempts = [(each["outcome"], each["nodes"]) for each in job["status"]["attempts"]]
        assert attempts == [("Succeeded", node)]


def test_a_resource_that_no_node_has_is_named_at_once_and_its_arrival_starts_the_job(
    kube, judged, advertised
):
    resource = f"{NICS}-late"
    kube.submit(asking(judged, "early", resource, workers=2, seconds=5))

    def why():
        message = kube.gpujob("early").get("status", {}).get("message", "")
        return message if resource in message else None

    message = wait_for(why, seconds=60, what="the status names the resource")
    assert "does not have the requested" in message
    assert "placement" not in kube.gpujob("early")["status"]
    node = kube.nodes()[-1]
    advertised(node, resource, 2)
    job = kube.wait_phase("early", "Running", "Succeeded", seconds=90)
    assert {worker.node for worker in placed(job)} == {node}
    assert condition(job, "Admitted")["status"] == "True"


# The message names the resource only while the node has a free GPU.
@pytest.mark.alone
def test_resources_held_by_a_pod_without_gpus_are_not_planned(kube, judged, advertised):
    resource, node = f"{NICS}-held", kube.nodes()[0]
    advertised(node, resource, 1)
    holder = judged.pod("holder", gpus=1, seconds=600)
    holder["spec"] |= {"schedulerName": "default-scheduler"}
    holder["spec"]["containers"][0]["resources"] = {"limits": {resource: "1"}}
    kube.submit(holder)
    kube.wait_pod("holder", "Running")
    kube.submit(asking(judged, "waits", resource))

    def why():
        message = kube.gpujob("waits").get("status", {}).get("message", "")
        return message if resource in message else None

    assert "too little is free" in wait_for(why, seconds=60, what="the status names the resource")
    kube.delete("pod", "holder", "--grace-period=1", "--wait=false")
    kube.wait_phase("waits", "Succeeded", seconds=90)
