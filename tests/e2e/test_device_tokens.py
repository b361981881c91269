# SPDX-License-Identifier: Apache-2.0
"""The kubelet's device tokens: as many as the annotation has GPUs, and never the same twice."""

import json
import pathlib

import pytest
from harness import annotated_devices, wait_for

SCRIPT = pathlib.Path(__file__).with_name("ask_tickets.py").read_text()


def agent_pod(system, node):
    done = system.kubectl(
        "get",
        "pods",
        "--selector=app.kubernetes.io/component=agent",
        f"--field-selector=spec.nodeName={node}",
        "-o",
        "jsonpath={.items[0].metadata.name}",
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def tickets(system, node, pods):
    """Ticket ids by pod, as the node's kubelet lists them to the agent."""
    names = [f"{pod['metadata']['namespace']}/{pod['metadata']['name']}" for pod in pods]
    done = system.kubectl(
        "exec", "-i", agent_pod(system, node), "--", "python3", "-", *names, stdin=SCRIPT
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_kubelet_counts_as_many_device_tokens_as_the_annotation_has_gpus(kube, system, judged):
    kube.submit(*(judged.job(f"hold-{gpus}", gpus=gpus, seconds=300) for gpus in (1, 2, 3)))
    for gpus in (1, 2, 3):
        kube.wait_phase(f"hold-{gpus}", "Running", seconds=180)
    for node in {pod["spec"]["nodeName"] for pod in kube.pods()}:
        pods = [pod for pod in kube.pods() if pod["spec"]["nodeName"] == node]
        held = tickets(system, node, pods)
        for pod in pods:
            key = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
            assert len(held[key]) == len(annotated_devices(pod))
        everything = [ticket for ids in held.values() for ticket in ids]
        assert len(everything) == len(set(everything))


@pytest.mark.alone
def test_gpus_are_handed_out_again_after_a_kubelet_restart(kube, cluster, judged, refusals):
    node = cluster.nodes()[0]
    cluster.kill(node, "kubelet")
    cluster.start(node, "kubelet")

    def allocatable():
        done = kube.kubectl(
            "get", "node", node, "-o", r"jsonpath={.status.allocatable.gpupack\.dev/gpu}"
        )
        return done.stdout == "8"

    wait_for(allocatable, seconds=60, what="the kubelet counts 8 tickets again")
    kube.submit(judged.job("after", workers=2, gpus=8, spread={"oneWorkerPerNode": True}))
    kube.wait_phase("after", "Succeeded")
    assert refusals() == []
