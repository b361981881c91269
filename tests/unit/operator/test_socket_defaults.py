# SPDX-License-Identifier: Apache-2.0
import dataclasses

import pytest

from gpupack_operator.manifests.pod import PodDefaults, template

DEFAULTS = PodDefaults(workload_image="gpupack/workloads:1", launcher_image="gpupack/agent:1")
NAMES = ("NCCL_SOCKET_NTHREADS", "NCCL_NSOCKS_PERTHREAD")


@pytest.fixture
def worker_pod(build):
    """The spec of a worker's pod whose template has these fields, in its container too."""

    def made(container=None, pod=None, defaults=DEFAULTS, **spec):
        worker = {"name": "worker", "image": "train:1"} | (container or {})
        user = {"spec": {"containers": [worker]} | (pod or {})}
        gpujob = build.gpujob(**({"workers": 2} | spec))
        return template(gpujob, user, attempt=1, defaults=defaults)["spec"]

    return made


def settings(pod_spec):
    (worker,) = pod_spec["containers"]
    values = {each["name"]: each.get("value") for each in worker["env"]}
    return tuple(values.get(name) for name in NAMES)


@pytest.mark.parametrize("backend", ["auto", "nccl", "mpi"])
def test_a_gang_without_rdma_gets_more_sockets(worker_pod, backend):
    own = {"command": ["a.out"]}
    made = worker_pod(own, distributed={"backend": backend})
    assert settings(made) == ("4", "8")


@pytest.mark.parametrize(
    "spec",
    [
        {"workers": 1},
        {"distributed": {"backend": "gloo"}},
        {"share": {"percent": 50, "memory": "1Gi"}},
        {"mig": "1g.10gb"},
    ],
    ids=["one worker", "gloo", "shares", "slices"],
)
def test_a_job_without_nccl_between_workers_gets_no_socket_settings(worker_pod, spec):
    assert settings(worker_pod(**spec)) == (None, None)


@pytest.mark.parametrize("kind", ["limits", "requests"])
@pytest.mark.parametrize(
    "resource",
    [
        "rdma/hca_shared_devices_a",
        "nvidia.com/hostdev",
        "mellanox.com/sriov_rdma",
        "vpc.amazonaws.com/efa",
        "networking.gke.io.networks/rdma-0",
    ],
)
def test_a_worker_with_an_rdma_device_gets_no_socket_settings(worker_pod, resource, kind):
    made = worker_pod({"resources": {kind: {resource: "1"}}})
    assert settings(made) == (None, None)


def test_other_resources_are_no_rdma_devices(worker_pod):
    assert settings(worker_pod({"resources": {"limits": {"cpu": "4"}}})) == ("4", "8")


def test_what_the_template_sets_stays(worker_pod):
    env = [{"name": "NCCL_SOCKET_NTHREADS", "value": "1"}]
    made = worker_pod({"env": env})
    assert settings(made) == ("1", "8")
    (worker,) = made["containers"]
    assert [each["name"] for each in worker["env"]].count("NCCL_SOCKET_NTHREADS") == 1


def test_an_administrator_can_disable_socket_settings(worker_pod):
    off = dataclasses.replace(DEFAULTS, socket_defaults=False)
    assert settings(worker_pod(defaults=off)) == (None, None)


@pytest.mark.parametrize(
    ("pod", "policy"),
    [
        ({}, None),
        ({"hostNetwork": False}, None),
        ({"hostNetwork": True}, "ClusterFirstWithHostNet"),
        ({"hostNetwork": True, "dnsPolicy": "Default"}, "Default"),
    ],
)
def test_a_host_network_pod_can_resolve_names_of_workers(worker_pod, pod, policy):
    assert worker_pod(pod=pod).get("dnsPolicy") == policy
