// SPDX-License-Identifier: Apache-2.0
//
// Step 1: a thread computes one element of C and reads all it needs from global memory.
//
// C[M, N] = A[M, K] B[K, N], each row by row without gaps; sizes need not divide by anything.

constexpr int TILE = 16;

extern "C" {

// What the launcher reads: rows and columns of C per block, threads per block (along x), bytes of
// dynamic shared memory.
__constant__ int launch[4] = {TILE, TILE, TILE * TILE, 0};

__global__ void __launch_bounds__(TILE *TILE)
matmul(const float *A, const float *B, float *C, int M, int N, int K) {
    // Neighbours of a warp are neighbours in a row of B and C: their loads and stores are one access.
    const int row = blockIdx.y * TILE + threadIdx.x / TILE;
    const int column = blockIdx.x * TILE + threadIdx.x % TILE;
    if (row >= M || column >= N) return;
    // Offsets are 64-bit: a matrix of 65536 x 65536 has more elements than 32 bits count.
    const float *a = A + (long long)row * K;
    const float *b = B + column;
    float sum = 0;
    for (int k = 0; k < K; ++k) sum += a[k] * b[(long long)k * N];
    C[(long long)row * N + column] = sum;
}
}
