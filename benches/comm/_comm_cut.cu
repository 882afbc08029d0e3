// The programs of examples/comm cut at each message, behind compute.cu: a block has a slot's work of one step, and the
// host launches the steps.

extern "C" __global__ void strip_step(int* steps, int first, int rows, int width, int height, int limit) {
    strip_of(steps, first, rows, width, height, limit, threadIdx.x, blockDim.x);
}

// Blocks of `a` and `b` that have moved left and up so many steps from where they lie.
extern "C" __global__ void product_step(double* c, const double* a, const double* b, int size, int side, int moved) {
    const int row = blockIdx.x / side, column = blockIdx.x % side;
    const int from_right = row * side + (column + moved) % side, from_below = (row + moved) % side * side + column;
    const long long block = (long long)size * size;
    add_product(c + blockIdx.x * block, a + from_right * block, b + from_below * block, size, threadIdx.x, blockDim.x);
}

extern "C" __global__ void move_step(double* places, double* speeds, const double* whole, int n) {
    const int first = first_of(n, gridDim.x, blockIdx.x), count = first_of(n, gridDim.x, blockIdx.x + 1) - first;
    move(places + 3 * first, speeds + 3 * first, count, whole, n, threadIdx.x, blockDim.x);
}

extern "C" __global__ void take(double* to, const double* from, int n) {
    for (int at = blockIdx.x * blockDim.x + threadIdx.x; at < n; at += gridDim.x * blockDim.x) to[at] = from[at];
}
