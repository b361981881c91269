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


def test_a_share_limited_by_memory_gives_a_warning():
    share = {"percent": 25, "memory": "20Gi"}
    (text,) = said([H100], share=share)
    assert text == (
        "memory is the limit of this share: one NVIDIA H100 80GB HBM3 of 79.6 GiB fits 3 with "
        "20Gi, and 4 with 25%"
    )


def test_an_unknown_model_gives_a_warning_with_the_nearest_models():
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
def test_a_job_that_fits_gives_no_warning(there, spec):
    assert said(there, **spec) == []


async def test_submit_warns_where_it_may_list_nodes(server, capfd):
    device = {"index": 0, "uuid": "GPU-0", "model": H100[0], "memoryMiB": H100[1]}
    server.put(f"{NODES}/a", {"metadata": {"name": "a"}, "status": {"devices": [device]}})
    asked = ["submit", "--kubeconfig", server.kubeconfig, "--image", "i", "--detach"]
    asked += ["--model", "H300", "--", "true"]
    assert await asyncio.to_thread(main.run_command, asked) == 0
    assert "warning: no GPU of the cluster is of model H300" in capfd.readouterr().err
    server.forbidden = {NODES}
    assert await asyncio.to_thread(main.run_command, asked) == 0
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
async def test_submit_warns_of_an_unusable_priority_class(server, capfd, policy, says):
    path = "/apis/scheduling.k8s.io/v1/priorityclasses/urgent"
    server.forbidden = {path} if policy == "forbidden" else set()
    if policy is not None:
        meta = {"name": "urgent"}
        server.put(path, {"metadata": meta, "value": 5, "preemptionPolicy": policy})
    asked = ["submit", "--kubeconfig", server.kubeconfig, "--image", "i", "--detach"]
    asked += ["--priority-class", "urgent", "--", "true"]
    assert await asyncio.to_thread(main.run_command, asked) == 0
    said = capfd.readouterr().err
    assert says in said
    assert ("warning" in said) is bool(says)
