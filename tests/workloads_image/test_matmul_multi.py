# SPDX-License-Identifier: Apache-2.0
"""The matmul-multi workload: gangs of processes, and what the check notices."""

import itertools
import json
from dataclasses import replace

import pytest
import torch

from gpupack_workloads.distributed import probe
from gpupack_workloads.distributed.rank import group
from gpupack_workloads.errors import BadArgument, WrongResult
from gpupack_workloads.matmul_multi.check import check
from gpupack_workloads.matmul_multi.grid import shape
from gpupack_workloads.matmul_multi.layout import Block, Cuts, cut
from gpupack_workloads.matmul_multi.memory_estimate import needed_bytes
from gpupack_workloads.matmul_multi.operands import B_T, A, Operands
from gpupack_workloads.matmul_multi.options import LAYOUTS, MatmulMultiOptions
from gpupack_workloads.matmul_multi.session import CUTS, check_timed, measure
from gpupack_workloads.matmul_multi.timed_turns import ALONE, Candidate, Timed, fastest, finalists
from gpupack_workloads.memory import GIB
from gpupack_workloads.seeds import LARGEST_SEED

OPERANDS = Operands(size=192, ranks=3, dtype=torch.float32, device=torch.device("cpu"), seed=4)
no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="this gang is of CPUs")


def test_the_largest_seed_gives_every_tile_numbers_of_its_own():
    operands = replace(OPERANDS, seed=LARGEST_SEED)
    assert len({operands.tile(*place).sum().item() for place in [(A, 0, 0), (B_T, 2, 2)]}) == 2


def block_of(rows: range, columns: range, roundings: int = 1) -> Block:
    every = range(OPERANDS.ranks)
    a, b_t = OPERANDS.block(A, rows, every), OPERANDS.block(B_T, columns, every)
    return Block(rows, columns, a @ b_t.T, roundings)


@no_gpu
def test_two_processes_compute_every_layout_in_ragged_pieces(command):
    ragged = ("--size", "130", "--chunks", "1", "--chunks", "3", "--width", "17")
    outcome = command("matmul-multi", "--json", *ragged)
    assert outcome.returncode == 0, outcome.stderr
    result = json.loads(outcome.stdout)
    found = {(row["layout"], row["chunks"]) for row in result["rows"] if row["exchange"] != "none"}
    assert found == {(layout, chunks) for layout in LAYOUTS for chunks in (1, 3)}
    assert result["metrics"]["error"] <= result["metrics"]["error_bound"]


@pytest.mark.parametrize("block", [(range(1, 2), range(3)), (range(3), range(2, 3))])
def test_a_right_block_agrees(block):
    assert check(block_of(*block), OPERANDS, doing="a product").holds


@pytest.mark.parametrize("wrong", [1.0, float("nan"), float("inf")])
def test_one_wrong_element_is_noticed(wrong):
    block = block_of(range(1, 2), range(3))
    block.values[17, 130] += wrong
    with pytest.raises(WrongResult, match="rounding explains"):
        check(block, OPERANDS, doing="a product")


def test_a_product_of_infinities_is_noticed():
    block = block_of(range(1, 2), range(3))
    block.values.fill_(float("inf"))
    with pytest.raises(WrongResult, match="rounding explains"):
        check(block, OPERANDS, doing="a product")


def settle(wrong):
    with group("gloo", require_gpu=False):
        block = block_of(range(1, 2), range(3))
        block.values[17, 130] += wrong
        return check_timed("rows", block, OPERANDS).holds


@no_gpu
def test_what_the_race_left_is_checked(gang):
    assert gang(1, settle, 0.0) == [True]
    assert "rows, as it was timed" in str(gang(1, settle, 1.0)[0])


def test_parts_that_were_exchanged_are_noticed():
    block = block_of(range(1, 2), range(3))
    swapped = torch.cat([block.values[:, 64:128], block.values[:, :64], block.values[:, 128:]], 1)
    with pytest.raises(WrongResult):
        check(Block(block.rows, block.columns, swapped, 1), OPERANDS, doing="a product")


def test_pieces_cover_a_block_in_order():
    pieces = cut(torch.arange(7)[:, None], 3)
    assert [first for first, _ in pieces] == [0, 3, 5]
    assert torch.cat([piece for _, piece in pieces]).flatten().tolist() == list(range(7))
    assert len(cut(torch.zeros(2, 1), 8)) == 2


def test_a_grid_is_as_square_as_can_be():
    assert [shape(ranks) for ranks in (1, 2, 4, 6, 7, 12)] == [
        (1, 1), (1, 2), (2, 2), (2, 3), (1, 7), (3, 4),
    ]  # fmt: skip


def test_a_size_that_does_not_divide_is_refused():
    with pytest.raises(BadArgument, match="no multiple of 3 ranks"):
        Operands(size=100, ranks=3, dtype=torch.float32, device=torch.device("cpu"), seed=0)


def held_bytes(size, layouts):
    """The most that a run holds at once."""
    options = MatmulMultiOptions(size=size, layouts=layouts, chunks=(3,), widths=(256,))
    with torch.profiler.profile(profile_memory=True) as profile:
        measure(options, "gloo")
    changes = [one for one in profile.profiler.kineto_results.events() if one.name() == "[memory]"]
    changes.sort(key=lambda one: one.start_ns())
    return max(itertools.accumulate(one.nbytes() for one in changes))


@no_gpu
@pytest.mark.parametrize("layouts", [LAYOUTS, ("rows",)])
@pytest.mark.parametrize(("ranks", "size"), [(1, 1024), (2, 1026)])
def test_the_estimate_counts_what_the_layouts_asked_for_hold_and_little_more(
    gang, monkeypatch, ranks, size, layouts
):
    # gloo's threads release the buffers of the gang's first all-reduce, which the profiler misses.
    monkeypatch.setitem(probe.MAX_BYTES, "gloo", probe.SMALL_BYTES)
    held = max(gang(ranks, held_bytes, size, layouts))
    operands = Operands(size, ranks, torch.float32, torch.device("cpu"), seed=0)
    needed = needed_bytes([CUTS[name] for name in layouts], operands, exchanges=1)
    assert held <= needed < 1.2 * held


def test_large_products_by_rows_fit_four_gpus_and_all_layouts_do_not_fit_one():
    def gib(size, ranks, layouts, exchanges):
        operands = Operands(size, ranks, torch.bfloat16, torch.device("cpu"), seed=0)
        kinds = [CUTS[name] for name in layouts]
        return needed_bytes(kinds, operands, exchanges=exchanges) / GIB

    assert gib(57344, 4, ("rows",), 2) < 120
    assert gib(49152, 1, LAYOUTS, 1) > 139


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_gpus_compute_every_layout_by_both_exchanges(command):
    count = torch.cuda.device_count()
    outcome = command("matmul-multi", "--json", "--size", "4096", "--chunks", "3", processes=count)
    assert outcome.returncode == 0, outcome.stderr
    rows = json.loads(outcome.stdout)["rows"]
    assert len({(row["layout"], row["exchange"]) for row in rows}) == 1 + 2 * len(LAYOUTS)


def timed(layout: str, chunks: int, seconds: float) -> Timed:
    return Timed(Candidate(layout, "messages", Cuts(chunks, 64), lambda: None), seconds)


def test_the_two_fastest_of_each_layout_meet_in_the_final():
    heat = [timed("rows", chunks, seconds) for chunks, seconds in ((1, 3.0), (2, 1.0), (4, 2.0))]
    heat.append(timed(ALONE, 1, 9.0))
    found = [(candidate.layout, candidate.cuts.chunks) for candidate in finalists(heat)]
    assert found == [("rows", 2), ("rows", 4), (ALONE, 1)]
    assert (fastest(heat).seconds, fastest(heat, ALONE).seconds) == (1.0, 9.0)
