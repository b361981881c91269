// SPDX-License-Identifier: Apache-2.0
//
// softmax(Q K' scale) V in bfloat16 for Hopper, heads of 128, in ThunderKittens' tiles.
//
// A block computes 128 rows of queries of one head. One thread of the last group of four warps
// loads: both halves of Q, then tiles of K and V into rings of STAGES. Each group before it computes
// 64 rows. S of the next tile and P V of this one are issued together, and the softmax of the next
// tile runs while P V still does, as in FlashAttention-3.
//
// Tiles of keys are visited from the last one down, where the diagonal and the ragged end are: only
// the first visited can be partly masked. Rows of queries beyond the end are not stored.
//
// Scores are in units of log2: `scale_log2` is the scale times log2(e), and exp2 is one instruction.
#include "kittens.cuh"

using namespace kittens;

constexpr int GROUPS = 2;
constexpr int STAGES = 2;
constexpr int HALF_M = 64;
constexpr int TILE_N = 128;
constexpr int D = 128;
constexpr int WARP_M = HALF_M / WARPGROUP_WARPS;
constexpr int THREADS = (GROUPS + 1) * WARPGROUP_THREADS;

using q_tile = st_bf<HALF_M, D>;
using kv_tile = st_bf<TILE_N, D>;
using scores = rt_fl<WARP_M, TILE_N>;
using weights = rt_bf<WARP_M, TILE_N>;
using outputs = rt_fl<WARP_M, D>;
using of_rows = col_vec<scores>;

struct Operands {
    gl<bf16, -1, -1, -1, -1, q_tile> q;
    gl<bf16, -1, -1, -1, -1, kv_tile> k, v;
    gl<bf16, -1, -1, -1, -1, q_tile> o;
    float scale_log2;
};

// Threads of a block, and its bytes of shared memory with what aligns the tiles to 1024. How this
// compiler aligns a tensor map, which decides where all else in Operands is. Rows and columns of the
// tiles that each of the maps is for; a block computes as many rows as it has groups of Q's tiles.
extern "C" {
__constant__ int launch[3] = {
    THREADS,
    1024 + GROUPS * int(sizeof(q_tile)) + 2 * STAGES * int(sizeof(kv_tile)),
    alignof(CUtensorMap),
};
__constant__ int boxes[8] = {HALF_M, D, TILE_N, D, TILE_N, D, HALF_M, D};
}

struct Barriers {
    semaphore q_ready[GROUPS], k_ready[STAGES], k_empty[STAGES], v_ready[STAGES], v_empty[STAGES];
};

// Uses registers without an instruction, so that none is reused while a product still reads it:
// the compiler does not know that one does.
__device__ static void keep(weights &values) {
    #pragma unroll
    for (int j = 0; j < weights::width; j++)
        #pragma unroll
        for (int k = 0; k < weights::packed_per_tile; k++)
            asm volatile("" : "+r"(reinterpret_cast<uint32_t &>(values.tiles[0][j].data[k])));
}

// Turns scores into weights that are not yet divided by their row's sum, and returns in `shrink`
// what sums and outputs so far have to be multiplied by.
__device__ static void soften(
    scores &s, of_rows &top, of_rows &total, of_rows &shrink, float scale_log2
) {
    warp::mul(shrink, top, scale_log2);
    warp::row_max(top, s, top);
    of_rows scaled_top;
    warp::mul(scaled_top, top, scale_log2);
    warp::sub(shrink, shrink, scaled_top);
    warp::exp2(shrink, shrink);
    warp::mul(s, s, scale_log2);
    warp::sub_row(s, s, scaled_top);
    warp::exp2(s, s);
    warp::mul(total, total, shrink);
    warp::row_sum(total, s, total);
}

template <bool CAUSAL>
__device__ static void attend(const Operands &g) {
    extern __shared__ int memory[];
    tma_swizzle_allocator allocator(memory);
    q_tile (&q)[GROUPS] = allocator.allocate<q_tile, GROUPS>();
    kv_tile (&k)[STAGES] = allocator.allocate<kv_tile, STAGES>();
    kv_tile (&v)[STAGES] = allocator.allocate<kv_tile, STAGES>();
    __shared__ Barriers barriers;
    auto &[q_ready, k_ready, k_empty, v_ready, v_empty] = barriers;
    if (threadIdx.x == 0) {
        for (int half = 0; half < GROUPS; half++) init_semaphore(q_ready[half], 1);
        for (int stage = 0; stage < STAGES; stage++) {
            init_semaphore(k_ready[stage], 1);
            init_semaphore(k_empty[stage], GROUPS);
            init_semaphore(v_ready[stage], 1);
            init_semaphore(v_empty[stage], GROUPS);
        }
    }
    __syncthreads();

    // Blocks of one head are neighbours, so that its K and V stay in the L2 cache; the longest first.
    int blocks = cdiv(int(g.q.rows()), GROUPS * HALF_M);
    int owner = blockIdx.x / blocks, block = blocks - 1 - blockIdx.x % blocks;
    int batch = owner / g.q.depth(), head = owner % g.q.depth();
    int kv_head = head / (g.q.depth() / g.k.depth());
    int keys = g.k.rows();
    int tiles = cdiv(keys, TILE_N);
    if (CAUSAL) tiles = min(tiles, cdiv((block + 1) * GROUPS * HALF_M, TILE_N));
    int group = warpgroupid();

    if (group == GROUPS) {
        warpgroup::decrease_registers<24>();
        if (warpgroup::laneid() != 0) return;
        for (int half = 0; half < GROUPS; half++) {
            tma::expect(q_ready[half], q[half]);
            tma::load_async(q[half], g.q, {batch, head, GROUPS * block + half, 0}, q_ready[half]);
        }
        for (int i = 0; i < tiles; i++) {
            int stage = i % STAGES, phase = i / STAGES & 1;
            coord<kv_tile> at = {batch, kv_head, tiles - 1 - i, 0};
            wait(k_empty[stage], phase ^ 1);
            tma::expect(k_ready[stage], k[stage]);
            tma::load_async(k[stage], g.k, at, k_ready[stage]);
            wait(v_empty[stage], phase ^ 1);
            tma::expect(v_ready[stage], v[stage]);
            tma::load_async(v[stage], g.v, at, v_ready[stage]);
        }
        return;
    }

    warpgroup::increase_registers<240>();
    bool speaks = warpgroup::laneid() == 0;
    scores s;
    weights p;
    outputs o;
    of_rows top, total, shrink;
    warp::neg_infty(top);
    warp::zero(total);
    warp::zero(o);

    wait(q_ready[group], 0);
    wait(k_ready[0], 0);
    warpgroup::mm_ABt(s, q[group], k[0]);
    warpgroup::mma_async_wait();
    if (speaks) arrive(k_empty[0]);
    if (CAUSAL) {
        int row = (GROUPS * block + group) * HALF_M + warpgroup::warpid() * WARP_M;
        warp::tril(s, s, row - (tiles - 1) * TILE_N, base_types::constants<float>::neg_infty());
    }
    if (keys % TILE_N != 0)
        warp::right_fill(s, s, keys - (tiles - 1) * TILE_N, base_types::constants<float>::neg_infty());
    soften(s, top, total, shrink, g.scale_log2);
    warp::copy(p, s);

    for (int i = 1; i < tiles; i++) {
        int stage = i % STAGES, before = (i - 1) % STAGES;
        wait(k_ready[stage], i / STAGES & 1);
        warpgroup::mm_ABt(s, q[group], k[stage]);
        wait(v_ready[before], (i - 1) / STAGES & 1);
        warpgroup::mma_AB(o, p, v[before]);
        warpgroup::mma_async_wait<1>();
        if (speaks) arrive(k_empty[stage]);
        soften(s, top, total, shrink, g.scale_log2);
        warpgroup::mma_async_wait();
        keep(p);
        if (speaks) arrive(v_empty[before]);
        warp::mul_row(o, o, shrink);
        warp::copy(p, s);
    }

    int last = tiles - 1;
    wait(v_ready[last % STAGES], last / STAGES & 1);
    warpgroup::mma_AB(o, p, v[last % STAGES]);
    warpgroup::mma_async_wait();
    warp::div_row(o, o, total);
    // Q has been read for the last time: its memory takes O.
    warpgroup::store(q[group], o);
    warpgroup::sync(1 + group);
    if (speaks) {
        tma::store_async(g.o, q[group], {batch, head, GROUPS * block + group, 0});
        tma::store_async_wait();
    }
}

extern "C" __global__ __launch_bounds__(THREADS, 1)
void thunderkittens_attention(const __grid_constant__ Operands g) { attend<false>(g); }

extern "C" __global__ __launch_bounds__(THREADS, 1)
void thunderkittens_attention_causal(const __grid_constant__ Operands g) { attend<true>(g); }
