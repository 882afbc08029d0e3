// Registration of particles: for each pair the rigid motion of one onto the other with the greatest overlap.
//
// It is the search of the CPU (crates/tartan-kernels/src/microscopy). Particles are drawn at many angles and transformed
// (`draw_pictures`), a block correlates one angle of a pair and keeps its highest peaks (`find_peaks`), a block chooses
// the starts of a pair (`choose_starts`). Then blocks take climbs, one pair from one start each, from a queue and run the
// whole of each: trust-region Newton with the exact Hessian (`register_stage`). The block that ends the last climb of a
// pair chooses the starts of the next stage, or writes the result.
//
// Pictures and terms are float32, sums over points float64. Results do not depend on which block does what.

constexpr int THREADS = 64;
constexpr int WARPS = THREADS / 32;
constexpr int CHUNK = 128;   // points of the target in shared memory
constexpr int GROUP = 32;    // points that are left out together where they are far
constexpr int CLIMBS = 8;    // as of the CPU: search.rs
constexpr int OF_ANGLE = 4;  // as of the CPU: spectra.rs, like all below
constexpr float WORTH = 0.6f;
constexpr double PIXEL = 2.5, SAME = 1.0, BRUSH = 2.8, LEAST_DRAWN = 0.6, MOST_DRAWN = 2.5;
constexpr int TAPS = 7;
constexpr int MOST_SIDE = 128;
constexpr int STRIP = 8;     // lines that are transformed together

constexpr double PI = 3.14159265358979323846;
constexpr double LOG2_E = 1.44269504088896340736;
constexpr float FAR = 39.0f;  // exponent of 2 beyond which groups are left out
constexpr float LEAST_EXPONENT = -90.0f;

// A particle begins with these numbers (layout.py). Then come x, y and variances of its points, and of each group of
// points x and y of its centre, its radius and its greatest variance; then the same of the sample, if there is one.
enum Header { N_POINTS, N_SAMPLE, CENTRE_X, CENTRE_Y, RADIUS, REACH, VARIANCE, PRINT_HIGH, PRINT_LOW, HEADER };

struct Points {
    const double *x, *y, *variance, *groups;
    int n;
};

struct Motion {
    double x, y, theta;
};

// One pair: the particle that moves, the target, and what all its stages share.
struct Pair {
    const double *a, *b;
    bool swapped;
    double scale, radius, period;
};

// What one stage of one pair climbs on.
struct Objective {
    Points source, target;
    double zoom, per_variance;  // coordinates and variances are multiplied with these
    double f0, f1, f2, f3;      // the sums of order 0, 1, 2 and the value with these
};

struct Sums {
    double value, gx, gy, gt, xx, xy, yy, xt, yt, tt;
};

__device__ Points points_of(const double* particle, bool coarse) {
    const int n = int(particle[N_POINTS]), sample = int(particle[N_SAMPLE]);
    const double* at = particle + HEADER;
    int size = n;
    if (coarse && sample) {
        at += 3 * n + 4 * ((n + GROUP - 1) / GROUP);
        size = sample;
    }
    return Points{at, at + size, at + 2 * size, at + 3 * size, size};
}

__device__ Pair pair_of(const double* left, const double* right, int symmetry) {
    const bool swapped = left[PRINT_HIGH] > right[PRINT_HIGH] ||
                         (left[PRINT_HIGH] == right[PRINT_HIGH] && left[PRINT_LOW] > right[PRINT_LOW]);
    Pair pair;
    pair.a = swapped ? right : left;
    pair.b = swapped ? left : right;
    pair.swapped = swapped;
    pair.scale = sqrt(left[VARIANCE] + right[VARIANCE]);
    pair.radius = fmax(sqrt(left[RADIUS] * right[RADIUS]), pair.scale * 1e-3);
    pair.period = 2 * PI / symmetry;
    return pair;
}

// ---- The objective --------------------------------------------------------------------------------------------------

__device__ Objective gauss(const Pair& pair, double scale) {
    Objective o;
    o.source = points_of(pair.a, true), o.target = points_of(pair.b, true);
    const double pairs = double(o.source.n) * double(o.target.n), s2 = scale * scale;
    o.zoom = sqrt(LOG2_E) / scale, o.per_variance = 0;
    o.f0 = 2 / s2 / pairs, o.f1 = 2 / s2 / o.zoom / pairs, o.f2 = 4 / (s2 * s2) / (o.zoom * o.zoom) / pairs;
    o.f3 = 1 / pairs;
    return o;
}

__device__ Objective overlap(const Pair& pair) {
    Objective o;
    o.source = points_of(pair.a, false), o.target = points_of(pair.b, false);
    const double u2 = pair.a[VARIANCE] + pair.b[VARIANCE];
    o.zoom = sqrt(LOG2_E / 2 / u2), o.per_variance = 1 / u2;
    o.f0 = 1 / (u2 * u2), o.f1 = 1 / (u2 * u2 * o.zoom), o.f2 = 1 / (u2 * u2 * u2 * o.zoom * o.zoom);
    o.f3 = 1 / u2;
    return o;
}

// Sum a number over the threads of a block; the first thread gets it.
__device__ double block_sum(double value, double* parts) {
    for (int by = 16; by; by /= 2) value += __shfl_down_sync(0xffffffffu, value, by);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
    __syncthreads();
    double sum = 0;
    if (threadIdx.x == 0)
        for (int warp = 0; warp < WARPS; warp++) sum += parts[warp];
    __syncthreads();
    return sum;
}

// The value with gradient and Hessian by (x, y, theta), in the first thread of the block. All threads call it.
template <bool SCORE> __device__ Sums sums_at(const Objective& o, const Motion& motion) {
    __shared__ float tx[CHUNK];
    __shared__ float ty[CHUNK];
    __shared__ float tv[CHUNK];
    __shared__ double parts[WARPS];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    double sin_theta, cos_theta;
    sincos(motion.theta, &sin_theta, &cos_theta);
    Sums total = {};
    for (int first = 0; first < o.target.n; first += CHUNK) {
        __syncthreads();
        for (int at = threadIdx.x; at < CHUNK && first + at < o.target.n; at += THREADS) {
            tx[at] = float(o.target.x[first + at] * o.zoom);
            ty[at] = float(o.target.y[first + at] * o.zoom);
            tv[at] = float(o.target.variance[first + at] * o.per_variance);
        }
        __syncthreads();
        for (int group = warp; group * GROUP < o.source.n; group += WARPS) {
            const int i = min(group * GROUP + lane, o.source.n - 1);
            const double ax = o.source.x[i], ay = o.source.y[i];
            const double qx = cos_theta * ax - sin_theta * ay, qy = sin_theta * ax + cos_theta * ay;
            const float x = float((qx + motion.x) * o.zoom), y = float((qy + motion.y) * o.zoom);
            const float v = float(o.source.variance[i] * o.per_variance);
            const double* circle = o.source.groups + 4 * group;
            const double cx = cos_theta * circle[0] - sin_theta * circle[1] + motion.x;
            const double cy = sin_theta * circle[0] + cos_theta * circle[1] + motion.y;
            float s0 = 0, s1x = 0, s1y = 0, sxx = 0, sxy = 0, syy = 0, value = 0;
            for (int start = 0; start < CHUNK && first + start < o.target.n; start += GROUP) {
                const double* other = o.target.groups + 4 * ((first + start) / GROUP);
                const double dx = cx - other[0], dy = cy - other[1];
                const float apart = float((sqrt(dx * dx + dy * dy) - circle[2] - other[2]) * o.zoom);
                const float limit = SCORE ? FAR * float((circle[3] + other[3]) * o.per_variance) : FAR;
                if (apart > 0 && apart * apart > limit) continue;
                const int end = min(start + GROUP, o.target.n - first);
#pragma unroll 4
                for (int j = start; j < end; j++) {
                    const float ex = x - tx[j], ey = y - ty[j];
                    const float square = ex * ex + ey * ey;
                    float weight, second;
                    if (SCORE) {
                        const float inverse = __fdividef(1.0f, v + tv[j]);
                        const float term = exp2f(fmaxf(-square * inverse, LEAST_EXPONENT)) * inverse;
                        value += term;
                        weight = term * inverse;
                        second = weight * inverse;
                    } else {
                        weight = second = exp2f(fmaxf(-square, LEAST_EXPONENT));
                    }
                    s0 += weight;
                    s1x += weight * ex;
                    s1y += weight * ey;
                    sxx += second * ex * ex;
                    sxy += second * ex * ey;
                    syy += second * ey * ey;
                }
            }
            if (group * GROUP + lane >= o.source.n) continue;  // a lane without a point of its own
            const double t0 = s0 * o.f0, t1x = s1x * o.f1, t1y = s1y * o.f1;
            const double txx = sxx * o.f2, txy = sxy * o.f2, tyy = syy * o.f2;
            const double ux = -qy, uy = qx;
            const double vx = txx * ux + txy * uy, vy = txy * ux + tyy * uy;
            total.value += SCORE ? value : s0;
            total.gx -= t1x;
            total.gy -= t1y;
            total.gt -= t1x * ux + t1y * uy;
            total.xx += txx - t0;
            total.xy += txy;
            total.yy += tyy - t0;
            total.xt += vx - t0 * ux;
            total.yt += vy - t0 * uy;
            total.tt += ux * vx + uy * vy - t0 * (ux * ux + uy * uy) + t1x * qx + t1y * qy;
        }
    }
    total.value = block_sum(total.value, parts) * o.f3;
    total.gx = block_sum(total.gx, parts), total.gy = block_sum(total.gy, parts), total.gt = block_sum(total.gt, parts);
    total.xx = block_sum(total.xx, parts), total.xy = block_sum(total.xy, parts), total.yy = block_sum(total.yy, parts);
    total.xt = block_sum(total.xt, parts), total.yt = block_sum(total.yt, parts), total.tt = block_sum(total.tt, parts);
    return total;
}

// ---- Trust-region Newton; one thread --------------------------------------------------------------------------------

struct Vector {
    double x, y, t;
};

__device__ double dot(const Vector& a, const Vector& b) { return a.x * b.x + a.y * b.y + a.t * b.t; }
__device__ double norm(const Vector& a) { return sqrt(dot(a, a)); }

// Derivatives by the way of a turn in place of its angle.
__device__ Sums in_lengths(Sums s, double radius) {
    s.gt /= radius, s.xt /= radius, s.yt /= radius, s.tt /= radius * radius;
    return s;
}

// By how much the quadratic model grows along a step.
__device__ double gain(const Sums& s, const Vector& d) {
    const Vector product = {s.xx * d.x + s.xy * d.y + s.xt * d.t, s.xy * d.x + s.yy * d.y + s.yt * d.t,
                            s.xt * d.x + s.yt * d.y + s.tt * d.t};
    return s.gx * d.x + s.gy * d.y + s.gt * d.t + dot(d, product) / 2;
}

// One rotation of Jacobi: makes the element pq zero, where r is the third index; p and q are columns of eigenvectors.
__device__ void rotate(double& pp, double& qq, double& pq, double& pr, double& qr, Vector& p, Vector& q) {
    if (pq == 0) return;
    const double ratio = (qq - pp) / (2 * pq);
    const double tangent = (ratio < 0 ? -1.0 : 1.0) / (fabs(ratio) + sqrt(ratio * ratio + 1));
    const double c = 1 / sqrt(tangent * tangent + 1), s = tangent * c;
    pp -= tangent * pq, qq += tangent * pq, pq = 0;
    const double former = pr;
    pr = c * former - s * qr, qr = s * former + c * qr;
    const Vector old = p;
    p = {c * old.x - s * q.x, c * old.y - s * q.y, c * old.t - s * q.t};
    q = {s * old.x + c * q.x, s * old.y + c * q.y, s * old.t + c * q.t};
}

// The step of at most `trusted` along which the quadratic model grows most.
__device__ Vector step(const Sums& h, double trusted) {
    double a = -h.xx, b = -h.yy, c = -h.tt, ab = -h.xy, ac = -h.xt, bc = -h.yt;
    Vector u = {1, 0, 0}, v = {0, 1, 0}, w = {0, 0, 1};
    for (int sweep = 0; sweep < 12; sweep++) {
        if (fabs(ab) + fabs(ac) + fabs(bc) <= 1e-15 * (fabs(a) + fabs(b) + fabs(c))) break;
        rotate(a, b, ab, ac, bc, u, v);
        rotate(a, c, ac, ab, bc, u, w);
        rotate(b, c, bc, ab, ac, v, w);
    }
    const Vector g = {h.gx, h.gy, h.gt}, along = {dot(u, g), dot(v, g), dot(w, g)};
    const double lowest = fmin(a, fmin(b, c)), largest = fmax(fabs(a), fmax(fabs(b), fabs(c)));
    const double tiny = 1e-12 * fmax(largest, 2.2250738585072014e-308);
    double low = lowest > tiny ? 0.0 : tiny - lowest;
    Vector found = {along.x / (a + low), along.y / (b + low), along.t / (c + low)};
    if (norm(found) > trusted) {
        double high = low + norm(along) / trusted + tiny;
        for (int halving = 0; halving < 40; halving++) {
            const double middle = (low + high) / 2;
            const Vector there = {along.x / (a + middle), along.y / (b + middle), along.t / (c + middle)};
            if (norm(there) > trusted) low = middle;
            else high = middle;
        }
        found = {along.x / (a + high), along.y / (b + high), along.t / (c + high)};
    } else if (lowest <= tiny) {
        const double rest = sqrt(fmax(trusted * trusted - dot(found, found), 0.0));
        if (a == lowest) found.x += found.x < 0 ? -rest : rest;
        else if (b == lowest) found.y += found.y < 0 ? -rest : rest;
        else found.t += found.t < 0 ? -rest : rest;
    }
    Vector d = {found.x * u.x + found.y * v.x + found.t * w.x, found.x * u.y + found.y * v.y + found.t * w.y,
                found.x * u.t + found.y * v.t + found.t * w.t};
    const double length = norm(d);
    if (length > trusted) d = {d.x * trusted / length, d.y * trusted / length, d.t * trusted / length};
    return d;
}

struct Climb {
    double scale, radius, reach, flat, shortest;
};

struct Peak {
    Motion motion;
    double value;
    int evaluations;
};

// Maximise from a start; the first thread of the block has the result.
template <bool SCORE> __device__ Peak climb_from(const Objective& o, const Climb& c, const Motion& start) {
    __shared__ Motion next;
    __shared__ int going;
    Peak peak = {start, 0, 1};
    Sums here = in_lengths(sums_at<SCORE>(o, start), c.radius);
    double trusted = c.scale / 2;
    for (;;) {
        Vector taken = {};
        if (threadIdx.x == 0) {
            going = peak.evaluations < 30 && norm({here.gx, here.gy, here.gt}) * c.scale > c.flat * here.value;
            if (going) {
                const Vector wanted = step(here, trusted);
                const Motion m = peak.motion;
                next = {fmin(fmax(m.x + wanted.x, -c.reach), c.reach), fmin(fmax(m.y + wanted.y, -c.reach), c.reach),
                        m.theta + wanted.t / c.radius};
                taken = {next.x - m.x, next.y - m.y, (next.theta - m.theta) * c.radius};
                going = !(norm(taken) < c.shortest * c.scale);
            }
        }
        __syncthreads();
        if (!going) break;
        const Motion to = next;
        const Sums there = in_lengths(sums_at<SCORE>(o, to), c.radius);
        if (threadIdx.x == 0) {
            peak.evaluations++;
            const double ratio = (there.value - here.value) / gain(here, taken);
            if (ratio > 0.7) trusted = fmin(2 * trusted, 2 * c.scale);
            else if (!(ratio >= 0.25)) trusted *= 0.4;
            if (ratio > 0.01 && there.value > here.value) peak.motion = to, here = there;
        }
    }
    __syncthreads();  // `going` is read by all before the next climb sets it
    peak.value = here.value;
    return peak;
}

// ---- Stages ---------------------------------------------------------------------------------------------------------

__device__ double modulo(double x, double period) {
    const double rest = fmod(x, period);
    return rest < 0 ? rest + period : rest;
}

__device__ double wrapped(double theta) {
    if (theta >= -PI && theta < PI) return theta;
    const double turned = modulo(theta + PI, 2 * PI) - PI;
    return turned < PI ? turned : -PI;
}

__device__ double distance(const Motion& a, const Motion& b, double radius, double period) {
    const double turn = modulo(a.theta - b.theta, period);
    return hypot(a.x - b.x, a.y - b.y) + radius * fmin(turn, period - turn);
}

__device__ Motion inverse(const Motion& m) {
    double s, c;
    sincos(m.theta, &s, &c);
    return {-(c * m.x + s * m.y), -(c * m.y - s * m.x), wrapped(-m.theta)};
}

// Of n peaks (x, y, theta, value) write the best different ones to `chosen` (x, y, theta, value), at most `most`, the
// best first, of equal ones the lower; return how many. All threads call it; values are used up.
__device__ int choose(volatile double* peaks, int n, const Pair& pair, double near, int most, double* chosen) {
    __shared__ double values[WARPS];
    __shared__ int places[WARPS];
    __shared__ Motion best;
    for (int kept = 0;; kept++) {
        double value = -1;
        int place = -1;
        for (int at = threadIdx.x; at < n; at += THREADS)
            if (peaks[4 * at + 3] > value) value = peaks[4 * at + 3], place = at;
        for (int by = 16; by; by /= 2) {
            const double other = __shfl_down_sync(0xffffffffu, value, by);
            const int its = __shfl_down_sync(0xffffffffu, place, by);
            if (its >= 0 && (other > value || (other == value && its < place))) value = other, place = its;
        }
        if (threadIdx.x % 32 == 0) values[threadIdx.x / 32] = value, places[threadIdx.x / 32] = place;
        __syncthreads();
        for (int warp = 0; warp < WARPS; warp++) {
            const int its = places[warp];
            if (warp == 0 || (its >= 0 && (values[warp] > value || (values[warp] == value && its < place))))
                value = values[warp], place = its;
        }
        if (place < 0 || kept == most) return kept;
        if (threadIdx.x == 0) {
            best = {peaks[4 * place], peaks[4 * place + 1], peaks[4 * place + 2]};
            double* to = chosen + 4 * kept;
            to[0] = best.x, to[1] = best.y, to[2] = best.theta, to[3] = value;
        }
        __syncthreads();
        for (int at = threadIdx.x; at < n; at += THREADS) {
            const Motion motion = {peaks[4 * at], peaks[4 * at + 1], peaks[4 * at + 2]};
            if (at == place || !(distance(motion, best, pair.radius, pair.period) > near)) peaks[4 * at + 3] = -2;
        }
        __syncthreads();
    }
}

// Write B, x, y, theta and evaluations of a pair, and of the pair the other way round where that is in the tile.
__device__ void finish(const Pair& pair, const double* best, int evaluations, double* out, double* mirrored) {
    const double *left = pair.swapped ? pair.b : pair.a, *right = pair.swapped ? pair.a : pair.b;
    Motion m = {best[0], best[1], best[2]};
    if (pair.swapped) m = inverse(m);
    double s, c;
    sincos(m.theta, &s, &c);
    const double turned_x = c * left[CENTRE_X] - s * left[CENTRE_Y], turned_y = s * left[CENTRE_X] + c * left[CENTRE_Y];
    m = {m.x + right[CENTRE_X] - turned_x, m.y + right[CENTRE_Y] - turned_y, wrapped(m.theta)};
    out[0] = best[3], out[1] = m.x, out[2] = m.y, out[3] = m.theta, out[4] = evaluations;
    if (!mirrored) return;
    m = inverse(m);
    mirrored[0] = best[3], mirrored[1] = m.x, mirrored[2] = m.y, mirrored[3] = m.theta, mirrored[4] = evaluations;
}

// ---- All angles and translations ------------------------------------------------------------------------------------

// Transform the lines of a square, its columns or its rows, exponents negative. All threads call it.
__device__ void transform_lines(float* re, float* im, int side, bool columns) {
    __shared__ float x[STRIP * MOST_SIDE];
    __shared__ float y[STRIP * MOST_SIDE];
    __shared__ float cosines[MOST_SIDE / 2];
    __shared__ float sines[MOST_SIDE / 2];
    const int size = STRIP * side, half_side = side / 2;
    for (int k = threadIdx.x; k < half_side; k += THREADS) {
        double s, c;
        sincos(-2 * PI * k / side, &s, &c);
        cosines[k] = float(c), sines[k] = float(s);
    }
    for (int first = 0; first < side; first += STRIP) {
        __syncthreads();
        for (int at = threadIdx.x; at < size; at += THREADS) {
            const int line = columns ? at % STRIP : at / side, k = columns ? at / STRIP : at % side;
            const int from = columns ? k * side + first + line : (first + line) * side + k;
            int reversed = 0;
            for (int bit = 1, to = half_side; bit < side; bit *= 2, to /= 2)
                if (k & bit) reversed |= to;
            x[line * side + reversed] = re[from], y[line * side + reversed] = im[from];
        }
        __syncthreads();
        for (int half = 1; half < side; half *= 2) {
            for (int at = threadIdx.x; at < size / 2; at += THREADS) {
                const int line = at / half_side, k = at % half_side, place = k % half;
                const int a = line * side + (k / half) * 2 * half + place, b = a + half;
                const int turn = place * (half_side / half);
                const float c = cosines[turn], s = sines[turn];
                const float tx = x[b] * c - y[b] * s, ty = x[b] * s + y[b] * c;
                x[b] = x[a] - tx, y[b] = y[a] - ty;
                x[a] += tx, y[a] += ty;
            }
            __syncthreads();
        }
        for (int at = threadIdx.x; at < size; at += THREADS) {
            const int line = columns ? at % STRIP : at / side, k = columns ? at / STRIP : at % side;
            const int to = columns ? k * side + first + line : (first + line) * side + k;
            re[to] = x[line * side + k], im[to] = y[line * side + k];
        }
    }
    __syncthreads();
}

// Draw particles turned by angles, each point as a Gaussian around the first pixel, and transform the pictures: n of
// `side` x `side`, one behind the other. A thread owns rows, so that sums have one order.
extern "C" __global__ void __launch_bounds__(64, 4)
draw_pictures(const double* particles, const long long* offsets, const int* items, const double* pixels,
              const double* angles, int n, int side, float* re, float* im) {
    for (int picture = blockIdx.x; picture < n; picture += gridDim.x) {
        const Points points = points_of(particles + offsets[items[picture]], false);
        const double pixel = pixels[picture];
        float* to = re + (long long)picture * side * side;
        float* other = im + (long long)picture * side * side;
        double s, c;
        sincos(angles[picture], &s, &c);
        for (int row = threadIdx.x; row < side; row += THREADS) {
            float* line = to + row * side;
            for (int column = 0; column < side; column++) line[column] = 0, other[row * side + column] = 0;
            for (int at = 0; at < points.n; at++) {
                const double px = points.x[at] / pixel, py = points.y[at] / pixel;
                const double x = c * px - s * py, y = s * px + c * py;
                const double sigma = sqrt(points.variance[at]) / pixel;
                const double drawn = fmin(fmax(sigma, LEAST_DRAWN), MOST_DRAWN), larger = fmax(sigma, drawn);
                const int taps = min(int(ceil(BRUSH * drawn)), TAPS);
                const int middle_row = int(round(y)), middle = int(round(x));
                const int down = (row - middle_row + taps) & (side - 1);
                if (down > 2 * taps) continue;
                const float sharp = float(1 / (drawn * drawn)), off = float(down - taps - (y - middle_row));
                const float height = float(1 / (larger * larger)) * expf(-off * off * sharp / 2);
                for (int k = -taps; k <= taps; k++) {
                    const float across = float(k - (x - middle));
                    line[(middle + k) & (side - 1)] += height * expf(-across * across * sharp / 2);
                }
            }
        }
        __syncthreads();
        transform_lines(to, other, side, true);
        transform_lines(to, other, side, false);
    }
}

// The two correlations of an angle: real plus and minus imaginary part of the transform, whose parts are swapped.
struct Map {
    const float *re, *im;
    float sign;
    int side;
    __device__ float at(int row, int column) const {
        const int cell = (row & (side - 1)) * side + (column & (side - 1));
        return im[cell] + sign * re[cell];
    }
    // Whether no neighbour is higher, and none before it as high.
    __device__ bool is_top(int row, int column, float here) const {
        for (int k = 0; k < 9; k++) {
            if (k == 4) continue;
            const float other = at(row + k / 3 - 1, column + k % 3 - 1);
            if (other > here || (other == here && k < 4)) return false;
        }
        return true;
    }
};

// Where the top of a Gaussian through three values lies from the middle one; `over` is multiplied with what it is higher.
__device__ double between(float before, float here, float after, float& over) {
    const float tiny = here * 1e-3f;
    const float a = logf(fmaxf(before, tiny)), b = logf(fmaxf(here, tiny)), c = logf(fmaxf(after, tiny));
    const float curve = a - 2 * b + c;
    if (curve >= -1e-6f) return 0;
    const float off = fminf(fmaxf((a - c) / (2 * curve), -0.5f), 0.5f);
    over *= expf((c - a) * off / 4);
    return off;
}

// Of the cells of a map that come after (before, last) the highest top, of equal ones the first; -1 if none is as high
// as `least`. All threads call it and get it.
__device__ int next_top(const Map& map, float before, int last, float least, float& value) {
    __shared__ float values[WARPS];
    __shared__ int places[WARPS];
    int place = -1;
    value = least;
    for (int cell = threadIdx.x; cell < map.side * map.side; cell += THREADS) {
        const int row = cell / map.side, column = cell % map.side;
        const float here = map.at(row, column);
        if (here < value || (here == value && place >= 0)) continue;
        if (here > before || (here == before && cell <= last)) continue;
        if (map.is_top(row, column, here)) value = here, place = cell;
    }
    for (int by = 16; by; by /= 2) {
        const float other = __shfl_down_sync(0xffffffffu, value, by);
        const int its = __shfl_down_sync(0xffffffffu, place, by);
        if (its >= 0 && (place < 0 || other > value || (other == value && its < place))) value = other, place = its;
    }
    if (threadIdx.x % 32 == 0) values[threadIdx.x / 32] = value, places[threadIdx.x / 32] = place;
    __syncthreads();
    value = values[0], place = places[0];
    for (int warp = 1; warp < WARPS; warp++) {
        const int its = places[warp];
        if (its >= 0 && (place < 0 || values[warp] > value || (values[warp] == value && its < place)))
            value = values[warp], place = its;
    }
    __syncthreads();
    return place;
}

// Correlate one angle of one pair, and the angle opposite to it, and write its highest peaks (x, y, theta, value): of a
// pair most_angles * 2 * OF_ANGLE, those that are none with the value -2. Pictures of the one that moves begin at
// `movers` of a pair, and that of the target is at `targets`. A block has two squares of `scratch`.
extern "C" __global__ void __launch_bounds__(64, 4)
find_peaks(const float* re, const float* im, const double* angles, const double* pixels, const int* movers,
           const int* targets, const int* n_angles, int n, int most_angles, int side, float* scratch, double* peaks) {
    const int size = side * side;
    float* x = scratch + (long long)blockIdx.x * 2 * size;
    float* y = x + size;
    for (long long item = blockIdx.x; item < (long long)n * most_angles; item += gridDim.x) {
        const int number = int(item / most_angles), angle = int(item % most_angles);
        double* to = peaks + item * 2 * OF_ANGLE * 4;
        for (int at = threadIdx.x; at < 2 * OF_ANGLE; at += THREADS) to[4 * at + 3] = -2;
        __syncthreads();
        if (angle >= n_angles[number]) continue;
        const int picture = movers[number] + angle;
        const float *mover_re = re + (long long)picture * size, *mover_im = im + (long long)picture * size;
        const float *target_re = re + (long long)targets[number] * size, *target_im = im + (long long)targets[number] * size;
        for (int cell = threadIdx.x; cell < size; cell += THREADS) {
            const float hartley = mover_re[cell] - mover_im[cell];
            x[cell] = hartley * target_im[cell], y[cell] = hartley * target_re[cell];
        }
        __syncthreads();
        transform_lines(x, y, side, true);
        transform_lines(x, y, side, false);
        for (int half = 0; half < 2; half++) {
            const Map map = {x, y, half ? 1.0f : -1.0f, side};
            float before = 3.0e38f, least = 0;
            int last = -1;
            for (int kept = 0; kept < OF_ANGLE; kept++) {
                float value;
                const int cell = next_top(map, before, last, least, value);
                if (cell < 0) break;
                if (kept == 0) least = WORTH * value;
                before = value, last = cell;
                if (threadIdx.x) continue;
                const int row = cell / side, column = cell % side;
                float over = 1;
                const double off_x = between(map.at(row, column - 1), value, map.at(row, column + 1), over);
                const double off_y = between(map.at(row - 1, column), value, map.at(row + 1, column), over);
                double* peak = to + 4 * (half * OF_ANGLE + kept);
                peak[0] = ((column >= side / 2 ? column - side : column) + off_x) * pixels[picture];
                peak[1] = ((row >= side / 2 ? row - side : row) + off_y) * pixels[picture];
                peak[2] = angles[picture] + half * PI;
                peak[3] = value * over;
            }
        }
        __syncthreads();  // before the squares are written again
    }
}

// Of all translations that a peak stands for write the one with the greatest F at the scale of a pixel. All threads call
// it; returns how many there are.
__device__ int unwrap(const Pair& pair, double pixel, int side, double* start) {
    const double width = pixel * side, reach = pair.a[REACH] + pair.b[REACH];
    const int turns = int(ceil(reach / width)) + 1;
    const Motion peak = {start[0], start[1], start[2]};
    const Objective o = gauss(pair, sqrt(2.0) * pixel);
    double best = -1;
    int n = 0;
    for (int across = -turns; across <= turns; across++)
        for (int up = -turns; up <= turns; up++) {
            const Motion motion = {peak.x + across * width, peak.y + up * width, peak.theta};
            if (fabs(motion.x) > reach || fabs(motion.y) > reach) continue;
            const double value = sums_at<false>(o, motion).value;
            n++;
            if (threadIdx.x == 0 && value > best) best = value, start[0] = motion.x, start[1] = motion.y;
        }
    __syncthreads();
    return n;
}

// Choose the starts of n pairs from their peaks: `numbers` are those of the pairs in the tile.
extern "C" __global__ void __launch_bounds__(64, 4)
choose_starts(const double* particles, const long long* offsets, int m, int k, const int* numbers, const double* pixels,
              int n, int most_angles, int side, double* peaks, double* starts, int* n_starts, int* evaluations,
              int symmetry) {
    __shared__ double place[4];
    for (int at = blockIdx.x; at < n; at += gridDim.x) {
        const int number = numbers[at], most = most_angles * 2 * OF_ANGLE;
        const Pair pair = pair_of(particles + offsets[number / k], particles + offsets[m + number % k], symmetry);
        double* to = starts + 4 * CLIMBS * (long long)number;
        int kept = choose(peaks + 4 * (long long)at * most, most, pair, SAME * pixels[at], CLIMBS, to);
        while (kept > 1 && to[4 * (kept - 1) + 3] < WORTH * to[3]) kept--;
        int looked = 0;
        for (int start = 0; start < kept; start++) {
            if (threadIdx.x < 4) place[threadIdx.x] = to[4 * start + threadIdx.x];
            __syncthreads();
            looked += unwrap(pair, pixels[at], side, place);
            if (threadIdx.x < 2) to[4 * start + threadIdx.x] = place[threadIdx.x];
            __syncthreads();
        }
        if (threadIdx.x == 0) n_starts[number] = kept, evaluations[number] = looked;
    }
}

// ---- Climbs ---------------------------------------------------------------------------------------------------------

// One stage of a tile of particles. `particles` holds them one behind the other, the left (m), then the right (k), at
// `offsets`. Pairs are numbered by rows; `mirror` says of a pair which other one it is the other way round, -1 if none,
// and -2 if it is itself filled by another. The stage begins at `starts` (pairs, CLIMBS, 4), of which a pair has
// `n_starts`. Stages from 0 on climb on Gauss transforms, of pairs whose pixels are that coarse; the last, -1, on B.
// Zeros at first: `queue`, `done` (pairs).
extern "C" __global__ void __launch_bounds__(64, 4)
register_stage(const double* particles, const long long* offsets, int m, int k, const int* mirror, const double* pixels,
               int stage, const double* starts, const int* n_starts, double* peaks, unsigned* queue, int* done,
               double* chosen, int* n_chosen, int* evaluations, double* out, int symmetry) {
    __shared__ unsigned taken;
    __shared__ int last;
    __shared__ double best[4];
    for (;;) {
        __syncthreads();
        if (threadIdx.x == 0) taken = atomicAdd(queue, 1u);
        __syncthreads();
        const unsigned item = taken;
        if (item >= unsigned(m) * unsigned(k) * unsigned(CLIMBS)) return;
        const int number = int(item / CLIMBS), at = int(item % CLIMBS);
        if (mirror[number] == -2) continue;
        const Pair pair = pair_of(particles + offsets[number / k], particles + offsets[m + number % k], symmetry);
        const int n = n_starts[number];
        if (at >= n) continue;
        const long long place = 4 * (CLIMBS * (long long)number + at);
        const double unit = stage < 0 ? pair.scale : sqrt(2.0) * pixels[number] / double(1 << stage);
        if (stage >= 0 && !(unit > PIXEL * pair.scale)) {
            if (threadIdx.x < 4) chosen[place + threadIdx.x] = starts[place + threadIdx.x];
            if (threadIdx.x == 0) n_chosen[number] = n;
            continue;
        }
        const Motion start = {starts[place], starts[place + 1], starts[place + 2]};
        const double reach = pair.a[REACH] + pair.b[REACH];
        Peak peak;
        if (stage >= 0) peak = climb_from<false>(gauss(pair, unit), {unit, pair.radius, reach, 1e-2, 1e-2}, start);
        else peak = climb_from<true>(overlap(pair), {unit, pair.radius, reach, 1e-4, 1e-5}, start);
        double* of_pair = peaks + 4 * CLIMBS * (long long)number;
        if (threadIdx.x == 0) {
            double* to = of_pair + 4 * at;
            to[0] = peak.motion.x, to[1] = peak.motion.y, to[2] = peak.motion.theta, to[3] = peak.value;
            atomicAdd(&evaluations[number], peak.evaluations);
            __threadfence();
            last = atomicAdd(&done[number], 1) == n - 1;
            __threadfence();
        }
        __syncthreads();
        if (!last) continue;
        if (stage >= 0) {
            const int kept = choose(of_pair, n, pair, SAME * unit, CLIMBS, chosen + 4 * CLIMBS * (long long)number);
            if (threadIdx.x == 0) n_chosen[number] = kept;
        } else {
            const int kept = choose(of_pair, n, pair, 0, 1, best);
            if (threadIdx.x == 0 && kept) {
                double* mirrored = mirror[number] < 0 ? nullptr : out + 5 * (long long)mirror[number];
                finish(pair, best, atomicAdd(&evaluations[number], 0), out + 5 * (long long)number, mirrored);
            }
        }
    }
}
