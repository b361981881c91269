# SPDX-License-Identifier: Apache-2.0
"""Requests and their times. Pure, and drawn before any request is sent.

Requests begin as those of many users who know nothing of each other: a Poisson process, whose gaps
are exponential. Lengths of prompts and answers are lognormal, as a few are much longer than most;
they are cut at four times their mean, and where a sequence would be longer than the server takes.
"""

import math
import random
from dataclasses import dataclass

from gpupack_workloads.errors import BadArgument

SPREAD = 0.6
"""Standard deviation of a length's logarithm."""
LONGEST = 4
"""Times the mean."""


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """Load on a server.

    Attributes:
        rate_per_s: requests, on average.
        seconds: in which requests begin.
        prompt_tokens: on average.
        output_tokens: on average.
        seed: seed of all of it.
    """

    rate_per_s: float
    seconds: float
    prompt_tokens: int
    output_tokens: int
    seed: int


@dataclass(frozen=True)
class Arrival:
    """One request.

    Attributes:
        due: when it is to be sent, in seconds from the beginning.
        prompt: tokens.
        output_tokens: number of requested tokens.
    """

    due: float
    prompt: tuple[int, ...]
    output_tokens: int


def arrivals(traffic: Traffic, *, vocabulary: int, max_length: int) -> list[Arrival]:
    """Return all requests in the order in which they begin; one seed gives one list."""
    # Of its own for each thing drawn: more requests leave the earlier ones as they are.
    gaps, lengths, words = (random.Random(f"{traffic.seed} {of}") for of in range(3))  # noqa: S311  no secret
    found: list[Arrival] = []
    due = gaps.expovariate(traffic.rate_per_s)
    while due < traffic.seconds:
        prompt = length(lengths, traffic.prompt_tokens, max_length - 1)
        output = length(lengths, traffic.output_tokens, max_length - prompt)
        tokens = tuple(words.randrange(vocabulary) for _ in range(prompt))
        found.append(Arrival(due, tokens, output))
        due += gaps.expovariate(traffic.rate_per_s)
    return found


def some_arrivals(traffic: Traffic, *, vocabulary: int, max_length: int) -> list[Arrival]:
    """Return what `arrivals` does, one at least.

    Raises:
        BadArgument: none begins.
    """
    found = arrivals(traffic, vocabulary=vocabulary, max_length=max_length)
    if not found:
        raise BadArgument(
            f"no request begins within {traffic.seconds} s at {traffic.rate_per_s} per second:"
            " set a larger --rate or --seconds"
        )
    return found


def length(chance: random.Random, mean: int, most: int) -> int:
    """Draw a length of this mean, from 1 to four times the mean, and no more than `most`."""
    drawn = chance.lognormvariate(math.log(mean) - SPREAD**2 / 2, SPREAD)
    return max(1, min(round(drawn), LONGEST * mean, most))
