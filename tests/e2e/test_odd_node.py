# SPDX-License-Identifier: Apache-2.0
"""Agent and preflight on a node with unusual paths of kubelet and driver."""

import json

import odd_node
import pytest
from harness import cluster_kind, wait_for
from manifests import JUDGE_IMAGE
from node_faults import kubelet_down

pytestmark = [
    pytest.mark.alone,
    pytest.mark.slow,
    pytest.mark.skipif(cluster_kind() != "devcluster", reason="makes a node of its own"),
]

LOOK = (
    "import json, os; print(json.dumps([os.listdir('/dev'), open('/proc/self/mountinfo').read()]))"
)
SLEEP = ["python3", "-S", "-c", "import time; time.sleep(3600)"]


@pytest.fixture(scope="module")
def odd(cluster, system):
    with odd_node.odd_node(cluster, system) as found:
        found.install_driver(odd_node.OPERATOR)
        odd_node.agent_of_its_own(system)
        yield found


def holder(name):
    container = {
        "name": "main",
        "image": JUDGE_IMAGE,
        "command": SLEEP,
        "resources": {"limits": {"gpupack.dev/gpu": "1"}},
    }
    spec = {
        "schedulerName": "gpupack",
        "nodeSelector": {"kubernetes.io/hostname": odd_node.NAME},
        "terminationGracePeriodSeconds": 1,
        "securityContext": {"runAsUser": 0},
        "containers": [container],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def test_the_charts_agents_leave_a_virtual_node_out(odd, system):
    assert odd
    pods = json.loads(system.insist("get", "pods", "--output=json"))["items"]
    agents = {
        pod["metadata"]["labels"].get("app.kubernetes.io/component")
        for pod in pods
        if pod["spec"].get("nodeName") == odd_node.NAME
    }
    assert odd_node.AGENT in agents
    assert "agent" not in agents


def test_a_driver_container_is_found_and_its_nodes_also_when_they_come_later(odd, kube, system):
    odd_node.wait_gpus(kube)
    assert status_of(kube, "model") == "NVIDIA Stand-in"
    odd.make_device_nodes(odd_node.OPERATOR)
    odd_node.restart_agent(system)
    wait_for(
        lambda: odd_node.in_agent(system, "test", "-c", "/dev/nvidiactl").returncode == 0 or None,
        seconds=60,
        what="the agent has the driver's device nodes",
    )
    assert given(kube, "first") == {
        f"{odd_node.OPERATOR}/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05",
        f"{odd_node.OPERATOR}/usr/bin/nvidia-smi",
    }


def status_of(kube, field):
    return odd_node.status(kube).get(field)


def given(kube, name):
    """Run a pod with a GPU; which files of the host it got as driver."""
    odd_node.wait_gpus(kube)
    kube.submit(holder(name))
    kube.wait_pod(name, "Running")
    devices, mounts = json.loads(kube.insist("exec", name, "--", "python3", "-S", "-c", LOOK))
    assert {"nvidiactl", "nvidia-uvm"} <= set(devices)
    rows = [line.split() for line in mounts.splitlines()]
    wanted = {"/usr/lib64/libcuda.so.1", "/usr/bin/nvidia-smi"}
    return {host_path(row[3]) for row in rows if row[4] in wanted}


def host_path(path):
    """A mount is listed by its path in its own file system: the node's /run and /home are some."""
    folder = next(each for each in odd_node.FOLDERS if each.split("/", 2)[2] in path)
    return f"/{folder.split('/')[1]}{path}"


def test_pods_are_found_below_the_cgroup_root_and_by_the_kubelets_own_folder(odd, kube):
    kube.submit(holder("held"))
    kube.wait_pod("held", "Running")
    with kubelet_down(odd, odd_node.NAME):
        kube.delete("pod", "held", "--force", "--grace-period=0")
        wait_for(
            lambda: [each["name"] for each in status_of(kube, "holders") or ()] == ["held"] or None,
            seconds=60,
            what="GPUNode names the pod whose processes run on",
        )
    wait_for(
        lambda: not status_of(kube, "holders") or None,
        seconds=120,
        what="the kubelet has ended it, and its GPU is free",
    )


def test_preflight_judges_the_kubelet_as_it_is(odd, system):
    assert odd
    command = ("python", "-m", "gpupack_agent", "preflight", "--host-root=/host/root", "-ojson")
    done = odd_node.in_agent(system, *command)
    found = {each["check"]: each for each in json.loads(done.stdout)["findings"]}
    assert found["kubelet"]["status"] == "ok", found["kubelet"]
    assert odd_node.ROOT_DIR in found["kubelet"]["found"]
    assert found["container runtime"]["status"] == "ok", found["container runtime"]
    assert f"{odd_node.NAME}/containerd.toml" in found["container runtime"]["found"]
    assert f"pods below {odd_node.CGROUP_ROOT}" in found["cgroups"]["found"]


def test_gkes_driver_is_found_when_the_node_has_that_one(odd, kube, system):
    odd.insist(f"rm -rf {odd_node.OPERATOR}")
    odd.install_driver(odd_node.GKE)
    odd.make_device_nodes(odd_node.GKE)
    odd_node.restart_agent(system)
    assert given(kube, "second") == {
        f"{odd_node.GKE}/lib64/libcuda.so.580.95.05",
        f"{odd_node.GKE}/bin/nvidia-smi",
    }
