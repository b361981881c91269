# SPDX-License-Identifier: Apache-2.0
import asyncio

import msgspec
import pytest

from gpupack_cli import main
from gpupack_cli.cluster_warnings import warnings
from gpupack_crds.gpujob import GpuJobSpec

H100 = ("NVIDIA H100 80GB HBM3", 81559)
A100 = ("NVIDIA A100-SXM4-40GB", 40960)
JOBS = "/apis/gpupack.dev/v1beta1/namespaces/default/gpujobs"
NODES = "/apis/gpupack.dev/v1beta1/gpunodes"


def said(there, **spec):
    return list(warnings(msgspec.convert(spec, GpuJobSpec), there))


def test_a_share_that_memory_limits_says_how_many_fit():
    share = {"percent": 25, "memory": "20Gi"}
    (text,) = said([H100], share=share)
    assert text == (
        "memory is the limit of this share: 3 with 20Gi fit on one NVIDIA H100 80GB HBM3 of "
        "79.6 GiB, and 4 by their 25%"
    )


def test_a_model_that_the_cluster_lacks_is_named_with_the_nearest():
    (text,) = said([H100, A100], gpus=1, gpuModels=["H300"])
    assert text.startswith("no GPU of the cluster is of model H300 (nearest: NVIDIA H100 80GB HBM3")


@pytest.mark.parametrize(
    ("there", "spec"),
    [
        ([H100], {"share": {"percent": 25, "memory": "10Gi"}}),
        ([H100, A100], {"gpus": 1, "gpuModels": ["h100 sxm"]}),
        ([], {"gpus": 1, "gpuModels": ["H300"]}),
        ([H100, A100], {"share": {"percent": 25, "memory": "19Gi"}, "gpuModels": ["H100"]}),
    ],
)
def test_of_what_fits_nothing_is_said(there, spec):
    assert said(there, **spec) == []


async def test_a_submission_warns_and_one_that_may_not_list_nodes_does_not(server, capfd):
    device = {"index": 0, "uuid": "GPU-0", "model": H100[0], "memoryMiB": H100[1]}
    server.put(f"{NODES}/a", {"metadata": {"name": "a"}, "status": {"devices": [device]}})
    asked = ["submit", "--kubeconfig", server.kubeconfig, "--image", "i", "--detach"]
    asked += ["--model", "H300", "--", "true"]
    assert await asyncio.to_thread(main.called, asked) == 0
    assert "warning: no GPU of the cluster is of model H300" in capfd.readouterr().err
    server.forbidden = {NODES}
    assert await asyncio.to_thread(main.called, asked) == 0
    assert "warning" not in capfd.readouterr().err


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        (None, "warning: spec.priorityClassName: there is no PriorityClass urgent; create it"),
        ("PreemptLowerPriority", "use a class with preemptionPolicy: Never"),
        ("Never", ""),
        ("forbidden", ""),
    ],
)
async def test_a_submission_warns_of_a_priority_class_that_lets_no_job_run(
    server, capfd, policy, says
):
    path = "/apis/scheduling.k8s.io/v1/priorityclasses/urgent"
    server.forbidden = {path} if policy == "forbidden" else set()
    if policy is not None:
        meta = {"name": "urgent"}
        server.put(path, {"metadata": meta, "value": 5, "preemptionPolicy": policy})
    asked = ["submit", "--kubeconfig", server.kubeconfig, "--image", "i", "--detach"]
    asked += ["--priority-class", "urgent", "--", "true"]
    assert await asyncio.to_thread(main.called, asked) == 0
    said = capfd.readouterr().err
    assert says in said
    assert ("warning" in said) is bool(says)
