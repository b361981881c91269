# SPDX-License-Identifier: Apache-2.0
"""Fused attention and its workload; interpreted where there is no GPU."""

import heapq
import json
import math
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from gpupack_kernels import devices
from gpupack_kernels.errors import Unsupported
from gpupack_kernels.operators.attention.ops import attention
from gpupack_kernels.operators.attention.portable import launch
from gpupack_kernels.operators.attention.tuning import owners_together
from gpupack_workloads.attention import session
from gpupack_workloads.attention.checks import check, check_timed, random_inputs
from gpupack_workloads.attention.options import AttentionOptions
from gpupack_workloads.attention.session import run
from gpupack_workloads.errors import NoSuchDevice, OutOfMemory, WrongResult
from gpupack_workloads.results import encode

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
GPU_DTYPES = [torch.float16, torch.bfloat16]
# heads, key heads, rows, keys, dimension, causal
SHAPES = [
    (2, 1, 70, 70, 64, True),
    (1, 1, 33, 130, 64, False),
    (1, 1, 64, 64, 128, True),
    (1, 1, 1, 1, 64, True),
    (1, 1, 20, 20, 96, True),
    (1, 1, 9, 9, 256, True),
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
    (2, 1, 300, 300, 96, True),
    (2, 2, 300, 300, 256, True),
]
TILES = launch.FORWARD, launch.BACKWARD
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
    with pytest.raises(Unsupported, match="dimension is 72"):
        attention(zeros(1, 1, 4, 72), zeros(1, 1, 4, 72), zeros(1, 1, 4, 72))


def test_heads_that_cannot_be_shared_evenly_are_refused():
    with pytest.raises(Unsupported, match="3 query heads cannot share 2"):
        attention(zeros(1, 3, 4, 64), zeros(1, 2, 4, 64), zeros(1, 2, 4, 64))


def test_a_causal_mask_over_unequal_lengths_is_refused():
    with pytest.raises(Unsupported, match="as many keys as queries"):
        attention(zeros(1, 1, 4, 64), zeros(1, 1, 5, 64), zeros(1, 1, 5, 64), causal=True)


def test_mixed_types_are_refused():
    with pytest.raises(Unsupported, match="all must be one of"):
        attention(zeros(1, 1, 4, 64), zeros(1, 1, 4, 64), zeros(1, 1, 4, 64, dtype=torch.float16))


@no_gpu
def test_bfloat16_is_refused_without_a_gpu():
    x = zeros(1, 1, 4, 64, dtype=torch.bfloat16)
    with pytest.raises(Unsupported, match="interpreter computes it wrongly"):
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


@pytest.mark.parametrize("scale", [-0.3, 0.0, -4.0])
@pytest.mark.parametrize("shape", SHAPES[:2], ids=str)
def test_a_scale_that_is_not_positive_is_computed_rightly(shape, scale):
    dtype = torch.float16 if DEVICE.type == "cuda" else torch.float32
    check(attention, inputs_of(shape, dtype), causal=shape[-1], scale=scale)


@pytest.mark.parametrize("scale", [math.inf, -math.inf, math.nan])
def test_a_scale_that_is_not_finite_is_refused(scale):
    with pytest.raises(Unsupported, match="not a finite number"):
        attention(zeros(1, 1, 4, 64), zeros(1, 1, 4, 64), zeros(1, 1, 4, 64), scale=scale)


@no_gpu
def test_programs_are_counted_in_the_one_dimension_that_has_room_for_many_heads(monkeypatch):
    grids = []

    class Recorded:
        def __getitem__(self, grid):
            grids.append(grid)
            return lambda *_, **__: None

    for kernel in ("forward", "delta", "dkdv", "dq"):
        monkeypatch.setattr(launch, f"attention_{kernel}_kernel", Recorded())
    q = zeros(300, 256, 130, 64, dtype=torch.float32).requires_grad_()
    attention(q, q, q).backward(zeros(1, 1, 1, 1).expand(q.shape))
    assert [len(grid) for grid in grids] == [1, 1, 1, 1]
    assert min(grid[0] for grid in grids) >= 300 * 256 > 65535


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_more_heads_than_cuda_counts_in_its_second_dimension_are_computed(dtype):
    q, k, v = (torch.randn(66000, 1, 3, 64, device=DEVICE, dtype=dtype) for _ in range(3))
    ours, theirs = (
        [x.detach().requires_grad_() for x in (q, k, v)],
        [x.double().requires_grad_() for x in (q, k, v)],
    )
    attention(*ours, causal=True).sum().backward()
    scores = (theirs[0] @ theirs[1].mT / 8).masked_fill(
        torch.ones(3, 3, device=DEVICE).triu(1).bool(), -math.inf
    )
    (scores.softmax(-1) @ theirs[2]).sum().backward()
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.grad.double(), other.grad, rtol=0.02, atol=0.02)


def on_a_gpu_with(monkeypatch, kib):
    found = SimpleNamespace(name="a GPU", shared_memory_per_block_optin=kib * 1024)
    monkeypatch.setattr(devices, "properties_of", lambda _: found)
    return lambda dtype: SimpleNamespace(is_cuda=True, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("options", [launch.FORWARD, launch.BACKWARD], ids=["forward", "backward"])
def test_a_gpu_with_64_kib_of_shared_memory_gets_smaller_tiles(monkeypatch, options, dtype):
    tensor = on_a_gpu_with(monkeypatch, 64)
    small = launch.choose_tiles(options, tensor(dtype))
    assert small.shared_kib <= 64
    monkeypatch.undo()
    monkeypatch.setattr(launch, "choose_tiles", lambda *_: small)
    check(attention, inputs_of(SHAPES[0], torch.float32), causal=True)


def test_a_gpu_with_too_little_shared_memory_is_refused_in_words(monkeypatch):
    tensor = on_a_gpu_with(monkeypatch, 32)
    with pytest.raises(Unsupported, match=r"a GPU gives a program 32 KiB .* takes 48 KiB at least"):
        launch.choose_tiles(launch.FORWARD, tensor(torch.float16))


def results_of(inputs):
    o = attention(*inputs.qkv, causal=True)
    return [o.detach(), *torch.autograd.grad(o, inputs.qkv, inputs.do)]


@pytest.mark.parametrize("which", range(4), ids=["o", "dq", "dk", "dv"])
def test_what_was_timed_is_checked_in_every_head(which):
    inputs = inputs_of((6, 3, 40, 40, 64, True), torch.float32)
    results = results_of(inputs)
    check_timed(inputs, tuple(results), causal=True, seed=1)
    results[which][1, 1, 17, 33] += 0.25
    with pytest.raises(WrongResult, match="as it was timed"):
        check_timed(inputs, tuple(results), causal=True, seed=1)


@no_gpu
def test_a_head_that_goes_wrong_while_it_is_timed_is_noticed(monkeypatch):
    calls = SimpleNamespace(count=0)

    def ages(q, k, v, *, causal):
        calls.count += 1
        o = attention(q, k, v, causal=causal)
        worn = torch.ones(o.shape[1])
        # Neither the first head nor the last, which are compared element by element before.
        worn[1] = 1 if calls.count < 4 else 1.01
        return o * worn[:, None, None] if o.shape[1] == 3 else o

    monkeypatch.setattr(session, "load", lambda *_: ages)
    with pytest.raises(WrongResult, match="as it was timed"):
        session.run(AttentionOptions(size=16, heads=3))


def shared_kib(kernel, tiles, dtype, capability):
    """What Triton takes of the shared memory of a GPU that need not be here."""
    names = kernel.arg_names
    constants = {
        "CAUSAL": True, "TILE_M": tiles.m, "TILE_N": tiles.n, "D": 128, "BLOCK_D": 128,
    }  # fmt: skip
    kinds = {
        name: "constexpr" if name in constants
        else "*fp32" if name in ("lse_ptr", "delta_ptr")
        else f"*{dtype}" if name.endswith("_ptr")
        else "fp32" if name.startswith("scale")
        else "i32"
        for name in names
    }  # fmt: skip
    aligned = [i for i, name in enumerate(names) if name.endswith("_ptr") or "stride" in name]
    source = ASTSource(
        fn=kernel,
        signature=kinds,
        constexprs={(names.index(name),): value for name, value in constants.items()},
        attrs={(i,): [["tt.divisibility", 16]] for i in aligned},
    )
    options = {"num_warps": tiles.warps, "num_stages": tiles.stages}
    compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    return compiled.metadata.shared / 1024


@pytest.mark.gpu
@pytest.mark.parametrize("capability", [75, 86])
@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
def test_tiles_take_no_more_shared_memory_than_they_say(dtype, capability):
    forward, backward = (launch.SINGLE, launch.SINGLE) if dtype == "fp32" else TILES
    for name, options in (("forward", forward), ("dkdv", backward), ("dq", backward)):
        kernel = getattr(launch, f"attention_{name}_kernel")
        for tiles in options:
            assert shared_kib(kernel, tiles, dtype, capability) <= tiles.shared_kib


@pytest.mark.parametrize(
    ("owners", "tiles", "at_once"),
    [(24, 32, 132), (96, 32, 132), (16, 128, 132), (64, 16, 132), (31, 64, 132), (100, 8, 108)],
)
def test_under_a_causal_mask_hardly_a_multiprocessor_waits_for_the_last_tiles(
    owners, tiles, at_once
):
    lengths = range(tiles, 0, -1)
    together = owners_together(owners, tiles, programs_at_once=at_once)
    groups = [together] * (owners // together)
    groups[-1] += owners % together
    in_order = [length for group in groups for length in lengths for _ in range(group)]
    busy = sum(in_order) / at_once
    assert busy / ending(in_order, at_once) > 0.95


@pytest.mark.parametrize(("owners", "tiles"), [(1, 1), (1, 128), (3, 2), (2, 4096)])
def test_of_few_heads_no_more_are_computed_together_than_there_are(owners, tiles):
    assert 1 <= owners_together(owners, tiles, programs_at_once=132) <= owners


def ending(lengths, at_once):
    """Return when the last program ends, if programs start in order on the first free slot."""
    ends = [0] * at_once
    for length in lengths:
        heapq.heapreplace(ends, ends[0] + length)
    return max(ends)
