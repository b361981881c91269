# SPDX-License-Identifier: Apache-2.0
"""No pod gets at the GPUs of its node without asking for them.

Tried as an ordinary tenant, without effect (dry run) wherever creation decides.
"""

import json

import pytest
from admission import PLAIN, asking, pod, variable
from harness import SYSTEM_NAMESPACE, wait_for
from manifests import controller

PRIVILEGED = {"securityContext": {"privileged": True}}
WITH_ENVIRONMENT = {"env": variable("NVIDIA_VISIBLE_DEVICES")}


@pytest.fixture(scope="module", autouse=True)
def runtime_class(system):
    """The class that NVIDIA's toolkit brings: pods of a class that there is not never get far.

    It stays: another worker's tests may still need it.
    """
    manifest = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": "nvidia"}
    system.submit(manifest | {"metadata": {"name": "nvidia"}})


def with_volume(path):
    """A pod that mounts a folder of its node."""
    mount = {"volumeMounts": [{"name": "host", "mountPath": "/host"}]}
    volumes = [{"name": "host", "hostPath": {"path": path}}]
    return pod(PLAIN | mount, volumes=volumes)


def with_capability(name):
    return pod(PLAIN | {"securityContext": {"capabilities": {"add": [name]}}})


ATTACKS = {
    "all GPUs by a variable and the runtime": (
        pod(PLAIN | WITH_ENVIRONMENT, runtimeClassName="nvidia"),
        "remove NVIDIA_VISIBLE_DEVICES from container plain",
    ),
    "all GPUs by an image and the runtime": (
        pod(PLAIN, runtimeClassName="nvidia"),
        "the runtime of class nvidia shows GPUs to every container that names them",
    ),
    "all GPUs by a variable": (
        pod(PLAIN | WITH_ENVIRONMENT),
        "remove NVIDIA_VISIBLE_DEVICES from container plain, or set it to void",
    ),
    "all GPUs by a variable next to another plugin's": (
        pod(asking(limits={"nvidia.com/gpu": "1"}, **WITH_ENVIRONMENT)),
        "remove NVIDIA_VISIBLE_DEVICES from container main",
    ),
    "all GPUs by an image, the runtime and none of another plugin's": (
        pod(asking(limits={"nvidia.com/gpu": "0"}), runtimeClassName="nvidia"),
        "and container main requests none from another device plugin",
    ),
    "all GPUs by an image and the runtime next to another plugin's": (
        pod(asking(limits={"nvidia.com/gpu": "1"}), PLAIN, runtimeClassName="nvidia"),
        "and container plain requests none from another device plugin",
    ),
    "all GPUs by an image and the runtime before another plugin's": (
        pod(
            asking(limits={"nvidia.com/gpu": "1"}),
            initContainers=[PLAIN],
            runtimeClassName="nvidia",
        ),
        "and container plain requests none from another device plugin",
    ),
    "GPUs by a mount": (
        pod(
            PLAIN
            | {
                "volumeMounts": [
                    {"name": "a", "mountPath": "/var/run/nvidia-container-devices/all"}
                ]
            },
            volumes=[{"name": "a", "emptyDir": {}}],
        ),
        "remove the mounts at /var/run/nvidia-container-devices from container plain",
    ),
    "privileged": (pod(PLAIN | PRIVILEGED), "container plain would see every GPU of its node"),
    "privileged for a moment": (
        pod(initContainers=[PLAIN | PRIVILEGED]),
        "container plain would see every GPU of its node",
    ),
    "the machine's capabilities": (with_capability("SYS_ADMIN"), "through its capabilities"),
    "all capabilities": (with_capability("all"), "through its capabilities"),
    "a capability by its other name": (
        with_capability("cap_sys_rawio"),
        "through its capabilities",
    ),
    "the node's processes": (pod(hostPID=True), "remove hostPID"),
    "CDI by an annotation": (
        pod(annotations={"cdi.k8s.io/gpu": "nvidia.com/gpu=all"}),
        "annotation cdi.k8s.io/gpu requests devices from the container runtime",
    ),
    "CDI by an annotation of NVIDIA's plugin": (
        pod(annotations={"nvidia.cdi.k8s.io/container.plain": "nvidia.com/gpu=all"}),
        "annotation nvidia.cdi.k8s.io/container.plain requests devices from the container runtime",
    ),
    "devices by an annotation of a plugin": (
        pod(annotations={"a": "b", "devices.nri.io/container.plain": "- path: /dev/nvidia0"}),
        "annotation devices.nri.io/container.plain requests devices from the container runtime",
    ),
    "CRI-O's devices by an annotation": (
        pod(annotations={"io.kubernetes.cri-o.Devices": "/dev/nvidia0"}),
        "io.kubernetes.cri-o.Devices",
    ),
}
FOLDERS = {
    "device nodes": "/dev",
    "one device": "/dev/nvidia0",
    "the CDI folder": "/var/run/cdi",
    "the CDI folder by its other name": "/run/cdi",
    "the static CDI folder": "/etc/cdi",
    "a CDI spec": "/etc/cdi/nvidia.yaml",
    "PodResources": "/var/lib/kubelet/pod-resources",
    "device plugins' sockets": "/var/lib/kubelet/device-plugins",
    "other pods' volumes": "/var/lib/kubelet/pods",
    "static pods": "/etc/kubernetes/manifests",
    "the container runtime": "/run/containerd/containerd.sock",
    "the container runtime of k3s": "/run/k3s/containerd/containerd.sock",
    "the container runtime's plugins": "/var/run/nri/nri.sock",
    "plugins that the container runtime starts": "/opt/nri/plugins",
    "processes": "/proc/1/root",
    "PCI resources": "/sys/bus/pci/devices",
    "a folder above": "/var/lib",
    "everything": "/",
    "everything, written otherwise": "//./",
    "slashes and dots": "/var//./lib/kubelet/",
}


@pytest.mark.parametrize(("manifest", "refusal"), ATTACKS.values(), ids=ATTACKS)
def test_a_tenants_pod_that_reaches_for_its_nodes_gpus_is_refused(tenant, manifest, refusal):
    assert refusal in tenant.try_to_create(manifest)


@pytest.mark.parametrize("path", FOLDERS.values(), ids=FOLDERS)
def test_a_tenant_mounts_no_folder_of_the_node_that_leads_to_its_gpus(tenant, path):
    assert "gives access to devices of the node" in tenant.try_to_create(with_volume(path))


ORDINARY = {
    "nothing": pod(),
    "a folder of data": with_volume("/data/imagenet"),
    "a name that begins like another": with_volume("/devices"),
    "a harmless capability": with_capability("NET_BIND_SERVICE"),
    "another plugin's GPU": pod(asking(limits={"nvidia.com/gpu": "1"}), runtimeClassName="nvidia"),
    "another plugin's GPUs for each container": pod(
        asking(limits={"nvidia.com/gpu": "1"}),
        initContainers=[asking("first", {"nvidia.com/gpu": "1"})],
        runtimeClassName="nvidia",
    ),
    "no GPUs by the variable": pod(PLAIN | {"env": variable("NVIDIA_VISIBLE_DEVICES", "void")}),
    "other annotations": pod(annotations={"cdi.example/a": "b", "mycdi.k8s.io/a": "b"}),
}


@pytest.mark.parametrize("manifest", ORDINARY.values(), ids=ORDINARY)
def test_an_ordinary_pod_of_a_tenant_is_admitted(tenant, manifest):
    assert tenant.try_to_create(manifest) == ""


def test_a_forbidden_pod_of_a_tenants_controller_is_refused(resident):
    template = pod(PLAIN | PRIVILEGED)["spec"]
    assert resident.create(controller("ReplicaSet", "idle", template, replicas=1)) == ""
    answer = wait_for(lambda: refused(resident.kube), seconds=60, what="the ReplicaSet is refused")
    assert "container plain would see every GPU of its node" in answer


def refused(kube):
    """Why the ReplicaSet has no pod, once it says so."""
    conditions = kube.get("replicaset", "idle")["status"].get("conditions", [])
    return next((c["message"] for c in conditions if c["type"] == "ReplicaFailure"), None)


JOINING = {
    "privileged": (PRIVILEGED, "container late would see every GPU of its node"),
    "with all capabilities": (
        {"securityContext": {"capabilities": {"add": ["ALL"]}}},
        "through its capabilities",
    ),
    "with a variable": (WITH_ENVIRONMENT, "remove NVIDIA_VISIBLE_DEVICES from container late"),
}


@pytest.fixture
def debugger(resident):
    """A tenant with the right to debug, which is not part of `edit`."""
    role = ("create", "role", "debugger", "--verb=get,patch", "--resource=pods/ephemeralcontainers")
    account = f"--serviceaccount={resident.kube.namespace}:tenant"
    resident.kube.insist(*role)
    resident.kube.insist("create", "rolebinding", "debugger", "--role=debugger", account)
    wait_for(
        lambda: may_debug(resident),
        seconds=60,
        what="the right to debug",
    )
    return resident


def may_debug(tenant):
    asked = ("auth", "can-i", "patch", "pods", "--subresource=ephemeralcontainers")
    return tenant.kubectl(*asked).returncode == 0


def join(debugger, container):
    """Return the error of an ephemeral container of the pod; nothing if it is accepted."""
    change = {"spec": {"ephemeralContainers": [PLAIN | container | {"name": "late"}]}}
    flags = ("--subresource=ephemeralcontainers", "--type=strategic", "--patch", json.dumps(change))
    return debugger.kubectl("patch", "pod", "idle", *flags).stderr


@pytest.mark.parametrize(("container", "refusal"), JOINING.values(), ids=JOINING)
def test_a_container_that_joins_a_pod_reaches_no_gpu_of_its_node(debugger, container, refusal):
    assert debugger.create(pod()) == ""
    assert refusal in join(debugger, container)


SILENT = {
    "no variable": {},
    "an empty one": {"env": variable("NVIDIA_VISIBLE_DEVICES", "")},
    "another one": {"env": variable("CUDA_VISIBLE_DEVICES", "void")},
}


@pytest.mark.parametrize("container", SILENT.values(), ids=SILENT)
def test_an_ephemeral_container_in_a_pod_with_nvidias_runtime_must_hide_gpus(debugger, container):
    observed = asking(limits={"nvidia.com/gpu": "1"})
    assert debugger.create(pod(observed, runtimeClassName="nvidia")) == ""
    assert "set the variable NVIDIA_VISIBLE_DEVICES of ephemeral container late" in join(
        debugger, container
    )
    assert join(debugger, {"env": variable("NVIDIA_VISIBLE_DEVICES", "void")}) == ""


def test_a_tenant_debugs_its_pod_without_privileges(debugger):
    assert debugger.create(pod()) == ""
    command = ("debug", "idle", f"--image={PLAIN['image']}", "--attach=false", "--quiet")
    allowed = debugger.kubectl(*command, "--profile=general")
    assert allowed.returncode == 0, allowed.stderr
    assert "would see every GPU" in debugger.kubectl(*command, "--profile=sysadmin").stderr


@pytest.mark.parametrize("flags", [(), ("--subresource=status",)], ids=["pod", "status"])
def test_a_tenant_adds_no_cdi_annotation_to_its_pod_later(resident, flags):
    assert resident.create(pod(annotations={"a": "b"})) == ""
    change = json.dumps({"metadata": {"annotations": {"cdi.k8s.io/gpu": "nvidia.com/gpu=0"}}})
    patch = ("patch", "pod", "idle", "--type=merge", "--patch", change)
    # `edit` has no right to the status; a user with that right is refused as well.
    kubectl = resident.kubectl if not flags else resident.kube.kubectl
    assert "annotation cdi.k8s.io/gpu requests devices" in kubectl(*patch, *flags).stderr


def label(kube, value):
    kube.insist("label", "namespace", kube.namespace, "--overwrite", value)


def test_a_namespace_that_its_administrator_calls_privileged_is_exempt(resident):
    kube = resident.kube
    level = "pod-security.kubernetes.io/enforce"
    label(kube, f"{level}=privileged")
    wait_for(
        lambda: resident.try_to_create(pod(PLAIN | PRIVILEGED)) == "",
        seconds=60,
        what="the label counts",
    )
    assert resident.create(pod(PLAIN | PRIVILEGED)) == ""
    label(kube, f"{level}-")
    wait_for(
        lambda: resident.try_to_create(pod(PLAIN | PRIVILEGED)) != "",
        seconds=60,
        what="its absence counts",
    )
    # What is there already can be changed in other respects, and deleted.
    kube.insist("annotate", "pod", "idle", "a=b")
    kube.insist("delete", "pod", "idle")


def test_a_tenant_cannot_label_its_namespace_privileged(tenant):
    name = tenant.kube.namespace
    answer = tenant.kubectl(
        "label", "namespace", name, "pod-security.kubernetes.io/enforce=a"
    ).stderr
    assert "forbidden" in answer.lower()


@pytest.mark.parametrize("namespace", ["kube-system", SYSTEM_NAMESPACE])
def test_the_clusters_own_agents_are_exempt(system, namespace):
    manifest = pod(PLAIN | PRIVILEGED, hostPID=True)
    done = system.kubectl(
        "create", "--dry-run=server", "-f", "-", f"--namespace={namespace}",
        stdin=json.dumps(manifest),
    )  # fmt: skip
    assert done.stderr == ""
