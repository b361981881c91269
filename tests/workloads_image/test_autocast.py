# SPDX-License-Identifier: Apache-2.0
"""Kernels under torch.autocast take the types that torch's operators take on a GPU."""

import os
from functools import partial

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
    softmax,
    swiglu,
    vector_add,
)
from gpupack_kernels.casts import CASTS_RMS_NORM
from gpupack_kernels.errors import Unsupported

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
HALF = torch.bfloat16 if DEVICE == "cuda" else torch.float16
SINGLE = torch.float32
on = partial(torch.autocast, DEVICE, dtype=HALF)
TARGETS = torch.tensor([3, 0, 10, 5], device=DEVICE)
PACK = torch.tensor([0, 4, 9], device=DEVICE)
NORM = SINGLE if CASTS_RMS_NORM else HALF

# By name: the function, the types and shapes of what it takes, the result's type, torch's function.
CASES = {
    "gemm": (gemm, [(SINGLE, 5, 6), (SINGLE, 6, 7)], HALF, torch.mm),
    "gemm, mixed": (gemm, [(SINGLE, 5, 6), (HALF, 6, 7)], HALF, torch.mm),
    "gemm, mixed otherwise": (gemm, [(HALF, 5, 6), (SINGLE, 6, 7)], HALF, torch.mm),
    "gemms": (
        lambda a, *bs: torch.cat(gemms(a, bs), 1),
        [(SINGLE, 5, 6), (SINGLE, 6, 7), (HALF, 6, 3)],
        HALF,
        lambda a, *bs: torch.cat([a @ b for b in bs], 1),
    ),
    "attention": (
        attention,
        [(SINGLE, 1, 2, 9, 64), (HALF, 1, 2, 9, 64), (SINGLE, 1, 2, 9, 64)],
        HALF,
        functional.scaled_dot_product_attention,
    ),
    "softmax": (softmax, [(HALF, 3, 20)], SINGLE, partial(torch.softmax, dim=-1)),
    "rms_norm": (
        rms_norm,
        [(HALF, 3, 20), (SINGLE, 20)],
        NORM,
        lambda x, weight: functional.rms_norm(x, (20,), weight, 1e-5),
    ),
    "linear_cross_entropy": (
        lambda x, weight: linear_cross_entropy(x, weight, TARGETS),
        [(HALF, 4, 6), (SINGLE, 11, 6)],
        SINGLE,
        lambda x, weight: functional.cross_entropy(functional.linear(x, weight), TARGETS),
    ),
    "swiglu": (
        swiglu,
        [(HALF, 4, 30), (SINGLE, 4, 30)],
        SINGLE,
        lambda gate, up: functional.silu(gate) * up,
    ),
    "vector_add": (vector_add, [(HALF, 40), (SINGLE, 40)], SINGLE, torch.add),
}
IDS = [name.replace(", ", "-") for name in CASES]


def inputs_of(kinds):
    chance = torch.Generator().manual_seed(3)
    return [
        torch.randn(shape, generator=chance).to(DEVICE, dtype).requires_grad_()
        for dtype, *shape in kinds
    ]


@pytest.mark.parametrize("name", CASES, ids=IDS)
def test_results_and_gradients_have_the_types_and_values_that_torch_gives_them(name):
    function, kinds, result_type, by_torch = CASES[name]
    inputs = inputs_of(kinds)
    with on():
        result = function(*inputs)
    gradients = torch.autograd.grad(result.float().square().sum(), inputs)
    exact = [x.detach().double().requires_grad_() for x in inputs]
    expected = by_torch(*exact)
    expected_gradients = torch.autograd.grad(expected.square().sum(), exact)
    assert result.dtype == result_type
    assert [each.dtype for each in gradients] == [x.dtype for x in inputs]
    for found, right in zip((result, *gradients), (expected, *expected_gradients), strict=True):
        bound = 2e-2 * float(right.detach().abs().max())
        torch.testing.assert_close(found.double(), right, rtol=0, atol=bound)


@pytest.mark.gpu
@pytest.mark.skipif(DEVICE == "cpu", reason="torch has another table for CPUs")
@pytest.mark.parametrize("name", CASES, ids=IDS)
def test_torchs_operators_give_the_same_types(name):
    function, kinds, result_type, by_torch = CASES[name]
    inputs = inputs_of(kinds)
    with on():
        assert (function(*inputs).dtype, by_torch(*inputs).dtype) == (result_type, result_type)


@pytest.mark.parametrize("name", CASES, ids=IDS)
def test_a_backward_pass_under_autocast_is_the_same(name):
    function, kinds, _, _ = CASES[name]
    inputs = inputs_of(kinds)
    with on():
        inside = torch.autograd.grad(function(*inputs).float().square().sum(), inputs)
        result = function(*inputs)
    outside = torch.autograd.grad(result.float().square().sum(), inputs)
    torch.testing.assert_close(inside, outside, rtol=0, atol=0)


@pytest.mark.parametrize("name", CASES, ids=IDS)
def test_torch_compile_takes_them_under_autocast(name):
    function, kinds, result_type, _ = CASES[name]
    torch.compiler.reset()

    def around(*inputs):
        with on():
            return function(*inputs)

    inputs = inputs_of(kinds)
    compiled = torch.compile(around, backend="aot_eager", fullgraph=True)
    ours, eager = (
        (result := f(*inputs), *torch.autograd.grad(result.float().square().sum(), inputs))
        for f in (compiled, around)
    )
    assert ours[0].dtype == result_type
    torch.testing.assert_close(ours, eager)


def test_attention_over_packs_and_pages_takes_the_type_of_products():
    q, k, v = inputs_of([(SINGLE, 9, 2, 64)] * 3)
    pages = torch.randn(3, 16, 2, 64, device=DEVICE)
    table, lengths = torch.tensor([[1, 2]], device=DEVICE), torch.tensor([20], device=DEVICE)
    with on():
        packed = attention_varlen(q, k, v, PACK, PACK)
        paged = paged_decode_attention(q[:1].detach(), pages, pages.to(HALF), table, lengths)
    assert (packed.dtype, paged.dtype) == (HALF, HALF)
    assert torch.autograd.grad(packed.sum(), q)[0].dtype == SINGLE


def test_a_gradient_of_a_product_of_single_weights_is_not_rounded():
    a, b = inputs_of([(SINGLE, 40, 30), (SINGLE, 30, 20)])
    with on():
        c = gemm(a, b)
    dc = torch.randn_like(c)
    (db,) = torch.autograd.grad(c, b, dc)
    exact = a.detach().to(HALF).double().T @ dc.double()
    torch.testing.assert_close(db.double(), exact, rtol=0, atol=1e-5 * float(exact.abs().max()))


def test_a_second_derivative_is_an_error_under_autocast_too():
    a, b = inputs_of([(SINGLE, 5, 6), (SINGLE, 6, 7)])
    with on():
        (da,) = torch.autograd.grad(gemm(a, b).sum(), a, create_graph=True)
    with pytest.raises(RuntimeError, match="autograd"):
        torch.autograd.grad(da.square().sum(), b)


def test_operands_of_64_bits_are_not_cast_and_switched_off_nothing_is():
    a, b = inputs_of([(SINGLE, 5, 6), (HALF, 6, 7)])
    with on(enabled=False), pytest.raises(Unsupported, match="cannot multiply"):
        gemm(a, b)
    with on(), pytest.raises(Unsupported, match="float64"):
        gemm(a.double(), b)


def test_eight_bit_operands_are_multiplied_as_they_are():
    a, b = (x.detach().to(torch.float8_e4m3fn) for x in inputs_of([(SINGLE, 16, 32)] * 2))
    with on():
        assert torch.equal(gemm(a, b.T), gemm(a, b.T))
        assert gemm(a, b.T).element_size() == 2
