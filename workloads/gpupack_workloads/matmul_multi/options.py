# SPDX-License-Identifier: Apache-2.0
"""Options of `matmul-multi`."""

from dataclasses import dataclass

from gpupack_workloads.settings import Options

LAYOUTS = ("rows", "grid", "split-k", "split-k-all-reduce")
# On H200s products of 1024 columns or whole ones are the fastest, on one GPU too; which of them
# changes from run to run (docs/reports/tuning/matmul-multi.md has 512 to whole). Two chunks are
# between one and four.
CHUNKS = (1, 4)
WIDTHS = (1024, 32768)


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
