# SPDX-License-Identifier: Apache-2.0
"""Attention over packed sequences; interpreted where there is no GPU."""

import itertools
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

from gpupack_kernels import attention, attention_varlen
from gpupack_kernels.errors import Unsupported
from gpupack_kernels.operators.attention.portable import launch as portable
from gpupack_kernels.operators.attention_varlen import launch
from gpupack_kernels.operators.attention_varlen.ops import _forward

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
# Of the largest element of what is right: rounding of results, and of the weights before products.
TOLERANCES = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
# lengths of queries, of keys, heads, key heads, dimension, causal
SHAPES = [
    ((70, 0, 5, 64), (70, 0, 5, 64), 2, 1, 64, True),
    ((3, 40), (5, 66), 2, 2, 96, False),
    ((20, 2), (3, 70), 1, 1, 80, True),
    ((9,), (9,), 1, 1, 256, True),
]
RAGGED = (1, 129, 0, 700, 64, 31)
GPU_SHAPES = [
    (RAGGED, RAGGED, 4, 2, 64, False),
    (RAGGED, RAGGED, 4, 2, 256, True),
    *((RAGGED, RAGGED, 4, 2, dimension, True) for dimension in (16, 64, 96, 128)),
    (RAGGED, RAGGED, 4, 2, 192, False),
    ((300, 7, 0, 130), (41, 515, 9, 0), 6, 2, 128, True),
    ((1,) * 200, tuple(range(1, 201)), 4, 4, 64, True),
    ((4096, 1), (4096, 1), 8, 1, 128, False),
]
# Each width and type has to be compiled.
GPU_CASES = [
    *itertools.product(GPU_SHAPES, [torch.bfloat16]),
    *itertools.product(GPU_SHAPES[:2], [torch.float16, torch.float32]),
]
no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")


def offsets_of(lengths, dtype=torch.int32):
    return torch.tensor([0, *itertools.accumulate(lengths)], dtype=dtype, device=DEVICE)


def packed(shape, dtype=torch.float32):
    rows, keys, heads, kv_heads, dimension, causal = shape
    chance = torch.Generator().manual_seed(3)

    def draw(tokens, heads):
        numbers = torch.randn((tokens, heads, dimension), generator=chance)
        return numbers.to(DEVICE, dtype).requires_grad_()

    return SimpleNamespace(
        qkv=[draw(sum(rows), heads), draw(sum(keys), kv_heads), draw(sum(keys), kv_heads)],
        do=draw(sum(rows), heads).detach(),
        offsets=[offsets_of(rows), offsets_of(keys)],
        causal=causal,
    )


def textbook(q, k, v, offsets_q, offsets_k, *, causal, scale=None):
    """Attention of each sequence by itself, in the type of its operands."""
    results = []
    for (first, end), (first_k, end_k) in zip(
        itertools.pairwise(offsets_q.tolist()), itertools.pairwise(offsets_k.tolist()), strict=True
    ):
        group = q.shape[1] // k.shape[1]
        keys, values = (x[first_k:end_k].repeat_interleave(group, 1) for x in (k, v))
        s = torch.einsum("mhd,nhd->hmn", q[first:end], keys)
        s = s * (q.shape[2] ** -0.5 if scale is None else scale)
        seen = torch.ones(s.shape[1:], dtype=torch.bool, device=s.device)
        if causal:
            seen = seen.tril(s.shape[2] - s.shape[1])
        # Rows that see nothing have weights that are no numbers, and are to have none.
        p = s.masked_fill(~seen, -math.inf).softmax(-1).masked_fill(~seen, 0)
        results.append(torch.einsum("hmn,nhd->mhd", p, values))
    return torch.cat(results)


def check(case, function=attention_varlen):
    o = function(*case.qkv, *case.offsets, causal=case.causal)
    found = o, *torch.autograd.grad(o, case.qkv, case.do)
    exact = [x.detach().double().requires_grad_() for x in case.qkv]
    right = textbook(*exact, *case.offsets, causal=case.causal)
    wanted = right, *torch.autograd.grad(right, exact, case.do.double())
    for name, mine, other in zip(("o", "dq", "dk", "dv"), found, wanted, strict=True):
        error = float((mine.double() - other).detach().abs().max())
        assert error <= TOLERANCES[o.dtype] * max(1.0, float(other.detach().abs().max())), name


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_values_and_gradients_agree_with_64_bits(shape):
    check(packed(shape))


def test_half_precision_agrees_within_its_rounding():
    check(packed(SHAPES[1], torch.float16))


@pytest.mark.gpu
@pytest.mark.parametrize(("shape", "dtype"), GPU_CASES, ids=str)
def test_the_gpu_agrees_on_ragged_lengths_shared_heads_and_every_width(shape, dtype):
    check(packed(shape, dtype))


def test_one_key_too_few_would_be_noticed():
    def short(q, k, v, offsets_q, offsets_k, *, causal):
        return attention_varlen(
            q, k, v, offsets_q, offsets_k - (offsets_k == 5).int(), causal=causal
        )

    with pytest.raises(AssertionError, match="o"):
        check(packed(SHAPES[1]), short)


def test_a_sequence_has_what_it_would_have_alone_whatever_its_neighbours_are():
    case = packed(((5, 30, 7), (5, 30, 7), 2, 1, 64, True))
    q, k, v = (x.detach().clone() for x in case.qkv)
    for x in (q, k, v):
        x[:5] = torch.nan
        x[35:] = torch.inf
    found = attention_varlen(q, k, v, *case.offsets, causal=True)[5:35]
    alone = attention(*(x[5:35].transpose(0, 1)[None] for x in (q, k, v)), causal=True)
    torch.testing.assert_close(found, alone[0].transpose(0, 1), rtol=1e-5, atol=1e-5)


def test_rows_of_no_sequence_and_their_gradients_are_zero():
    case = packed(((6, 4), (6, 4), 1, 1, 64, True))
    short = offsets_of((0, 6))
    o = attention_varlen(*case.qkv, short, short, causal=True)
    for each in (o, *torch.autograd.grad(o, case.qkv, case.do)):
        assert each[:6].abs().amin() > 0 or each[:6].abs().sum() > 1
        assert not each[6:].any()


@pytest.mark.parametrize("offsets", [(0, 90, 4), (-7, 3, 2**31 - 1), (9, 9, 9)], ids=str)
def test_offsets_that_lie_read_and_write_within_the_pack_alone(offsets):
    case = packed(((10,), (10,), 1, 1, 64, True))
    wrong = torch.tensor(offsets, dtype=torch.int32, device=DEVICE)
    o = attention_varlen(*case.qkv, wrong, wrong, causal=True)
    gradients = torch.autograd.grad(o, case.qkv, case.do)
    assert all(each.isfinite().all() for each in (o, *gradients))


def test_offsets_may_have_64_bits_and_views_are_read_through_their_strides():
    q, k, v = torch.randn(3, 2, 20, 64, device=DEVICE).transpose(1, 2)
    offsets = offsets_of((8, 12))
    expected = attention_varlen(q.contiguous(), k.contiguous(), v.contiguous(), offsets, offsets)
    found = attention_varlen(q, k, v, offsets.long(), offsets.long())
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_nothing_at_all_is_nothing():
    q = torch.zeros(0, 2, 64, device=DEVICE, requires_grad=True)
    for offsets in (offsets_of(()), offsets_of((0, 0))):
        o = attention_varlen(q, q, q, offsets, offsets)
        assert o.shape == torch.autograd.grad(o.sum(), q)[0].shape == (0, 2, 64)


def refused(message, **changes):
    x, offsets = torch.zeros(4, 2, 64, device=DEVICE), offsets_of((4,))
    given = {"q": x, "k": x, "v": x, "cu_seqlens_q": offsets, "cu_seqlens_k": offsets} | changes
    with pytest.raises(Unsupported, match=message):
        attention_varlen(**given)


def test_what_no_kernel_computes_is_refused_in_words():
    def zeros(*shape, dtype=torch.float32):
        return torch.zeros(shape, device=DEVICE, dtype=dtype)

    refused("are not all", q=zeros(1, 4, 2, 64))
    refused("do not fit together", v=zeros(5, 2, 64))
    refused("2 query heads cannot share 3", k=zeros(4, 3, 64), v=zeros(4, 3, 64))
    refused("dimension is 72", **dict.fromkeys("qkv", zeros(4, 2, 72)))
    refused("dimension is 272", **dict.fromkeys("qkv", zeros(4, 2, 272)))
    refused("all must be one of", k=zeros(4, 2, 64, dtype=torch.float16))
    refused("two lists of one length", cu_seqlens_k=offsets_of((2, 2)))
    refused("two lists of one length", **dict.fromkeys(("cu_seqlens_q", "cu_seqlens_k"), zeros(0)))
    refused("cu_seqlens of torch.float32", cu_seqlens_q=zeros(2))
    refused("not a finite number", scale=math.nan)


@no_gpu
def test_the_operator_is_what_it_tells_torch():
    case = packed(((5,), (6,), 2, 1, 64, True))
    # Dispatch ahead of time is what compiled programs show below.
    checks = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(_forward, (*case.qkv, case.offsets, True, 0.3), test_utils=checks)


def test_a_compiled_program_serves_any_pack():
    torch.compiler.reset()
    compiled = torch.compile(attention_varlen, backend="aot_eager", fullgraph=True, dynamic=True)
    for lengths in ((3, 4), (6, 0, 7), (20, 1, 1, 4)):
        case = packed((lengths, lengths, 2, 1, 64, True))
        found, wanted = (
            torch.autograd.grad(f(*case.qkv, *case.offsets, causal=True), case.qkv, case.do)
            for f in (compiled, attention_varlen)
        )
        torch.testing.assert_close(found, wanted, rtol=0, atol=0)


def compiled_for(cases):
    """What kernels take of a GPU that need not be here."""
    environ = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-B", "compile_for.py"],
        cwd=os.path.dirname(__file__),  # noqa: PTH120
        env=environ, input=json.dumps(cases), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def case_of(kernel, tiles, dimension, *, dtype="bf16", capability=90):
    constants = {
        "CAUSAL": True, "TILE_M": tiles.m, "TILE_N": tiles.n, "D": dimension,
        "BLOCK_D": 1 << (dimension - 1).bit_length(),
    }  # fmt: skip
    return {
        "module": "attention_varlen", "kernel": f"varlen_{kernel}_kernel", "constants": constants,
        "dtype": dtype, "capability": capability,
        "options": {"num_warps": tiles.warps, "num_stages": tiles.stages},
    }  # fmt: skip


def test_every_kernel_compiles_for_hopper_without_one():
    """The interpreter takes what the compiler does not: a loop's variable that changes its type."""
    small = portable.Tiles(m=16, n=16, warps=4, stages=1, shared_kib=0)
    cases = [case_of(k, small, 16) for k in ("forward", "delta", "dkdv", "dq")]
    # Ones are compiled in.
    cases[2]["constants"]["heads_per_kv"] = 1
    found = compiled_for(cases)
    assert all(each["stack"] == 0 for each in found)


TILES = {
    "forward": (portable.FORWARD, portable.WIDE_FORWARD),
    "dkdv": (launch.DKDV, portable.WIDE_DKDV),
    "dq": (portable.BACKWARD, portable.WIDE_DQ),
}


@pytest.mark.gpu
@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize("kernel", TILES)
def test_wide_tiles_take_no_more_shared_memory_than_they_say(kernel, capability):
    options = TILES[kernel][1]
    found = compiled_for([case_of(kernel, each, 256, capability=capability) for each in options])
    assert all(
        each["shared_kib"] <= tiles.shared_kib for each, tiles in zip(found, options, strict=True)
    )


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", TILES)
def test_little_is_spilled_on_hopper(kernel):
    narrow, wide = TILES[kernel]
    cases = [case_of(kernel, narrow[0], d) for d in (64, 128)]
    found = compiled_for([*cases, *(case_of(kernel, wide[0], d) for d in (192, 256))])
    assert max(each["stack"] for each in found) <= 64
