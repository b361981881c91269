# SPDX-License-Identifier: Apache-2.0
"""The Triton GEMM; interpreted where there is no GPU."""

import itertools
import math
import os
from types import SimpleNamespace

import numpy as np
import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

from triton.backends.compiler import BaseBackend
from triton.runtime import jit

from gpupack_kernels.errors import Unsupported
from gpupack_kernels.operators.gemm import tuning
from gpupack_kernels.operators.gemm.hopper.compiled import specialization
from gpupack_kernels.operators.gemm.ops import gemm, gemms
from gpupack_kernels.operators.gemm.tuning import H200, HOPPER_TILES, cheapest, waves
from gpupack_workloads.reference.gemm import compare

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
HALF = torch.bfloat16 if DEVICE == "cuda" else torch.float16
DTYPES = [torch.float32, torch.float16] + ([torch.bfloat16] if DEVICE == "cuda" else [])
FP8 = torch.float8_e4m3fn
native_specialize_impl = getattr(jit, "native_specialize_impl", None)
GPU_SHAPES = [
    (1, 8, 8),
    (128, 256, 64),
    (129, 264, 200),
    (1000, 1001, 999),
    (513, 2047, 63),
    (700, 3000, 4100),
    (128, 200, 8192),
    (384, 36, 4160),
]
SHAPES = [(1, 1, 1), (16, 16, 16), (128, 128, 128), (129, 127, 130), (257, 3, 65), (5, 300, 1)]


def matrices(m: int, n: int, k: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    chance = torch.Generator().manual_seed(7)
    a, b = torch.randn((m, k), generator=chance), torch.randn((k, n), generator=chance)
    return a.to(DEVICE, dtype), b.to(DEVICE, dtype)


def numpy(matrix: torch.Tensor) -> np.ndarray:
    return matrix.double().cpu().numpy()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_kernel_agrees_with_numpy(shape, dtype):
    a, b = matrices(*shape, dtype)
    name = str(dtype).removeprefix("torch.")
    agreement = compare(a=numpy(a), b=numpy(b), c=numpy(gemm(a, b)), dtype=name)
    assert agreement.holds, agreement


def test_transposed_matrices_are_read_through_their_strides():
    a, b = matrices(70, 90, 40, torch.float32)
    torch.testing.assert_close(gemm(b.T, a.T), torch.matmul(b.T, a.T))


def test_a_zero_result_is_exactly_zero():
    a, _ = matrices(33, 1, 17, torch.float16)
    assert not gemm(a, torch.zeros((17, 20), device=DEVICE, dtype=torch.float16)).any()


def test_shapes_that_do_not_fit_are_refused():
    a, b = matrices(4, 5, 6, torch.float32)
    with pytest.raises(Unsupported, match=r"cannot multiply \(4, 6\) by \(5, 6\)"):
        gemm(a, b.T)


@pytest.mark.skipif(DEVICE == "cuda", reason="a GPU computes bfloat16 rightly")
def test_bfloat16_is_refused_without_a_gpu():
    a, b = matrices(2, 2, 2, torch.bfloat16)
    with pytest.raises(Unsupported, match="interpreter computes it wrongly"):
        gemm(a, b)


def test_gradients_agree_with_torchs():
    a, b = (matrix.requires_grad_() for matrix in matrices(33, 20, 17, torch.float32))
    dc = torch.randn((33, 20), generator=torch.Generator().manual_seed(8)).to(DEVICE)
    ours = torch.autograd.grad(gemm(a, b), (a, b), dc)
    theirs = torch.autograd.grad(torch.matmul(a, b), (a, b), dc)
    torch.testing.assert_close(ours, theirs)


def test_a_gradient_that_is_not_requested_is_not_computed():
    a, b = matrices(5, 6, 7, torch.float32)
    c = gemm(a.requires_grad_(), b)
    c.backward(torch.ones_like(c))
    assert (a.grad is None, b.grad is None) == (False, True)


@pytest.mark.parametrize("dtype", [torch.float32, HALF], ids=str)
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    "widths",
    [(24,), (24, 33), (24, 7, 200), (8, 16, 24, 32), (24, 1), (1, 24), (8, 1, 16)],
    ids=str,
)
def test_several_products_of_one_matrix_and_their_gradients_are_torchs(widths, turned, dtype):
    chance = torch.Generator().manual_seed(9)
    a = torch.randn((65, 40), generator=chance).to(DEVICE, dtype)
    weights = [torch.randn((n, 40), generator=chance).to(DEVICE, dtype) for n in widths]
    bs = [weight.T if turned else weight.T.contiguous() for weight in weights]
    dcs = [torch.randn((65, n), generator=chance).to(DEVICE, dtype) for n in widths]

    def computed(products, a, bs, dcs):
        a, *bs = (x.detach().requires_grad_() for x in (a, *bs))
        found = products(a, bs)
        return [*found, *torch.autograd.grad(found, (a, *bs), dcs)]

    ours = computed(gemms, a, bs, dcs)
    exact = [[x.double() for x in each] for each in ([a], bs, dcs)]
    theirs = computed(lambda a, bs: [a @ b for b in bs], exact[0][0], *exact[1:])
    for found, expected in zip(ours, theirs, strict=True):
        tolerance = {torch.float32: 1e-5}.get(dtype, 1e-2) * float(expected.abs().max())
        torch.testing.assert_close(found.double(), expected, rtol=0, atol=tolerance)
    # With the operand's strides, so that no caller has to transpose it.
    wide = [x for x in ours[-len(bs) :] if x.shape[1] > 1]
    assert [x.is_contiguous() for x in wide] == [not turned] * len(wide)


def test_an_unused_product_of_several_adds_nothing_to_the_gradient():
    a, b = matrices(20, 30, 40, torch.float32)
    a.requires_grad_()
    gemms(a, [b, 2 * b])[0].sum().backward()
    torch.testing.assert_close(a.grad, torch.ones(20, 30, device=DEVICE) @ b.T)


def test_a_weight_of_32_bits_is_rounded_and_its_gradient_is_not():
    a, b = matrices(70, 50, 60, HALF)
    weight = torch.randn((50, 60), device=DEVICE).requires_grad_()
    c = gemm(a, weight.T)
    torch.testing.assert_close(c, gemm(a, weight.detach().to(HALF).T))
    dc = b.T @ a.T
    (gradient,) = torch.autograd.grad(c, weight, dc.T.contiguous())
    assert (c.dtype, gradient.dtype, gradient.stride()) == (HALF, torch.float32, (60, 1))
    exact = dc.double() @ a.double()
    # Rounded to 16 bits most would be further away than this.
    torch.testing.assert_close(gradient.double(), exact, rtol=1e-5, atol=1e-5 * exact.abs().max())


def test_a_16_bit_matrix_with_a_32_bit_one_is_refused():
    a, b = matrices(4, 5, 6, torch.float32)
    with pytest.raises(Unsupported, match=r"float32 by torch.float16"):
        gemm(a, b.half())


@pytest.mark.parametrize("shape", [(512, 2048, 24576), (128, 128, 2**20), (128, 36, 4160)], ids=str)
def test_a_long_sum_of_few_tiles_is_cut_into_parts_of_which_none_is_empty(monkeypatch, shape):
    splits = splits_of(monkeypatch, *shape)
    steps = math.ceil(shape[2] / tuning.SPLIT_TILES.k)
    assert 1 < splits <= tuning.MAX_SPLITS
    assert (splits - 1) * math.ceil(steps / splits) < steps


@pytest.mark.parametrize(
    "shape", [(4096, 4096, 4096), (128, 128, 2048), (100, 128, 65536), (128, 33, 65536)], ids=str
)
def test_other_sums_are_not_cut(monkeypatch, shape):
    assert splits_of(monkeypatch, *shape) == 1


def splits_of(monkeypatch, rows, columns, summed):
    monkeypatch.setattr(
        tuning, "properties_of", lambda tensor: SimpleNamespace(multi_processor_count=132)
    )
    a, b, c = (
        torch.empty(shape, device="meta", dtype=torch.bfloat16)
        for shape in ((rows, summed), (summed, columns), (rows, columns))
    )
    return tuning.splits_for(a, b, c)


@pytest.mark.parametrize("shape", [(1, 1, 1), (40, 24, 72), (65, 33, 129)], ids=str)
def test_eight_bit_operands_are_summed_in_32_bits_and_give_a_longer_type(shape):
    a, b = matrices(*shape, FP8)
    c = gemm(a, b)
    agreement = compare(
        a=numpy(a),
        b=numpy(b),
        c=numpy(c),
        dtype=str(c.dtype).removeprefix("torch."),
        narrow=True,
    )
    assert (c.element_size(), agreement.holds) == (2, True), agreement


def test_gradients_of_eight_bit_operands_are_refused():
    a, b = matrices(4, 5, 6, torch.float32)
    with pytest.raises(Unsupported, match="have no gradients"):
        gemm(a.requires_grad_().to(FP8), b.to(FP8))


@pytest.mark.gpu
@pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU")
@pytest.mark.parametrize("turned", ["", "a", "b", "ab"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, FP8], ids=str)
@pytest.mark.parametrize("shape", GPU_SHAPES, ids=str)
def test_any_shape_type_and_order_of_operands_agrees_with_numpy(shape, dtype, turned):
    a, b = matrices(*shape, dtype)
    a = a.T.contiguous().T if "a" in turned else a
    b = b.T.contiguous().T if "b" in turned else b
    # The second is launched as the first was, with operands that lie elsewhere.
    for left, right in ((a, b), (a.clone(), b.clone())):
        c = gemm(left, right)
        agreement = compare(
            a=numpy(a),
            b=numpy(b),
            c=numpy(c),
            dtype=str(c.dtype).removeprefix("torch."),
            narrow=dtype == FP8,
        )
        assert agreement.holds, agreement


@pytest.mark.gpu
@pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU")
def test_a_limited_number_of_launches_is_kept():
    from gpupack_kernels.operators.gemm.hopper.plans import Plans  # noqa: PLC0415  Gluon

    plans = Plans(most=3)
    for kind in range(4):
        plans.keep(kind, kind)
    assert [plans.find(kind) for kind in range(4)] == [None, None, None, 3]


@pytest.mark.gpu
@pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(136, 264, 200), (129, 263, 199)], ids=str)
def test_a_kernel_that_was_compiled_before_multiplies_other_operands(shape, dtype):
    m, n, k = shape
    wide_a, wide_b = matrices(m, 3 * n, 3 * k, dtype)
    for turn in range(3):
        a = wide_a[:, turn * k : (turn + 1) * k]
        b = wide_b[turn * k : (turn + 1) * k, turn * n : (turn + 1) * n]
        for left, right in ((a, b), (a.contiguous(), b), (a, b.T.contiguous().T)):
            c = gemm(left, right)
            name = str(dtype).removeprefix("torch.")
            agreement = compare(a=numpy(a), b=numpy(b), c=numpy(c), dtype=name)
            assert agreement.holds, agreement


@pytest.mark.gpu
@pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU")
@pytest.mark.parametrize("step", [1, 8, 16])
def test_a_kernel_that_was_compiled_for_one_shape_multiplies_others(step):
    for m, n, k in [(33, 35, 37), (35, 39, 33), (129, 65, 67), (67, 257, 131)]:
        shape = (m * step, n * step, k * step)
        a, b = matrices(*shape, torch.bfloat16)
        agreement = compare(a=numpy(a), b=numpy(b), c=numpy(gemm(a, b)), dtype="bfloat16")
        assert agreement.holds, (shape, agreement)


@pytest.mark.skipif(native_specialize_impl is None, reason="this Triton has it elsewhere")
def test_numbers_are_distinguished_as_triton_compiles_for_them():
    numbers = [1, 2, 8, 15, 16, 17, 4096, 4097, 2**31 - 16, 2**31 - 1, 2**31, 2**31 + 1, 2**33]
    for one, other in itertools.combinations(numbers, 2):
        same = by_triton(one) == by_triton(other)
        assert (specialization(one) == specialization(other)) == same, (one, other)


def by_triton(number):
    constant, specialised, by_divisor = False, True, True
    return native_specialize_impl(BaseBackend, number, constant, specialised, by_divisor)


@pytest.mark.gpu
@pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU")
@pytest.mark.parametrize("size", [512, 2048, 4000])
def test_a_product_waits_for_the_kernel_that_computes_its_operand(size):
    a, b = matrices(size, size, size, torch.bfloat16)
    b = b / size**0.5

    def chain(pause):
        c = a
        for turn in range(12):
            c = gemm(c, b)
            pause()
            c = c.neg() if turn % 3 else c
            pause()
        return c

    assert torch.equal(chain(lambda: None), chain(torch.cuda.synchronize))


@pytest.mark.gpu
@pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU")
def test_slices_that_start_anywhere_are_multiplied_rightly():
    a, b = matrices(300, 400, 500, torch.bfloat16)
    a, b = a[3:, 5:], b[5:, 7:]
    agreement = compare(a=numpy(a), b=numpy(b), c=numpy(gemm(a, b)), dtype="bfloat16")
    assert agreement.holds, agreement


@pytest.mark.gpu
@pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU")
def test_gradients_of_ragged_16_bit_products_agree_with_numpy():
    a, b = (matrix.requires_grad_() for matrix in matrices(333, 201, 77, torch.bfloat16))
    dc = torch.randn((333, 201), device=DEVICE, dtype=torch.bfloat16)
    da, db = torch.autograd.grad(gemm(a, b), (a, b), dc)
    a64, b64, dc64 = numpy(a.detach()), numpy(b.detach()), numpy(dc)
    for left, right, gradient in ((dc64, b64.T, da), (a64.T, dc64, db)):
        agreement = compare(a=left, b=right, c=numpy(gradient), dtype="bfloat16")
        assert agreement.holds, agreement


@pytest.mark.parametrize("element_bytes", [1, 2])
def test_wide_tiles_compute_large_products_and_narrow_ones_those_of_few_tiles(element_bytes):
    options = HOPPER_TILES[H200, element_bytes]
    wide, narrow = options
    assert cheapest(options, rows=8192, columns=8192, at_once=132) == wide
    assert cheapest(options, rows=1024, columns=1024, at_once=132) == narrow
    assert (wide.n, narrow.n) == (256, 128)


def test_a_wave_is_one_tile_on_every_multiprocessor():
    wide, _ = HOPPER_TILES[H200, 2]
    assert waves(wide, rows=4096, columns=4096, at_once=132) == 4
    assert waves(wide, rows=1, columns=1, at_once=132) == 1
