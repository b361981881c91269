# SPDX-License-Identifier: Apache-2.0
"""Fused attention and its workload; interpreted where there is no GPU."""

import json
import os
import subprocess
import sys

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

from gpupack_workloads.attention.checks import check, random_inputs
from gpupack_workloads.attention.options import AttentionOptions
from gpupack_workloads.attention.session import run
from gpupack_workloads.errors import BadArgument, NoSuchDevice, OutOfMemory, WrongResult
from gpupack_workloads.kernels.attention.autograd import attention
from gpupack_workloads.results import encode

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
GPU_DTYPES = [torch.float16, torch.bfloat16]
# heads, key heads, rows, keys, dimension, causal
SHAPES = [
    (2, 1, 70, 70, 64, True),
    (1, 1, 33, 130, 64, False),
    (1, 1, 64, 64, 128, True),
    (1, 1, 1, 1, 64, True),
]
GPU_SHAPES = [
    (2, 2, 256, 256, 128, False),
    (2, 2, 256, 256, 128, True),
    (4, 2, 300, 300, 128, True),
    (6, 2, 1025, 1025, 64, True),
    (4, 1, 130, 517, 64, False),
    (3, 3, 1, 77, 128, False),
    (8, 1, 64, 128, 128, False),
    (2, 2, 2048, 2048, 128, True),
    (1, 1, 129, 129, 64, True),
]
no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")


def inputs_of(shape, dtype):
    heads, kv_heads, rows, keys, dimension, _ = shape
    return random_inputs(
        (2, heads, rows, dimension),
        (2, kv_heads, keys, dimension),
        device=DEVICE,
        dtype=dtype,
        seed=5,
    )


def zeros(*shape, dtype=torch.float32):
    return torch.zeros(shape, device=DEVICE, dtype=dtype)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_attention_and_its_gradient_agree_with_64_bits(shape):
    check(attention, inputs_of(shape, torch.float32), causal=shape[-1])


def test_half_precision_agrees_within_its_rounding():
    check(attention, inputs_of(SHAPES[0], torch.float16), causal=True)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", GPU_DTYPES, ids=str)
@pytest.mark.parametrize("shape", GPU_SHAPES, ids=str)
def test_the_gpu_agrees_on_ragged_lengths_and_shared_heads(shape, dtype):
    check(attention, inputs_of(shape, dtype), causal=shape[-1])


@pytest.mark.gpu
def test_large_scores_do_not_overflow():
    inputs = inputs_of((2, 2, 200, 200, 128, True), torch.bfloat16)
    with torch.no_grad():
        inputs.q.mul_(30)
    check(attention, inputs, causal=True)


def test_heads_in_the_third_dimension_are_read_through_their_strides():
    q, k, v = (torch.randn(1, 20, 2, 64, device=DEVICE).transpose(1, 2) for _ in range(3))
    expected = attention(q.contiguous(), k.contiguous(), v.contiguous(), causal=True)
    torch.testing.assert_close(attention(q, k, v, causal=True), expected, rtol=0, atol=0)


def test_the_scale_can_be_given():
    q, k, v = (torch.randn(1, 1, 20, 64, device=DEVICE) for _ in range(3))
    expected = (0.3 * q.double() @ k.double().mT).softmax(-1) @ v.double()
    error = (attention(q, k, v, scale=0.3).double() - expected).abs().max()
    assert error < 1e-5


def test_one_tile_of_keys_that_is_skipped_is_noticed():
    def skips(q, k, v, *, causal):
        return attention(q, k[:, :, 16:], v[:, :, 16:], causal=causal)

    with pytest.raises(WrongResult, match="rounding explains"):
        check(skips, inputs_of((1, 1, 64, 128, 64, False), torch.float32), causal=False)


def test_a_nan_is_noticed():
    def nan(q, k, v, *, causal):
        return attention(q, k, v, causal=causal) + torch.nan

    with pytest.raises(WrongResult):
        check(nan, inputs_of((1, 1, 16, 16, 64, False), torch.float32), causal=False)


def test_scores_of_inputs_cut_to_tf32_are_noticed():
    def cut(x):
        return x - (x.detach() - (x.detach().view(torch.int32) & ~0x1FFF).view(torch.float32))

    def tf32(q, k, v, *, causal):
        return attention(cut(q), cut(k), cut(v), causal=causal)

    with pytest.raises(WrongResult):
        check(tf32, inputs_of((1, 1, 64, 64, 64, False), torch.float32), causal=False)


def test_an_odd_head_dimension_is_refused():
    with pytest.raises(BadArgument, match="dimension is 80"):
        attention(zeros(1, 1, 4, 80), zeros(1, 1, 4, 80), zeros(1, 1, 4, 80))


def test_heads_that_cannot_be_shared_evenly_are_refused():
    with pytest.raises(BadArgument, match="3 query heads cannot share 2"):
        attention(zeros(1, 3, 4, 64), zeros(1, 2, 4, 64), zeros(1, 2, 4, 64))


def test_a_causal_mask_over_unequal_lengths_is_refused():
    with pytest.raises(BadArgument, match="as many keys as queries"):
        attention(zeros(1, 1, 4, 64), zeros(1, 1, 5, 64), zeros(1, 1, 5, 64), causal=True)


def test_mixed_types_are_refused():
    with pytest.raises(BadArgument, match="all must be one of"):
        attention(zeros(1, 1, 4, 64), zeros(1, 1, 4, 64), zeros(1, 1, 4, 64, dtype=torch.float16))


@no_gpu
def test_bfloat16_is_refused_without_a_gpu():
    x = zeros(1, 1, 4, 64, dtype=torch.bfloat16)
    with pytest.raises(BadArgument, match="interpreter computes it wrongly"):
        attention(x, x, x)


def test_a_small_run_is_verified_and_fits_a_termination_message():
    result = run(AttentionOptions(size=64, heads=1, seed=3))
    assert result.verified
    assert result.metrics["full_forward_error"] <= result.metrics["full_forward_error_bound"]
    assert len(encode(result)) < 4096


@no_gpu
def test_a_required_gpu_that_is_not_there_is_an_error():
    with pytest.raises(NoSuchDevice, match="CUDA finds none"):
        run(AttentionOptions(require_gpu=True))


@pytest.mark.gpu
def test_a_problem_that_does_not_fit_is_refused_before_any_work():
    with pytest.raises(OutOfMemory, match="GiB are free"):
        run(AttentionOptions(size=131072, batch=64))


@pytest.mark.gpu
def test_the_command_reports_ratios_to_cudnn():
    command = [sys.executable, "-m", "gpupack_workloads", "attention", "--json", "--size", "4096"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    metrics = json.loads(done.stdout)["metrics"]
    for name in ("forward", "backward", "causal_forward", "causal_backward"):
        assert metrics[f"{name}_cudnn_ratio"] > 0
