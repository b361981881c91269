// SPDX-License-Identifier: Apache-2.0
//
// Step 2: a block shares tiles of A and B in shared memory, so that each element is read from global
// memory once per tile of C and not once per element.
//
// C[M, N] = A[M, K] B[K, N], each row by row without gaps; sizes need not divide by anything.

constexpr int TILE = 32;

extern "C" {

// What the launcher reads: rows and columns of C per block, threads per block (along x), bytes of
// dynamic shared memory.
__constant__ int launch[4] = {TILE, TILE, TILE * TILE, 0};

__global__ void __launch_bounds__(TILE *TILE)
matmul(const float *A, const float *B, float *C, int M, int N, int K) {
    __shared__ float a[TILE][TILE], b[TILE][TILE];
    // A warp is one row of a tile: it reads one word of `a` and 32 neighbours of `b`, no bank twice.
    const int y = threadIdx.x / TILE, x = threadIdx.x % TILE;
    const int row = blockIdx.y * TILE + y, column = blockIdx.x * TILE + x;
    float sum = 0;
    for (int done = 0; done < K; done += TILE) {
        // Zeros stand beyond the edges, and add nothing.
        a[y][x] = row < M && done + x < K ? A[(long long)row * K + done + x] : 0;
        b[y][x] = done + y < K && column < N ? B[(long long)(done + y) * N + column] : 0;
        __syncthreads();
        for (int k = 0; k < TILE; ++k) sum += a[y][k] * b[k][x];
        // No thread overwrites what another still reads.
        __syncthreads();
    }
    if (row < M && column < N) C[(long long)row * N + column] = sum;
}
}
