# SPDX-License-Identifier: Apache-2.0
"""Attention over packed sequences by others: torch's, FlashAttention's, sequence by sequence."""

import importlib
import itertools
import logging
from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

from gpupack_workloads.attention.checks import Attention, Inputs

logger = logging.getLogger(__name__)

# What a library says of a problem that it does not take, or of names that another version has.
REFUSALS = (AttributeError, ImportError, RuntimeError, TypeError, ValueError)


class Packed:
    """Positions of packed sequences of these lengths.

    Attributes:
        offsets: positions of each sequence's first token, and of the end; int32 on the device.
    """

    def __init__(self, lengths: Sequence[int], device: torch.device) -> None:
        self.lengths, self.longest = tuple(lengths), max(lengths)
        ends = list(itertools.accumulate(lengths, initial=0))
        self.slices = [slice(*pair) for pair in itertools.pairwise(ends)]
        self.offsets = torch.tensor(ends, dtype=torch.int32, device=device)

    def by_sequence(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool
    ) -> torch.Tensor:
        """Compute by torch's attention, one call for each sequence."""
        parts = zip(*(x.transpose(0, 1).split(self.lengths, 1) for x in (q, k, v)), strict=True)
        shared = q.shape[1] != k.shape[1]
        attended = [
            scaled_dot_product_attention(
                *(x[None] for x in part), is_causal=causal, enable_gqa=shared
            )[0]
            for part in parts
        ]
        return torch.cat(attended, 1).transpose(0, 1)

    def by_varlen(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool
    ) -> torch.Tensor:
        """Compute by torch.nn.attention.varlen."""
        theirs: Any = importlib.import_module("torch.nn.attention.varlen")
        given: dict[str, Any] = {"enable_gqa": True} if q.shape[1] != k.shape[1] else {}
        o: torch.Tensor = theirs.varlen_attn(
            *(q, k, v, self.offsets, self.offsets, self.longest, self.longest),
            window_size=(-1, 0 if causal else -1),
            **given,
        )
        return o

    def by_flash(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool
    ) -> torch.Tensor:
        """Compute by FlashAttention, where it is installed."""
        theirs: Any = importlib.import_module("flash_attn")
        o: torch.Tensor = theirs.flash_attn_varlen_func(
            *(q, k, v, self.offsets, self.offsets, self.longest, self.longest), causal=causal
        )
        return o


class Flex:
    """torch's flex_attention, compiled, with a mask of tokens in the same sequence.

    The mask in blocks is made once, as a training would for all of its layers.
    """

    def __init__(self, packed: Packed, *, causal: bool) -> None:
        theirs: Any = importlib.import_module("torch.nn.attention.flex_attention")
        lengths = torch.tensor(packed.lengths, device=packed.offsets.device)
        owner = torch.arange(len(packed.lengths), device=lengths.device).repeat_interleave(lengths)

        def seen(_: Any, __: Any, row: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
            alike = owner[row] == owner[key]
            return alike & (row >= key) if causal else alike

        total = len(owner)
        self._mask = theirs.create_block_mask(seen, None, None, total, total, device=owner.device)
        self._attend = torch.compile(theirs.flex_attention, dynamic=False)

    def __call__(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool
    ) -> torch.Tensor:
        """Compute with the mask that was made."""
        del causal
        o: torch.Tensor = self._attend(
            *(x.transpose(0, 1)[None] for x in (q, k, v)),
            block_mask=self._mask,
            enable_gqa=q.shape[1] != k.shape[1],
        )
        return o[0].transpose(0, 1)


def packed_rivals(packed: Packed, inputs: Inputs, *, causal: bool) -> dict[str, Attention]:
    """Return the implementations that take this problem, forward and backward."""
    wanted: dict[str, Any] = {"sdpa": lambda: packed.by_sequence}
    if inputs.q.is_cuda:
        wanted |= {
            "varlen": lambda: packed.by_varlen,
            "flex": lambda: Flex(packed, causal=causal),
            "flash": lambda: packed.by_flash,
        }
    rivals: dict[str, Attention] = {}
    for name, make in wanted.items():
        try:
            rival: Attention = make()
            torch.autograd.grad(rival(*inputs.qkv, causal=causal), inputs.qkv, inputs.do)
        except REFUSALS as error:
            logger.warning("%s does not take this problem: %s", name, str(error).split("\n")[0])
        else:
            rivals[name] = rival
    return rivals
