# SPDX-License-Identifier: Apache-2.0
"""Operands without rows, columns or anything: results and gradients as torch's, and no launch."""

import os

import pytest
import torch
from torch.nn import functional

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

from gpupack_kernels import (
    attention,
    attention_varlen,
    gemm,
    gemms,
    linear_cross_entropy,
    paged_decode_attention,
    rms_norm,
    rotary,
    softmax,
    swiglu,
    vector_add,
)
from gpupack_workloads.transformer.operations import rotate

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
HALF = torch.bfloat16 if DEVICE == "cuda" else torch.float16
NO_TARGETS = torch.zeros(0, device=DEVICE, dtype=torch.int64)
TWO_TARGETS = torch.tensor([1, 4], device=DEVICE)
TABLE = torch.ones(9, 4, device=DEVICE)


def loss(x, weight):
    targets = TWO_TARGETS if len(x) else NO_TARGETS
    return linear_cross_entropy(x, weight, targets)


def torchs_loss(x, weight):
    targets = TWO_TARGETS if len(x) else NO_TARGETS
    return functional.cross_entropy(functional.linear(x, weight), targets)


def several(a, *bs):
    return torch.cat(gemms(a, bs), 1)


def torchs_several(a, *bs):
    return torch.cat([a @ b for b in bs], 1)


def turned(q, k):
    return torch.cat(rotary(q, k, TABLE, TABLE), 1)


def torchs_turned(q, k):
    return torch.cat(rotate(q, k, TABLE, TABLE), 1)


def normalised(x, weight):
    return functional.rms_norm(x, weight.shape, weight, 1e-5)


def torchs_softmax(x):
    return torch.softmax(x, -1)


def gated(gate, up):
    return functional.silu(gate) * up


def filled(shape, dtype):
    return torch.ones(shape, device=DEVICE, dtype=dtype, requires_grad=True)


def value_and_gradients(function, inputs):
    result = function(*inputs)
    return result, *torch.autograd.grad(result.sum(), inputs)


torchs_attention = functional.scaled_dot_product_attention
CASES = [
    (gemm, torch.mm, [(0, 6), (6, 7)]),
    (gemm, torch.mm, [(5, 6), (6, 0)]),
    (gemm, torch.mm, [(5, 0), (0, 7)]),
    (gemm, torch.mm, [(0, 0), (0, 0)]),
    (several, torchs_several, [(0, 6), (6, 7), (6, 3)]),
    (several, torchs_several, [(5, 6), (6, 0), (6, 3), (6, 2), (6, 4), (6, 0)]),
    (several, torchs_several, [(5, 0), (0, 7), (0, 3)]),
    (several, torchs_several, [(5, 6), (6, 0), (6, 0)]),
    (softmax, torchs_softmax, [(0, 20)]),
    (softmax, torchs_softmax, [(3, 0)]),
    (softmax, torchs_softmax, [(2, 0, 20)]),
    (rms_norm, normalised, [(0, 20), (20,)]),
    (rms_norm, normalised, [(3, 0), (0,)]),
    (swiglu, gated, [(0, 30), (0, 30)]),
    (vector_add, torch.add, [(0,), (0,)]),
    (turned, torchs_turned, [(0, 3, 9, 8), (0, 1, 9, 8)]),
    (attention, torchs_attention, [(0, 2, 9, 64)] * 3),
    (attention, torchs_attention, [(1, 2, 0, 64), (1, 2, 9, 64), (1, 2, 9, 64)]),
    (attention, torchs_attention, [(1, 2, 9, 64), (1, 2, 0, 64), (1, 2, 0, 64)]),
    (loss, torchs_loss, [(0, 6), (11, 6)]),
    (loss, torchs_loss, [(2, 0), (11, 0)]),
]


@pytest.mark.parametrize("dtype", [torch.float32, HALF], ids=str)
@pytest.mark.parametrize(
    ("function", "by_torch", "shapes"), CASES, ids=[f"{f.__name__}-{s}" for f, _, s in CASES]
)
def test_results_and_gradients_are_torchs(function, by_torch, shapes, dtype):
    # In 32 bits: cuDNN's attention of no batch in 16 has no gradient in torch 2.11.
    ours, theirs = (
        value_and_gradients(f, [filled(shape, kind) for shape in shapes])
        for f, kind in ((function, dtype), (by_torch, torch.float32))
    )
    for found, expected in zip(ours, theirs, strict=True):
        right = expected.to(found.dtype)
        torch.testing.assert_close(found, right, rtol=1e-3, atol=1e-6, equal_nan=True)
    assert [each.dtype for each in ours[1:]] == [dtype] * len(shapes)


@pytest.mark.parametrize(
    ("function", "shapes"),
    [(f, s) for f, _, s in CASES],
    ids=[f"{f.__name__}-{s}" for f, _, s in CASES],
)
def test_torch_compile_takes_them(function, shapes):
    torch.compiler.reset()
    inputs = [filled(shape, torch.float32) for shape in shapes]
    compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
    ours, eager = (value_and_gradients(f, inputs) for f in (compiled, function))
    torch.testing.assert_close(ours, eager, equal_nan=True)


def test_packs_and_pages_of_nothing_are_empty():
    nothing = torch.zeros(0, 2, 64, device=DEVICE, requires_grad=True)
    ends = torch.zeros(3, device=DEVICE, dtype=torch.int32)
    packed = attention_varlen(nothing, nothing, nothing, ends, ends)
    (gradient,) = torch.autograd.grad(packed.sum(), nothing)
    pages = torch.zeros(1, 16, 2, 64, device=DEVICE)
    table, lengths = torch.zeros(0, 3, device=DEVICE).int(), torch.zeros(0, device=DEVICE).int()
    paged = paged_decode_attention(nothing.detach(), pages, pages, table, lengths)
    assert packed.shape == gradient.shape == paged.shape == (0, 2, 64)
