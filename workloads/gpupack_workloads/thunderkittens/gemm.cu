// SPDX-License-Identifier: Apache-2.0
//
// C = A B in bfloat16 for Hopper, in ThunderKittens' tiles: one block per multiprocessor, its warps
// specialised.
//
// The last group of four warps loads: one thread asks the copy engine for tiles of A and B, as far
// ahead as there are stages. The two groups before it multiply: each holds 64 x 256 of a tile of C
// in registers and reads the same tile of B. While a tile of C is stored, the operands of the next
// one arrive.
//
// Blocks take tiles of C in turns, GROUP_M rows of tiles at a time, so that those under way share
// rows of A and columns of B in the L2 cache. Rows of C may be any number. N and K are multiples of
// 64: ThunderKittens describes a matrix as columns of 64 elements, and what is beyond the last
// whole column would be read from, and written to, the next row.
#include "kittens.cuh"

using namespace kittens;

constexpr int GROUPS = 2;
constexpr int STAGES = 4;
constexpr int HALF_M = 64;
constexpr int TILE_N = 256;
constexpr int TILE_K = 64;
constexpr int PART_N = 64;
constexpr int GROUP_M = 8;
constexpr int THREADS = (GROUPS + 1) * WARPGROUP_THREADS;

using a_tile = st_bf<HALF_M, TILE_K>;
using b_tile = st_bf<TILE_K, TILE_N>;
using c_tile = st_bf<HALF_M, PART_N>;

struct Operands {
    gl<bf16, -1, -1, -1, -1, a_tile> a;
    gl<bf16, -1, -1, -1, -1, b_tile> b;
    gl<bf16, -1, -1, -1, -1, c_tile> c;
};

// Threads of a block, and its bytes of shared memory with what aligns the tiles to 1024. How this
// compiler aligns a tensor map, which decides where all else in Operands is. Rows and columns of the
// tiles that each of the maps is for.
extern "C" {
__constant__ int launch[3] = {
    THREADS,
    1024 + STAGES * int(GROUPS * sizeof(a_tile) + sizeof(b_tile)) + 2 * GROUPS * int(sizeof(c_tile)),
    alignof(CUtensorMap),
};
__constant__ int boxes[6] = {HALF_M, TILE_K, TILE_K, TILE_N, HALF_M, PART_N};
}

// Row and column of a tile of C: down first within a group of rows, then right.
__device__ static int2 place(int tile, int tiles_m, int tiles_n) {
    int first = tile / (GROUP_M * tiles_n) * GROUP_M;
    int rows = min(tiles_m - first, GROUP_M);
    int within = tile % (GROUP_M * tiles_n);
    return {first + within % rows, within / rows};
}

// Where in the ring of stages a group of warps is.
struct Ring {
    int stage = 0, phase = 0;

    __device__ void next() {
        if (++stage == STAGES) { stage = 0; phase ^= 1; }
    }
};

extern "C" __global__ __launch_bounds__(THREADS, 1)
void thunderkittens_gemm(const __grid_constant__ Operands g) {
    extern __shared__ int memory[];
    tma_swizzle_allocator allocator(memory);
    a_tile (&a)[STAGES][GROUPS] = allocator.allocate<a_tile, STAGES, GROUPS>();
    b_tile (&b)[STAGES] = allocator.allocate<b_tile, STAGES>();
    c_tile (&c)[GROUPS][2] = allocator.allocate<c_tile, GROUPS, 2>();
    __shared__ semaphore ready[STAGES], empty[STAGES];
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; stage++) {
            init_semaphore(ready[stage], 1);
            init_semaphore(empty[stage], GROUPS);
        }
    }
    __syncthreads();

    int tiles_m = cdiv(int(g.c.rows()), GROUPS * HALF_M), tiles_n = cdiv(int(g.c.cols()), TILE_N);
    int tiles = tiles_m * tiles_n, steps = g.a.cols() / TILE_K;
    int group = warpgroupid();
    Ring ring;

    if (group == GROUPS) {
        warpgroup::decrease_registers<24>();
        if (warpgroup::laneid() != 0) return;
        for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
            int2 at = place(tile, tiles_m, tiles_n);
            for (int step = 0; step < steps; step++, ring.next()) {
                semaphore &arrival = ready[ring.stage];
                wait(empty[ring.stage], ring.phase ^ 1);
                tma::expect(arrival, a[ring.stage], b[ring.stage]);
                for (int half = 0; half < GROUPS; half++)
                    tma::load_async(a[ring.stage][half], g.a, {GROUPS * at.x + half, step}, arrival);
                tma::load_async(b[ring.stage], g.b, {step, at.y}, arrival);
            }
        }
        return;
    }

    warpgroup::increase_registers<240>();
    bool speaks = warpgroup::laneid() == 0;
    rt_fl<HALF_M / WARPGROUP_WARPS, TILE_N> sum;
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        wait(ready[ring.stage], ring.phase);
        warpgroup::mm_AB(sum, a[ring.stage][group], b[ring.stage]);
        int before = ring.stage;
        ring.next();
        for (int step = 1; step < steps; step++, ring.next()) {
            wait(ready[ring.stage], ring.phase);
            warpgroup::mma_AB(sum, a[ring.stage][group], b[ring.stage]);
            // One product stays under way; the one before it has ended, and its stage is free.
            warpgroup::mma_async_wait<1>();
            if (speaks) arrive(empty[before]);
            before = ring.stage;
        }
        warpgroup::mma_async_wait();
        if (speaks) arrive(empty[before]);

        // A part goes while the next one is being rounded, each from its own piece of memory.
        int2 at = place(tile, tiles_m, tiles_n);
        #pragma unroll
        for (int part = 0; part < TILE_N / PART_N; part++) {
            auto &values = reinterpret_cast<rt_fl<HALF_M / WARPGROUP_WARPS, PART_N> &>(
                sum.tiles[0][part * PART_N / TILE_COL_DIM<bf16>]);
            if (speaks) tma::store_async_read_wait<1>();
            warpgroup::sync(1 + group);
            warpgroup::store(c[group][part % 2], values);
            warpgroup::sync(1 + group);
            if (speaks)
                tma::store_async(g.c, c[group][part % 2],
                                 {GROUPS * at.x + group, at.y * (TILE_N / PART_N) + part});
        }
    }
    if (speaks) tma::store_async_wait();
}
