# SPDX-License-Identifier: Apache-2.0
"""Common code of the Hopper kernels: barriers, and tiles that tensor descriptors copy.

A descriptor's tile is (1, 1, rows, D) of (batch, head, length, D): rows beyond the end read as zero
and are left out when they are written, so ragged lengths need no code.
"""

from triton._C.libtriton import ir
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language._core import builtin
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma

# Copies have these names in Triton 3.9, or those in 3.6.
copy_in = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared
copy_out = getattr(tma, "async_store", None) or tma.async_copy_shared_to_global


@builtin
def _add_out(tensor_desc, coord, src, _semantic=None):
    """Add a tile to memory; Triton 3.6 can do it, but has no name for it."""
    place = _semantic._convert_to_ir_values(coord, require_i64=False)  # noqa: SLF001
    kind = ir.DESCRIPTOR_REDUCE_KIND.ADD
    _semantic.builder.create_async_tma_reduce(kind, tensor_desc.handle, place, src.handle)


add_out = getattr(tma, "async_atomic_add", None) or _add_out


@gluon.jit
def keep(value):
    """Use registers without an instruction, so that none is reused while a product still reads it.

    The compiler would otherwise see a hazard, and wait for each product before the next is issued.
    """
    return gl.inline_asm_elementwise("", "=r,0", [value], dtype=value.dtype, is_pure=False, pack=2)


@gluon.jit
def place_of(program, tiles, owners, together):
    """Return a program's owner, and which of its tiles it computes, where tile 0 is the longest.

    Programs start in their order: the longest tiles of so many owners at a time first, then those
    after them; the last owners, of which fewer are left over, are taken along by those before.
    """
    last = owners // together - 1
    group = gl.minimum(program // (tiles * together), last)
    first = group * together
    members = gl.where(group == last, owners - first, together)
    turn = program - first * tiles
    return first + turn % members, turn // members


@gluon.jit
def allocate_barriers(COUNT: gl.constexpr, ARRIVALS: gl.constexpr):
    """Return COUNT barriers, each complete after ARRIVALS."""
    barriers = gl.allocate_shared_memory(gl.int64, [COUNT, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(COUNT):
        mbarrier.init(barriers.index(i), count=ARRIVALS)
    return barriers


@gluon.jit
def load_tile(desc, batch, head, row, tile, ready):
    """Copy one tile, and complete a barrier when it is there."""
    mbarrier.expect(ready, desc.block_type.nbytes)
    copy_in(desc, [batch, head, row, 0], ready, tile)


@gluon.jit
def store_tile(desc, batch, head, row, tile, value):
    """Start to copy one tile out; rows beyond the end are left out."""
    tile.reshape(value.shape).store(value.to(desc.dtype))
    fence_async_shared()
    copy_out(desc, [batch, head, row, 0], tile)
