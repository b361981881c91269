// SPDX-License-Identifier: Apache-2.0
//
// Kernels over addresses of which some are another GPU's. Nothing in them says which: loads and stores go
// over the link by themselves, once cudaDeviceEnablePeerAccess has mapped the other GPU's memory. Run by
// the GPU that lacks the bytes, copy_bytes loads from its peer; run by the GPU that has them, it stores.

constexpr int THREADS = 256;
// Words of a thread that are under way at a time: an answer over NVLink takes about a microsecond.
constexpr int UNROLL = 4;

// Copy by words, as wide as both addresses let it: they differ by a multiple of the word. The bytes before
// the first whole word and behind the last one go one by one, each by a thread of the first block.
template <typename Word>
__device__ void copy_words(unsigned char *to, const unsigned char *from, unsigned long long count) {
    const unsigned long long to_boundary = (0 - (unsigned long long)to) % sizeof(Word);
    const unsigned long long head = to_boundary < count ? to_boundary : count;
    const unsigned long long words = (count - head) / sizeof(Word);
    const unsigned long long tail = head + words * sizeof(Word);
    if (blockIdx.x == 0) {
        if (threadIdx.x < head) to[threadIdx.x] = from[threadIdx.x];
        if (threadIdx.x < count - tail) to[tail + threadIdx.x] = from[tail + threadIdx.x];
    }
    Word *target = reinterpret_cast<Word *>(to + head);
    const Word *source = reinterpret_cast<const Word *>(from + head);
    constexpr int TILE = THREADS * UNROLL;
    for (unsigned long long first = (unsigned long long)blockIdx.x * TILE + threadIdx.x; first < words;
         first += (unsigned long long)gridDim.x * TILE) {
        if (first + (UNROLL - 1) * THREADS < words) {
            // All loads begin before the first store waits for one.
            Word held[UNROLL];
#pragma unroll
            for (int i = 0; i < UNROLL; ++i) held[i] = source[first + i * THREADS];
#pragma unroll
            for (int i = 0; i < UNROLL; ++i) target[first + i * THREADS] = held[i];
        } else {
#pragma unroll 1
            for (unsigned long long at = first; at < words; at += THREADS) target[at] = source[at];
        }
    }
}

// Accesses that another GPU sees, and that see its: of the scope of the system, past this GPU's L1.
__device__ void put(unsigned *at, unsigned value) {
    asm volatile("st.relaxed.sys.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}

__device__ unsigned look(const unsigned *at) {
    unsigned value;
    asm volatile("ld.relaxed.sys.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
    return value;
}

// About two seconds: a number that is lost ends in an error, and not in a kernel that runs for ever.
constexpr long long TIMEOUT_CYCLES = 1LL << 32;

__device__ bool comes(const unsigned *mine, unsigned value) {
    const long long since = clock64();
    while (look(mine) < value)
        if (clock64() - since > TIMEOUT_CYCLES) return false;
    return true;
}

extern "C" {

// to[0, count) = from[0, count), which do not overlap; any addresses, any number of blocks of THREADS.
__global__ void __launch_bounds__(THREADS)
copy_bytes(unsigned char *to, const unsigned char *from, unsigned long long count) {
    const unsigned long long differ = (unsigned long long)to ^ (unsigned long long)from;
    if (differ % 16 == 0)
        copy_words<uint4>(to, from, count);
    else if (differ % 8 == 0)
        copy_words<uint2>(to, from, count);
    else if (differ % 4 == 0)
        copy_words<unsigned>(to, from, count);
    else if (differ % 2 == 0)
        copy_words<unsigned short>(to, from, count);
    else
        copy_words<unsigned char>(to, from, count);
}

// One thread on each of two GPUs: the number of the round goes there and back. `mine` and `theirs` are 0
// before; each waits in its own memory and writes to the other's. `done` gets the rounds that ended well.
__global__ void bounce(unsigned *mine, unsigned *theirs, unsigned *done, unsigned rounds, unsigned leads) {
    unsigned turn = 1;
    for (; turn <= rounds; ++turn) {
        if (leads) put(theirs, turn);
        if (!comes(mine, turn)) break;
        if (!leads) put(theirs, turn);
    }
    *done = turn - 1;
}

// One thread follows a ring: where each load goes is what the one before has brought. `done` gets the last.
__global__ void chase(const unsigned *ring, unsigned *done, unsigned rounds) {
    unsigned at = 0;
    for (unsigned turn = 0; turn < rounds; ++turn) at = look(ring + at);
    *done = at;
}

// One thread counts in `theirs`, 0 before, by compare and swap: what each compares with is what the one
// before has brought. `done` gets how many of them found what they expected.
__global__ void compare_swap(unsigned *theirs, unsigned *done, unsigned rounds) {
    unsigned expected = 0, kept = 0;
    for (unsigned turn = 0; turn < rounds; ++turn) {
        const unsigned found = atomicCAS_system(theirs, expected, expected + 1);
        kept += found == expected;
        expected = found + 1;
    }
    *done = kept;
}
}
