# SPDX-License-Identifier: Apache-2.0
"""Sizes, pieces and bandwidths, and the plan's agreement with the kernel's source."""

import re

import pytest

from gpupack_workloads.p2p_cpp import SOURCE
from gpupack_workloads.p2p_cpp.plan import (
    LARGEST_PIECE_BYTES,
    MAX_BYTES,
    MIN_BYTES,
    MIN_PIECE_BYTES,
    TILE_BYTES,
    blocks_of,
    gb_per_s,
    piece_bytes,
    pieces_of,
    repeats_of,
    sizes_of,
)


@pytest.mark.parametrize(
    ("largest", "sizes"),
    [
        (4096, [4096]),
        (5000, [4096, 4992]),
        (2**20, [2**12, 2**16, 2**20]),
        (2**20 + 15, [2**12, 2**16, 2**20]),
        (2**30, [2**12, 2**16, 2**20, 2**24, 2**28, 2**30]),
    ],
)
def test_copies_of_whole_vectors_up_to_the_largest_are_timed(largest, sizes):
    assert sizes_of(largest) == sizes


@pytest.mark.parametrize(
    "total", [1, 2**18 - 1, 2**18, 2**18 + 1, 1_000_003, 2**24, 2**28 + 7, 2**30]
)
def test_pieces_cover_a_copy_without_gap_or_overlap(total):
    pieces = list(pieces_of(total))
    assert [first for first, _ in pieces] == [
        sum(count for _, count in pieces[:number]) for number in range(len(pieces))
    ]
    assert sum(count for _, count in pieces) == total
    assert max(count for _, count in pieces) <= piece_bytes(total)


def test_pieces_are_an_eighth_but_never_small_and_never_large():
    assert [piece_bytes(total) for total in (1, 2**21, 2**24, 2**30)] == [
        MIN_PIECE_BYTES,
        MIN_PIECE_BYTES,
        2**21,
        LARGEST_PIECE_BYTES,
    ]
    # Buffers for the largest copy suffice for all others.
    sizes = [piece_bytes(total) for total in range(1, 2**27, 999_983)]
    assert sizes == sorted(sizes)


def test_a_turn_has_many_small_copies_and_few_large_ones():
    assert (repeats_of(MIN_BYTES), repeats_of(2**30), repeats_of(MAX_BYTES)) == (20, 4, 2)


@pytest.mark.parametrize(
    ("count", "blocks"),
    [(1, 1), (TILE_BYTES, 1), (TILE_BYTES + 1, 2), (2**30, 132 * 8)],
)
def test_blocks_are_one_per_tile_up_to_what_runs_at_a_time(count, blocks):
    assert blocks_of(count, 132) == blocks


def test_the_tile_of_the_plan_is_that_of_the_source():
    threads, unroll = (
        int(re.search(rf"constexpr int {name} = (\d+);", SOURCE.read_text())[1])
        for name in ("THREADS", "UNROLL")
    )
    assert threads * unroll * 16 == TILE_BYTES


def test_bandwidth_counts_each_direction_in_units_of_a_billion_bytes():
    assert gb_per_s(2_000_000_000, 1, 0.5) == 4
    assert gb_per_s(2_000_000_000, 2, 0.5) == 8


def test_the_source_is_self_contained():
    assert "#include" not in SOURCE.read_text()
