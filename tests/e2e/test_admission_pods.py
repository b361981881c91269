# SPDX-License-Identifier: Apache-2.0
"""Pods that ask for GPUs come to gpupack's scheduler, and it can serve them, or not at all.

Tried as an ordinary tenant, without effect (dry run) wherever creation decides.
"""

import json

import pytest
from admission import (
    GPU,
    MEMORY,
    PERCENT,
    PLAIN,
    SHARE,
    SLOT,
    asking,
    pod,
    sharing,
    try_pod,
    variable,
)
from manifests import JUDGE_IMAGE

from gpupack_crds.names import ISOLATION_ANNOTATION as ISOLATION
from gpupack_crds.names import SHARE_WITH_ANNOTATION as SHARE_WITH

SIDECAR = {"restartPolicy": "Always"}
SLICE = "gpupack.dev/mig-1g.18gb"
GOOD = {
    "a GPU": ((asking(),), {}),
    "eight GPUs with cpu and memory": (
        (asking(limits={GPU: "8", "cpu": "4", "memory": "1Gi"}),),
        {},
    ),
    "a share": ((sharing(),), {}),
    "the smallest share": ((sharing(percent="1", memory="1Mi"),), {}),
    "the largest share": ((sharing(percent="99", memory="140G"),), {}),
    "a share written as numbers": ((sharing(share=1, percent=40, memory=10737418240),), {}),
    "limits and equal requests": ((asking(resources={"limits": SHARE, "requests": SHARE}),), {}),
    "one of two containers": ((PLAIN, asking()), {}),
    "a share for one of two containers": ((PLAIN, sharing()), {}),
    "a sidecar": ((PLAIN,), {"initContainers": [asking() | SIDECAR]}),
    "a sidecar with a share": ((PLAIN,), {"initContainers": [sharing() | SIDECAR]}),
    "two containers": ((asking("a"), PLAIN, asking("b", {GPU: "2"})), {}),
    "two containers with MIG slices": ((asking("a", {SLICE: "1"}), asking("b", {SLICE: "2"})), {}),
    "a container and a sidecar": (
        (asking("a"),),
        {"initContainers": [asking("b") | SIDECAR]},
    ),
    "after an init container": ((asking(),), {"initContainers": [PLAIN]}),
    "with variables of its own": ((asking(env=variable("GPUPACK_JOB", "a")),), {}),
    "with variables from elsewhere": (
        (asking(envFrom=[{"configMapRef": {"name": "settings"}}]),),
        {},
    ),
    "with a container that hides GPUs from itself": (
        (asking(), PLAIN | {"env": variable("NVIDIA_VISIBLE_DEVICES", "void")}),
        {},
    ),
    "narrowed to nodes": ((sharing(),), {"nodeSelector": {"zone": "a"}}),
    "limited": ((sharing(),), {"annotations": {ISOLATION: "limited"}}),
    "within the namespace": ((sharing(),), {"annotations": {SHARE_WITH: "namespace"}}),
    "strictly a GPU": ((asking(),), {"annotations": {ISOLATION: "strict"}}),
    "held back by a gate": ((asking(),), {"schedulingGates": [{"name": "example.test/later"}]}),
}
NOT_OURS = {
    "another plugin's GPU, by any scheduler": (
        (asking(limits={"nvidia.com/gpu": "1"}),),
        {"schedulerName": "example-scheduler"},
    ),
    "another plugin's GPU, by ours": ((asking(limits={"nvidia.com/gpu": "1"}),), {}),
    "two containers with another plugin's GPUs": (
        (asking("a", {"nvidia.com/gpu": "1"}), asking("b", {"nvidia.com/gpu": "1"})),
        {},
    ),
}


@pytest.mark.parametrize(("containers", "spec"), GOOD.values(), ids=GOOD)
def test_a_valid_gpu_request_is_admitted(tenant, containers, spec):
    assert try_pod(tenant, *containers, **spec) == ""


@pytest.mark.parametrize(("containers", "spec"), NOT_OURS.values(), ids=NOT_OURS)
def test_a_pod_that_requests_nothing_of_gpupacks_is_taken(tenant, containers, spec):
    """A warning is allowed, where no node offers the other plugin's GPUs."""
    said = try_pod(tenant, *containers, **spec).splitlines()
    assert [line for line in said if not line.startswith("Warning: ")] == []


WAYS_ROUND = {
    "a share that is isolated strictly": (
        (sharing(),),
        {"annotations": {ISOLATION: "strict"}},
        "shares of a GPU cannot be isolated strictly",
    ),
    "whole GPUs that are limited": (
        (asking(),),
        {"annotations": {ISOLATION: "limited"}},
        "whole GPUs are not shared: remove the annotation gpupack.dev/isolation",
    ),
    "an isolation that there is not": (
        (sharing(),),
        {"annotations": {ISOLATION: "total"}},
        "isolation total does not exist",
    ),
    "a share with friends": (
        (sharing(),),
        {"annotations": {SHARE_WITH: "friends"}},
        "set the annotation gpupack.dev/share-with to anyone or namespace",
    ),
    "another scheduler": ((asking(),), {"schedulerName": "a"}, '"gpupack" (it is "a")'),
    "the default scheduler": (
        (asking(),),
        {"schedulerName": None},
        'set spec.schedulerName to "gpupack" (it is "default-scheduler")',
    ),
    "a share by another scheduler": (
        (sharing(),),
        {"schedulerName": "a"},
        '"gpupack" (it is "a")',
    ),
    "a slot alone by another scheduler": (
        (asking(limits={SLOT: "1"}),),
        {"schedulerName": "a"},
        '"gpupack" (it is "a")',
    ),
    "no GPUs by another scheduler": (
        (asking(limits={GPU: "0"}),),
        {"schedulerName": "a"},
        "set spec.schedulerName",
    ),
    "a node": ((asking(),), {"nodeName": "a"}, "remove spec.nodeName"),
    "a node for a share": ((sharing(),), {"nodeName": "a"}, "remove spec.nodeName"),
    "a sidecar of another scheduler": (
        (PLAIN,),
        {"schedulerName": "a", "initContainers": [asking() | SIDECAR]},
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
    "an init container with a share": (
        (PLAIN,),
        {"initContainers": [sharing("early")]},
        "init container early cannot have GPUs",
    ),
    "an init container before the one that asks": (
        (asking(),),
        {"initContainers": [asking("early")]},
        "init container early cannot have GPUs",
    ),
    "two containers with shares": ((sharing("a"), sharing("b")), {}, "request it in one of a, b"),
    "a share in pieces": (
        (asking("a", {SLOT: "1"}), asking("b", {PERCENT: "40", MEMORY: "10Gi"})),
        {},
        "request it in one of a, b",
    ),
    "a share next to a sidecar's GPU": (
        (sharing("a"),),
        {"initContainers": [asking("b") | SIDECAR]},
        "only one container of a pod may have a share of a GPU: request it in one of a, b",
    ),
    "GPUs and slices in two containers": (
        (asking("a"), asking("b", {SLICE: "1"})),
        {},
        f"the same kind of GPU: a, b request {GPU}, {SLICE}",
    ),
    "too many GPUs in two containers": (
        (asking("a", {GPU: "100"}), asking("b", {GPU: "29"})),
        {},
        f"no node has 129 of {GPU}",
    ),
    "no GPU in the second container": (
        (asking("a"), asking("b", {GPU: "0"})),
        {},
        f"{GPU} is a number of whole GPUs",
    ),
    "a second container that chooses its GPUs": (
        (asking("a"), asking("b", env=variable("NVIDIA_VISIBLE_DEVICES"))),
        {},
        "remove the variables NVIDIA_VISIBLE_DEVICES from container b",
    ),
}


@pytest.mark.parametrize(("containers", "spec", "refusal"), WAYS_ROUND.values(), ids=WAYS_ROUND)
def test_no_pod_gets_gpus_past_the_ledger(tenant, containers, spec, refusal):
    assert refusal in try_pod(tenant, *containers, **spec)


WRONG_ASKS = {
    "no GPUs": (asking(limits={GPU: "0"}), "gpupack.dev/gpu is a number of whole GPUs"),
    "whole and a share": (asking(limits={GPU: "1"} | SHARE), "exclude each other"),
    "whole and a percentage": (asking(limits={GPU: "1", PERCENT: "50"}), "exclude each other"),
    "whole and memory": (asking(limits={GPU: "1", MEMORY: "10Gi"}), "exclude each other"),
    "a slot alone": (
        asking(limits={SLOT: "1"}),
        "(such as 10Gi) together: add gpupack.dev/gpu-percent, gpupack.dev/gpu-memory",
    ),
    "a percentage alone": (
        asking(limits={PERCENT: "50"}),
        "together: add gpupack.dev/gpu-share, gpupack.dev/gpu-memory",
    ),
    "memory alone": (
        asking(limits={MEMORY: "10Gi"}),
        "together: add gpupack.dev/gpu-share, gpupack.dev/gpu-percent",
    ),
    "a share without memory": (
        sharing(without=[MEMORY]),
        "together: add gpupack.dev/gpu-memory",
    ),
    "a share without a percentage": (
        sharing(without=[PERCENT]),
        "together: add gpupack.dev/gpu-percent",
    ),
    "a share without a slot": (sharing(without=[SLOT]), "together: add gpupack.dev/gpu-share"),
    "two shares": (sharing(share="2"), "set gpupack.dev/gpu-share to 1 (it is 2)"),
    "no share": (sharing(share="0"), "set gpupack.dev/gpu-share to 1 (it is 0)"),
    "100 percent": (
        sharing(percent="100"),
        "set it to 1 to 99 (it is 100), or request a whole GPU with gpupack.dev/gpu (1) alone",
    ),
    "101 percent": (sharing(percent="101"), "set it to 1 to 99 (it is 101)"),
    "1k percent": (sharing(percent="1k"), "set it to 1 to 99 (it is 1k)"),
    "0 percent": (sharing(percent="0"), "set it to 1 to 99 (it is 0)"),
    "no memory": (sharing(memory="0"), "in bytes: 0 is less than 1Mi"),
    "Gi forgotten": (sharing(memory="10"), "in bytes: 10 is less than 1Mi"),
    "a resource that there is not": (
        asking(limits={"gpupack.dev/gpus": "1"}),
        "resource gpupack.dev/gpus does not exist: request whole GPUs with gpupack.dev/gpu",
    ),
    "GPUs of two plugins": (
        asking(limits={GPU: "1", "nvidia.com/gpu": "1"}),
        "no node hands out both nvidia.com/gpu and GPUs of gpupack.dev",
    ),
}


@pytest.mark.parametrize(("container", "refusal"), WRONG_ASKS.values(), ids=WRONG_ASKS)
def test_an_invalid_request_is_refused_with_what_to_write(tenant, container, refusal):
    assert refusal in try_pod(tenant, container)


def test_gpus_of_two_plugins_in_two_containers_are_refused_too(tenant):
    refused = try_pod(tenant, asking(), asking("other", {"nvidia.com/gpu": "1"}))
    assert "no node hands out both nvidia.com/gpu and GPUs of gpupack.dev" in refused


OF_KUBERNETES = {
    "requests only": (
        asking(resources={"requests": {GPU: "1"}}),
        "Limit must be set for non overcommitable resources",
    ),
    "a share by requests only": (
        asking(resources={"requests": SHARE}),
        "Limit must be set for non overcommitable resources",
    ),
    "fewer in requests": (
        asking(resources={"limits": {GPU: "2"}, "requests": {GPU: "1"}}),
        "must be equal to gpupack.dev/gpu limit",
    ),
    "half a percent": (sharing(percent="500m"), "must be an integer"),
    "half a GPU": (asking(limits={GPU: "0.5"}), "must be an integer"),
    "less than none": (sharing(percent="-1"), "must be greater than or equal to 0"),
}


@pytest.mark.parametrize(("container", "refusal"), OF_KUBERNETES.values(), ids=OF_KUBERNETES)
def test_kubernetes_itself_refuses_what_the_policy_need_not_look_at(tenant, container, refusal):
    assert refusal in try_pod(tenant, container)


@pytest.mark.parametrize("kind", ["requests", "limits"])
@pytest.mark.parametrize("resource", [GPU, SLOT, PERCENT, MEMORY])
def test_the_needs_of_a_pod_as_a_whole_name_no_gpus(tenant, kind, resource):
    amounts = {kind: {resource: "1"}}
    assert "spec.resources" in try_pod(tenant, PLAIN, resources=amounts)


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA_VISIBLE_DEVICES",
        "CUDA_VISIBLE_DEVICES",
        "GPUPACK_SIMULATED",
        "GPUPACK_DEVICES",
        "GPUPACK_DEVICE_PERCENT",
        "GPUPACK_DEVICE_ISOLATION",
    ],
)
@pytest.mark.parametrize("container", [asking(), sharing()], ids=["whole", "share"])
def test_a_pod_cannot_choose_its_visible_gpus(tenant, container, name):
    environment = [*variable("A"), *variable(name)]
    refusal = f"remove the variables {name} from container main"
    assert refusal in try_pod(tenant, container | {"env": environment})


PEEKING = {
    "all": variable("NVIDIA_VISIBLE_DEVICES"),
    "one by number": variable("NVIDIA_VISIBLE_DEVICES", "0"),
    "from elsewhere": [
        {
            "name": "NVIDIA_VISIBLE_DEVICES",
            "valueFrom": {"configMapKeyRef": {"name": "a", "key": "b"}},
        }
    ],
    "said twice": [
        *variable("NVIDIA_VISIBLE_DEVICES", "void"),
        *variable("NVIDIA_VISIBLE_DEVICES", "all"),
    ],
}


@pytest.mark.parametrize("environment", PEEKING.values(), ids=PEEKING)
@pytest.mark.parametrize("place", ["containers", "initContainers"])
def test_a_container_without_a_request_sees_no_gpus_of_its_pod(tenant, environment, place):
    other = PLAIN | {"env": environment}
    spec = {"initContainers": [other]} if place == "initContainers" else {}
    containers = (asking(),) if spec else (asking(), other)
    assert "container plain requests no GPU and may see none" in try_pod(
        tenant, *containers, **spec
    )


@pytest.mark.parametrize(
    ("subresource", "field"),
    [("resize", "containers"), ("ephemeralcontainers", "ephemeralContainers")],
)
@pytest.mark.parametrize("limits", [{GPU: "1"}, SHARE], ids=["whole", "share"])
def test_a_running_pod_cannot_add_a_gpu_request(kube, subresource, field, limits):
    kube.submit(pod())
    container = asking("main" if field == "containers" else "late", limits)
    done = patch(kube, subresource, {field: [container]})
    assert done.returncode != 0
    assert "resources" in done.stderr


def patch(kube, subresource, spec):
    change = json.dumps({"spec": spec})
    flags = ("--type=strategic", f"--subresource={subresource}", "--patch", change)
    return kube.kubectl("patch", "pod", "idle", *flags)


@pytest.mark.parametrize("limits", [{GPU: "2"}, {GPU: "0"}], ids=["more", "none"])
def test_the_gpu_request_of_a_pod_cannot_be_resized(kube, limits):
    kube.submit(gated(asking()))
    done = patch(kube, "resize", {"containers": [asking(limits=limits)]})
    assert "only cpu and memory resources are mutable" in done.stderr


def gated(container):
    """A pod for our scheduler that waits for ever."""
    gates = [{"name": "example.test/later"}]
    return pod(container, schedulerName="gpupack", schedulingGates=gates)


EPHEMERAL = {
    "all GPUs": (variable("NVIDIA_VISIBLE_DEVICES"), "may see no GPU of this pod"),
    "CUDA's": (variable("CUDA_VISIBLE_DEVICES", "0"), "remove the variables CUDA_VISIBLE_DEVICES"),
    "ours": (variable("GPUPACK_DEVICES", "GPU-1"), "remove the variables GPUPACK_DEVICES"),
}


@pytest.mark.parametrize(("environment", "refusal"), EPHEMERAL.values(), ids=EPHEMERAL)
def test_a_container_that_joins_a_pod_with_gpus_sees_none(kube, environment, refusal):
    kube.submit(gated(sharing()))
    late = {"name": "late", "image": JUDGE_IMAGE, "env": environment}
    assert refusal in patch(kube, "ephemeralcontainers", {"ephemeralContainers": [late]}).stderr


def test_a_container_may_join_a_pod_with_gpus_to_look_at_it(kube):
    kube.submit(gated(asking()))
    late = {"name": "late", "image": JUDGE_IMAGE, "env": variable("NVIDIA_VISIBLE_DEVICES", "void")}
    assert patch(kube, "ephemeralcontainers", {"ephemeralContainers": [late]}).stderr == ""


def test_pods_of_a_deployment_are_checked_like_others(kube):
    template = {
        "metadata": {"labels": {"app": "idle"}},
        "spec": {"containers": [sharing(percent="100")], "schedulerName": "gpupack"},
    }
    selector = {"matchLabels": {"app": "idle"}}
    kube.submit(
        {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {"name": "idle"},
            "spec": {"replicas": 1, "selector": selector, "template": template},
        }
    )
    failed = "--for=jsonpath={.status.conditions[0].type}=ReplicaFailure"
    done = kube.kubectl("wait", "replicaset/idle", failed, "--timeout=30s")
    assert done.returncode == 0, done.stderr
    path = "jsonpath={.status.conditions[0].message}"
    message = kube.kubectl("get", "replicaset", "idle", "--output", path).stdout
    assert "set it to 1 to 99 (it is 100)" in message


def large(*containers):
    """A pod near the size that the API server takes, of which these containers are the last."""
    environment = [{"name": f"SETTING_{i}", "value": "x" * 40} for i in range(100)]
    others = [PLAIN | {"name": f"plain-{i}", "env": environment} for i in range(150)]
    limits = {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "1Gi"}
    plain = [other | {"resources": {"limits": limits}} for other in others]
    return [*plain, *containers]


def test_the_largest_pods_are_judged_within_the_api_servers_budget(tenant):
    assert try_pod(tenant, *large()) == ""
    assert try_pod(tenant, *large(sharing())) == ""
    assert "set it to 1 to 99 (it is 100)" in try_pod(tenant, *large(sharing(percent="100")))


@pytest.mark.parametrize(
    "policy",
    [
        "gpupack-agents",
        "gpupack-checkpoints",
        "gpupack-devices",
        "gpupack-ephemeral-containers",
        "gpupack-host-annotations",
        "gpupack-hosts",
        "gpupack-jobs",
        "gpupack-operator",
        "gpupack-pods",
        "gpupack-scheduler",
        "gpupack-workloads",
    ],
)
def test_the_api_server_finds_no_fault_with_a_policy(system, policy):
    found = system.kubectl("get", "validatingadmissionpolicy", policy, "--output=json").stdout
    policy = json.loads(found)
    assert policy["status"]["observedGeneration"] == policy["metadata"]["generation"]
    assert policy["status"]["typeChecking"] == {}
