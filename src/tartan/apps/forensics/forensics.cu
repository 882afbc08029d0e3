// Sensor noise patterns of photos, and how well they agree. The filter is that of prnu.py, with the same steps.
//
// A photo is h x w pixels, uint16 in units of 1/257. Its half spectrum is h x (w / 2 + 1) complex numbers, given as
// floats. Kernels ending in _f2 and _f4 write or read float16 (as its bits) and float32.
//
// Terms are float32. Sums of a few dozen terms are too; sums over rows, columns, photos and slices are float64, in an
// order that depends on the size of the photo alone.

constexpr int SIDE = 32;     // pixels or frequencies that a block treats, a side; also threads along x
constexpr int LINES = 8;     // threads along y
constexpr int THREADS = SIDE * LINES;
constexpr int MARGIN = 4;    // half of the largest box, 9
constexpr int REACH = 5;     // shifts that belong to a peak reach from -5 to 5
constexpr int SHIFTS = 2 * REACH + 1;
constexpr float TINY = 1e-30f;
constexpr float STRONG = 2e-4f;  // share of the energy in the peak above which its neighbours are measured

// ---- float16, as bits -------------------------------------------------------------------------------------------------

__device__ unsigned short to_half(float value) {  // to the nearest, ties to even
    const unsigned bits = __float_as_int(value), sign = bits >> 16 & 0x8000u, size = bits & 0x7FFFFFFFu;
    if (size > 0x7F800000u) return sign | 0x7E00u;
    if (size >= 0x47800000u) return sign | 0x7C00u;
    if (size < 0x38800000u) return sign | (unsigned)rintf(fabsf(value) * 16777216.0f);  // a multiple of 2^-24
    return sign | (size + 0xFFFu + (size >> 13 & 1u) - 0x38000000u) >> 13;
}

__device__ float from_half(unsigned short bits) {  // finite ones only
    const int size = bits & 0x7FFF;  // subnormal below 2^10; CuPy has subnormal float32 numbers flushed to zero
    const float value = size < 0x400 ? size * 5.9604644775390625e-8f : __int_as_float((size << 13) + 0x38000000);
    return bits & 0x8000 ? -value : value;
}

__device__ void put(unsigned short* to, float value) { *to = to_half(value); }
__device__ void put(float* to, float value) { *to = value; }
__device__ float take(unsigned short value) { return from_half(value); }
__device__ float take(float value) { return value; }

// ---- Sums of a block ---------------------------------------------------------------------------------------------------

// Sums of what threads of even and of odd number give; `part` has a place for each thread, and holds the two sums.
__device__ void sum_by_parity(double mine, double* part, int thread) {
    __syncthreads();
    part[thread] = mine;
    __syncthreads();
    if (thread < SIDE)
        for (int at = thread + SIDE; at < THREADS; at += SIDE) part[thread] += part[at];
    __syncthreads();
    if (thread < 2)
        for (int at = thread + 2; at < SIDE; at += 2) part[thread] += part[at];
    __syncthreads();
}

extern "C" __global__ void __launch_bounds__(256) add_up(const double* parts, double* total, int n) {
    __shared__ double part[THREADS];
    double mine = 0;
    for (int at = threadIdx.x; at < n; at += THREADS) mine += parts[at];
    sum_by_parity(mine, part, threadIdx.x);
    if (threadIdx.x == 0) total[0] = part[0] + part[1];
}

// Add the slices of a product, (n_slices, count), to totals.
extern "C" __global__ void __launch_bounds__(256) add_slices(const float* slices, double* totals, int n_slices, int count) {
    const int at = blockIdx.x * THREADS + threadIdx.x;
    if (at >= count) return;
    double sum = totals[at];
    for (int slice = 0; slice < n_slices; slice++) sum += slices[(long long)slice * count + at];
    totals[at] = sum;
}

extern "C" __global__ void __launch_bounds__(256) scaled(const double* totals, float* out, double scale, int count) {
    const int at = blockIdx.x * THREADS + threadIdx.x;
    if (at < count) out[at] = float(totals[at] * scale);
}

// ---- Noise filter and zero mean ----------------------------------------------------------------------------------------

// Twice the derivative at place i of n: central inside, one-sided at the borders.
__device__ float slope(float before, float at, float after, int i, int n) {
    if (i == 0) return (after - at) * 2;
    return i == n - 1 ? (at - before) * 2 : after - before;
}

// The filter, and the sums of its even and odd rows in each column over 32 rows: column_sums (bands, 2, w).
extern "C" __global__ void __launch_bounds__(256)
filter_photo(const unsigned short* photo, float* residual, float* column_sums, int h, int w) {
    __shared__ float grey[SIDE + 4][SIDE + 5];
    __shared__ float across[SIDE + 2][SIDE + 3];
    __shared__ float down[SIDE + 2][SIDE + 3];
    __shared__ float sums[LINES][SIDE];
    const int left = blockIdx.x * SIDE, top = blockIdx.y * SIDE, tx = threadIdx.x, ty = threadIdx.y;
    const int thread = ty * SIDE + tx;
    for (int at = thread; at < (SIDE + 4) * (SIDE + 4); at += THREADS) {
        const int row = at / (SIDE + 4), column = at % (SIDE + 4), y = top + row - 2, x = left + column - 2;
        const bool inside = 0 <= y && y < h && 0 <= x && x < w;
        grey[row][column] = inside ? float(photo[(long long)y * w + x]) * (1.0f / 257) : 0.0f;
    }
    __syncthreads();
    for (int at = thread; at < (SIDE + 2) * (SIDE + 2); at += THREADS) {
        const int r = at / (SIDE + 2), c = at % (SIDE + 2), y = top + r - 1, x = left + c - 1;
        float u = 0, v = 0;
        if (0 <= y && y < h && 0 <= x && x < w) {
            u = slope(grey[r + 1][c], grey[r + 1][c + 1], grey[r + 1][c + 2], x, w);
            v = slope(grey[r][c + 1], grey[r + 1][c + 1], grey[r + 2][c + 1], y, h);
            const float weight = 2 + sqrtf(u * u + v * v);
            u /= weight;
            v /= weight;
        }
        across[r][c] = u;
        down[r][c] = v;
    }
    __syncthreads();
    const int x = left + tx;
    float sum = 0;
    for (int r = ty; r < SIDE; r += LINES) {
        const int y = top + r;
        if (x >= w || y >= h) continue;
        const float horizontal = slope(across[r + 1][tx], across[r + 1][tx + 1], across[r + 1][tx + 2], x, w);
        const float value = horizontal + slope(down[r][tx + 1], down[r + 1][tx + 1], down[r + 2][tx + 1], y, h);
        residual[(long long)y * w + x] = value;
        sum += value;
    }
    sums[ty][tx] = sum;  // the rows of a thread are all even or all odd
    __syncthreads();
    if (ty < 2 && x < w)
        column_sums[((long long)blockIdx.y * 2 + ty) * w + x] = sums[ty][tx] + sums[ty + 2][tx] + sums[ty + 4][tx] + sums[ty + 6][tx];
}

// The means of even and odd rows in each column, (2, w).
extern "C" __global__ void __launch_bounds__(256)
column_means(const float* column_sums, float* means, int n_bands, int h, int w) {
    const int at = blockIdx.x * THREADS + threadIdx.x;
    if (at >= 2 * w) return;
    double sum = 0;
    for (int band = 0; band < n_bands; band++) sum += column_sums[(long long)band * 2 * w + at];
    means[at] = float(sum / (at < w ? (h + 1) / 2 : h / 2));
}

// Subtract the means of columns, then of even and odd columns in each row; a block a row. Writes the energy of the row.
extern "C" __global__ void __launch_bounds__(256)
remove_means(float* residual, const float* means, double* energies, int w) {
    __shared__ double part[THREADS];
    const int thread = threadIdx.x, odd = thread & 1;
    float* line = residual + (long long)blockIdx.x * w;
    const float* mean = means + (blockIdx.x & 1 ? w : 0);
    float sum = 0;
    for (int x = thread; x < w; x += THREADS) sum += line[x] - mean[x];
    sum_by_parity(sum, part, thread);
    const float rest = float(part[odd] / (odd ? w / 2 : (w + 1) / 2));
    float energy = 0;
    for (int x = thread; x < w; x += THREADS) {
        const float value = line[x] - mean[x] - rest;
        line[x] = value;
        energy += value * value;
    }
    sum_by_parity(energy, part, thread);
    if (thread == 0) energies[blockIdx.x] = part[0] + part[1];
}

// ---- Wiener filter -----------------------------------------------------------------------------------------------------

// |F|^2 at a place of the whole spectrum, zero outside of it; its second half mirrors the first.
__device__ float power_at(const float* half, int y, int x, int h, int w) {
    if (y < 0 || y >= h || x < 0 || x >= w) return 0;
    const int columns = w / 2 + 1;
    if (x >= columns) {
        x = w - x;
        y = y ? h - y : 0;
    }
    const float* number = half + 2 * ((long long)y * columns + x);
    return number[0] * number[0] + number[1] * number[1];
}

__device__ float gain(float least, float signal) { return signal / fmaxf(least, fmaxf(signal, TINY)); }

// The gain at one place, from the least of the means over boxes of 3, 5, 7 and 9.
__noinline__ __device__ float gain_at(const float* half, int y, int x, int h, int w, float signal) {
    float sum = power_at(half, y, x, h, w), least = 0;
    for (int reach = 1; reach <= MARGIN; reach++) {
        for (int d = -reach; d <= reach; d++)
            sum += power_at(half, y - reach, x + d, h, w) + power_at(half, y + reach, x + d, h, w);
        for (int d = 1 - reach; d < reach; d++)
            sum += power_at(half, y + d, x - reach, h, w) + power_at(half, y + d, x + reach, h, w);
        const float mean = sum * (1.0f / ((2 * reach + 1) * (2 * reach + 1)));
        least = reach == 1 ? mean : fminf(least, mean);
    }
    return gain(least, signal);
}

// Multiply a half spectrum by the gain. The inverse transform is real, so the gain at f and at -f is their mean; they
// differ near the borders only, where boxes are cut. `bias` is N / (N - 1) for N pixels.
extern "C" __global__ void __launch_bounds__(256)
wiener(const float* half, const double* energy, float* out, double bias, int h, int w) {
    __shared__ float power[SIDE + 2 * MARGIN][SIDE + 2 * MARGIN + 1];
    __shared__ float lines[MARGIN][SIDE + 2 * MARGIN][SIDE];
    const int left = blockIdx.x * SIDE, top = blockIdx.y * SIDE, tx = threadIdx.x, ty = threadIdx.y, columns = w / 2 + 1;
    const float signal = float(energy[0] * bias);
    for (int r = ty; r < SIDE + 2 * MARGIN; r += LINES)
        for (int c = tx; c < SIDE + 2 * MARGIN; c += SIDE)
            power[r][c] = power_at(half, top + r - MARGIN, left + c - MARGIN, h, w);
    __syncthreads();
    for (int r = ty; r < SIDE + 2 * MARGIN; r += LINES) {
        float sum = power[r][tx + MARGIN];
        for (int reach = 1; reach <= MARGIN; reach++) {
            sum += power[r][tx + MARGIN - reach] + power[r][tx + MARGIN + reach];
            lines[reach - 1][r][tx] = sum;
        }
    }
    __syncthreads();
    const int x = left + tx;
    if (x >= columns) return;
    for (int r = ty; r < SIDE; r += LINES) {
        const int y = top + r;
        if (y >= h) break;
        float least = 0;
        for (int reach = 1; reach <= MARGIN; reach++) {
            float sum = 0;
            for (int d = -reach; d <= reach; d++) sum += lines[reach - 1][r + MARGIN + d][tx];
            const float mean = sum * (1.0f / ((2 * reach + 1) * (2 * reach + 1)));
            least = reach == 1 ? mean : fminf(least, mean);
        }
        float factor = gain(least, signal);
        if (y <= MARGIN || y >= h - MARGIN || x <= MARGIN)
            factor = (factor + gain_at(half, y ? h - y : 0, x ? w - x : 0, h, w, signal)) * 0.5f;
        const long long at = 2 * ((long long)y * columns + x);
        out[at] = half[at] * factor;
        out[at + 1] = half[at + 1] * factor;
    }
}

// How many frequencies a column of the half spectrum stands for.
__device__ int weight_of(int x, int w) { return x == 0 || 2 * x == w ? 1 : 2; }

// The energy of each row of a half spectrum, as that of the whole; a block a row.
extern "C" __global__ void __launch_bounds__(256) spectrum_energies(const float* half, double* energies, int w) {
    __shared__ double part[THREADS];
    const int columns = w / 2 + 1;
    const float* line = half + 2 * (long long)blockIdx.x * columns;
    float sum = 0;
    for (int x = threadIdx.x; x < columns; x += THREADS)
        sum += weight_of(x, w) * (line[2 * x] * line[2 * x] + line[2 * x + 1] * line[2 * x + 1]);
    sum_by_parity(sum, part, threadIdx.x);
    if (threadIdx.x == 0) energies[blockIdx.x] = part[0] + part[1];
}

__device__ float scale_of(const double* energy, double wanted) { return energy[0] > 0 ? float(sqrt(wanted / energy[0])) : 0; }

// Write a pattern from its inverse transform, which is not divided by the number of pixels; `energy` is that of the
// spectrum. The sum of squares becomes `wanted`.
template <class Number>
__device__ void write_pattern(const float* pattern, const double* energy, Number* out, double wanted, int h, int w) {
    const float scale = scale_of(energy, wanted / (double(h) * w));
    const long long n = (long long)h * w, step = (long long)gridDim.x * THREADS;
    for (long long at = (long long)blockIdx.x * THREADS + threadIdx.x; at < n; at += step) put(out + at, pattern[at] * scale);
}

// Write a spectrum as two planes, (2, h, w / 2 + 1), whose plain products are correlations.
template <class Number>
__device__ void write_planes(const float* half, const double* energy, Number* out, double wanted, int h, int w) {
    const float scale = scale_of(energy, wanted);
    const int columns = w / 2 + 1;
    const long long n = (long long)h * columns, step = (long long)gridDim.x * THREADS;
    for (long long at = (long long)blockIdx.x * THREADS + threadIdx.x; at < n; at += step) {
        const float factor = scale * sqrtf(float(weight_of(int(at % columns), w)));
        put(out + at, half[2 * at] * factor);
        put(out + n + at, half[2 * at + 1] * factor);
    }
}

#define WRITTEN(Number) const float *from, const double *energy, Number *out, double wanted, int h, int w

extern "C" __global__ void __launch_bounds__(256) write_pattern_f2(WRITTEN(unsigned short)) { write_pattern(from, energy, out, wanted, h, w); }
extern "C" __global__ void __launch_bounds__(256) write_pattern_f4(WRITTEN(float)) { write_pattern(from, energy, out, wanted, h, w); }
extern "C" __global__ void __launch_bounds__(256) write_planes_f2(WRITTEN(unsigned short)) { write_planes(from, energy, out, wanted, h, w); }
extern "C" __global__ void __launch_bounds__(256) write_planes_f4(WRITTEN(float)) { write_planes(from, energy, out, wanted, h, w); }

// ---- Peaks of correlations ---------------------------------------------------------------------------------------------

// Power of n spectra, given as planes, in some rows; products of two are energies of a correlation: out (n, rows, columns).
template <class Number>
__device__ void powers(const Number* planes, float* out, float scale, int n, int first, int rows, int h, int w) {
    const int columns = w / 2 + 1;
    const long long count = (long long)rows * columns, plane = (long long)h * columns, step = (long long)gridDim.x * THREADS;
    for (long long at = (long long)blockIdx.x * THREADS + threadIdx.x; at < n * count; at += step) {
        const long long place = at / count * 2 * plane + (long long)first * columns + at % count;
        const float real = take(planes[place]), imaginary = take(planes[place + plane]);
        out[at] = (real * real + imaginary * imaginary) * scale * rsqrtf(float(weight_of(int(at % columns), w)));
    }
}

#define POWERS(Number) const Number *planes, float *out, float scale, int n, int first, int rows, int h, int w

extern "C" __global__ void __launch_bounds__(256) powers_f2(POWERS(unsigned short)) { powers(planes, out, scale, n, first, rows, h, w); }
extern "C" __global__ void __launch_bounds__(256) powers_f4(POWERS(float)) { powers(planes, out, scale, n, first, rows, h, w); }

// The sum of c^2 over the 11 x 11 shifts around zero of one pair, by a block: an inverse transform for these shifts alone.
template <class Number>
__device__ double block_energy(const Number* x_planes, const Number* y_planes, double scale, int h, int w) {
    __shared__ float sums[LINES][SHIFTS][2][SIDE];
    __shared__ float rows[SHIFTS][2][SIDE];
    __shared__ double part[THREADS];
    const int columns = w / 2 + 1, tx = threadIdx.x, ty = threadIdx.y, thread = ty * SIDE + tx;
    const long long plane = (long long)h * columns;
    const int down = thread / SHIFTS, across = thread % SHIFTS - REACH;
    double correlation = 0;
    for (int left = 0; left < columns; left += SIDE) {
        const int x = left + tx;
        float real[SHIFTS] = {}, imaginary[SHIFTS] = {};
        for (int y = ty; y < h && x < columns; y += LINES) {
            const long long at = (long long)y * columns + x;
            const float a = take(x_planes[at]), ai = take(x_planes[at + plane]);
            const float b = take(y_planes[at]), bi = take(y_planes[at + plane]);
            const float z = a * b + ai * bi, zi = ai * b - a * bi;
            float sine, cosine;
            sincospif(2.0f * y / h, &sine, &cosine);
            real[REACH] += z;
            imaginary[REACH] += zi;
            float c = cosine, s = sine;
#pragma unroll
            for (int shift = 1; shift <= REACH; shift++) {
                const float zc = z * c, zs = z * s, ic = zi * c, is = zi * s;
                real[REACH + shift] += zc - is;
                imaginary[REACH + shift] += zs + ic;
                real[REACH - shift] += zc + is;
                imaginary[REACH - shift] += ic - zs;
                const float next = c * cosine - s * sine;
                s = c * sine + s * cosine;
                c = next;
            }
        }
        __syncthreads();
#pragma unroll
        for (int shift = 0; shift < SHIFTS; shift++) {
            sums[ty][shift][0][tx] = real[shift];
            sums[ty][shift][1][tx] = imaginary[shift];
        }
        __syncthreads();
        for (int at = thread; at < SHIFTS * 2 * SIDE; at += THREADS) {
            const int shift = at / (2 * SIDE), which = at / SIDE % 2, column = at % SIDE;
            float sum = 0;
            for (int line = 0; line < LINES; line++) sum += sums[line][shift][which][column];
            rows[shift][which][column] = sum;
        }
        __syncthreads();
        if (thread < SHIFTS * SHIFTS)
            for (int column = 0; column < SIDE && left + column < columns; column++) {
                const long long turn = ((long long)across * (left + column) % w + w) % w;
                float sine, cosine;
                sincospif(2.0f * float(turn) / w, &sine, &cosine);
                correlation += rows[down][0][column] * cosine - rows[down][1][column] * sine;
            }
    }
    correlation *= scale;
    sum_by_parity(thread < SHIFTS * SHIFTS ? correlation * correlation : 0, part, thread);
    return part[0] + part[1];
}

// PCE at zero shift and NCC of all pairs. Blocks take pairs from a queue; those with a strong peak are measured.
// `dots` are sums of products of planes, `totals` energies of correlations; `scale` makes correlations of sums.
template <class Number>
__device__ void peaks(const Number* left, const Number* right, const double* dots, const double* totals, float* pce, float* ncc,
                      unsigned* queue, double scale, int m, int k, int h, int w) {
    __shared__ unsigned taken;
    const bool first = threadIdx.x == 0 && threadIdx.y == 0;
    const double n = double(h) * w;
    const long long item = 2LL * h * (w / 2 + 1);
    for (;;) {
        if (first) taken = atomicAdd(queue, 1u);
        __syncthreads();
        const unsigned pair = taken;
        __syncthreads();
        if (pair >= (unsigned)m * k) return;
        const float dot = float(dots[pair] * scale), peak = dot * dot;
        const double total = totals[pair];
        double noise = (total - peak) / (n - 1);
        if (peak > STRONG * total) {
            const double block = block_energy(left + pair / k * item, right + pair % k * item, scale, h, w);
            noise = (total - block) / (n - SHIFTS * SHIFTS);
        }
        if (!first) continue;
        ncc[pair] = dot;
        pce[pair] = (dot > 0 ? peak : dot < 0 ? -peak : 0) / fmaxf(float(noise), TINY);
    }
}

#define PEAKS(Number)                                                                                                      \
    const Number *left, const Number *right, const double *dots, const double *totals, float *pce, float *ncc,           \
        unsigned *queue, double scale, int m, int k, int h, int w

extern "C" __global__ void __launch_bounds__(256) peaks_f2(PEAKS(unsigned short)) { peaks(left, right, dots, totals, pce, ncc, queue, scale, m, k, h, w); }
extern "C" __global__ void __launch_bounds__(256) peaks_f4(PEAKS(float)) { peaks(left, right, dots, totals, pce, ncc, queue, scale, m, k, h, w); }
