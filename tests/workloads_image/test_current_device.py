# SPDX-License-Identifier: Apache-2.0
"""Kernels run where their operands are, whatever device is the current one."""

import contextlib
import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

from gpupack_workloads.kernels.attention.ops import attention
from gpupack_workloads.kernels.gemm.ops import gemm
from gpupack_workloads.kernels.linear_cross_entropy.ops import linear_cross_entropy
from gpupack_workloads.kernels.rms_norm.ops import rms_norm
from gpupack_workloads.kernels.rotary.ops import rotary
from gpupack_workloads.kernels.softmax.ops import softmax
from gpupack_workloads.kernels.swiglu.ops import swiglu
from gpupack_workloads.kernels.vector_add.ops import vector_add

# Of several GPUs one that is not current; Triton takes no CPU tensors where there is a GPU.
GPUS = torch.cuda.device_count()
LAST = torch.device("cuda", GPUS - 1) if GPUS else torch.device("cpu")
USES = {
    "attention": lambda x: attention(x[None, None], x[None, None], x[None, None])[0, 0],
    "gemm": lambda x: gemm(x, x),
    "linear_cross_entropy": lambda x: linear_cross_entropy(x, x, (x[:, 0] > 0).long()),
    "rms_norm": lambda x: rms_norm(x, x[0]),
    "rotary": lambda x: rotary(x[None, None], x[None, None], x[:, :32], x[:, 32:])[0],
    "softmax": softmax,
    "swiglu": lambda x: swiglu(x, x),
    "vector_add": lambda x: vector_add(x, x),
}


@pytest.mark.parametrize("name", USES)
def test_the_operands_device_is_current_during_a_launch(monkeypatch, name):
    asked = []

    @contextlib.contextmanager
    def recording(tensor):
        asked.append(tensor.device)
        with real(tensor):
            yield

    real = torch.cuda.device_of
    monkeypatch.setattr(torch.cuda, "device_of", recording)
    x = torch.randn(64, 64, device=LAST)
    assert USES[name](x).isfinite().all()
    assert asked == [LAST]
