# SPDX-License-Identifier: Apache-2.0
"""Attention of one token over keys and values in pages; interpreted where there is no GPU."""

import math
import os
from types import SimpleNamespace

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

from test_attention_varlen import TOLERANCES, compiled_for

from gpupack_kernels import paged_decode_attention
from gpupack_kernels.errors import Unsupported
from gpupack_kernels.operators.paged_decode_attention import launch
from gpupack_kernels.operators.paged_decode_attention.ops import _decode

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
# lengths, tokens of a page, heads, key heads, dimension, parts
CASES = [
    ((1, 0, 16, 17, 200), 16, 4, 2, 64, None),
    ((70, 3), 7, 40, 1, 96, 3),
    ((5, 130), 1, 2, 2, 256, 5),
    ((64,), 64, 1, 1, 128, 1),
]
RAGGED = (1, 0, 16, 17, 700, 2048)
# Each width and type has to be compiled.
GPU_CASES = [
    *(((RAGGED, 16, 16, 4, d, None), torch.bfloat16) for d in (64, 80, 128, 192, 256)),
    *(((RAGGED, 16, 16, 4, 128, None), dtype) for dtype in (torch.float16, torch.float32)),
    ((RAGGED, 16, 16, 4, 256, None), torch.float32),
    ((RAGGED, 256, 8, 8, 128, None), torch.bfloat16),
    ((RAGGED, 16, 71, 1, 64, None), torch.bfloat16),
    (((20_000,), 16, 32, 8, 128, None), torch.bfloat16),
    (((20_000, 1), 16, 32, 8, 128, 128), torch.bfloat16),
]


def paged(case, dtype=torch.float32):
    """Rows whose pages are dealt out at random; unused pages have NaN."""
    lengths, page, heads, kv_heads, dimension, parts = case
    chance = torch.Generator().manual_seed(4)
    needed = [-(-length // page) for length in lengths]
    order = iter((torch.randperm(sum(needed), generator=chance) + 1).tolist())
    table = torch.zeros((len(lengths), max(needed)), dtype=torch.int64)
    k, v = torch.full((2, sum(needed) + 1, page, kv_heads, dimension), math.nan)
    for row, length in enumerate(lengths):
        for number in range(needed[row]):
            table[row, number] = place = next(order)
            there = min(page, length - number * page)
            for x in (k, v):
                x[place, :there] = torch.randn((there, *x.shape[2:]), generator=chance)
    q = torch.randn((len(lengths), heads, dimension), generator=chance)
    return SimpleNamespace(
        given=[*(x.to(DEVICE, dtype) for x in (q, k, v)), table.to(DEVICE),
               torch.tensor(lengths, device=DEVICE)],
        parts=parts,
    )  # fmt: skip


def textbook(q, k_pages, v_pages, table, lengths, scale=None):
    """Each row by itself in 64 bits."""
    rows = []
    for query, pages, length in zip(q, table, lengths.tolist(), strict=True):
        k, v = (x[pages].flatten(0, 1)[:length].double() for x in (k_pages, v_pages))
        k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
        s = torch.einsum("hd,nhd->hn", query.double(), k)
        s = s * (q.shape[2] ** -0.5 if scale is None else scale)
        rows.append(torch.einsum("hn,nhd->hd", s.softmax(-1), v))
    return torch.stack(rows)


def check(case, **more):
    found = paged_decode_attention(*case.given, parts=case.parts, **more)
    wanted = textbook(*case.given, **more)
    error = (found.double() - wanted).abs().max()
    assert error <= TOLERANCES[found.dtype] * max(1, wanted.abs().max()), float(error)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_ragged_rows_agree_with_64_bits_and_read_nothing_beyond_their_length(case):
    check(paged(case))


def test_half_precision_agrees_within_its_rounding():
    check(paged(CASES[0], torch.float16))


@pytest.mark.gpu
@pytest.mark.parametrize(("case", "dtype"), GPU_CASES, ids=str)
def test_the_gpu_agrees_on_pages_shared_heads_and_every_width(case, dtype):
    check(paged(case, dtype))


@pytest.mark.parametrize("scale", [0.3, 0.0, -1.0])
def test_the_scale_can_be_given(scale):
    check(paged(((20, 5), 16, 2, 1, 64, 2)), scale=scale)


def test_large_scores_do_not_overflow():
    case = paged(((300,), 16, 2, 1, 64, 2))
    case.given[0] *= 1000
    check(case)


@pytest.mark.parametrize("wrong", ["page", "length"])
def test_a_wrong_page_or_length_would_be_noticed(wrong):
    case = paged(((40, 33), 16, 2, 1, 64, 2))
    right = textbook(*case.given)
    if wrong == "page":
        case.given[3] = case.given[3].roll(1, 0)
    else:
        case.given[4] = case.given[4] - 1
    found = paged_decode_attention(*case.given, parts=2).nan_to_num(nan=9)
    assert (found.double() - right).abs().max() > 0.01


def test_a_length_of_more_than_the_table_has_room_for_counts_as_that():
    case = paged(((32,), 16, 1, 1, 64, 2))
    full = paged_decode_attention(*case.given, parts=2)
    case.given[4] = torch.tensor([10_000], device=DEVICE)
    torch.testing.assert_close(paged_decode_attention(*case.given, parts=2), full)


def test_a_table_with_32_bits_and_views_are_read_through_their_strides():
    case = paged(((20, 5), 16, 4, 2, 64, 2))
    q, k, v, table, lengths = case.given
    expected = paged_decode_attention(*case.given, parts=2)
    wide = torch.stack([q, q], 2)[:, :, 0]
    numbers = torch.cat([lengths[:, None], table, table], 1).int()
    view = numbers[:, 1 : 1 + table.shape[1]]
    found = paged_decode_attention(wide, k, v, view, numbers[:, 0], parts=2)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_what_no_kernel_computes_is_refused_in_words():
    def zeros(*shape, dtype=torch.float32):
        return torch.zeros(shape, device=DEVICE, dtype=dtype)

    def refused(message, **changes):
        given = {
            "q": zeros(2, 4, 64), "k_pages": zeros(3, 16, 2, 64), "v_pages": zeros(3, 16, 2, 64),
            "page_table": zeros(2, 5, dtype=torch.int64), "lengths": zeros(2, dtype=torch.int32),
        }  # fmt: skip
        with pytest.raises(Unsupported, match=message):
            paged_decode_attention(**(given | changes))

    refused("are not .rows, heads, dimension.", q=zeros(2, 1, 4, 64))
    refused("do not fit together", v_pages=zeros(3, 16, 2, 128))
    refused("there are no pages", **dict.fromkeys(("k_pages", "v_pages"), zeros(0, 16, 2, 64)))
    refused("3 query heads cannot share 2", q=zeros(2, 3, 64))
    refused("one row of pages and one number", lengths=zeros(3, dtype=torch.int32))
    refused("a table or lengths of torch.float32", page_table=zeros(2, 5))
    refused("0 parts are not 1 to 128", parts=0)


def test_no_rows_are_no_work():
    case = paged(CASES[0])
    q, k, v, table, lengths = case.given
    assert paged_decode_attention(q[:0], k, v, table[:0], lengths[:0]).shape == (0, 4, 64)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_the_operator_is_what_it_tells_torch():
    q, k, v, table, lengths = paged(((20, 5), 16, 4, 2, 64, None)).given
    # Without NaN in unused pages, which are not read, but which checkers complain about.
    torch.library.opcheck(_decode, (q, k.nan_to_num(), v.nan_to_num(), [table, lengths], 0.3, 2))


def test_torch_compile_takes_it_without_a_break_in_its_graph():
    case = paged(((20, 5), 16, 4, 2, 64, None))
    torch.compiler.reset()
    compiled = torch.compile(
        lambda *given: paged_decode_attention(*given) + 1, backend="aot_eager", fullgraph=True
    )
    torch.testing.assert_close(compiled(*case.given), paged_decode_attention(*case.given) + 1)


def test_a_gradient_is_an_error_and_not_a_wrong_number():
    case = paged(((20,), 16, 1, 1, 64, 2))
    case.given[0].requires_grad_()
    with pytest.raises(RuntimeError, match="autograd"):
        paged_decode_attention(*case.given).sum().backward()


@pytest.mark.gpu
def test_a_graph_that_is_replayed_with_other_lengths_computes_those():
    case = paged(((700, 3, 20), 16, 8, 2, 128, None), torch.bfloat16)
    *_, lengths = case.given
    right = textbook(*case.given)
    kept = lengths.clone()
    lengths.fill_(1)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        paged_decode_attention(*case.given)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = paged_decode_attention(*case.given)
    lengths.copy_(kept)
    graph.replay()
    assert (found.double() - right).abs().max() < TOLERANCES[torch.bfloat16]


class OfGpu(SimpleNamespace):
    """A tensor on a GPU of so many multiprocessors."""


@pytest.mark.parametrize(
    ("programs", "positions", "parts"),
    [(4, 128, 1), (4, 129, 2), (4, 2048, 16), (128, 2048, 3), (1000, 2048, 1), (1, 10**6, 128)],
)
def test_a_sequence_is_cut_until_the_gpu_is_full_but_not_too_small(
    monkeypatch, programs, positions, parts
):
    monkeypatch.setattr(launch, "properties_of", lambda _: OfGpu(multi_processor_count=132))
    assert launch.parts_for(OfGpu(is_cuda=True), programs, positions) == parts


def case_of(dimension, heads, tiles, *, dtype="bf16", capability=90):
    constants = {
        "PAGE": 16, "HEADS": heads, "TILE_N": tiles.n, "TILE_S": launch.TILE_S, "D": dimension,
        "BLOCK_D": 1 << (dimension - 1).bit_length(),
    }  # fmt: skip
    return {
        "module": "paged_decode_attention", "kernel": "paged_decode_kernel", "constants": constants,
        "singles": ["o_ptr"], "dtype": dtype, "capability": capability,
        "options": {"num_warps": tiles.warps, "num_stages": tiles.stages},
    }  # fmt: skip


def test_both_kernels_compile_for_hopper_without_one():
    small = launch.DecodeTiles(n=16, heads=16, warps=4, stages=1, shared_kib=0)
    decode = case_of(16, 16, small)
    combine = decode | {"kernel": "paged_combine_kernel", "singles": []}
    # Ones are compiled in.
    ones = dict.fromkeys(("kv_heads", "heads_per_kv", "stride_length"), 1)
    alone = decode | {"constants": decode["constants"] | ones, "singles": []}
    assert [each["stack"] for each in compiled_for([decode, combine, alone])] == [0, 0, 0]


@pytest.mark.gpu
def test_tiles_take_no_more_shared_memory_than_they_say_and_spill_nothing_on_hopper():
    halves = [(128, launch.HALVES[0], "bf16"), (256, launch.WIDE_HALVES[0], "bf16")]
    singles = [(128, launch.SINGLES[0], "fp32"), (256, launch.WIDE_SINGLES[0], "fp32")]
    wanted = [
        (case_of(dimension, tiles.heads, tiles, dtype=dtype, capability=capability), tiles)
        for dimension, tiles, dtype in halves + singles
        for capability in (80, 90)
    ]
    found = compiled_for([case for case, _ in wanted])
    for (case, tiles), each in zip(wanted, found, strict=True):
        assert each["shared_kib"] <= tiles.shared_kib
        assert each["stack"] == 0 or case["capability"] != 90
