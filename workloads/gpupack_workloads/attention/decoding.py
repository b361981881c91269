# SPDX-License-Identifier: Apache-2.0
"""Attention of one token over pages by others: torch's over copies, torch's and FlashAttention's.

Shape legend: B rows, P pages of the longest, L = P x page positions, H heads, G key heads, D
numbers of a head.
"""

import importlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from gpupack_workloads.attention.lengths import RaggedPlan
from gpupack_workloads.attention.packed import REFUSALS

logger = logging.getLogger(__name__)

Work = Callable[[], torch.Tensor]

# As the inference server has it: cuDNN's makes a plan for each new shape; Flash takes no mask.
BACKENDS = [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


@dataclass(frozen=True, kw_only=True)
class Pages:
    """A token of each row, and the pages with the keys and values that it sees.

    Attributes:
        q: [B, H, D].
        k: [pages, page, G, D]; v as well.
        table: int32 [B, P].
        lengths: int32 [B].
    """

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    table: torch.Tensor
    lengths: torch.Tensor

    @property
    def given(self) -> tuple[torch.Tensor, ...]:
        """What our function takes."""
        return self.q, self.k, self.v, self.table, self.lengths

    def row(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return keys and values of a row in order, [length, G, D]."""
        length = int(self.lengths[number])
        k, v = (x[self.table[number].long()].flatten(0, 1)[:length] for x in (self.k, self.v))
        return k, v

    def gathered(self) -> torch.Tensor:
        """Compute by torch's attention over copies of the pages, as the server does otherwise."""
        k, v = (x[self.table].flatten(1, 2).transpose(1, 2) for x in (self.k, self.v))
        positions = torch.arange(k.shape[2], device=k.device)
        mask = (positions < self.lengths[:, None])[:, None, None]
        rows, heads, width = self.q.shape
        with sdpa_kernel(BACKENDS):
            o = scaled_dot_product_attention(
                self.q.view(rows, k.shape[1], -1, width),
                k,
                v,
                attn_mask=mask.expand(-1, 1, heads // k.shape[1], -1),
            )
        return o.reshape(rows, heads, width)

    def by_varlen(self) -> torch.Tensor:
        """Compute by torch.nn.attention.varlen, which takes pages from torch 2.15 on."""
        theirs: Any = importlib.import_module("torch.nn.attention.varlen")
        rows = torch.arange(len(self.q) + 1, dtype=torch.int32, device=self.q.device)
        o: torch.Tensor = theirs.varlen_attn(
            *(self.q, self.k, self.v, rows, None, 1, self.table.shape[1] * self.k.shape[1]),
            enable_gqa=self.q.shape[1] != self.k.shape[2],
            seqused_k=self.lengths,
            block_table=self.table,
        )
        return o

    def by_flash(self) -> torch.Tensor:
        """Compute by FlashAttention, where it is installed; version 2 takes pages of 256 n."""
        theirs: Any = importlib.import_module("flash_attn")
        o: torch.Tensor = theirs.flash_attn_with_kvcache(
            self.q[:, None], self.k, self.v, cache_seqlens=self.lengths, block_table=self.table
        )
        return o[:, 0]


def random_pages(plan: RaggedPlan, device: torch.device, *, seed: int) -> Pages:
    """Return normal numbers, in pages that are dealt out at random."""
    chance = torch.Generator(device).manual_seed(seed)
    needed = [-(-length // plan.page_tokens) for length in plan.lengths]
    pages, widest = sum(needed), max(needed)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=chance, device=device).to(plan.dtype)

    order = torch.randperm(pages, generator=chance, device=device).int()
    table = torch.zeros((len(needed), widest), dtype=torch.int32, device=device)
    for row, mine in enumerate(order.split(needed)):
        table[row, : len(mine)] = mine
    shape = (pages, plan.page_tokens, plan.kv_heads, plan.dimension)
    return Pages(
        q=draw(len(plan.lengths), plan.heads, plan.dimension),
        k=draw(*shape),
        v=draw(*shape),
        table=table,
        lengths=torch.tensor(plan.lengths, dtype=torch.int32, device=device),
    )


def decoding_rivals(pages: Pages) -> dict[str, Work]:
    """Return the implementations that take this problem."""
    wanted: dict[str, Work] = {"gathered": pages.gathered}
    if pages.q.is_cuda:
        wanted |= {"varlen": pages.by_varlen, "flash": pages.by_flash}
    rivals: dict[str, Work] = {}
    for name, rival in wanted.items():
        try:
            rival()
        except REFUSALS as error:
            logger.warning("%s does not take this problem: %s", name, str(error).split("\n")[0])
        else:
            rivals[name] = rival
    return rivals
