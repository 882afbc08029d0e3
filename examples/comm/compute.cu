// What the programs of this folder compute on a GPU: the threads of a slot, or of a block, share the work.

// After how many steps the points of some rows escape, `limit` where they do not.
__device__ void strip_of(int* steps, int first, int rows, int width, int height, int limit, unsigned thread, unsigned threads) {
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
__device__ void move(double* places, double* speeds, int count, const double* others, int n, unsigned thread, unsigned threads) {
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
__device__ void add_product(double* c, const double* a, const double* b, int size, unsigned thread, unsigned threads) {
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
