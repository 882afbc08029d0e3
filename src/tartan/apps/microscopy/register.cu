// Registration of particles: for each pair the rigid motion of one onto the other with the greatest overlap.
//
// It is the search of the CPU (crates/tartan-kernels/src/microscopy), launched once for each of its three stages. Blocks
// take climbs, one pair from one start each, from a queue and run the whole of each: trust-region Newton with the exact
// Hessian. The block that ends the last climb of a pair chooses the starts of the next stage, or writes the result.
//
// Terms are float32, sums over points float64. Sums do not depend on which block runs a climb.

constexpr int THREADS = 64;
constexpr int WARPS = THREADS / 32;
constexpr int CHUNK = 128;   // points of the target in shared memory
constexpr int GROUP = 32;    // points that are left out together where they are far
constexpr int TO_MIDDLE = 16, TO_FINE = 12;

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

struct Settings {
    int starts;
    double scale;
    int symmetry;
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

__device__ Pair pair_of(const double* left, const double* right, const Settings& settings) {
    const bool swapped = left[PRINT_HIGH] > right[PRINT_HIGH] ||
                         (left[PRINT_HIGH] == right[PRINT_HIGH] && left[PRINT_LOW] > right[PRINT_LOW]);
    Pair pair;
    pair.a = swapped ? right : left;
    pair.b = swapped ? left : right;
    pair.swapped = swapped;
    pair.scale = settings.scale > 0 ? settings.scale : sqrt(left[VARIANCE] + right[VARIANCE]);
    pair.radius = fmax(sqrt(left[RADIUS] * right[RADIUS]), pair.scale * 1e-3);
    pair.period = 2 * PI / settings.symmetry;
    return pair;
}

// How many angles the first stage of a pair starts from.
__device__ int starts_of(const Pair& pair, const Settings& settings) {
    int whole = settings.starts;
    if (whole <= 0) {
        const double ways = 2 * PI * pair.radius / (1.25 * 4 * pair.scale);
        whole = int(fmin(fmax(2 * round(ways / 2), 6.0), 96.0));
    }
    return max(1, (whole + settings.symmetry - 1) / settings.symmetry);
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

// One stage of a tile of particles. `particles` holds them one behind the other, the left (m), then the right (k), at
// `offsets`. Pairs are numbered by rows; `mirror` says of a pair which other one it is the other way round, -1 if none,
// and -2 if it is itself filled by another. The stage begins at `starts` (pairs, most_starts, 4), of which a pair has
// `n_starts`; the first makes its own. Zeros at first: `queue`, `done` (pairs), `evaluations` (pairs).
extern "C" __global__ void __launch_bounds__(64)
register_stage(const double* particles, const long long* offsets, int m, int k, const int* mirror, int stage,
               const double* starts, const int* n_starts, int most_starts, double* peaks, unsigned* queue, int* done,
               double* chosen, int* n_chosen, int* evaluations, double* out, int wanted_starts, double scale, int symmetry) {
    __shared__ unsigned taken;
    __shared__ int last;
    __shared__ double best[4];
    const Settings settings = {wanted_starts, scale, symmetry};
    for (;;) {
        __syncthreads();
        if (threadIdx.x == 0) taken = atomicAdd(queue, 1u);
        __syncthreads();
        const unsigned item = taken;
        if (item >= unsigned(m) * unsigned(k) * unsigned(most_starts)) return;
        const int number = int(item / most_starts), at = int(item % most_starts);
        if (mirror[number] == -2) continue;
        const Pair pair = pair_of(particles + offsets[number / k], particles + offsets[m + number % k], settings);
        const int n = stage == 0 ? starts_of(pair, settings) : n_starts[number];
        if (at >= n) continue;
        Motion start = {0, 0, pair.period * (double(at) / n - 0.5)};
        if (stage > 0) {
            const double* from = starts + 4 * ((long long)number * most_starts + at);
            start = {from[0], from[1], from[2]};
        }
        const double unit = stage == 0 ? 4 * pair.scale : stage == 1 ? 2 * pair.scale : pair.scale;
        const double reach = pair.a[REACH] + pair.b[REACH];
        Peak peak;
        if (stage < 2) peak = climb_from<false>(gauss(pair, unit), {unit, pair.radius, reach, 1e-2, 1e-2}, start);
        else peak = climb_from<true>(overlap(pair), {unit, pair.radius, reach, 1e-4, 1e-5}, start);
        double* of_pair = peaks + 4 * (long long)number * most_starts;
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
        if (stage < 2) {
            const int most = stage == 0 ? TO_MIDDLE : TO_FINE;
            const int kept = choose(of_pair, n, pair, 0.3 * unit, most, chosen + 4 * (long long)number * most);
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
