# SPDX-License-Identifier: Apache-2.0
"""RMS norm, rotary positions, SwiGLU and the loss from the head, against 64 bits.

Interpreted where there is no GPU.
"""

import os

import numpy as np
import pytest
import torch
from torch.nn import functional

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

from gpupack_kernels.errors import Unsupported
from gpupack_kernels.operators.linear_cross_entropy import launch as loss_launch
from gpupack_kernels.operators.linear_cross_entropy.launch import chunk_length
from gpupack_kernels.operators.linear_cross_entropy.ops import linear_cross_entropy
from gpupack_kernels.operators.rms_norm import launch as norm_launch
from gpupack_kernels.operators.rms_norm.launch import Block
from gpupack_kernels.operators.rms_norm.ops import rms_norm
from gpupack_kernels.operators.rotary import launch as rotary_launch
from gpupack_kernels.operators.rotary.ops import rotary
from gpupack_kernels.operators.swiglu.ops import swiglu
from gpupack_workloads.reference import language as reference

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPES = [torch.float32, torch.float16] + ([torch.bfloat16] if DEVICE == "cuda" else [])
EPSILON = 1e-5
on_gpu = pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU")
dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=str)


def values(*shape, dtype=torch.float32, seed=5, scale=1.0):
    chance = torch.Generator().manual_seed(seed)
    return (scale * torch.randn(shape, generator=chance)).to(DEVICE, dtype)


def wanting(*tensors):
    return [tensor.detach().requires_grad_() for tensor in tensors]


def check_norm(rows, columns, dtype):
    x, weight = wanting(values(rows, columns, dtype=dtype), values(columns, dtype=dtype, seed=6))
    dy = values(rows, columns, dtype=dtype, seed=7)
    y = rms_norm(x, weight, EPSILON)
    gradients = torch.autograd.grad(y, (x, weight), dy)
    with torch.no_grad():
        agreements = [
            reference.compare_rms_norm(x, weight, EPSILON, y),
            *reference.compare_rms_norm_backward(x, weight, EPSILON, dy, gradients),
        ]
    assert all(agreement.holds for agreement in agreements), agreements


@dtypes
@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (130, 33), (5, 1024), (70, 1500)], ids=str)
def test_a_norm_and_its_gradients_agree_with_64_bits(shape, dtype):
    check_norm(*shape, dtype)


@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("columns", [64, 50])
def test_a_program_of_the_norm_takes_any_number_of_rows(monkeypatch, rows, columns):
    monkeypatch.setattr(norm_launch, "_block", lambda _: Block(rows=rows, columns=64, warps=1))
    check_norm(21, columns, torch.float32)


@pytest.mark.gpu
@on_gpu
@dtypes
@pytest.mark.parametrize("columns", [2, 512, 2048, 4096, 5000, 8192, 16384, 32768, 65536])
def test_a_norm_of_any_width_agrees_on_a_gpu(columns, dtype):
    for rows in (1, 301, 5000):
        check_norm(rows, columns, dtype)


def test_a_norm_takes_rows_that_lie_apart_and_a_weight_of_another_type():
    x = values(4, 9, 80, dtype=torch.float16)[:, ::2, 3:50]
    weight = values(47, seed=6)
    expected = functional.rms_norm(x.float(), (47,), weight, EPSILON).half()
    torch.testing.assert_close(rms_norm(x, weight), expected)
    x, weight = wanting(x, weight)
    dx, dweight = torch.autograd.grad(rms_norm(x, weight).sum(), (x, weight))
    assert (dx.dtype, dweight.dtype) == (torch.float16, torch.float32)


def test_a_norm_of_no_rows_has_no_gradients_but_zeros():
    x, weight = wanting(values(0, 8), values(8))
    y = rms_norm(x, weight)
    assert y.shape == (0, 8)
    assert not torch.autograd.grad(y.sum(), weight)[0].any()


def heads_of(layout, heads, tokens, dimension, dtype, seed):
    """Heads [2, heads, tokens, dimension] that lie in memory in one of several ways."""
    if layout == "heads first":
        return values(2, heads, tokens, dimension, dtype=dtype, seed=seed)
    if layout == "tokens first":
        return values(2, tokens, heads, dimension, dtype=dtype, seed=seed).transpose(1, 2)
    if layout == "with gaps":
        whole = values(2, tokens, heads + 3, dimension, dtype=dtype, seed=seed)
        return whole[:, :, 1 : heads + 1].transpose(1, 2)
    return values(2, heads, dimension, tokens, dtype=dtype, seed=seed).mT


def tables(tokens, dimension):
    angles = torch.outer(torch.arange(tokens), 0.1 * torch.arange(1, dimension // 2 + 1))
    return angles.cos().to(DEVICE), angles.sin().to(DEVICE)


def check_rotary(layout, heads, dimension, dtype, tokens=5):
    q, k, dq, dk = (
        heads_of(layout, count, tokens, dimension, dtype, seed)
        for seed, count in enumerate((*heads, *heads))
    )
    q, k = wanting(q, k)
    turned = rotary(q, k, *tables(tokens, dimension))
    gradients = torch.autograd.grad(turned, (q, k), (dq, dk))
    with torch.no_grad():
        agreements = [
            reference.compare_rotary(x, *tables(tokens, dimension), y, back=back)
            for back, given, found in ((False, (q, k), turned), (True, (dq, dk), gradients))
            for x, y in zip(given, found, strict=True)
        ]
    assert all(agreement.holds for agreement in agreements), agreements
    return q, turned[0], gradients[0]


@dtypes
@pytest.mark.parametrize("dimension", [64, 96, 2])
@pytest.mark.parametrize("heads", [(4, 2), (5, 1), (3, 3)], ids=str)
def test_rotations_and_their_gradients_agree_with_64_bits(heads, dimension, dtype):
    check_rotary("tokens first", heads, dimension, dtype)


@pytest.mark.parametrize("layout", ["heads first", "tokens first", "with gaps", "numbers apart"])
def test_heads_may_lie_in_memory_in_any_way_and_results_lie_alike(layout):
    q, *results = check_rotary(layout, (4, 2), 16, torch.float32)
    for result in results:
        assert result.stride(3) == 1
        assert (result.stride(2) > result.stride(1)) == (q.stride(2) > q.stride(1))


def test_more_heads_than_a_program_holds_at_once_are_turned_in_parts(monkeypatch):
    monkeypatch.setattr(rotary_launch, "PAIRS", 16)
    check_rotary("tokens first", (7, 2), 16, torch.float32)


@pytest.mark.gpu
@on_gpu
@dtypes
@pytest.mark.parametrize("layout", ["heads first", "tokens first", "with gaps"])
@pytest.mark.parametrize("dimension", [64, 80, 128, 256])
def test_rotations_of_any_head_agree_on_a_gpu(dimension, layout, dtype):
    for heads in ((32, 8), (40, 5), (128, 1)):
        check_rotary(layout, heads, dimension, dtype, tokens=300)


def test_only_one_of_queries_and_keys_may_be_used():
    q, k = wanting(values(1, 2, 5, 8), values(1, 1, 5, 8))
    turned_q, _ = rotary(q, k, *tables(5, 8))
    dq, dk = torch.autograd.grad(turned_q.square().sum(), (q, k))
    torch.testing.assert_close(dq, 2 * q)
    assert not dk.any()


@dtypes
@pytest.mark.parametrize("shape", [(1,), (7, 1001), (3, 5, 64)], ids=str)
def test_a_gate_and_its_gradients_agree_with_64_bits(shape, dtype):
    gate, up = wanting(values(*shape, dtype=dtype, scale=5), values(*shape, dtype=dtype, seed=6))
    dz = values(*shape, dtype=dtype, seed=7)
    z = swiglu(gate, up)
    gradients = torch.autograd.grad(z, (gate, up), dz)
    with torch.no_grad():
        agreements = [
            reference.compare_swiglu(gate, up, z),
            *reference.compare_swiglu_backward(gate, up, dz, gradients),
        ]
    assert all(agreement.holds for agreement in agreements), agreements


def test_gates_with_gaps_in_memory_and_far_from_zero_are_right():
    both = values(6, 40, scale=100)
    gate, up = both.chunk(2, dim=-1)
    with np.errstate(over="ignore"):
        torch.testing.assert_close(swiglu(gate, up), functional.silu(gate) * up)
        torch.testing.assert_close(swiglu(both.T, both.T), functional.silu(both.T) * both.T)


def head_of(tokens, columns, words, dtype=torch.float32, ignored=()):
    x, weight = wanting(
        values(tokens, columns, dtype=dtype),
        values(words, columns, dtype=dtype, seed=6, scale=2 / columns**0.5),
    )
    chance = torch.Generator().manual_seed(7)
    targets = torch.randint(words, (tokens,), generator=chance).to(DEVICE)
    targets[list(ignored)] = -100
    return x, weight, targets


def check_loss(x, weight, targets):
    loss = linear_cross_entropy(x, weight, targets)
    gradients = torch.autograd.grad(loss, (x, weight))
    with torch.no_grad():
        exact = reference.linear_cross_entropy(x, weight, targets)
        agreements = [
            reference.compare_loss(exact, loss),
            *reference.compare_loss_gradients(
                exact, gradients, chunks=-(-len(x) // chunk_length(*x.shape))
            ),
        ]
    assert all(agreement.holds for agreement in agreements), agreements


@dtypes
@pytest.mark.parametrize("shape", [(1, 1, 2), (40, 20, 33), (90, 64, 1000)], ids=str)
def test_a_loss_and_its_gradients_agree_with_64_bits(shape, dtype):
    check_loss(*head_of(*shape, dtype=dtype))


@dtypes
def test_chunks_of_tokens_and_of_words_and_ignored_tokens_leave_the_loss_right(monkeypatch, dtype):
    monkeypatch.setattr(loss_launch, "MIN_CHUNK", 16)
    monkeypatch.setattr(loss_launch, "MULTIPLE", 8)
    monkeypatch.setattr(loss_launch, "WORDS", 64)
    monkeypatch.setattr(loss_launch, "INTERPRETED_BLOCK", 64)
    assert chunk_length(75, 12) == 16
    check_loss(*head_of(75, 12, 301, dtype=dtype, ignored=[0, 40, 74]))


@pytest.mark.gpu
@on_gpu
@dtypes
def test_a_large_loss_agrees_on_a_gpu(dtype):
    check_loss(*head_of(5000, 1024, 32003, dtype=dtype, ignored=[17]))
    check_loss(*head_of(300, 4096, 128256, dtype=dtype))


def test_the_reference_of_the_loss_is_torchs_in_64_bits():
    x, weight, targets = head_of(70, 12, 50, ignored=[3])
    wide = wanting(x.double(), weight.double())
    loss = functional.cross_entropy(wide[0] @ wide[1].T, targets)
    dx, dweight = torch.autograd.grad(loss, wide)
    with torch.no_grad():
        exact = reference.linear_cross_entropy(x, weight, targets)
    assert exact.loss == pytest.approx(loss.item(), rel=1e-12)
    torch.testing.assert_close((exact.dx, exact.dweight), (dx, dweight))


def test_a_fault_in_one_row_of_a_gradient_is_noticed():
    x, weight, targets = head_of(40, 20, 33)
    loss = linear_cross_entropy(x, weight, targets)
    dx, dweight = torch.autograd.grad(loss, (x, weight))
    dweight[7] *= 1.001
    with torch.no_grad():
        exact = reference.linear_cross_entropy(x, weight, targets)
        found = reference.compare_loss_gradients(exact, (dx, dweight), chunks=1)
    assert [agreement.holds for agreement in found] == [True, False]


@pytest.mark.parametrize("wants", [(True, False), (False, True), (False, False)], ids=str)
def test_only_gradients_that_are_wanted_are_computed(wants, kept_bytes):
    operands = head_of(30, 8, 20)
    x, weight = (
        operand.detach().requires_grad_(wanted)
        for operand, wanted in zip(operands, wants, strict=False)
    )
    whole = linear_cross_entropy(*operands)
    losses = []
    kept = kept_bytes(lambda: losses.append(linear_cross_entropy(x, weight, operands[2])), [])
    torch.testing.assert_close(losses[0], whole)
    # And the number of tokens that count.
    expected = 4 * (x.numel() * wants[0] + weight.numel() * wants[1] + any(wants))
    assert kept == expected
    for operand, before in zip((x, weight), operands, strict=False):
        if operand.requires_grad:
            found = torch.autograd.grad(losses[0], operand, retain_graph=True)
            expected = torch.autograd.grad(whole, before, retain_graph=True)
            torch.testing.assert_close(found, expected)


def test_gradients_of_a_loss_that_is_scaled_are_scaled_however_often_they_are_asked_for():
    x, weight, targets = head_of(30, 8, 20)
    loss = linear_cross_entropy(x, weight, targets)
    once = torch.autograd.grad(loss, (x, weight), retain_graph=True)
    thrice = torch.autograd.grad(3 * loss, (x, weight))
    torch.testing.assert_close(thrice, tuple(3 * gradient for gradient in once))


def test_batches_of_rows_have_the_loss_of_all_their_tokens():
    x, weight, targets = head_of(30, 8, 20)
    rows = linear_cross_entropy(x.view(5, 6, 8), weight, targets.view(5, 6))
    torch.testing.assert_close(rows, linear_cross_entropy(x, weight, targets))
    every_other = linear_cross_entropy(x[::2], weight, targets[::2])
    torch.testing.assert_close(
        every_other, functional.cross_entropy(x[::2] @ weight.T, targets[::2])
    )


@pytest.mark.parametrize("tokens", [0, 4])
def test_a_loss_of_no_tokens_that_count_is_no_number_and_has_gradients_of_zero(tokens):
    x, weight, targets = head_of(tokens, 8, 20, ignored=range(tokens))
    loss = linear_cross_entropy(x, weight, targets)
    assert loss.isnan()
    for gradient in torch.autograd.grad(loss, (x, weight)):
        assert not gradient.any()


@pytest.mark.parametrize("target", [20, -1])
def test_a_target_that_is_no_word_makes_the_loss_no_number(target):
    x, weight, targets = head_of(4, 8, 20)
    targets[2] = target
    assert linear_cross_entropy(x, weight, targets).isnan()


def test_logits_far_apart_do_not_overflow():
    weight = torch.tensor([[1000.0], [-1000.0], [999.0]], device=DEVICE)
    loss = linear_cross_entropy(
        torch.ones(2, 1, device=DEVICE), weight, torch.tensor([0, 1], device=DEVICE)
    )
    expected = functional.cross_entropy(weight.T.expand(2, 3), torch.tensor([0, 1], device=DEVICE))
    torch.testing.assert_close(loss, expected)


@pytest.mark.parametrize(
    ("tokens", "columns", "length"),
    [(8192, 4096, 4096), (8200, 4096, 2816), (24576, 2048, 2048), (100, 64, 128), (1, 1, 128)],
)
def test_a_chunk_has_about_as_many_tokens_as_columns_and_chunks_are_alike(tokens, columns, length):
    assert chunk_length(tokens, columns) == length


@pytest.mark.gpu
@on_gpu
def test_the_loss_takes_less_memory_than_its_logits():
    x, weight, targets = head_of(8192, 1024, 64000, dtype=torch.bfloat16)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    torch.autograd.grad(linear_cross_entropy(x, weight, targets), (x, weight))
    logits = 2 * 8192 * 64000
    assert torch.cuda.max_memory_allocated() - before < logits / 2


@pytest.mark.gpu
@on_gpu
def test_more_elements_than_32_bits_count_are_computed_to_the_last():
    rows = 2**31 // 4096 + 3
    x = torch.zeros(rows, 4096, device=DEVICE, dtype=torch.bfloat16)
    x[-1] = 2.0
    weight = torch.ones(4096, device=DEVICE, dtype=torch.bfloat16)
    torch.testing.assert_close(rms_norm(x, weight)[-1], weight)
    z = swiglu(x, x)
    torch.testing.assert_close(z[-1], functional.silu(x[-1]) * x[-1])
    assert not z[0].any()
    heads = x.view(1, rows, 32, 128).transpose(1, 2)
    no_turn = torch.ones(rows, 64, device=DEVICE), torch.zeros(rows, 64, device=DEVICE)
    turned, _ = rotary(heads, heads[:, :1], *no_turn)
    torch.testing.assert_close(turned[:, :, -1], heads[:, :, -1])


X = torch.zeros(3, 4, device=DEVICE)
HEADS = torch.zeros(1, 2, 3, 4, device=DEVICE)
TABLE = torch.zeros(3, 2, device=DEVICE)
WORDS = torch.zeros(3, device=DEVICE, dtype=torch.int64)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rms_norm(X, X), r"a weight for each, not shape \(3, 4\)"),
        (lambda: rms_norm(X.int(), X[0]), "int32 is not computed here"),
        (lambda: rms_norm(X.new_zeros(1, 70000), X.new_zeros(70000)), "at most 65536 numbers"),
        (lambda: swiglu(X, X[:2]), r"shapes \(3, 4\) and \(2, 4\)"),
        (lambda: rotary(HEADS, HEADS[..., :2], TABLE, TABLE), "equal except for the heads"),
        (lambda: rotary(HEADS, HEADS.half(), TABLE, TABLE), "q is of torch.float32 and k of"),
        (lambda: rotary(X, X, TABLE, TABLE), "must be"),
        (lambda: rotary(HEADS[..., :3], HEADS[..., :3], TABLE, TABLE), "a head of 3 numbers"),
        (lambda: rotary(HEADS, HEADS, TABLE[:2], TABLE), "tables for 3 tokens of 2 pairs"),
        (
            lambda: rotary(HEADS, HEADS, TABLE.clone().requires_grad_(), TABLE),
            "have no gradients here",
        ),
        (lambda: linear_cross_entropy(X, X[:, :2], WORDS), "have no logits"),
        (lambda: linear_cross_entropy(X, X.half(), WORDS), "and the weight of torch.float16"),
        (lambda: linear_cross_entropy(X, X, WORDS.int()), "not one 64-bit number for each"),
        (lambda: linear_cross_entropy(X, X, WORDS[:2]), "not one 64-bit number for each"),
    ],
)
def test_what_cannot_be_computed_is_refused_and_says_why(call, message):
    with pytest.raises(Unsupported, match=message):
        call()


@pytest.mark.skipif(DEVICE == "cuda", reason="a GPU computes bfloat16 rightly")
def test_bfloat16_is_refused_without_a_gpu():
    with pytest.raises(Unsupported, match="interpreter computes it wrongly"):
        swiglu(X.bfloat16(), X.bfloat16())
