// Tiles of distances of composition vectors, merged pair by pair in their compact form.
//
// Strings that a vector expects and lacks have the value -1 and take no memory: of those that two vectors both expect
// and both lack, the sum of products is their number, which masks give. A warp takes one pair and one shard of the
// middles, a lane every 32nd middle of the vector that has fewer of them. All sums are float64, in an order that depends
// on the two vectors only, not on the tile.

constexpr int WARP = 32;
constexpr int WARPS = 4;
constexpr int SHARDS = 64;
constexpr int COUNT_SHIFT = 20;
constexpr unsigned LETTERS = (1u << COUNT_SHIFT) - 1;
constexpr unsigned NO_CODE = 0xFFFF;
constexpr int NUMBERS = 3;

// The vectors of a tile, one behind the other: those of middle i are the entries from ends[i - 1] to ends[i].
template <class Middle> struct Vectors {
    const Middle* middles;
    const unsigned* masks;
    const long long* ends;
    const unsigned short* codes;
    const float* values;
};

// Return the first place from `begin` to `end` whose middle is not below `wanted`.
template <class Middle>
__device__ long long first_from(const Middle* middles, long long begin, long long end, unsigned long long wanted) {
    while (begin < end) {
        const long long half = begin + (end - begin) / 2;
        if (middles[half] < wanted)
            begin = half + 1;
        else
            end = half;
    }
    return begin;
}

// Return the sum of products of the strings of a middle that stands at place i of one vector and at place j of another.
template <class Middle> __device__ double shared_by(const Vectors<Middle>& v, long long i, long long j) {
    const unsigned lefts = v.masks[2 * i] & v.masks[2 * j] & LETTERS, rights = v.masks[2 * i + 1] & v.masks[2 * j + 1];
    long long e = i ? v.ends[i - 1] : 0, f = j ? v.ends[j - 1] : 0;
    const long long e_end = v.ends[i], f_end = v.ends[j];
    int n_absent = __popc(lefts) * __popc(rights);
    double sum = 0;
    while (e < e_end || f < f_end) {
        const unsigned first = e < e_end ? v.codes[e] : NO_CODE, second = f < f_end ? v.codes[f] : NO_CODE;
        const unsigned code = min(first, second);
        const double a = first == code ? v.values[e++] : -1, b = second == code ? v.values[f++] : -1;
        if ((lefts >> (code >> 5) & rights >> (code & 31) & 1) == 0) continue;
        sum += a * b;
        n_absent--;
    }
    return sum + n_absent;
}

// Write the share of each shard (shards, m k) in the sums of products.
template <class Middle>
__device__ void share(const Vectors<Middle>& v, const long long* starts, const int* rows, const int* columns,
                      double* parts, int m, int k, unsigned long long span) {
    const long long pair = (long long)blockIdx.x * WARPS + threadIdx.x / WARP;
    if (pair >= (long long)m * k) return;
    int a = rows[pair / k], b = columns[pair % k];
    if (starts[a + 1] - starts[a] > starts[b + 1] - starts[b]) {
        const int other = a;
        a = b, b = other;
    }
    const unsigned long long from = blockIdx.y * span;
    const long long end = first_from(v.middles, starts[a], starts[a + 1], from + span);
    long long i = first_from(v.middles, starts[a], end, from) + threadIdx.x % WARP;
    long long j = first_from(v.middles, starts[b], starts[b + 1], from);
    const long long j_end = first_from(v.middles, j, starts[b + 1], from + span);
    double sum = 0;
    for (; i < end; i += WARP) {
        j = first_from(v.middles, j, j_end, v.middles[i]);
        if (j == j_end) break;
        if (v.middles[j] == v.middles[i]) sum += shared_by(v, i, j);
    }
    for (int across = WARP / 2; across; across /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, across);
    if (threadIdx.x % WARP == 0) parts[(long long)blockIdx.y * m * k + pair] = sum;
}

#define SHARE(Middle)                                                                                                  \
    const Middle *middles, const unsigned *masks, const long long *ends, const unsigned short *codes,                  \
        const float *values, const long long *starts, const int *rows, const int *columns, double *parts, int m,       \
        int k, unsigned long long span
#define VECTORS(Middle) Vectors<Middle>{middles, masks, ends, codes, values}

extern "C" __global__ void __launch_bounds__(128) composition_u4(SHARE(unsigned)) {
    share(VECTORS(unsigned), starts, rows, columns, parts, m, k, span);
}
extern "C" __global__ void __launch_bounds__(128) composition_u8(SHARE(unsigned long long)) {
    share(VECTORS(unsigned long long), starts, rows, columns, parts, m, k, span);
}

// Add up the shards in their order; write (1 - cosine) / 2.
extern "C" __global__ void __launch_bounds__(128)
composition_distances(const double* parts, const double* numbers, const int* rows, const int* columns, double* out, int m, int k) {
    const long long pair = (long long)blockIdx.x * blockDim.x + threadIdx.x, n = (long long)m * k;
    if (pair >= n) return;
    double sum = 0;
    for (int shard = 0; shard < SHARDS; shard++) sum += parts[shard * n + pair];
    const double norms = numbers[(long long)NUMBERS * rows[pair / k]] * numbers[(long long)NUMBERS * columns[pair % k]];
    out[pair] = (1 - sum / norms) / 2;
}
