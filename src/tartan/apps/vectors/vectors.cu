// Tiles of distances of dense vectors: Manhattan, Hamming, Jaccard, and the last step of Euclidean ones, which begin as a
// matrix product.
//
// In the tiles, a block of 16 x 16 threads scores 64 x 64 pairs, a thread 4 x 4 of them. Positions are staged in shared memory, 16 at a
// time. Rows beyond the last repeat it and are not written; positions beyond the last are zeros on both sides.
//
// Counts are exact. Sums of Manhattan are taken in the type of the items over 128 positions, and in float64 over these:
// relative error at most 130 u for float32, (130 + d / 128) u for float64.

constexpr int SIDE = 64;
constexpr int STEP = 16;
constexpr int THREADS = 16;
constexpr int EACH = SIDE / THREADS;
constexpr int STEPS_OF_A_PART = 8;

// `left` holds m, `right` k rows of `stride` items, of which the first `width` are compared.
#define TILE(Item, Score) const Item *left, const Item *right, Score *out, int m, int k, int width, int stride

template <class Item_, class Score_> struct Manhattan {
    typedef Item_ Item;
    typedef Score_ Score;
    typedef Item_ Part;
    typedef double Whole;
    static __device__ Part term(Item a, Item b) { return a < b ? b - a : a - b; }
    static __device__ Score finish(Whole sum, const Item*, const Item*, int) { return Score(sum); }
};

template <class Item_, class Score_> struct Hamming {
    typedef Item_ Item;
    typedef Score_ Score;
    typedef unsigned Part;
    typedef unsigned Whole;
    static __device__ Part term(Item a, Item b) { return a != b; }
    static __device__ Score finish(Whole sum, const Item*, const Item*, int width) {
        return Score(double(sum) / double(width));
    }
};

// Packed bits; the item behind the last word says how many positions there are.
template <class Score_> struct HammingBits {
    typedef unsigned long long Item;
    typedef Score_ Score;
    typedef unsigned Part;
    typedef unsigned Whole;
    static __device__ Part term(Item a, Item b) { return __popcll(a ^ b); }
    static __device__ Score finish(Whole sum, const Item* a, const Item*, int width) {
        return Score(double(sum) / double(a[width]));
    }
};

// Packed sets; the item behind the last word says how many members there are.
template <class Score_> struct JaccardBits {
    typedef unsigned long long Item;
    typedef Score_ Score;
    typedef unsigned Part;
    typedef unsigned Whole;
    static __device__ Part term(Item a, Item b) { return __popcll(a & b); }
    static __device__ Score finish(Whole both, const Item* a, const Item* b, int width) {
        const Item either = a[width] + b[width] - both;
        return Score(either ? double(either - both) / double(either) : 0.0);
    }
};

template <class Item>
__device__ void stage(Item (*to)[SIDE + 1], const Item* from, int n_rows, int first, int start, int width, int stride) {
    const int thread = threadIdx.y * THREADS + threadIdx.x;
    for (int at = thread; at < SIDE * STEP; at += THREADS * THREADS) {
        const int row = min(first + at / STEP, n_rows - 1), position = start + at % STEP;
        to[at % STEP][at / STEP] = position < width ? from[(long long)row * stride + position] : Item(0);
    }
}

template <class Metric> __device__ void tile(TILE(typename Metric::Item, typename Metric::Score)) {
    __shared__ typename Metric::Item a[STEP][SIDE + 1];
    __shared__ typename Metric::Item b[STEP][SIDE + 1];
    const int row = blockIdx.y * SIDE, column = blockIdx.x * SIDE;
    typename Metric::Whole whole[EACH][EACH] = {};
    typename Metric::Part part[EACH][EACH] = {};
    for (int start = 0; start < width; start += STEP) {
        stage(a, left, m, row, start, width, stride);
        stage(b, right, k, column, start, width, stride);
        __syncthreads();
#pragma unroll
        for (int position = 0; position < STEP; position++)
#pragma unroll
            for (int i = 0; i < EACH; i++)
#pragma unroll
                for (int j = 0; j < EACH; j++)
                    part[i][j] += Metric::term(a[position][threadIdx.y + i * THREADS], b[position][threadIdx.x + j * THREADS]);
        __syncthreads();
        if ((start / STEP + 1) % STEPS_OF_A_PART && start + STEP < width) continue;
#pragma unroll
        for (int i = 0; i < EACH; i++)
#pragma unroll
            for (int j = 0; j < EACH; j++) {
                whole[i][j] += part[i][j];
                part[i][j] = 0;
            }
    }
#pragma unroll
    for (int i = 0; i < EACH; i++)
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            const int r = row + threadIdx.y + i * THREADS, c = column + threadIdx.x + j * THREADS;
            if (r >= m || c >= k) continue;
            const typename Metric::Item *first = left + (long long)r * stride, *second = right + (long long)c * stride;
            out[(long long)r * k + c] = Metric::finish(whole[i][j], first, second, width);
        }
}

// Where blocks a core are given, the compiler of CUDA 13 would else spill registers.
#define ARGUMENTS left, right, out, m, k, width, stride

extern "C" __global__ void __launch_bounds__(256) manhattan_f4_f4(TILE(float, float)) { tile<Manhattan<float, float>>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256) manhattan_f8_f4(TILE(double, float)) { tile<Manhattan<double, float>>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256) manhattan_f8_f8(TILE(double, double)) { tile<Manhattan<double, double>>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256) hamming_i1_f4(TILE(signed char, float)) { tile<Hamming<signed char, float>>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256) hamming_i2_f4(TILE(short, float)) { tile<Hamming<short, float>>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256) hamming_i4_f4(TILE(int, float)) { tile<Hamming<int, float>>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256, 3) hamming_i8_f4(TILE(long long, float)) { tile<Hamming<long long, float>>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256) hamming_i1_f8(TILE(signed char, double)) { tile<Hamming<signed char, double>>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256) hamming_i2_f8(TILE(short, double)) { tile<Hamming<short, double>>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256) hamming_i4_f8(TILE(int, double)) { tile<Hamming<int, double>>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256, 3) hamming_i8_f8(TILE(long long, double)) { tile<Hamming<long long, double>>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256) hamming_bits_f4(TILE(unsigned long long, float)) { tile<HammingBits<float>>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256) hamming_bits_f8(TILE(unsigned long long, double)) { tile<HammingBits<double>>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256) jaccard_bits_f4(TILE(unsigned long long, float)) { tile<JaccardBits<float>>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256) jaccard_bits_f8(TILE(unsigned long long, double)) { tile<JaccardBits<double>>(ARGUMENTS); }

// Turns products of rows into (squared) Euclidean distances in place. A warp takes 32 of them at a time; what has cancelled,
// that is what lies below `below` times the sum of both squared norms, all its lanes compute again from the differences, with
// sums of float64. Norms lie at `norm_at` of rows of `norm_stride` numbers.
template <class Number>
__device__ void finish(const Number* left, const Number* right, const Number* left_norms, const Number* right_norms,
                       Number* products, double below, int m, int k, int width, int stride, int norm_at, int norm_stride,
                       int root) {
    constexpr unsigned ALL = 0xFFFFFFFFu;
    constexpr int WARP = 32;
    const int lane = threadIdx.x % WARP;
    const long long count = (long long)m * k, step = (long long)gridDim.x * blockDim.x;
    for (long long first = (long long)blockIdx.x * blockDim.x + threadIdx.x - lane; first < count; first += step) {
        const long long at = first + lane;
        Number found = 0;
        bool cancelled = false;
        if (at < count) {
            const Number sum = left_norms[at / k * norm_stride + norm_at] + right_norms[at % k * norm_stride + norm_at];
            found = sum - 2 * products[at];
            cancelled = found < Number(below) * sum;
        }
        for (unsigned left_over = __ballot_sync(ALL, cancelled); left_over; left_over &= left_over - 1) {
            const long long pair = first + __ffs(left_over) - 1;
            const Number *a = left + pair / k * stride, *b = right + pair % k * stride;
            double sum = 0;
            for (int position = lane; position < width; position += WARP) {
                const double difference = double(a[position]) - double(b[position]);
                sum += difference * difference;
            }
            for (int across = WARP / 2; across; across /= 2) sum += __shfl_xor_sync(ALL, sum, across);
            if (at == pair) found = Number(sum);
        }
        if (at < count) products[at] = root ? sqrt(found) : found;
    }
}

#define FINISH(Number) \
    const Number *left, const Number *right, const Number *left_norms, const Number *right_norms, Number *products, \
        double below, int m, int k, int width, int stride, int norm_at, int norm_stride, int root
#define GIVEN left, right, left_norms, right_norms, products, below, m, k, width, stride, norm_at, norm_stride, root

extern "C" __global__ void __launch_bounds__(256) finish_euclidean_f4(FINISH(float)) { finish<float>(GIVEN); }
extern "C" __global__ void __launch_bounds__(256) finish_euclidean_f8(FINISH(double)) { finish<double>(GIVEN); }

// Turns products of unit rows into cosine distances in place. Where one is as small as rounding may make that of equal rows,
// which is `near` of its row, the rows are compared; unlike ones differ within a few positions.
template <class Number>
__device__ void finish_unit(const Number* left, const Number* right, const double* near, Number* products, int m, int k,
                            int width) {
    const long long count = (long long)m * k, step = (long long)gridDim.x * blockDim.x;
    for (long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x; at < count; at += step) {
        Number distance = 1 - products[at];
        if (distance <= near[at / k]) {
            const Number *a = left + at / k * width, *b = right + at % k * width;
            int position = 0;
            while (position < width && a[position] == b[position]) position++;
            if (position == width) distance = 0;
        }
        products[at] = distance < 0 ? 0 : distance > 2 ? 2 : distance;  // NaN stays
    }
}

#define FINISH_UNIT(Number) \
    const Number *left, const Number *right, const double *near, Number *products, int m, int k, int width
#define GIVEN_UNIT left, right, near, products, m, k, width

extern "C" __global__ void __launch_bounds__(256) finish_cosine_f4(FINISH_UNIT(float)) { finish_unit<float>(GIVEN_UNIT); }
extern "C" __global__ void __launch_bounds__(256) finish_cosine_f8(FINISH_UNIT(double)) { finish_unit<double>(GIVEN_UNIT); }
