// The programs of this folder for slots. Rank 0, a CPU rank, hands out and collects; all others compute, slots as CPU
// ranks do. First what the threads of a slot compute, then the messages.
#include <tartan_comm.h>

using tartan::u32;
using tartan::u64;

// After how many steps the points of some rows escape, `limit` where they do not.
__device__ void strip_of(int* steps, int first, int rows, int width, int height, int limit, u32 thread, u32 threads) {
    for (int at = thread; at < rows * width; at += threads) {
        const double re = -2.2 + 3.0 * (at % width) / (width - 1), im = 2.4 * (first + at / width) / height - 1.2;
        double x = 0, y = 0;
        int step = 0;
        for (; step < limit; step++) {
            const double squares = x * x - y * y;
            y = 2 * x * y + im, x = squares + re;
            if (x * x + y * y > 4) break;
        }
        steps[at] = step;
    }
}

// Let all bodies pull at some for one step; change where these are, and how fast.
__device__ void move(double* places, double* speeds, int count, const double* others, int n, u32 thread, u32 threads) {
    for (int at = thread; at < count; at += threads) {
        double pull[3] = {};
        for (int other = 0; other < n; other++) {
            double apart[3], squares = 1e-2;
            for (int k = 0; k < 3; k++) {
                apart[k] = others[3 * other + k] - places[3 * at + k];
                squares += apart[k] * apart[k];
            }
            const double weight = 1 / (squares * sqrt(squares));
            for (int k = 0; k < 3; k++) pull[k] += weight * apart[k];
        }
        for (int k = 0; k < 3; k++) {
            speeds[3 * at + k] += 1e-3 * pull[k] / n;
            places[3 * at + k] += 1e-3 * speeds[3 * at + k];
        }
    }
}

// Add the product of two square blocks to a third.
__device__ void add_product(double* c, const double* a, const double* b, int size, u32 thread, u32 threads) {
    for (int at = thread; at < size * size; at += threads) {
        const int row = at / size, column = at % size;
        double sum = 0;
        for (int k = 0; k < size; k++) sum += a[row * size + k] * b[k * size + column];
        c[at] += sum;
    }
}

// The body at which a rank's begin, of `workers` that divide them.
__device__ int first_of(int n, int workers, int worker) {
    return worker * (n / workers) + (worker < n % workers ? worker : n % workers);
}

extern "C" __global__ void pingpong(tartan::Slots slots, unsigned char* message, int bytes, int times) {
    auto me = slots.here();
    me.barrier();
    me.barrier();
    for (int turn = 0; turn < times && me.rank() == 1; turn++) {
        me.recv(message, bytes, 0);
        me.send(message, bytes, 0);
    }
}

// Ask for strips until there are none; the tag of a strip is its first row.
extern "C" __global__ void mandelbrot(tartan::Slots slots, int* strips, int strip, int width, int height, int limit) {
    auto me = slots.here();
    int* steps = strips + me.rank() * (u64)strip * width;
    long long first = 0;
    me.barrier();
    for (int rows = 0;;) {
        const int done = static_cast<int>(first);
        me.sendrecv(steps, rows * (u64)width * sizeof(int), 0, done, &first, sizeof first, 0);
        if (first >= height) return;
        rows = height - first < strip ? static_cast<int>(height - first) : strip;
        strip_of(steps, static_cast<int>(first), rows, width, height, limit, me.thread(), me.threads());
    }
}

// Multiply by Cannon's algorithm; all but rank 0 make a square, and the blocks of a rank lie at its number.
extern "C" __global__ void cannon(tartan::Slots slots, double* c, double* a, double* b, int size, int side) {
    auto me = slots.here();
    const int row = (me.rank() - 1) / side, column = (me.rank() - 1) % side;
    const int left = 1 + row * side + (column + side - 1) % side, right = 1 + row * side + (column + 1) % side;
    const int above = 1 + (row + side - 1) % side * side + column, below = 1 + (row + 1) % side * side + column;
    const u64 block = me.rank() * (u64)size * size, bytes = (u64)size * size * sizeof(double);
    me.barrier();
    for (int step = 0; step < side; step++) {
        add_product(c + block, a + block, b + block, size, me.thread(), me.threads());
        if (step == side - 1) break;
        me.sendrecv_replace(a + block, bytes, left, 1, right, 1);
        me.sendrecv_replace(b + block, bytes, above, 2, below, 2);
    }
    me.gather(c + block, bytes, c, 0, 0);
}

// Move bodies; each rank has the places of all in memory of its own.
extern "C" __global__ void nbody(tartan::Slots slots, double* places, double* speeds, double* wholes, int n, int steps) {
    auto me = slots.here();
    const int first = first_of(n, me.size() - 1, me.rank() - 1);
    const int count = first_of(n, me.size() - 1, me.rank()) - first;
    double *mine = places + 3 * first, *whole = wholes + me.rank() * (u64)3 * n;
    const u64 bytes = (u64)3 * count * sizeof(double);
    me.barrier();
    for (int step = 0; step < steps; step++) {
        me.all_gather(mine, bytes, whole, (u64)3 * n * sizeof(double));
        move(mine, speeds + 3 * first, count, whole, n, me.thread(), me.threads());
    }
    me.gather(mine, bytes, whole, 0, 0);
}
