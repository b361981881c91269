# SPDX-License-Identifier: Apache-2.0
"""Kernels run where their operands are, whatever device is current and whichever thread calls."""

import contextlib
import os
import threading
from pathlib import Path

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

import gpupack_kernels
from gpupack_kernels import devices
from gpupack_kernels.operators.attention.ops import attention
from gpupack_kernels.operators.gemm.ops import gemm
from gpupack_kernels.operators.linear_cross_entropy.ops import linear_cross_entropy
from gpupack_kernels.operators.rms_norm.ops import rms_norm
from gpupack_kernels.operators.rotary.ops import rotary
from gpupack_kernels.operators.softmax.ops import softmax
from gpupack_kernels.operators.swiglu.ops import swiglu
from gpupack_kernels.operators.vector_add.ops import vector_add

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


def test_every_launch_makes_the_device_current_in_one_way():
    sources = Path(gpupack_kernels.__file__).parent.rglob("*.py")
    users = [path.name for path in sources if "cuda.device_of" in path.read_text()]
    assert users == ["devices.py"]


def test_a_thread_binds_the_context_of_a_gpu_once(monkeypatch):
    asked = []
    monkeypatch.setattr(torch.cuda, "mem_get_info", asked.append)
    in_new_thread(lambda: [devices.bind_context(index) for index in (0, 1, 1, 0)])
    in_new_thread(lambda: devices.bind_context(1))
    assert asked == [0, 1, 1]


@pytest.mark.gpu
@pytest.mark.skipif(not GPUS, reason="needs a GPU")
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("name", ["attention", "gemm", "rms_norm", "swiglu"])
def test_the_first_call_of_a_new_thread_computes(name, backward):
    x = torch.randn(64, 64, device=LAST, dtype=torch.bfloat16).requires_grad_(backward)

    def compute():
        result = USES[name](x)
        return torch.autograd.grad(result, x, result.detach())[0] if backward else result

    expected = compute()
    # Their memory is cached now: no allocation binds a context.
    found = [in_new_thread(compute) for _ in range(6)]
    assert all(torch.equal(each, expected) for each in found)


@pytest.mark.gpu
@pytest.mark.skipif(not GPUS, reason="needs a GPU")
def test_a_new_thread_may_begin_with_a_capture():
    x = torch.randn(64, 64, device=LAST, dtype=torch.bfloat16)
    expected = USES["gemm"](x)
    graph = torch.cuda.CUDAGraph()

    def capture():
        # A graph is captured on a stream of the current device.
        with torch.cuda.device(LAST), torch.cuda.graph(graph):
            return USES["gemm"](x)

    result = in_new_thread(capture)
    with torch.cuda.device(LAST):
        result.zero_()
        graph.replay()
    assert torch.equal(result, expected)


def in_new_thread(work):
    """What work returns, or its error."""
    answers = []

    def run():
        try:
            answers.append(work())
        except Exception as error:  # noqa: BLE001  it is raised where the test sees it
            answers.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if isinstance(answers[0], Exception):
        raise answers[0]
    return answers[0]
