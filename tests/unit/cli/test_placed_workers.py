# SPDX-License-Identifier: Apache-2.0
import msgspec
from rest_answers import holder

from gpupack_cli.commands.gpu import holder_text
from gpupack_cli.placed_workers import placed_workers
from gpupack_crds import names
from gpupack_crds.kinds import GpuJob
from gpupack_kubeclient.objects import Pod

PLACEMENT = [{"node": "a", "workers": "0-1", "gpus": ["GPU-1", "GPU-2"], "memoryMiB": [80000]}]


def job(phase):
    spec = {"workers": 2, "gpus": 1}
    status = {"phase": phase, "attempt": 2, "placement": PLACEMENT}
    return msgspec.convert({"metadata": {"name": "train"}, "spec": spec, "status": status}, GpuJob)


def pod(name, attempt, index, *, containers=(), codes=(), phase="Running", created="10:00"):
    labels = {names.ATTEMPT_LABEL: attempt, names.INDEX_LABEL: index}
    limits = {"limits": {"gpupack.dev/gpu": "1"}}
    ended = [{"name": c, "state": {"terminated": {"exitCode": code}}} for c, code in codes]
    raw = {
        "metadata": {
            "name": name,
            "labels": labels,
            "creationTimestamp": f"2026-11-25T{created}:00Z",
        },
        "spec": {
            "nodeName": "a",
            "containers": [{"name": each, "resources": limits} for each in containers],
        },
        "status": {"phase": phase, "containerStatuses": ended},
    }
    return msgspec.convert(raw, Pod)


def lines(job, *pods):
    return [each.line for each in placed_workers(job, pods)]


def test_each_worker_is_shown_with_its_pod_node_and_gpus():
    pods = [pod("train-1-0-old", "1", "0"), pod("train-2-0-new", "2", "0")]
    assert lines(job("Running"), *pods) == [
        "0: pod train-2-0-new, container worker, on a, GPUs GPU-1",
        "1: on a, GPUs GPU-2",
    ]


def test_workers_of_one_pod_are_shown_with_their_containers():
    shared = pod("train-2-p0-x", "2", "0", containers=("worker-1", "worker-0"))
    assert lines(job("Running"), shared) == [
        "0: pod train-2-p0-x, container worker-0, on a, GPUs GPU-1",
        "1: pod train-2-p0-x, container worker-1, on a, GPUs GPU-2",
    ]


def test_a_finished_worker_is_shown_with_its_exit_code():
    ended = pod("train-2-1-x", "2", "1", codes=[("worker", 0)], phase="Succeeded")
    assert lines(job("Running"), ended)[1] == (
        "1: pod train-2-1-x, container worker, on a, GPUs GPU-2; ended, exit code 0"
    )


def test_the_running_one_of_two_pods_of_a_worker_is_shown():
    pods = [
        pod("train-2-1-ended", "2", "1", phase="Failed", created="12:00"),
        pod("train-2-1-runs", "2", "1", created="11:00"),
        pod("train-2-1-old", "2", "1", phase="Failed", created="10:00"),
    ]
    assert "train-2-1-runs" in lines(job("Running"), *pods)[1]
    assert "train-2-1-ended" in lines(job("Running"), *pods[::2])[1]


def test_remaining_pods_of_a_finished_job_are_shown():
    failed = pod("train-2-p0-x", "2", "0", containers=("worker-0", "worker-1"), phase="Failed")
    failed = msgspec.structs.replace(
        failed,
        status=pod("", "2", "0", codes=[("worker-0", 137), ("worker-1", 3)], phase="Failed").status,
    )
    assert lines(job("Failed"), failed) == [
        "0: pod train-2-p0-x, container worker-0, on a; ended, exit code 137",
        "1: pod train-2-p0-x, container worker-1, on a; ended, exit code 3",
    ]


def test_a_job_without_gpus_has_no_workers():
    assert lines(job("Succeeded")) == []


def test_a_holder_is_named_by_its_job_and_pod():
    assert holder_text(holder("team", "train-1-0-x", job="train")) == (
        "team/train (pod train-1-0-x)"
    )
    assert holder_text(holder("team", "train-1-p0-x", job="train", worker=1)) == (
        "team/train (worker 1, pod train-1-p0-x)"
    )
    assert holder_text(holder("team", "notebook", percent=40)) == "team/pod/notebook 40%"
