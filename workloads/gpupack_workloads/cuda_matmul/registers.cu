// SPDX-License-Identifier: Apache-2.0
//
// Step 3: a thread computes 8 x 8 elements of C in registers, so that 16 words of shared memory serve 64
// multiplications and not 1. Four neighbours travel in one access (float4), and the next tiles are on
// their way from global memory while these are multiplied.
//
// C[M, N] = A[M, K] B[K, N], each row by row without gaps, from addresses that divide by 16; sizes need
// not divide by anything.

constexpr int TILE = 128, TILE_K = 16, THREADS = 256;
// Four words between the rows of A's tile spread a warp's stores over more banks.
constexpr int A_STRIDE = TILE + 4;
// float4 that a thread moves of each tile.
constexpr int LOADS = TILE * TILE_K / 4 / THREADS;

// Return four neighbours of a row, zero beyond the matrix; the first one's column divides by 4.
__device__ float4 load(const float *matrix, int row, int column, int rows, int columns) {
    float4 four = make_float4(0, 0, 0, 0);
    if (row >= rows || column >= columns) return four;
    const float *at = matrix + (long long)row * columns + column;
    // Only then do all rows start at multiples of 16 bytes.
    if (columns % 4 == 0) return *reinterpret_cast<const float4 *>(at);
    four.x = at[0];
    if (column + 1 < columns) four.y = at[1];
    if (column + 2 < columns) four.z = at[2];
    if (column + 3 < columns) four.w = at[3];
    return four;
}

// Store four neighbours of a row, but for what lies beyond the matrix.
__device__ void store(float *matrix, float4 four, int row, int column, int rows, int columns) {
    if (row >= rows || column >= columns) return;
    float *at = matrix + (long long)row * columns + column;
    if (columns % 4 == 0) {
        *reinterpret_cast<float4 *>(at) = four;
        return;
    }
    at[0] = four.x;
    if (column + 1 < columns) at[1] = four.y;
    if (column + 2 < columns) at[2] = four.z;
    if (column + 3 < columns) at[3] = four.w;
}

extern "C" {

// What the launcher reads: rows and columns of C per block, threads per block (along x), bytes of
// dynamic shared memory.
__constant__ int launch[4] = {TILE, TILE, THREADS, 0};

__global__ void __launch_bounds__(THREADS, 2)
matmul(const float *A, const float *B, float *C, int M, int N, int K) {
    // Two of each: one is multiplied while the other is filled. A's lies transposed, so that what a
    // thread needs of a column are neighbours.
    __shared__ __align__(16) float a[2][TILE_K][A_STRIDE];
    __shared__ __align__(16) float b[2][TILE_K][TILE];
    const int first_row = blockIdx.y * TILE, first_column = blockIdx.x * TILE;
    const int y = threadIdx.x / 16 * 4, x = threadIdx.x % 16 * 4;
    float4 next_a[LOADS], next_b[LOADS];

    auto fetch = [&](int done) {
        for (int i = 0; i < LOADS; ++i) {
            const int four = threadIdx.x + i * THREADS;
            next_a[i] = load(A, first_row + four / (TILE_K / 4), done + four % (TILE_K / 4) * 4, M, K);
            next_b[i] = load(B, done + four / (TILE / 4), first_column + four % (TILE / 4) * 4, K, N);
        }
    };
    auto put = [&](int turn) {
        for (int i = 0; i < LOADS; ++i) {
            const int four = threadIdx.x + i * THREADS;
            const int row = four / (TILE_K / 4), k = four % (TILE_K / 4) * 4;
            a[turn][k][row] = next_a[i].x;
            a[turn][k + 1][row] = next_a[i].y;
            a[turn][k + 2][row] = next_a[i].z;
            a[turn][k + 3][row] = next_a[i].w;
            *reinterpret_cast<float4 *>(&b[turn][four / (TILE / 4)][four % (TILE / 4) * 4]) = next_b[i];
        }
    };

    // A thread's rows are y to y + 3 and 64 more, its columns alike: eight in a row would make threads
    // of a warp meet in one bank.
    float sum[8][8] = {};
    fetch(0);
    put(0);
    __syncthreads();
    for (int done = 0, turn = 0; done < K; done += TILE_K, turn ^= 1) {
        const bool more = done + TILE_K < K;
        if (more) fetch(done + TILE_K);
#pragma unroll
        for (int k = 0; k < TILE_K; ++k) {
            float rows[8], columns[8];
            *reinterpret_cast<float4 *>(rows) = *reinterpret_cast<float4 *>(&a[turn][k][y]);
            *reinterpret_cast<float4 *>(rows + 4) = *reinterpret_cast<float4 *>(&a[turn][k][y + 64]);
            *reinterpret_cast<float4 *>(columns) = *reinterpret_cast<float4 *>(&b[turn][k][x]);
            *reinterpret_cast<float4 *>(columns + 4) = *reinterpret_cast<float4 *>(&b[turn][k][x + 64]);
#pragma unroll
            for (int i = 0; i < 8; ++i)
#pragma unroll
                for (int j = 0; j < 8; ++j) sum[i][j] += rows[i] * columns[j];
        }
        if (more) put(turn ^ 1);
        // One is enough: what is filled next was read before the last one.
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        const int row = first_row + y + i % 4 + i / 4 * 64, column = first_column + x;
        store(C, make_float4(sum[i][0], sum[i][1], sum[i][2], sum[i][3]), row, column, M, N);
        store(C, make_float4(sum[i][4], sum[i][5], sum[i][6], sum[i][7]), row, column + 64, M, N);
    }
}
}
