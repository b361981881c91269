# SPDX-License-Identifier: Apache-2.0
"""Options of `attention`."""

from dataclasses import dataclass

from gpupack_workloads.errors import BadArgument
from gpupack_workloads.settings import Options

DENSE, VARLEN, PAGED = LAYOUTS = ("dense", "varlen", "paged")
"""All of one length; of several, packed; one token each over keys and values in pages."""
DIMENSIONS = (64, 96, 128, 192, 256)


@dataclass(frozen=True, kw_only=True)
class AttentionOptions(Options):
    """Shape of the timed problem; `size` is its length, or that of its longest sequence.

    Attributes:
        layout: memory layout of the sequences, one of LAYOUTS.
        batch: how many problems at once, or sequences; None takes what suits layout and device.
        heads: number of heads of the queries; None takes what suits the device.
        kv_heads: number of heads of keys and values; must divide heads. None takes as many.
        dimension: dimension of a head; None takes what suits the device.
        dtype: bfloat16 or float16; without a GPU everything is float32.
        page_tokens: positions of a page.
    """

    layout: str = DENSE
    batch: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    dimension: int | None = None
    dtype: str = "bfloat16"
    page_tokens: int = 16

    def __post_init__(self) -> None:
        """Refuse heads that cannot be shared evenly."""
        if self.heads and self.heads % (self.kv_heads or self.heads):
            raise BadArgument(f"{self.heads} heads cannot share {self.kv_heads} key heads evenly")
