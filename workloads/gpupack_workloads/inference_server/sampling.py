# SPDX-License-Identifier: Apache-2.0
"""The next token of each row.

A row's choice depends on its logits, its seed and its position, and on no other row: no
generator is shared. It is the Gumbel-max trick (Gumbel, 1954): the largest of logits / temperature
plus noise -log(-log(u)) is drawn from their softmax. u comes of seed, position and token by the
finaliser of SplitMix64 (Steele, Lea and Flood, 2014).

Shape legend: B rows, V vocabulary.
"""

import torch

NO_NUMBERS = -1
"""In place of a token: the row's logits are not all finite."""
# The constants of SplitMix64 as signed numbers: torch's products of int64 wrap around.
GOLDEN = 0x9E3779B97F4A7C15 - 2**64
MIX_1 = 0xBF58476D1CE4E5B9 - 2**64
MIX_2 = 0x94D049BB133111EB - 2**64
FRACTION_BITS = 24


def next_tokens(
    logits: torch.Tensor,
    temperatures: torch.Tensor,
    seeds: torch.Tensor,
    positions: torch.Tensor,
) -> torch.Tensor:
    """Return a token for each row [B], or NO_NUMBERS; a temperature of 0 takes the likeliest.

    Args:
        logits: [B, V] in 32 bits.
        temperatures: [B] in 32 bits, 0 or more.
        seeds: [B], int64.
        positions: [B], of the token that is chosen, int64.
    """
    drawn = temperatures[:, None] > 0
    # Not by `where` with a number: it comes from the host, and no graph can copy from there.
    scaled = logits / temperatures[:, None].masked_fill(~drawn, 1.0)
    noise = -torch.log(-torch.log(uniform(seeds, positions, logits.shape[1])))
    tokens = torch.where(drawn, scaled + noise, logits).argmax(1)
    # The largest of numbers of which one is none is none; argmax alone would name any token.
    return tokens.masked_fill(~logits.max(1).values.isfinite(), NO_NUMBERS)


def uniform(
    seeds: torch.Tensor,
    positions: torch.Tensor,
    vocabulary: int,
) -> torch.Tensor:
    """Return numbers between 0 and 1, both left out, [B, V] in 32 bits."""
    rows = mixed(mixed(seeds * GOLDEN) + positions * GOLDEN)
    tokens = torch.arange(vocabulary, device=seeds.device)
    bits = shifted(mixed(rows[:, None] + tokens * GOLDEN), 64 - FRACTION_BITS)
    # Halfway between steps of 2^-23: 32 bits hold 24 digits, and 1 must not be reached.
    return ((bits >> 1).float() + 0.5) * 2.0 ** (1 - FRACTION_BITS)


def mixed(x: torch.Tensor) -> torch.Tensor:
    """Return SplitMix64's finaliser of int64 numbers."""
    x = (x ^ shifted(x, 30)) * MIX_1
    x = (x ^ shifted(x, 27)) * MIX_2
    return x ^ shifted(x, 31)


def shifted(x: torch.Tensor, bits: int) -> torch.Tensor:
    """Shift right without copies of the sign."""
    return (x >> bits) & (2 ** (64 - bits) - 1)
