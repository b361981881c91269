# SPDX-License-Identifier: Apache-2.0
"""What `workloads_suite.py` runs: the sizes of docs/workloads.md."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Run:
    """One run of one workload.

    Attributes:
        name: of its report, beside number and kind of GPUs.
        workload: the command.
        arguments: besides --require-gpu and --json.
        gpus: how many it takes.
        seconds: after that it is stopped.
    """

    name: str
    workload: str
    arguments: tuple[str, ...] = ()
    gpus: int = 1
    seconds: int = 180


RUNS = (
    Run("matmul", "matmul"),
    Run("vector-add", "vector-add"),
    Run("softmax", "softmax"),
    Run("gemm", "gemm"),
    Run("attention", "attention"),
    Run("transformer", "transformer"),
    Run("train-cnn", "train-cnn"),
    Run("resnet50", "resnet50", seconds=240),
    Run("burn-in", "burn-in"),
    Run("profile", "profile", ("matmul",)),
    Run("allreduce", "allreduce", gpus=4),
    Run("collectives", "collectives", ("--tune",), gpus=4, seconds=300),
    Run("p2p", "p2p", gpus=4),
    Run("matmul-multi", "matmul-multi", gpus=4, seconds=240),
    Run("resnet50", "resnet50", gpus=2, seconds=240),
    Run("resnet50", "resnet50", gpus=4, seconds=240),
    Run("transformer", "transformer", gpus=4, seconds=240),
)
