# SPDX-License-Identifier: Apache-2.0
import msgspec

from gpupack_cli.answers import Holder
from gpupack_cli.placed_workers import placed_workers
from gpupack_crds import names
from gpupack_crds.kinds import GpuJob
from gpupack_kube.objects import Pod

PLACEMENT = [{"node": "a", "workers": "0-1", "gpus": ["GPU-1", "GPU-2"], "memoryMiB": [80000]}]


def job(phase):
    status = {"phase": phase, "attempt": 2, "placement": PLACEMENT}
    return msgspec.convert({"metadata": {"name": "train"}, "status": status}, GpuJob)


def pod(name, attempt, index):
    labels = {names.ATTEMPT_LABEL: attempt, names.INDEX_LABEL: index}
    return msgspec.convert({"metadata": {"name": name, "labels": labels}}, Pod)


def test_each_worker_is_shown_with_its_pod_node_and_gpus():
    pods = [pod("train-1-0-old", "1", "0"), pod("train-2-0-new", "2", "0")]
    assert [each.line for each in placed_workers(job("Running"), pods)] == [
        "0: pod train-2-0-new on a, GPUs GPU-1",
        "1: on a, GPUs GPU-2",
    ]


def test_a_job_that_holds_nothing_has_no_workers():
    assert list(placed_workers(job("Succeeded"), [])) == []


def test_a_holder_is_called_by_its_job_and_pod():
    assert Holder("team", "train-1-0-x", "GPU-1", job="train").text == (
        "team/train (pod train-1-0-x)"
    )
    assert Holder("team", "notebook", "GPU-1", percent=40).text == "team/pod/notebook 40%"
