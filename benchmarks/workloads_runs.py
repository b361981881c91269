# SPDX-License-Identifier: Apache-2.0
"""Runs of `workloads_suite.py` at the sizes of docs/workloads, and the names of their reports."""

import re
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Run:
    """One run of one workload.

    Attributes:
        name: name of its report, without number and kind of GPUs.
        workload: the command.
        arguments: in addition to --require-gpu and --json.
        gpus: number of GPUs.
        seconds: time limit.
        alone: whether no other run may run at the same time, because it also times the CPU.
        mpirun: whether mpirun starts it, with a rank for each GPU.
    """

    name: str
    workload: str
    arguments: tuple[str, ...] = ()
    gpus: int = 1
    seconds: int = 180
    alone: bool = False
    mpirun: bool = False


ONE_SIDED = ("--part=one-sided", "--part=nvshmem")
TRAINED = ("transformer", "--", "--steps=4", "--check-steps=3")

RUNS = (
    Run("device-query", "device-query", seconds=60),
    Run("matmul", "matmul", seconds=60, alone=True),
    Run("vector-add", "vector-add", seconds=60),
    Run("softmax", "softmax", seconds=90),
    Run("gemm", "gemm", seconds=90),
    Run("cuda-matmul", "cuda-matmul", seconds=120),
    Run("thunderkittens", "thunderkittens", seconds=180),
    Run("thunderkittens-nvrtc", "thunderkittens", ("--compiler=nvrtc",), seconds=180),
    Run("attention", "attention", seconds=120),
    Run("attention-varlen", "attention", ("--layout=varlen",), seconds=180),
    Run("attention-paged", "attention", ("--layout=paged",), seconds=90),
    Run("llm-kernels", "llm-kernels", seconds=240),
    Run("transformer", "transformer", seconds=180),
    Run("transformer-all", "transformer", ("--kernels=all",), seconds=180),
    Run("train-cnn", "train-cnn", seconds=100),
    Run("train-cnn-epochs", "train-cnn", ("--epochs=10",), seconds=100),
    Run("resnet50", "resnet50", seconds=190),
    Run("burn-in", "burn-in", seconds=205),
    Run("gpu-manager", "gpu-manager", seconds=120, alone=True),
    Run("inference-load", "inference-load", seconds=120, alone=True),
    Run("inference-paged", "inference-load", ("--attention=paged",), seconds=120, alone=True),
    Run("allreduce", "allreduce", gpus=4, seconds=60),
    Run("collectives", "collectives", ("--tune",), gpus=4, seconds=150),
    Run("device-query", "device-query", gpus=4, seconds=60),
    Run("p2p", "p2p", gpus=4, seconds=100),
    Run("matmul-multi", "matmul-multi", gpus=4, seconds=120),
    Run("resnet50", "resnet50", gpus=4, seconds=150),
    Run("transformer", "transformer", gpus=4, seconds=90),
    Run("collectives", "collectives", ("--tune",), gpus=2, seconds=150),
    Run("collectives-bf16", "collectives", ("--dtype=bfloat16", "--reduce-op=avg"), gpus=2),
    Run("collectives-int32", "collectives", ("--dtype=int32", "--reduce-op=max"), gpus=2),
    Run("mpi", "mpi", gpus=2, seconds=120, alone=True, mpirun=True),
    Run("train-cnn-epochs", "train-cnn", ("--epochs=10",), gpus=2, seconds=100),
    Run("p2p-cpp", "p2p-cpp", gpus=2, seconds=120),
    Run("symmetric-memory", "symmetric-memory", gpus=2, seconds=240),
    Run("symmetric-memory-one-sided", "symmetric-memory", ONE_SIDED, gpus=2, seconds=120),
    Run("gpu-manager", "gpu-manager", gpus=2, seconds=150, alone=True),
    Run("profile", "profile", TRAINED, gpus=2, seconds=120),
    Run("transformer-fsdp", "transformer", ("--parallel=fsdp",), gpus=4, seconds=70),
    Run("transformer-all", "transformer", ("--kernels=all",), gpus=2, seconds=200),
    Run("transformer-fsdp", "transformer", ("--parallel=fsdp",), gpus=2, seconds=200),
    Run("transformer-tp", "transformer", ("--parallel=tp",), gpus=2, seconds=200),
    Run("transformer-pp", "transformer", ("--parallel=pp",), gpus=2, seconds=185),
)


def file_name(report: dict[str, Any]) -> str:
    """Return the file name of a report: run, number and kind of GPUs."""
    device = str(report["result"]["metrics"]["device"])
    return f"{report['name']}-{report['gpus']}x{device_name(device)}.json"


def device_name(device: str) -> str:
    """Return a GPU's name for file names, such as h100-80gb-hbm3."""
    return re.sub(r"[^a-z0-9]+", "-", device.lower().removeprefix("nvidia "))
