// Tiles of distances of composition vectors: merged pair by pair in their compact form, or multiplied as dense rows.
//
// Strings that a vector expects and lacks have the value -1 and take no memory: of those that two vectors both expect
// and both lack, the sum of products is their number, which masks give. To merge, a warp takes one pair and one shard of
// the middles, a lane every 32nd middle of the vector that has fewer of them. All sums are float64, in an order that
// depends on the two vectors only, not on the tile.
//
// Vectors in which many strings are present are written as dense rows of float16 instead, for products on tensor cores.

constexpr int WARP = 32;
constexpr int WARPS = 4;
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

// Add up parts of the sums (n_parts, m k) in their order; write (1 - cosine) / 2 to lines and places of `out`.
extern "C" __global__ void __launch_bounds__(128)
composition_distances(const double* parts, const double* numbers, const int* rows, const int* columns, const int* lines,
                      const int* places, double* out, int n_parts, int m, int k, int width) {
    const long long pair = (long long)blockIdx.x * blockDim.x + threadIdx.x, n = (long long)m * k;
    if (pair >= n) return;
    double sum = 0;
    for (int part = 0; part < n_parts; part++) sum += parts[part * n + pair];
    const double norms = numbers[(long long)NUMBERS * rows[pair / k]] * numbers[(long long)NUMBERS * columns[pair % k]];
    const double distance = (1 - sum / norms) / 2;  // of equal vectors a little below 0 by rounding
    out[(long long)lines[pair / k] * width + places[pair % k]] = distance < 0 ? 0 : distance > 1 ? 1 : distance;
}

// ---- Dense rows --------------------------------------------------------------------------------------------------------
//
// A slice is the 400 strings of each of ten middles. A value a is written as the sum of two float16 numbers, h + l, and
// ab as h h' + h l' + l b'. Below 128, h is a multiple of 1/16, so that sums of products h h' within a slice,
// which are nearly all of the whole, are exact in float32, in whatever order and however they are rounded. Then l has an error of at most 2^-17.

constexpr int THREADS = WARP * WARPS;
constexpr int LETTERS_A_SIDE = 20;
constexpr int STRINGS = LETTERS_A_SIDE * LETTERS_A_SIDE;
constexpr int SPAN = 10;  // middles of a slice
constexpr int PARTS = 3;  // of a row
constexpr int WORDS = SPAN * STRINGS / 2;
constexpr float STEPS = 16;
constexpr float LARGEST = 32768;

__device__ unsigned to_half(float value) {  // bits of the nearest, ties to even; finite ones only
    const unsigned bits = __float_as_int(value), sign = bits >> 16 & 0x8000u, size = bits & 0x7FFFFFFFu;
    if (size < 0x38800000u) return sign | (unsigned)rintf(fabsf(value) * 16777216.0f);  // a multiple of 2^-24
    return sign | (size + 0xFFFu + (size >> 13 & 1u) - 0x38000000u) >> 13;
}

__device__ float from_half(unsigned bits) {  // finite ones only
    const int size = bits & 0x7FFF;  // subnormal below 2^10
    const float value = size < 0x400 ? size * 5.9604644775390625e-8f : __int_as_float((size << 13) + 0x38000000);
    return bits & 0x8000 ? -value : value;
}

// For each vector the power of two, at most 1, by which its values become float16 numbers; a block a vector.
extern "C" __global__ void __launch_bounds__(128)
composition_scales(const long long* ends, const float* values, const long long* starts, float* scales) {
    __shared__ float largest[THREADS];
    const long long begin = starts[blockIdx.x], end = starts[blockIdx.x + 1];
    float mine = 1;
    if (begin < end)
        for (long long at = (begin ? ends[begin - 1] : 0) + threadIdx.x; at < ends[end - 1]; at += THREADS)
            mine = fmaxf(mine, fabsf(values[at]));
    largest[threadIdx.x] = mine;
    __syncthreads();
    if (threadIdx.x) return;
    for (int other = 1; other < THREADS; other++) mine = fmaxf(mine, largest[other]);
    float scale = 1;
    while (mine * scale > LARGEST) scale *= 0.5f;
    scales[blockIdx.x] = scale;
}

// Write a slice of a vector to a row of three parts, each of n_slices: h, h, l, or h, l, a for the right operand, so
// that one product of rows has all three terms. Block (x, y) takes slice x of row y. Middles are those of k up to 7.
extern "C" __global__ void __launch_bounds__(128)
composition_rows(const unsigned* middles, const unsigned* masks, const long long* ends, const unsigned short* codes,
                 const float* values, const long long* starts, const int* rows, const float* scales, unsigned* out,
                 unsigned long long first, int n_slices, int is_right) {
    const Vectors<unsigned> v{middles, masks, ends, codes, values};
    __shared__ float dense[SPAN * STRINGS];
    const int item = rows[blockIdx.y], lane = threadIdx.x % WARP;
    const unsigned long long from = first + (unsigned long long)blockIdx.x * SPAN;
    for (int at = threadIdx.x; at < SPAN * STRINGS; at += THREADS) dense[at] = 0;
    __syncthreads();
    const long long begin = first_from(v.middles, starts[item], starts[item + 1], from);
    const long long end = first_from(v.middles, begin, starts[item + 1], from + SPAN);
    for (long long i = begin + threadIdx.x / WARP; i < end; i += WARPS) {
        float* strings = dense + (v.middles[i] - from) * STRINGS;
        const unsigned lefts = v.masks[2 * i], rights = v.masks[2 * i + 1];
        for (int at = lane; at < STRINGS; at += WARP)
            if (lefts >> at / LETTERS_A_SIDE & rights >> at % LETTERS_A_SIDE & 1) strings[at] = -1;
        __syncwarp();
        for (long long e = (i ? v.ends[i - 1] : 0) + lane; e < v.ends[i]; e += WARP)
            strings[(v.codes[e] >> 5) * LETTERS_A_SIDE + (v.codes[e] & 31)] = v.values[e];
    }
    __syncthreads();
    const long long part = (long long)n_slices * WORDS;
    unsigned* row = out + blockIdx.y * PARTS * part + (long long)blockIdx.x * WORDS;
    const float scale = scales[item];
    for (int word = threadIdx.x; word < WORDS; word += THREADS) {
        unsigned high = 0, low = 0, whole = 0;
        for (int half = 0; half < 2; half++) {
            const float value = dense[2 * word + half];
            const unsigned bits = to_half(rintf(value * STEPS) * scale / STEPS);
            high |= bits << 16 * half;
            low |= to_half(value * scale - from_half(bits)) << 16 * half;
            whole |= to_half(value * scale) << 16 * half;
        }
        row[word] = high;
        row[part + word] = is_right ? low : high;
        row[2 * part + word] = is_right ? whole : low;
    }
}

// Add the products of the three parts of rows, (3 n_slices, m k), to the sums, slice by slice.
extern "C" __global__ void __launch_bounds__(128)
composition_add(const float* products, const float* scales, const int* rows, const int* columns, double* sums,
                int n_slices, int m, int k) {
    const long long pair = (long long)blockIdx.x * blockDim.x + threadIdx.x, n = (long long)m * k;
    if (pair >= n) return;
    const double scale = (double)scales[rows[pair / k]] * scales[columns[pair % k]];
    double sum = sums[pair];
    for (long long slice = 0; slice < n_slices; slice++) {
        double found = 0;
        for (int part = PARTS - 1; part >= 0; part--) found += products[(part * n_slices + slice) * n + pair];
        sum += found / scale;
    }
    sums[pair] = sum;
}
