# SPDX-License-Identifier: Apache-2.0
"""The GEMM kernel for Hopper: one program per multiprocessor, its warps specialised.

One warp loads: the copy engine fetches tiles of A and B for it by tensor maps, as far ahead as
there are stages. Two groups of four warps multiply: each has one half of the rows of a tile of C in
its registers and reads the same tile of B. Since no warp waits for the loading warp except at its
barriers, it fetches the next tile of C's operands while this one is rounded and stored.

`ready[s]` says that stage s has arrived, `empty[s]` that both groups have read it. Programs take
tiles in turns, in groups of GROUP_M rows of tiles, so that those under way at the same time share
rows of A and columns of B in the L2 cache. Tensor maps fill with zeros what is beyond an edge.

Programs start while the kernel before on the stream still runs on other multiprocessors, and wait
for its end before they load. Nothing else needs to wait: what is stored comes of what was loaded.

Operands stored the other way round come as maps of their transposes (A_TURNED, B_TURNED): wgmma
reads 16-bit operands either way.

C may be the sum of up to three products. Their operands follow one another through the same stages,
so that the groups that multiply need to know only how many steps there are.

Where there are fewer tiles than multiprocessors K is cut into SPLITS parts, and C has as many sums
one below the other, which `sum_kernel` adds up.

Written in Gluon, Triton's lower level: Triton's own specialisation of warps fails to compile for
two groups here, and without it the epilogue leaves the tensor cores idle.

Shape suffixes: M rows, N columns, K the summed dimension.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

# Looks at a flag: seconds.
MAX_POLLS: gl.constexpr = gl.constexpr(2**24)

# Their names until Triton 3.6, and since.
load_tile = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared
store_tile = getattr(tma, "async_store", None) or tma.async_copy_shared_to_global


@gluon.jit
def place(tile, tiles_m, tiles_n, arriving, GROUP_M: gl.constexpr):
    """Return row and column of a tile of C: down first within a group, then right.

    Where A still arrives rows begin with those that are there, and go round.
    """
    in_group = GROUP_M * tiles_n
    first_m = tile // in_group * GROUP_M
    rows = min(tiles_m - first_m, GROUP_M)
    within = tile % in_group
    tile_m = first_m + within % rows
    if arriving[0] is not None:
        tile_m = (tile_m + arriving[1]) % tiles_m
    return tile_m, within // rows


@gluon.jit
def await_rows(arriving, first, end):
    """Wait until the parts of A with these rows have arrived.

    The copies that bring them write a flag behind them; what the copy engine here reads after the
    fence is what they have brought. A flag that does not come ends the wait, with a wrong result:
    a broken link must not leave a kernel that runs for ever.
    """
    flags, _, part_rows = arriving
    part = first // part_rows
    while part <= (end - 1) // part_rows:
        polls = 0
        here = look(flags + part)
        while (here == 0) & (polls < MAX_POLLS):
            here = look(flags + part)
            polls += 1
        part += 1


@gluon.jit
def look(flag):
    """Return a flag, before anything that is read after it."""
    return gl.inline_asm_elementwise(
        "ld.acquire.sys.global.b32 $0, [$1]; fence.proxy.async.global;",
        "=r,l",
        [flag],
        dtype=gl.int32,
        is_pure=False,
        pack=1,
    )


@gluon.jit
def part_of(tile, tiles, K, TILE_K: gl.constexpr, SPLITS: gl.constexpr):
    """Return which part of K a tile is of, and where that begins and ends."""
    if SPLITS == 1:
        return 0, 0, K
    split = tile // tiles
    length = gl.cdiv(gl.cdiv(K, TILE_K), SPLITS) * TILE_K
    return split, split * length, gl.minimum(K, (split + 1) * length)


@gluon.jit
def fetch(
    a_map,
    b_map,
    start,
    end,
    places,
    corner,
    turn,
    STAGES: gl.constexpr,
    A_TURNED: gl.constexpr,
    B_TURNED: gl.constexpr,
):
    """Fetch what a tile of C takes of one A and B; return the stage and phase that come next."""
    buffers, barriers = places
    a_tiles, b_tiles, _ = buffers
    ready, empty = barriers
    upper, left = corner
    stage, phase = turn
    HALF_M: gl.constexpr = a_map.block_type.shape[1 if A_TURNED else 0]
    TILE_K: gl.constexpr = a_map.block_type.shape[0 if A_TURNED else 1]
    lower = upper + HALF_M
    for k in range(start, end, TILE_K):
        mbarrier.wait(empty.index(stage), phase ^ 1)
        arrival = ready.index(stage)
        mbarrier.expect(arrival, 2 * a_map.block_type.nbytes + b_map.block_type.nbytes)
        if A_TURNED:
            load_tile(a_map, [k, upper], arrival, a_tiles.index(2 * stage))
            load_tile(a_map, [k, lower], arrival, a_tiles.index(2 * stage + 1))
        else:
            load_tile(a_map, [upper, k], arrival, a_tiles.index(2 * stage))
            load_tile(a_map, [lower, k], arrival, a_tiles.index(2 * stage + 1))
        if B_TURNED:
            load_tile(b_map, [left, k], arrival, b_tiles.index(stage))
        else:
            load_tile(b_map, [k, left], arrival, b_tiles.index(stage))
        stage += 1
        if stage == STAGES:
            stage = 0
            phase ^= 1
    return stage, phase


@gluon.jit
def load(
    shared,
    sizes,
    GROUP_M: gl.constexpr,
    STAGES: gl.constexpr,
    A_TURNED: gl.constexpr,
    B_TURNED: gl.constexpr,
    SPLITS: gl.constexpr,
):
    """Fetch the tiles of A and B in the order in which they are multiplied."""
    maps, buffers, barriers = shared
    a_map, b_map, _, others = maps
    second_a_map, second_b_map, second_K, third_a_map, third_b_map, third_K = others
    places = (buffers, barriers)
    tiles_m, tiles_n, K, M, arriving = sizes
    HALF_M: gl.constexpr = a_map.block_type.shape[1 if A_TURNED else 0]
    TILE_K: gl.constexpr = a_map.block_type.shape[0 if A_TURNED else 1]
    TILE_N: gl.constexpr = b_map.block_type.shape[0 if B_TURNED else 1]
    stage = 0
    phase = 0
    gdc_wait()
    for tile in range(gl.program_id(0), tiles_m * tiles_n * SPLITS, gl.num_programs(0)):
        part = part_of(tile, tiles_m * tiles_n, K, TILE_K, SPLITS)
        tile_m, tile_n = place(tile % (tiles_m * tiles_n), tiles_m, tiles_n, arriving, GROUP_M)
        upper = tile_m * 2 * HALF_M
        corner = (upper, tile_n * TILE_N)
        if arriving[0] is not None:
            await_rows(arriving, upper, min(upper + 2 * HALF_M, M))
        turn = (stage, phase)
        turn = fetch(
            a_map, b_map, part[1], part[2], places, corner, turn, STAGES, A_TURNED, B_TURNED
        )
        if second_a_map is not None:
            a, b = second_a_map, second_b_map
            turn = fetch(a, b, 0, second_K, places, corner, turn, STAGES, A_TURNED, B_TURNED)
        if third_a_map is not None:
            a, b = third_a_map, third_b_map
            turn = fetch(a, b, 0, third_K, places, corner, turn, STAGES, A_TURNED, B_TURNED)
        stage, phase = turn
    gdc_launch_dependents()


@gluon.jit
def halve(values):
    """Return the left and the right half of the columns; no value changes its thread."""
    ROWS: gl.constexpr = values.shape[0]
    HALF_N: gl.constexpr = values.shape[1] // 2
    left, right = values.reshape((ROWS, 2, HALF_N)).permute((0, 2, 1)).split()
    return left, right


@gluon.jit
def put(c_map, output, c_tile, values, row, column, UNDER_WAY: gl.constexpr):
    """Store part of a tile of C by its map, or element by element where rows are not aligned.

    The copy engine may still be reading as many earlier parts as are UNDER_WAY, from other memory.
    """
    c_ptr, M, N, stride_cm = output
    tma.store_wait(UNDER_WAY)
    c_tile.store(values.to(c_tile.dtype))
    if c_ptr is None:
        fence_async_shared()
        store_tile(c_map, [row, column], c_tile)
    else:
        ROWS: gl.constexpr = c_tile.shape[0]
        COLUMNS: gl.constexpr = c_tile.shape[1]
        # Neighbouring lanes write neighbouring elements, however odd the address of a row.
        by_rows: gl.constexpr = gl.BlockedLayout([1, 1], [1, 32], [4, 1], [1, 0])
        rows_M = row + gl.arange(0, ROWS, layout=gl.SliceLayout(1, by_rows))
        columns_N = column + gl.arange(0, COLUMNS, layout=gl.SliceLayout(0, by_rows))
        c_MN = c_ptr + rows_M.to(gl.int64)[:, None] * stride_cm + columns_N[None, :]
        inside = (rows_M < M)[:, None] & (columns_N < N)[None, :]
        gl.store(c_MN, c_tile.load(by_rows), mask=inside)


@gluon.jit
def multiply(
    shared,
    sizes,
    output,
    GROUP_M: gl.constexpr,
    STAGES: gl.constexpr,
    PARTS: gl.constexpr,
    A_TURNED: gl.constexpr,
    B_TURNED: gl.constexpr,
    SPLITS: gl.constexpr,
    HALF: gl.constexpr,
):
    """Compute one half of every tile of C of this program."""
    maps, buffers, barriers = shared
    a_map, b_map, c_map, others = maps
    _, _, second_K, _, _, third_K = others
    a_tiles, b_tiles, c_tiles = buffers
    ready, empty = barriers
    tiles_m, tiles_n, K, _, arriving = sizes
    HALF_M: gl.constexpr = a_map.block_type.shape[1 if A_TURNED else 0]
    TILE_K: gl.constexpr = a_map.block_type.shape[0 if A_TURNED else 1]
    TILE_N: gl.constexpr = b_map.block_type.shape[0 if B_TURNED else 1]
    layout: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0],
        warps_per_cta=[4, 1],
        instr_shape=[16, TILE_N, 256 // a_map.dtype.primitive_bitwidth],
    )
    c_tile = c_tiles.index(HALF)
    further_steps = gl.cdiv(second_K, TILE_K) + gl.cdiv(third_K, TILE_K)
    # Cleared once: the first product of a tile overwrites what the tile before has left.
    sum_MN = gl.zeros((HALF_M, TILE_N), dtype=gl.float32, layout=layout)
    stage = 0
    phase = 0
    for tile in range(gl.program_id(0), tiles_m * tiles_n * SPLITS, gl.num_programs(0)):
        split, start, end = part_of(tile, tiles_m * tiles_n, K, TILE_K, SPLITS)
        for step in range(gl.cdiv(end - start, TILE_K) + further_steps):
            mbarrier.wait(ready.index(stage), phase)
            a = a_tiles.index(2 * stage + HALF)
            b = b_tiles.index(stage)
            if A_TURNED:
                a = a.permute((1, 0))
            if B_TURNED:
                b = b.permute((1, 0))
            sum_MN = warpgroup_mma(a, b, sum_MN, is_async=True, use_acc=step > 0)
            # One product stays under way; the one before it has ended, and its stage is free.
            sum_MN = warpgroup_mma_wait(1, deps=(sum_MN,))
            # Not a variable that follows `stage`: Triton takes the two for one value in a loop.
            mbarrier.arrive(empty.index((stage + STAGES - 1) % STAGES), count=1, pred=step > 0)
            stage += 1
            if stage == STAGES:
                stage = 0
                phase ^= 1
        # Divisions, while the last products go on.
        tile_m, tile_n = place(tile % (tiles_m * tiles_n), tiles_m, tiles_n, arriving, GROUP_M)
        sum_MN = warpgroup_mma_wait(0, deps=(sum_MN,))
        mbarrier.arrive(empty.index((stage + STAGES - 1) % STAGES), count=1)
        row = ((split * tiles_m + tile_m) * 2 + HALF) * HALF_M
        column = tile_n * TILE_N
        # A part goes while the next is being rounded, in turns from two pieces of memory.
        other_tile = c_tiles.index(HALF + 2 if PARTS > 1 else HALF)
        if PARTS == 1:
            put(c_map, output, c_tile, sum_MN, row, column, 0)
        elif PARTS == 2:  # noqa: PLR2004  halves, and else quarters
            left, right = halve(sum_MN)
            put(c_map, output, c_tile, left, row, column, 1)
            put(c_map, output, other_tile, right, row, column + TILE_N // 2, 1)
        else:
            left, right = halve(sum_MN)
            first, second = halve(left)
            third, fourth = halve(right)
            put(c_map, output, c_tile, first, row, column, 1)
            put(c_map, output, other_tile, second, row, column + TILE_N // 4, 1)
            put(c_map, output, c_tile, third, row, column + TILE_N // 2, 1)
            put(c_map, output, other_tile, fourth, row, column + TILE_N // 4 * 3, 1)
    tma.store_wait(0)


@gluon.jit
def allocate(tensor_map, COUNT: gl.constexpr):
    """Return shared memory for a number of a map's tiles."""
    shape: gl.constexpr = [COUNT] + tensor_map.block_type.shape  # noqa: RUF005  no unpacking here
    return gl.allocate_shared_memory(tensor_map.dtype, shape, tensor_map.layout)


@gluon.jit
def gemm_hopper_kernel(
    a_map,
    b_map,
    c_map,
    c_ptr,
    stride_cm,
    M,
    N,
    K,
    arrived_ptr,
    first_tile,
    part_rows,
    second_a_map,
    second_b_map,
    second_K,
    third_a_map,
    third_b_map,
    third_K,
    GROUP_M: gl.constexpr,
    STAGES: gl.constexpr,
    PARTS: gl.constexpr,
    A_TURNED: gl.constexpr,
    B_TURNED: gl.constexpr,
    SPLITS: gl.constexpr,
):
    """Compute every tile of C of this program; c_ptr is None where c_map can store.

    Products that are not there have no maps, and a K of 0. With more SPLITS than one there are none
    of these, and C's rows fill its tiles.

    Where rows of A still arrive (`arrived_ptr` is not None), flag i there is not 0 once the rows
    from i * part_rows on, as many as that, have; programs begin with the rows of `first_tile`.
    """
    HALF_M: gl.constexpr = a_map.block_type.shape[1 if A_TURNED else 0]
    TILE_N: gl.constexpr = b_map.block_type.shape[0 if B_TURNED else 1]
    a_tiles = allocate(a_map, 2 * STAGES)
    b_tiles = allocate(b_map, STAGES)
    c_tiles = allocate(c_map, 2 if PARTS == 1 else 4)
    ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(ready.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=2)
    others = (second_a_map, second_b_map, second_K, third_a_map, third_b_map, third_K)
    shared = ((a_map, b_map, c_map, others), (a_tiles, b_tiles, c_tiles), (ready, empty))
    sizes = (gl.cdiv(M, 2 * HALF_M), gl.cdiv(N, TILE_N), K, M, (arrived_ptr, first_tile, part_rows))
    output = (c_ptr, M, N, stride_cm)
    # 240 registers for each multiplying thread: half of them hold the accumulator.
    gl.warp_specialize(
        [
            (
                multiply,
                (shared, sizes, output, GROUP_M, STAGES, PARTS, A_TURNED, B_TURNED, SPLITS, 0),
            ),
            (
                multiply,
                (shared, sizes, output, GROUP_M, STAGES, PARTS, A_TURNED, B_TURNED, SPLITS, 1),
            ),
            (load, (shared, sizes, GROUP_M, STAGES, A_TURNED, B_TURNED, SPLITS)),
        ],
        [4, 1],
        [240, 24],
    )
