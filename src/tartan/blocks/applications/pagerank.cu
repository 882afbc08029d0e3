// Page rank: what comes along links, added up for every page.

// A thread takes a page and adds what its links carry in their order, as a CPU does, so that the bits are the same.
extern "C" __global__ void __launch_bounds__(128)
sum_links(const long long* starts, const double* flows, double* sums, int n_pages) {
    const long long page = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (page >= n_pages) return;
    double sum = 0;
    for (long long link = starts[page] - starts[0]; link < starts[page + 1] - starts[0]; link++) sum += flows[link];
    sums[page] = sum;
}
