# SPDX-License-Identifier: Apache-2.0
"""The problem to compute, checked once.

Contents of tables and lengths are on the GPU: reading them would make the host wait. Lengths are
held to what a table has room for; numbers of pages are taken as they are.
"""

from dataclasses import dataclass

import torch

from gpupack_kernels.errors import Unsupported
from gpupack_kernels.operators.attention.problem import (
    Heads,
    check_dimension,
    check_heads,
    check_kinds,
    scale_of,
)

INTEGERS = (torch.int32, torch.int64)


@dataclass(frozen=True, kw_only=True)
class PagedProblem(Heads):
    """Q is (rows, heads, dimension), K and V are (pages, page_tokens, kv_heads, dimension).

    Attributes:
        table_pages: how many pages a row's table names.
    """

    rows: int
    page_tokens: int
    table_pages: int


def problem_of(
    q: torch.Tensor,
    pages: tuple[torch.Tensor, torch.Tensor],
    table: torch.Tensor,
    lengths: torch.Tensor,
    *,
    scale: float | None,
) -> PagedProblem:
    """Return what is to be computed; the scale is one over the root of the dimension by default.

    Raises:
        Unsupported: shapes, types or devices do not fit, or the scale is infinite or no number.
    """
    k, v = pages
    check_kinds(q, k, v)
    shapes = f"q {tuple(q.shape)}, pages {tuple(k.shape)} and {tuple(v.shape)}"
    if (q.dim(), k.dim(), v.dim()) != (3, 4, 4):
        raise Unsupported(
            f"{shapes} are not (rows, heads, dimension) and twice (pages, tokens, heads, dimension)"
        )
    if k.shape != v.shape or q.shape[2] != k.shape[3]:
        raise Unsupported(f"{shapes} do not fit together")
    if 0 in k.shape:
        raise Unsupported(f"{shapes}: there are no pages, or they are empty")
    check_heads(q.shape[1], k.shape[2])
    check_dimension(q.shape[2])
    _check_tables(q, table, lengths)
    return PagedProblem(
        rows=q.shape[0],
        heads=q.shape[1],
        kv_heads=k.shape[2],
        page_tokens=k.shape[1],
        table_pages=table.shape[1],
        dimension=q.shape[2],
        causal=False,
        scale=scale_of(scale, q.shape[2]),
    )


def _check_tables(q: torch.Tensor, table: torch.Tensor, lengths: torch.Tensor) -> None:
    if (table.dim(), lengths.dim()) != (2, 1) or not (
        q.shape[0] == table.shape[0] == lengths.shape[0]
    ):
        raise Unsupported(
            f"a table {tuple(table.shape)} and lengths {tuple(lengths.shape)} are not one row of"
            f" pages and one number for each of {q.shape[0]} rows"
        )
    for each in (table, lengths):
        if each.dtype not in INTEGERS:
            raise Unsupported(f"a table or lengths of {each.dtype} are not of one of {INTEGERS}")
        if each.device != q.device:
            raise Unsupported(f"a table or lengths are on {each.device}, and q on {q.device}")
