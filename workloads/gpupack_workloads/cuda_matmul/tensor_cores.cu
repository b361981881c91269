// SPDX-License-Identifier: Apache-2.0
//
// Step 4: tensor cores multiply. A warp computes 64 x 64 elements of C by mma.sync m16n8k16, whose
// operands ldmatrix takes from shared memory; cp.async fills that three tiles ahead, past the registers.
//
// C[M, N] = A[M, K] B[K, N], A and B of 16-bit floats (bfloat16), C and all sums of 32 bits, each row by
// row without gaps, from addresses that divide by 16; sizes need not divide by anything. sm_80 and newer.

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#error "cp.async and mma of bfloat16 need compute capability 8.0 or newer (sm_80): not on this GPU"
#endif

// Nothing is done with one but by the tensor cores: its bits will do, without a header.
using bf16 = unsigned short;

constexpr int TILE_M = 128, TILE_N = 256, TILE_K = 32, STAGES = 4;
constexpr int WARP_M = 64, WARP_N = 64, WARPS_N = TILE_N / WARP_N;
constexpr int THREADS = 32 * (TILE_M / WARP_M) * WARPS_N;
// Eight elements, 16 bytes: what cp.async copies, and a row of what ldmatrix takes.
constexpr int CHUNK = 8, CHUNK_BYTES = CHUNK * sizeof(bf16);
constexpr int A_CHUNKS = TILE_K / CHUNK, B_CHUNKS = TILE_N / CHUNK;
constexpr int A_BYTES = TILE_M * TILE_K * sizeof(bf16);
constexpr int STAGE_BYTES = A_BYTES + TILE_K * TILE_N * sizeof(bf16);
// Blocks that run at a time share rows of A and columns of B in L2: down this many tiles, then right.
constexpr int GROUP_M = 8;

// Return the byte at which a chunk lies in a tile whose rows have CHUNKS of them. Eight rows of one
// column of chunks, which ldmatrix reads at a time, lie in different banks.
template <int CHUNKS>
__device__ unsigned place(int row, int chunk) {
    // Rows of 64 bytes: two fill the 128 bytes of all banks.
    const int turned = CHUNKS == 4 ? chunk ^ (row / 2 % 4) : chunk ^ (row % 8);
    return (row * CHUNKS + turned) * CHUNK_BYTES;
}

// Begin to copy a tile, whose first element is (first_row, first_column), to shared memory; zeros stand
// beyond the matrix.
template <int ROWS, int CHUNKS>
__device__ void load(unsigned char *to, const bf16 *matrix, int first_row, int first_column, int rows,
                     int columns) {
#pragma unroll
    for (int i = 0; i < ROWS * CHUNKS / THREADS; ++i) {
        const int number = threadIdx.x + i * THREADS;
        unsigned char *at = to + place<CHUNKS>(number / CHUNKS, number % CHUNKS);
        const int row = first_row + number / CHUNKS, column = first_column + number % CHUNKS * CHUNK;
        const bool inside = row < rows && column < columns;
        // An address beyond the matrix is not even named.
        const bf16 *from = inside ? matrix + (long long)row * columns + column : matrix;
        if (columns % CHUNK == 0) {
            asm volatile("cp.async.cg.shared.global [%0], [%1], %2, %3;" ::"r"(
                             (unsigned)__cvta_generic_to_shared(at)),
                         "l"(from), "n"(CHUNK_BYTES), "r"(inside ? CHUNK_BYTES : 0)
                         : "memory");
        } else {
            // Rows that start anywhere cannot be copied by 16 bytes: element by element, right and slower.
            unsigned pairs[CHUNK / 2] = {};
#pragma unroll
            for (int j = 0; j < CHUNK; ++j)
                if (inside && column + j < columns) pairs[j / 2] |= (unsigned)from[j] << 16 * (j % 2);
            *reinterpret_cast<uint4 *>(at) = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
        }
    }
}

// Take four 8 x 8 matrices, each row of which one lane names.
__device__ void load_matrices(unsigned (&to)[4], const unsigned char *at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"((unsigned)__cvta_generic_to_shared(at)));
}

// The same, each transposed: B lies row by row, and mma takes it column by column.
__device__ void load_transposed(unsigned (&to)[4], const unsigned char *at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"((unsigned)__cvta_generic_to_shared(at)));
}

// Add a product of 16 x 16 and 16 x 8 elements to 16 x 8 sums, all spread over the warp.
__device__ void multiply_add(float (&sum)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Store two neighbours of a row, but for what lies beyond the matrix; the first one's column is even.
__device__ void store(float *C, float first, float second, int row, int column, int M, int N) {
    if (row >= M || column >= N) return;
    float *at = C + (long long)row * N + column;
    if (N % 2 == 0) {
        *reinterpret_cast<float2 *>(at) = make_float2(first, second);
        return;
    }
    at[0] = first;
    if (column + 1 < N) at[1] = second;
}

extern "C" {

// What the launcher reads: rows and columns of C per block, threads per block (along x), bytes of
// dynamic shared memory.
__constant__ int launch[4] = {TILE_M, TILE_N, THREADS, STAGES * STAGE_BYTES};

__global__ void __launch_bounds__(THREADS, 1)
matmul(const bf16 *A, const bf16 *B, float *C, int M, int N, int K) {
    extern __shared__ __align__(128) unsigned char stages[];
    const int number = blockIdx.y * gridDim.x + blockIdx.x;
    const int first_tile = number / (GROUP_M * gridDim.x) * GROUP_M;
    const int group_rows = min((int)gridDim.y - first_tile, GROUP_M);
    const int within = number % (GROUP_M * gridDim.x);
    const int first_row = (first_tile + within % group_rows) * TILE_M;
    const int first_column = within / group_rows * TILE_N;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int warp_row = warp / WARPS_N * WARP_M, warp_column = warp % WARPS_N * WARP_N;

    const int steps = (K + TILE_K - 1) / TILE_K;
    auto begin = [&](int step) {
        if (step < steps) {
            unsigned char *stage = stages + step % STAGES * STAGE_BYTES;
            load<TILE_M, A_CHUNKS>(stage, A, first_row, step * TILE_K, M, K);
            load<TILE_K, B_CHUNKS>(stage + A_BYTES, B, step * TILE_K, first_column, K, N);
        }
        // An empty group as well: the number of groups says which stage has arrived.
        asm volatile("cp.async.commit_group;" ::: "memory");
    };

    float sum[WARP_M / 16][WARP_N / 8][4] = {};
    for (int step = 0; step < STAGES - 1; ++step) begin(step);
    for (int step = 0; step < steps; ++step) {
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
        // All threads' parts of this stage have arrived, and no thread reads the last one any more.
        __syncthreads();
        begin(step + STAGES - 1);
        const unsigned char *a_tile = stages + step % STAGES * STAGE_BYTES;
        const unsigned char *b_tile = a_tile + A_BYTES;
#pragma unroll
        for (int k = 0; k < TILE_K; k += 16) {
            unsigned a[WARP_M / 16][4], b[WARP_N / 16][4];
#pragma unroll
            for (int i = 0; i < WARP_M / 16; ++i)
                load_matrices(a[i], a_tile + place<A_CHUNKS>(warp_row + i * 16 + lane % 16,
                                                             k / CHUNK + lane / 16));
#pragma unroll
            for (int j = 0; j < WARP_N / 16; ++j)
                load_transposed(b[j], b_tile + place<B_CHUNKS>(k + lane % 16,
                                                               warp_column / CHUNK + j * 2 + lane / 16));
#pragma unroll
            for (int i = 0; i < WARP_M / 16; ++i)
#pragma unroll
                for (int j = 0; j < WARP_N / 8; ++j)
                    multiply_add(sum[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
        }
    }

    // Of each 16 x 8 sums a lane has two neighbours, and two more eight rows below.
#pragma unroll
    for (int i = 0; i < WARP_M / 16; ++i)
#pragma unroll
        for (int j = 0; j < WARP_N / 8; ++j) {
            const int row = first_row + warp_row + i * 16 + lane / 4;
            const int column = first_column + warp_column + j * 8 + lane % 4 * 2;
            store(C, sum[i][j][0], sum[i][j][1], row, column, M, N);
            store(C, sum[i][j][2], sum[i][j][3], row + 8, column, M, N);
        }
}
}
