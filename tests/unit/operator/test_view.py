# SPDX-License-Identifier: Apache-2.0
import pytest
from msgspec import structs

from gpupack_kubeclient.objects import Container, Resources
from gpupack_operator.decision.attempts import current
from gpupack_operator.decision.conditions import Type, get
from gpupack_operator.decision.decide import decide
from gpupack_operator.decision.view import view
from gpupack_operator.manifests.limits import limits

GPU = "gpupack.dev/gpu"
SHARE = {
    "gpupack.dev/gpu-share": "1",
    "gpupack.dev/gpu-percent": "40",
    "gpupack.dev/gpu-memory": "1Gi",
}
MIG = "nvidia.com/mig-1g.10gb"


@pytest.fixture
def seen(build):
    """Attempt 1 of two workers, of which these pods are controlled by its Job."""

    def look(*pods, **spec):
        gang = build.admitted(nodes=("a", "b"), **spec)
        observation = build.see(gang, jobs=[build.job()], pods=pods)
        return view(observation, gang.status, current(gang.status))

    return look


def with_containers(pod, *containers, init=()):
    spec = structs.replace(pod.spec, containers=containers, init_containers=init)
    return structs.replace(pod, spec=spec)


def container(name="worker", **found):
    return Container(name=name, resources=Resources(limits=found.get("limits", {GPU: "1"})))


FORGED = {
    "for no GPU": {"limits": {}},
    "for none in words": {"limits": {GPU: "0"}},
    "for more": {"limits": {GPU: "2"}},
    "for a share": {"limits": SHARE},
    "for a share in addition": {"limits": {GPU: "1"} | SHARE},
    "for another plugin's": {"limits": {"nvidia.com/gpu": "1"}},
    "for what is no quantity": {"limits": {GPU: "one"}},
    "of another scheduler": {"scheduler": "default-scheduler"},
    "beyond the last worker": {"index": 2},
    "without an index": {"index": "x"},
}


@pytest.mark.parametrize("how", FORGED)
def test_a_pod_with_other_gpu_requests_is_no_worker(seen, build, how):
    forged = build.pod(**{"index": 1} | FORGED[how])
    found = seen(build.pod(0), forged)
    assert [worker.index for worker in found.workers] == [0]
    assert found.foreign_pods == (forged.metadata.name,)
    assert not found.all_created


def test_a_pod_with_gpu_requests_of_two_containers_is_no_worker(seen, build):
    twice = with_containers(build.pod(1), container(), container("second"))
    before = with_containers(build.pod(0), container(), init=(container("init"),))
    assert seen(before, twice).workers == ()


WORKERS = {
    "CPU and memory of any size": ({}, {GPU: "1", "cpu": "3500m", "memory": "7Gi"}),
    "another device in addition": ({}, {GPU: "1", "example.com/nic": "1"}),
    "a number": ({}, {GPU: 1}),
    "eight GPUs": ({"gpus": 8}, {GPU: "8"}),
    "a share in other words": ({"share": {"percent": 40, "memory": "1024Mi"}}, SHARE),
    "a share's memory in bytes": (
        {"share": {"percent": 40, "memory": "1Gi"}},
        SHARE | {"gpupack.dev/gpu-memory": "1073741824"},
    ),
    "an observed GPU": ({"resourceName": "nvidia.com/gpu"}, {"nvidia.com/gpu": "1"}),
    "a MIG device": ({"resourceName": MIG}, {MIG: "1"}),
}


@pytest.mark.parametrize("how", WORKERS)
def test_a_pod_with_the_gpu_requests_of_a_worker_is_a_worker(seen, build, how):
    spec, requested = WORKERS[how]
    found = seen(build.pod(0, limits=requested), build.pod(1, limits=requested), **spec)
    assert (found.all_created, found.foreign_pods) == (True, ())


@pytest.mark.parametrize("phase", ["Pending", "Running", "Succeeded", "Failed"])
def test_a_pod_is_a_worker_in_every_phase(seen, build, phase):
    requested = limits(build.gpujob().spec)
    pods = [build.pod(index, phase=phase, limits=requested, deleted=5) for index in (0, 1)]
    assert len(seen(*pods).workers) == 2


def test_a_container_without_gpus_that_admission_adds_is_ignored(seen, build):
    sidecar = container("proxy", limits={"cpu": "100m"})
    pod = with_containers(build.pod(0), container("mine"), sidecar, init=(sidecar,))
    assert len(seen(pod).workers) == 1


def test_a_gang_with_forged_workers_does_not_run_and_releases_its_gpus(build):
    gang = build.admitted(nodes=tuple("abc"))
    pods = [build.pod(0), build.pod(1, limits={}), build.pod(2, limits={})]
    early = decide(build.see(gang, jobs=[build.job()], pods=pods, now=8)).status
    running = get(early, Type.RUNNING)
    assert (early.phase, running.reason) == ("Admitted", "Starting")
    assert "train-1-1-x, train-1-2-x" in running.message
    late = decide(build.see(gang, jobs=[build.job()], pods=pods, now=11)).status
    assert (late.placement, late.attempts[-1].reason) == ((), "CreationForbidden")
    assert "1 of 3 pods exist" in late.attempts[-1].message
    assert "train-1-1-x, train-1-2-x; delete them" in late.attempts[-1].message


def test_the_message_names_the_first_forged_pods(seen, build):
    found = seen(*(build.pod(index, limits={}) for index in range(5)))
    assert "pods train-1-0-x, train-1-1-x, train-1-2-x and 2 more" in found.foreign_pods_message


def test_the_end_of_a_forged_pod_is_ignored(build):
    gang = build.admitted(nodes=("a",))
    forged = build.pod(0, limits={}, phase="Failed", exit_code=1, ended=5)
    status = decide(build.see(gang, jobs=[build.job()], pods=[forged], now=6)).status
    assert (status.phase, status.restarts) == ("Admitted", 0)
