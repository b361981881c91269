# SPDX-License-Identifier: Apache-2.0
"""The network with its cache in pages, and answers that callers got, against the plain pass.

That is the transformer's own: whole sequences, no cache, no padding. Its logits in 32 bits are the
reference.

- In 32 bits, ragged sequences that go through the cache in parts must have the reference's logits
  after every token, but for rounding. A wrong page, position or mask is far beyond that.
- In the type that is served, they must be as near the reference as the plain pass in that type is,
  times `TOLERANCE`: rounding differs with the order of sums, mistakes do not fit in.
- Of each answer that a caller got, every token must be the likeliest by the plain pass, or as
  likely but for rounding: the two may choose differently where two tokens are as likely.
"""

import contextlib
import logging
import math
import random
from collections.abc import Iterator
from collections.abc import Sequence as Items
from dataclasses import dataclass

import torch

from gpupack_workloads.errors import WrongResult
from gpupack_workloads.inference_load.arrivals import Arrival
from gpupack_workloads.inference_load.client import Outcome
from gpupack_workloads.inference_server.batch import Part, Request, Sequence
from gpupack_workloads.inference_server.network import (
    Network,
    Rows,
    packed,
    pages_needed,
    rounded,
)
from gpupack_workloads.inference_server.options import PAGE_TOKENS
from gpupack_workloads.inference_server.pages import Pages, pages_for
from gpupack_workloads.results import Scalar
from gpupack_workloads.transformer.model import Decoder

logger = logging.getLogger(__name__)

# Of the largest logit. In 32 bits on CPUs the two passes were apart by 5e-7 of it.
EXACT_BOUND = 1e-4
TOLERANCE = 3.0
# Short ones, for every token of them is checked.
SEQUENCES, LONGEST, FIRST_PART = 5, 70, 24
MAX_ANSWERS = 32


@dataclass(frozen=True)
class Samples:
    """Sequences, and the reference's logits after each of their tokens [S, V], in 32 bits."""

    sequences: list[tuple[int, ...]]
    logits: list[torch.Tensor]

    @property
    def scale(self) -> float:
        """The largest of all logits."""
        return max(float(each.abs().max()) for each in self.logits)


@dataclass(frozen=True)
class Errors:
    """How far logits are from the reference, as a share of the largest.

    Attributes:
        exact: error of the cache in 32 bits.
        served: error of the cache in the type that is served.
        plain: error of the plain pass in that type.
        scale: the largest logit of the reference.
    """

    exact: float
    served: float
    plain: float
    scale: float

    @property
    def bound(self) -> float:
        """What rounding explains in the type that is served."""
        return max(EXACT_BOUND, TOLERANCE * self.plain)

    @property
    def choice_bound(self) -> float:
        """By how much the likeliest tokens of the two passes may differ, by the plain one's logits.

        Each may be off for either token.
        """
        return 2 * (self.bound + self.plain) * self.scale


@contextlib.contextmanager
def computing_in(decoder: Decoder, dtype: torch.dtype) -> Iterator[None]:
    """Let a network compute in another type."""
    own, decoder.dtype = decoder.dtype, dtype
    try:
        yield
    finally:
        decoder.dtype = own


def errors_of(
    decoder: Decoder, *, vocabulary: int, max_length: int, seed: int, paged: bool
) -> Errors:
    """Compare, and leave the network's products in the type that it computes in.

    Args:
        decoder: its weights in 32 bits.
        vocabulary: how many tokens there are.
        max_length: maximum length of a sequence.
        seed: seed of the sequences.
        paged: how steps of one token are served; see `Network`.

    Raises:
        WrongResult: rounding does not explain a difference.
    """
    chance = random.Random(seed)  # noqa: S311  no secret
    longest = min(LONGEST, max_length)
    lengths = [longest, *(chance.randint(1, longest) for _ in range(SEQUENCES - 1))]
    sequences = [tuple(chance.randrange(vocabulary) for _ in range(each)) for each in lengths]
    with computing_in(decoder, torch.float32):
        samples = Samples(sequences, [plain_logits(decoder, each) for each in sequences])
        exact = paged_error(decoder, samples, paged=paged)
    rounded(decoder)
    plain = max(
        largest((plain_logits(decoder, each) - right).abs())
        for each, right in zip(sequences, samples.logits, strict=True)
    )
    served = paged_error(decoder, samples, paged=paged)
    found = Errors(exact, served, plain / samples.scale, samples.scale)
    logger.info("%s", found)
    if not (found.exact <= EXACT_BOUND and found.served <= found.bound < math.inf):
        raise WrongResult(
            f"logits through the cache are off by {found.exact:.2e} of the largest in 32 bits,"
            f" where rounding explains {EXACT_BOUND:.0e}, and by {found.served:.2e} in"
            f" {decoder.dtype}, where it explains {found.bound:.2e}"
        )
    return found


def plain_logits(decoder: Decoder, tokens: Items[int]) -> torch.Tensor:
    """Return the logits after each token [S, V], by the pass without a cache, in its own type."""
    device = next(decoder.parameters()).device
    given = torch.tensor([tokens], dtype=torch.int64, device=device)
    # Not `inference_mode`: rotations are kept for the process, in which a training may be the next.
    with torch.no_grad():
        logits: torch.Tensor = decoder(given)[0].float()
    return logits


def paged_error(decoder: Decoder, samples: Samples, *, paged: bool) -> float:
    """Return how far logits through a cache are from the reference, as a share of the largest.

    All sequences at once: parts of different lengths at first, then token by token, as long as each
    lasts. Their pages are dealt out in turns, so that none has neighbouring ones.
    """
    rows = [Sequence(Request(prompt=each, max_tokens=1)) for each in samples.sequences]
    needed = [pages_for(len(each), PAGE_TOKENS) for each in samples.sequences]
    pages = Pages(sum(needed))
    for turn in range(max(needed)):
        for row, number in zip(rows, needed, strict=True):
            if turn < number:
                row.pages += pages.take(1) or ()
    network = Network(
        decoder,
        pages=pages.count,
        page_tokens=PAGE_TOKENS,
        max_length=pages.count * PAGE_TOKENS,
        paged=paged,
    )
    firsts = [1 + FIRST_PART * index // len(rows) for index in range(len(rows))]
    error = 0.0
    while parts := [
        Part(row, min(1 if row.cached else first, len(row.request.prompt) - row.cached))
        for row, first in zip(rows, firsts, strict=True)
        if not row.answering
    ]:
        logits = network.logits(rows_of(network, parts))
        for part, found in zip(parts, logits, strict=True):
            part.sequence.cached += part.count
            right = samples.logits[rows.index(part.sequence)][part.sequence.cached - 1]
            error = max(error, largest((found - right).abs()))
    return error / samples.scale


def largest(values: torch.Tensor) -> float:
    """Return the largest of all, infinite where one is no number: Python's `max` passes over it."""
    return float(values.max().nan_to_num(nan=torch.inf))


def rows_of(network: Network, parts: list[Part]) -> Rows:
    """Return a step's input on the network's device."""
    pages = pages_needed(parts, network.page_tokens)
    numbers, temperatures = packed(parts, pages=pages)
    return Rows(
        torch.from_numpy(numbers).to(network.device),
        torch.from_numpy(temperatures).to(network.device),
        pages,
    )


def check_answers(
    decoder: Decoder, planned: Items[Arrival], outcomes: Items[Outcome], errors: Errors
) -> dict[str, Scalar]:
    """Judge every token of some answers by the plain pass; return how many, and the worst.

    Raises:
        WrongResult: a token was not the likeliest, and rounding does not explain it.
    """
    pairs = [(a, o) for a, o in zip(planned, outcomes, strict=True) if o.answered][:MAX_ANSWERS]
    longest = max((len(a.prompt) + len(o.tokens) for a, o in pairs), default=0)
    checked, worst = 0, 0.0
    for arrival, outcome in pairs:
        regret = regrets(decoder, arrival.prompt, outcome.tokens, length=longest)
        checked += len(regret)
        worst = max(worst, largest(regret))
    if worst > errors.choice_bound:
        raise WrongResult(
            f"a caller got a token whose logit is {worst:.2e} below the largest by the plain pass,"
            f" where rounding explains {errors.choice_bound:.2e}"
        )
    return {"checked_tokens": checked, "token_error": worst, "token_bound": errors.choice_bound}


def regrets(
    decoder: Decoder, prompt: Items[int], answer: Items[int], *, length: int
) -> torch.Tensor:
    """Return by how much each token's logit is below the largest, by the plain pass.

    Sequences are padded at their end, which changes nothing before it: attention that makes a plan
    for each length makes one.
    """
    padding = [0] * (length - len(prompt) - len(answer))
    logits = plain_logits(decoder, [*prompt, *answer, *padding])
    at = slice(len(prompt) - 1, len(prompt) + len(answer) - 1)
    chosen = torch.tensor(answer, device=logits.device)
    return logits[at].max(1).values - logits[at].gather(1, chosen[:, None]).squeeze(1)
