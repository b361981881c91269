# SPDX-License-Identifier: Apache-2.0
"""One step of the decoder, with keys and values of earlier tokens kept in pages.

A row is a part of one sequence: its next tokens, from one to many. Its keys and values are written
into the sequence's pages; attention is torch's, over the pages gathered in order, where each token
sees the positions up to its own. A network that is `paged` gathers nothing for steps of one token:
our kernel reads the pages in place. Rows of different lengths are padded; what padding
computes is written to the spare page, and is not read.

Shape legend: B rows, C tokens of the longest row, P pages of the longest table, L = P x page
positions, W width, H heads, G key heads, R = H / G, D numbers per head, V vocabulary.
"""

from collections.abc import Sequence as Items
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from gpupack_kernels.loading import load
from gpupack_workloads.inference_server.batch import Part
from gpupack_workloads.inference_server.pages import SPARE, pages_for
from gpupack_workloads.inference_server.sampling import next_tokens
from gpupack_workloads.transformer.model import Attention, Decoder
from gpupack_workloads.transformer.operations import rotation

Numbers = npt.NDArray[np.int64]
Temperatures = npt.NDArray[np.float32]

# Of each row: the first token's position, how many tokens, the seed; then its table, then tokens.
START, COUNT, SEED, TABLE = range(4)
# cuDNN's makes a plan for each new shape, and each step may be one; Flash takes no mask.
BACKENDS = [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


@dataclass(frozen=True)
class Rows:
    """Input of a step.

    Attributes:
        numbers: int64 [B, 3 + P + C]: position of the first token, number of tokens, seed, table of
            pages, tokens; a row whose number of tokens is 0 is padding.
        temperatures: float32 [B].
        pages: P.
    """

    numbers: torch.Tensor
    temperatures: torch.Tensor
    pages: int


class Network:
    """A decoder with its cache.

    Args:
        decoder: its products' weights are of `dtype` (see `rounded`).
        pages: number of pages of the cache, besides the spare one.
        page_tokens: positions of a page.
        max_length: tokens of a sequence at most.
        paged: whether steps of one token read pages in place, by our kernel.
    """

    def __init__(
        self, decoder: Decoder, *, pages: int, page_tokens: int, max_length: int, paged: bool
    ) -> None:
        if decoder.embedding is None or decoder.norm is None or decoder.head is None:
            raise TypeError("a pipeline's stage cannot be served")
        blocks = list(decoder.blocks.values())
        first: Attention = blocks[0].attention
        self.embedding = decoder.embedding.weight
        self.blocks, self.norm, self.head = blocks, decoder.norm, decoder.head
        self.dtype, self.device = decoder.dtype, first.query.weight.device
        self.page_tokens = page_tokens
        self.max_pages = pages_for(max_length, page_tokens)
        self.head_width = first.head_width
        self.kv_heads = first.key.weight.shape[0] // first.head_width
        self.cosine, self.sine = rotation(max_length, self.head_width, self.dtype, self.device)
        self._decode = (
            load("paged_decode_attention.ops", "paged_decode_attention") if paged else None
        )
        size = ((pages + 1) * page_tokens, self.kv_heads, self.head_width)
        # Zeros: a masked position counts nothing, but nothing times NaN is NaN.
        self.keys, self.values = (
            [torch.zeros(size, dtype=self.dtype, device=self.device) for _ in blocks]
            for _ in range(2)
        )

    def padding(self, rows: int, pages: int) -> Rows:
        """Return a step of one token without a request: it writes to the spare page."""
        shape = (rows, TABLE + pages + 1)
        numbers = torch.zeros(shape, dtype=torch.int64, device=self.device)
        return Rows(numbers, torch.zeros(rows, device=self.device), pages)

    def tokens(self, rows: Rows) -> torch.Tensor:
        """Compute a step; return the token that follows each row [B].

        It is a token of the answer only where the row ends its sequence so far.
        """
        numbers = rows.numbers
        with torch.inference_mode():
            return next_tokens(
                self.logits(rows),
                rows.temperatures,
                numbers[:, SEED],
                numbers[:, START] + numbers[:, COUNT],
            )

    def logits(self, rows: Rows) -> torch.Tensor:
        """Compute a step; return logits of what follows each row, [B, V] in 32 bits."""
        with torch.inference_mode(), sdpa_kernel(BACKENDS):
            return self._logits(rows)

    def _logits(self, rows: Rows) -> torch.Tensor:
        numbers, pages = rows.numbers, rows.pages
        tables = numbers[:, TABLE : TABLE + pages]
        tokens = numbers[:, TABLE + pages :]
        starts, counts = numbers[:, START], numbers[:, COUNT]
        place = Place(self, tables, starts, counts, tokens.shape[1])
        x = functional.embedding(tokens, self.embedding).to(self.dtype)
        for layer, block in enumerate(self.blocks):
            x = x + self._attention(block.attention, layer, block.attention_norm(x), place)
            x = x + block.inner(block.inner_norm(x))
        last = (counts - 1).clamp(min=0)[:, None, None].expand(-1, 1, x.shape[2])
        x = self.norm(x.gather(1, last))
        logits: torch.Tensor = self.head(x).squeeze(1).float()
        return logits

    def _attention(
        self, attention: Attention, layer: int, x: torch.Tensor, place: "Place"
    ) -> torch.Tensor:
        q, k, v = (
            attention.heads(part(x)) for part in (attention.query, attention.key, attention.value)
        )
        q, k = attention.operations.pointwise.rotate(q, k, place.cosine, place.sine)
        keys, values = self.keys[layer], self.values[layer]
        keys[place.written] = k.transpose(1, 2).flatten(0, 1)
        values[place.written] = v.transpose(1, 2).flatten(0, 1)
        if self._decode is not None and q.shape[2] == 1:
            paged = (each.unflatten(0, (-1, self.page_tokens)) for each in (keys, values))
            taken = self._decode(q[:, :, 0], *paged, place.tables, place.lengths)[:, :, None]
        else:
            taken = self._gathered(q, keys, values, place)
        whole: torch.Tensor = attention.output(taken.transpose(1, 2).flatten(2))
        return whole

    def _gathered(
        self, q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, place: "Place"
    ) -> torch.Tensor:
        """Attend to positions that are copied into order first; return [B, H, C, D]."""
        rows, heads, count, width = q.shape
        # The heads that share a key head are rows of one problem, so that keys are not repeated.
        taken = functional.scaled_dot_product_attention(
            q.reshape(rows, self.kv_heads, -1, width),
            keys[place.read].transpose(1, 2),
            values[place.read].transpose(1, 2),
            attn_mask=place.mask,
        )
        return taken.reshape(rows, heads, count, width)


class Place:
    """Positions of a step's rows in the cache; the same for all layers.

    Attributes:
        tables: pages of each row [B, P].
        lengths: number of positions that the last token of each row sees [B]; 0 for padding.
        written: position of each token's key and value [B C].
        cosine: cosine of each token's rotation, [B, 1, C, D / 2].
        sine: sine of it.
    """

    def __init__(
        self,
        network: Network,
        tables: torch.Tensor,
        starts: torch.Tensor,
        counts: torch.Tensor,
        longest: int,
    ) -> None:
        self._network, self.tables, self.lengths = network, tables, starts + counts
        page = network.page_tokens
        within = torch.arange(longest, device=tables.device)
        real = within < counts[:, None]
        # Not by `where` with a number: it comes from the host, and no graph can copy from there.
        self._positions = positions = (starts[:, None] + within).masked_fill(~real, 0)
        into = tables.gather(1, positions // page).masked_fill(~real, SPARE)
        self.written = (into * page + positions % page).flatten()
        self.cosine, self.sine = (
            table[positions][:, None] for table in (network.cosine, network.sine)
        )

    @cached_property
    def read(self) -> torch.Tensor:
        """Cache positions of each row [B, L]."""
        page = self._network.page_tokens
        slots = torch.arange(page, device=self.tables.device)
        return (self.tables[:, :, None] * page + slots).flatten(1)

    @cached_property
    def mask(self) -> torch.Tensor:
        """Return what each token sees, [B, 1, R C, L]."""
        network, positions = self._network, self._positions
        every = self.tables.shape[1] * network.page_tokens
        all_positions = torch.arange(every, device=positions.device)
        seen = (all_positions <= positions[:, :, None])[:, None]
        heads = network.blocks[0].attention.query.weight.shape[0] // network.head_width
        shared = heads // network.kv_heads
        return seen.expand(-1, shared, -1, -1).flatten(1, 2)[:, None]


def packed(
    parts: Items[Part], *, pages: int, rows: int | None = None
) -> tuple[Numbers, Temperatures]:
    """Return the numbers and temperatures of `Rows`, on the host.

    Args:
        parts: at least one.
        pages: P, as many as the longest part needs.
        rows: B; more than there are parts are padding.
    """
    longest = max(part.count for part in parts)
    rows = len(parts) if rows is None else rows
    numbers = np.zeros((rows, TABLE + pages + longest), np.int64)
    temperatures = np.zeros(rows, np.float32)
    for row, part in enumerate(parts):
        sequence, request = part.sequence, part.sequence.request
        table = sequence.pages[:pages]
        numbers[row, :TABLE] = sequence.cached, part.count, request.seed
        numbers[row, TABLE : TABLE + len(table)] = table
        first = TABLE + pages
        numbers[row, first : first + part.count] = sequence.tokens(part.count)
        temperatures[row] = request.temperature
    return numbers, temperatures


def pages_needed(parts: Items[Part], page_tokens: int) -> int:
    """Return the largest number of pages that a part of a step reads."""
    return max(pages_for(part.sequence.cached + part.count, page_tokens) for part in parts)


def rounded(decoder: Decoder) -> Decoder:
    """Give products and embedding weights of the type that is computed in; scales stay 32 bits."""
    for parameter in decoder.parameters():
        parameter.requires_grad_(requires_grad=False)
        if parameter.dim() > 1:
            parameter.data = parameter.data.to(decoder.dtype)
    return decoder
