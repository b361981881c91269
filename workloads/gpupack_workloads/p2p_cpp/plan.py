# SPDX-License-Identifier: Apache-2.0
"""Sizes of copies, pieces through the host, and repetitions."""

from collections.abc import Iterator

MIN_BYTES = 4096
MAX_BYTES = 16 * 2**30
# These sizes and the largest requested one are timed.
SIZES_BYTES = (2**12, 2**16, 2**20, 2**24, 2**28)
# A vector: what a thread of the kernel loads or stores at once.
WORD_BYTES = 16
# What a block of the kernel has under way: 256 threads with four vectors each.
TILE_BYTES = 256 * 4 * WORD_BYTES
BLOCKS_PER_MULTIPROCESSOR = 8

LARGEST_PIECE_BYTES = 2**25
MIN_PIECE_BYTES = 2**18
# Both directions are busy but for the first and the last of them.
PIECES = 8

TURN_BYTES = 2**32
MAX_REPEATS = 20
MIN_REPEATS = 2

GB = 1e9


def sizes_of(largest: int) -> list[int]:
    """Return the bytes of the copies that are timed, ascending, whole vectors each.

    Ragged ones are checked, but say little about speed.
    """
    last = largest // WORD_BYTES * WORD_BYTES
    return [*(size for size in SIZES_BYTES if size < last), last]


def piece_bytes(total: int) -> int:
    """Return the bytes per copy through the host: a small part of the whole, but not too small.

    A piece costs some microseconds of its own, and the ends of the copy have one direction only.
    """
    even = -(-total // PIECES)
    whole = -(-even // WORD_BYTES) * WORD_BYTES
    return max(MIN_PIECE_BYTES, min(LARGEST_PIECE_BYTES, whole))


def pieces_of(total: int) -> Iterator[tuple[int, int]]:
    """Return first byte and number of bytes of each piece, in order; they cover the whole."""
    piece = piece_bytes(total)
    for first in range(0, total, piece):
        yield first, min(piece, total - first)


def repeats_of(size: int) -> int:
    """Return how many copies a turn times."""
    return max(MIN_REPEATS, min(MAX_REPEATS, TURN_BYTES // size))


def blocks_of(count: int, multiprocessors: int) -> int:
    """Return how many blocks copy so many bytes: one per tile, up to what runs at a time."""
    return max(1, min(-(-count // TILE_BYTES), multiprocessors * BLOCKS_PER_MULTIPROCESSOR))


def gb_per_s(size: int, directions: int, seconds: float) -> float:
    """Return the bandwidth, of all directions together."""
    return round(size * directions / seconds / GB, 4)
