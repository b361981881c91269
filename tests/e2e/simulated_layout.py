# SPDX-License-Identifier: Apache-2.0
"""Simulated inventories: what agents find is changed for a while, such as a GPU cut into slices."""

import contextlib
import json
import time

import yaml
from harness import wait_for
from node_faults import agent_of


@contextlib.contextmanager
def layout(system, node, *, cut):
    """Cut it into slices of these profiles; yields the node's devices."""
    before, everywhere = inventory_of(system)
    (gpu,) = everywhere["devices"]
    whole = gpu | {"count": gpu["count"] - 1}
    parts = gpu | {"count": 1, "mig": list(cut)}
    here = {"match": node, "devices": [whole, parts]}
    write(system, node, yaml.safe_dump({"nodes": [here, everywhere]}))
    try:
        wait_for(
            lambda: len(slices_of(system, node)) == len(cut), seconds=60, what="slices are reported"
        )
        for profile in set(cut):
            wait_for(
                lambda profile=profile: allocatable(system, node, profile) == cut.count(profile),
                seconds=60,
                what=f"the kubelet counts {profile}",
            )
        yield devices_of(system, node)
    finally:
        write(system, node, before)
        wait_for(lambda: not slices_of(system, node), seconds=60, what="the GPU is whole again")


@contextlib.contextmanager
def another_model(system, node, model):
    """Replace the GPUs of the node by eight of this model."""
    before, everywhere = inventory_of(system)
    gpu = {"model": model, "memoryMiB": 81920, "count": 8}
    write(system, node, yaml.safe_dump({"nodes": [{"match": node, "devices": [gpu]}, everywhere]}))
    try:
        wait_for(lambda: model in models_of(system, node), seconds=60, what="the other model")
        yield
    finally:
        write(system, node, before)
        wait_for(lambda: model not in models_of(system, node), seconds=60, what="its own GPUs")
        system.insist("delete", "gpunode", node)
        wait_for(lambda: is_listed(system, node), seconds=60, what="its own GPUs alone")


def models_of(system, node):
    """Return the models of the node's GPUs."""
    return {each["model"] for each in devices_of(system, node)}


def is_listed(system, node):
    """Return whether the node has a GPUNode."""
    return any(each["metadata"]["name"] == node for each in system.gpunodes())


def devices_of(system, node):
    """Return what the GPUNode lists."""
    (found,) = (each for each in system.gpunodes() if each["metadata"]["name"] == node)
    return found["status"]["devices"]


def slices_of(system, node):
    """Those that are slices."""
    return [each for each in devices_of(system, node) if each.get("migParent")]


def allocatable(system, node, profile):
    """Return how many slices of a profile the kubelet hands out."""
    found = json.loads(system.kubectl("get", "node", node, "-o", "json").stdout)
    return int(found["status"]["allocatable"].get(f"gpupack.dev/mig-{profile}", "0"))


def inventory_of(system):
    """Return the current file and its one entry, which matches all nodes."""
    config = json.loads(system.kubectl("get", "configmap", "gpupack-agent", "-o", "json").stdout)
    text = config["data"]["simulated.yaml"]
    (everywhere,) = yaml.safe_load(text)["nodes"]
    return text, everywhere


def write(system, node, text):
    """Replace the file, and have the node's agent see it soon."""
    patch = json.dumps({"data": {"simulated.yaml": text}})
    system.insist("patch", "configmap", "gpupack-agent", "--type=merge", "-p", patch)
    # The kubelet renews the file when it looks at the pod, which a change to it brings about. It
    # may look before its watch has reported the file: a second look a moment later sees it.
    agent = agent_of(system, node)["metadata"]["name"]
    for _ in range(2):
        changed = f"test/inventory={time.time_ns()}"
        system.insist("annotate", "pod", agent, "--overwrite", changed)
        time.sleep(1)
