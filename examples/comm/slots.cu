// The programs of this folder for slots, behind compute.cu. Rank 0, a CPU rank, hands out and collects; all others compute,
// slots as CPU ranks do.
#include <tartan_comm.h>

using tartan::u64;

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
