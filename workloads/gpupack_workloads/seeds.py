# SPDX-License-Identifier: Apache-2.0
"""Seeds of random data: the valid range, and the conversion for generators."""

LARGEST_SEED = 2**63 - 1
GENERATOR_SEEDS = 2**64


def generator_seed(number: int) -> int:
    """Return a number that was worked out from a seed as one that torch's generators take."""
    return number % GENERATOR_SEEDS
