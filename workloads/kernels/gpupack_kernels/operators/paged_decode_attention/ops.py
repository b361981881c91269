# SPDX-License-Identifier: Apache-2.0
"""Attention over pages as torch calls it: an operator, which has no gradient."""

import torch

from gpupack_kernels.casts import as_product
from gpupack_kernels.devices import device_of
from gpupack_kernels.errors import Unsupported
from gpupack_kernels.operators.attention.problem import aligned
from gpupack_kernels.operators.paged_decode_attention import launch
from gpupack_kernels.operators.paged_decode_attention.problem import problem_of


def paged_decode_attention(  # noqa: PLR0913  each table by its name
    q: torch.Tensor,
    k_pages: torch.Tensor,
    v_pages: torch.Tensor,
    page_table: torch.Tensor,
    lengths: torch.Tensor,
    *,
    scale: float | None = None,
    parts: int | None = None,
) -> torch.Tensor:
    """Return softmax(Q K' scale) V of one token of each sequence, (rows, heads, dimension).

    Position i of a row is token i % page_tokens of page i // page_tokens of its table; its own key
    and value are there already. A row of length 0 gives zeros. There is no gradient. Under
    torch.autocast q is cast first, and so are pages of another type: better keep them in that one.

    Args:
        q: (rows, heads, dimension), the dimension a multiple of 16 up to 256.
        k_pages: (pages, page_tokens, key heads, dimension); key heads divide heads.
        v_pages: as k_pages.
        page_table: (rows, pages of the longest row), int32 or int64; what is beyond a row's length
            is not looked at.
        lengths: (rows), int32 or int64: positions that the token sees. More than the table has room
            for count as that.
        scale: scale of the scores; one over the root of the dimension unless given.
        parts: into how many a sequence is cut; what fills the GPU unless given.

    Raises:
        Unsupported: shapes, types or devices do not fit, or the GPU has too little shared memory.
    """
    q, k_pages, v_pages = as_product(q, k_pages, v_pages)
    problem = problem_of(q, (k_pages, v_pages), page_table, lengths, scale=scale)
    if parts is not None and not 1 <= parts <= launch.MAX_PARTS:
        raise Unsupported(f"{parts} parts are not 1 to {launch.MAX_PARTS}")
    o: torch.Tensor = _decode(q, k_pages, v_pages, [page_table, lengths], problem.scale, parts or 0)
    return o


@torch.library.custom_op("gpupack::paged_decode_attention", mutates_args=())
def _decode(
    q: torch.Tensor,
    k_pages: torch.Tensor,
    v_pages: torch.Tensor,
    tables: list[torch.Tensor],
    scale: float,
    parts: int,
) -> torch.Tensor:
    page_table, lengths = tables
    problem = problem_of(q, (k_pages, v_pages), page_table, lengths, scale=scale)
    table = page_table if page_table.stride(1) == 1 else page_table.contiguous()
    with device_of(q):
        return launch.decode(
            aligned(q),
            (aligned(k_pages), aligned(v_pages)),
            table,
            lengths,
            problem,
            parts=parts or None,
        )


@_decode.register_fake
def _(
    q: torch.Tensor,
    k_pages: torch.Tensor,
    v_pages: torch.Tensor,
    tables: list[torch.Tensor],
    scale: float,
    parts: int,  # noqa: ARG001
) -> torch.Tensor:
    problem_of(q, (k_pages, v_pages), *tables, scale=scale)
    return q.new_empty(q.shape)
