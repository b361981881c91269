# SPDX-License-Identifier: Apache-2.0
"""torch's profiler around workloads."""

import gzip
import json
import os
import subprocess
import sys

import pytest
import torch

from gpupack_workloads.profile.recorder import record
from gpupack_workloads.profile.settings import Recording
from gpupack_workloads.results import Result

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DONE = Result(workload="x", headline="1 GB/s", verified=True, simulated=False, metrics={"a": 1})


def multiply():
    a = torch.randn((256, 256), device=DEVICE)
    for _ in range(5):
        a = a @ a
    a.sum().item()
    return DONE


def profiled(*arguments, folder, **environ):
    command = [sys.executable, "-m", "gpupack_workloads", "profile", "--json", "--out", str(folder)]
    settings = os.environ | {"GPUPACK_RESULT_PATH": os.devnull} | environ
    done = subprocess.run(
        [*command, *arguments], env=settings, text=True, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_run_leaves_a_trace_a_table_and_its_kernels(tmp_path):
    result = record(Recording("x", tmp_path, 3), multiply)
    assert (result.workload, result.metrics["profiled"], result.metrics["a"]) == ("profile", "x", 1)
    assert len(result.rows) == 3
    assert max(row["calls"] for row in result.rows) >= 5
    (trace,) = tmp_path.glob("x-*.pt.trace.json.gz")
    assert json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    (table,) = tmp_path.glob("x-*.txt")
    assert len(table.read_text().splitlines()) == 4


def test_what_takes_most_is_first(tmp_path):
    result = record(Recording("x", tmp_path, 10), multiply)
    times = [row["total_us"] for row in result.rows]
    assert times == sorted(times, reverse=True)
    assert sum(row["time_ratio"] for row in result.rows) <= 1.001


@pytest.mark.skipif(torch.cuda.is_available(), reason="the gang here is of CPUs")
def test_each_process_of_a_gang_records_itself_and_tells_its_communication(tmp_path, port):
    result = profiled(
        "allreduce", "--", "--size", "4096",
        folder=tmp_path, GPUPACK_PROCESSES_PER_WORKER="1",
        GPUPACK_RENDEZVOUS=f"127.0.0.1:{port}",
    )  # fmt: skip
    assert result["metrics"]["communication_ratio"] > 0
    assert any("c10d::allreduce_" in row["kernel"] for row in result["rows"])
    assert len(list(tmp_path.glob("allreduce-0-0-*.pt.trace.json.gz"))) == 1


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_each_gpu_of_a_gang_is_recorded_with_its_communication(tmp_path, port):
    result = profiled(
        "allreduce", "--", "--size", "1048576",
        folder=tmp_path, GPUPACK_PROCESSES_PER_WORKER="2",
        GPUPACK_RENDEZVOUS=f"127.0.0.1:{port}",
    )  # fmt: skip
    assert result["metrics"]["profiled_device"] == "gpu"
    assert result["metrics"]["communication_ratio"] > 0
    assert any("nccl" in row["kernel"].lower() for row in result["rows"])
    for process in range(2):
        assert len(list(tmp_path.glob(f"allreduce-0-{process}-*.pt.trace.json.gz"))) == 1


@pytest.mark.gpu
@pytest.mark.skipif(DEVICE == "cpu", reason="a CPU has no kernels")
def test_the_kernels_of_matmul_are_found_on_the_gpu(tmp_path):
    result = profiled("matmul", "--", "--size", "2048", folder=tmp_path)
    assert result["metrics"]["profiled_device"] == "gpu"
    assert any("gemm" in row["kernel"] for row in result["rows"])
    assert result["metrics"]["communication_ratio"] == 0
