# SPDX-License-Identifier: Apache-2.0
"""What does not fit is refused before any work."""

import os

import pytest
import torch

from gpupack_workloads import (
    attention,
    cuda_matmul,
    gemm,
    llm_kernels,
    matmul,
    p2p_cpp,
    softmax,
    train_cnn,
    vector_add,
)
from gpupack_workloads.attention.options import AttentionOptions
from gpupack_workloads.cuda_matmul import CudaMatmulOptions
from gpupack_workloads.devices import Device
from gpupack_workloads.distributed import memory_check
from gpupack_workloads.distributed.rank import group
from gpupack_workloads.errors import OutOfMemory
from gpupack_workloads.gemm.options import GemmOptions
from gpupack_workloads.memory import container_bytes, host_bytes, require_memory
from gpupack_workloads.p2p_cpp import P2pCppOptions
from gpupack_workloads.settings import Options
from gpupack_workloads.softmax.options import SoftmaxOptions
from gpupack_workloads.train_cnn.options import CnnOptions

no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
CPU = Device(torch.device("cpu"), "CPU")


@no_gpu
@pytest.mark.parametrize(
    ("workload", "options"),
    [
        (attention, AttentionOptions(size=2**24)),
        (cuda_matmul, CudaMatmulOptions(size=2**24)),
        (gemm, GemmOptions(size=2**24)),
        (llm_kernels, llm_kernels.LlmOptions(vocabulary=2**44)),
        (matmul, Options(size=2**24)),
        (p2p_cpp, P2pCppOptions(size=2**48)),
        (softmax, SoftmaxOptions(size=2**48)),
        (train_cnn, CnnOptions(batch_size=2**40)),
        (vector_add, Options(size=2**48)),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_problem_that_does_not_fit_is_refused_before_any_work(workload, options):
    with pytest.raises(OutOfMemory, match=r"of this container, where .* GiB are free: set a"):
        workload.run(options)


def test_without_a_gpu_tensors_and_arrays_come_from_the_same_memory():
    part = int(0.6 * host_bytes())
    require_memory(CPU, doing="half of it", on_device=part)
    with pytest.raises(OutOfMemory, match="all of it needs about"):
        require_memory(CPU, doing="all of it", on_device=part, on_host=part)


def test_files_that_were_read_a_while_ago_leave_their_memory_to_others(tmp_path):
    for name, text in (("max", "1000"), ("current", "900"), ("stat", "anon 5\ninactive_file 600")):
        (tmp_path / f"memory.{name}").write_text(text)
    assert container_bytes(tmp_path) == 700


@pytest.mark.parametrize(("limit", "left"), [(1000, 700), (100, 0)])
def test_the_limit_of_the_first_version_of_cgroups_is_seen(tmp_path, limit, left):
    files = {
        "limit_in_bytes": limit,
        "usage_in_bytes": 900,
        "stat": "inactive_file 3\ntotal_inactive_file 600",
    }
    (tmp_path / "memory").mkdir()
    for name, text in files.items():
        (tmp_path / f"memory/memory.{name}").write_text(f"{text}\n")
    assert container_bytes(tmp_path) == left


def asks_for_80_of_100_bytes(local_processes):
    os.environ["LOCAL_WORLD_SIZE"] = str(local_processes)
    memory_check.free_bytes = lambda _: 100
    with group("auto", require_gpu=False) as rank:
        memory_check.require_memory_on_all_ranks(80, rank.device, doing="a buffer")


@no_gpu
@pytest.mark.parametrize(("local_processes", "kind"), [(1, type(None)), (2, OutOfMemory)])
def test_only_processes_of_the_same_container_share_its_memory(gang, local_processes, kind):
    answers = gang(2, asks_for_80_of_100_bytes, local_processes)
    assert [type(answer) for answer in answers] == [kind, kind]
