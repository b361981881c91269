# SPDX-License-Identifier: Apache-2.0
"""What the command line asks of `matmul-multi`."""

from dataclasses import dataclass

from gpupack_workloads.settings import Options

LAYOUTS = ("rows", "grid", "split-k", "split-k-all-reduce")
CHUNKS = (1, 2, 4, 8)
WIDTHS = (32768,)


@dataclass(frozen=True, kw_only=True)
class MatmulMultiOptions(Options):
    """Options of `matmul-multi`; `size` is rows and columns of every matrix.

    Attributes:
        layouts: ways to cut the product, of LAYOUTS.
        chunks: into how many pieces a travelling block is cut; each is tried, the fastest is kept.
        widths: how many columns of C one product computes; likewise.
    """

    layouts: tuple[str, ...] = LAYOUTS
    chunks: tuple[int, ...] = CHUNKS
    widths: tuple[int, ...] = WIDTHS
