"""Kernels on the CPU: right ones give right answers in every order, and planted faults are all found."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from support.compiler import require_compiler
from tartan.testing.emulator import Emulator, KernelError, find_races

pytestmark = pytest.mark.slow
require_compiler()

# Sums of the rows of a matrix, by blocks of 64 threads over all rows; `fault` plants one fault. And two small kernels.
SOURCE = r"""
#define WITHOUT_BARRIER 1
#define WITHOUT_CLEARING 2
#define SHARED_TOO_FAR 3
#define LEAVES_EARLY 4
#define OTHER_BARRIER 5
#define WITHOUT_ATOMIC 6
extern "C" __global__ void __launch_bounds__(64)
sums(const float* x, float* totals, int n_rows, int n_totals, int fault) {
    __shared__ float line[64];
    __shared__ float parts[2];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (fault != WITHOUT_CLEARING && warp == 0 && lane < 2) parts[lane] = 0;
    for (int row = blockIdx.x; row < n_rows; row += gridDim.x) {
        for (int at = threadIdx.x; at < (fault == SHARED_TOO_FAR ? 65 : 64); at += 64) line[at] = x[row * 64 + at % 64];
        if (fault == LEAVES_EARLY && threadIdx.x == 5) return;
        if (fault == OTHER_BARRIER && threadIdx.x == 5) __syncthreads();
        if (fault != WITHOUT_BARRIER) __syncthreads();
        float value = line[63 - threadIdx.x];
        for (int by = 16; by; by /= 2) value += __shfl_down_sync(0xffffffffu, value, by);
        if (lane == 0) parts[warp] += value;
        __syncthreads();
        if (threadIdx.x == 0) {
            float* total = &totals[row % n_totals];
            if (fault == WITHOUT_ATOMIC) *total += parts[0] + parts[1];
            else atomicAdd(total, parts[0] + parts[1]);
            parts[0] = parts[1] = 0;
        }
        __syncthreads();
    }
}

extern "C" __global__ void exchanges(double* values, unsigned* votes, unsigned long long* most, int* last) {
    const int t = threadIdx.x;
    const double value = values[t];
    values[t] = __shfl_xor_sync(~0u, value, 1) + 10 * __shfl_up_sync(~0u, value, 2, 8);
    votes[t] = t < 16 ? __ballot_sync(0xffffu, value > 3) : __ballot_sync(0xffff0000u, t % 2);
    atomicMax(most, (unsigned long long)t * 1000000007ull);
    if (__any_sync(~0u, t == 4) && __all_sync(~0u, t < 32)) atomicAdd(last, 1);
}

extern "C" __global__ void writes_before(int* x, int lane) {
    if (threadIdx.x != lane) x[-1 - (int)threadIdx.x] = __shfl_sync(0xffffffffu, x[threadIdx.x], 0);
}
"""
RIGHT, WITHOUT_BARRIER, WITHOUT_CLEARING, SHARED_TOO_FAR, LEAVES_EARLY, OTHER_BARRIER, WITHOUT_ATOMIC = map(
    np.int32, range(7)
)
SEEDS = range(6)


@functools.cache
def module() -> Emulator:
    """Return the kernels, compiled."""
    return Emulator(SOURCE)


def sums(
    fault: np.int32 = RIGHT, *, seed: int = 0, n_rows: int = 12, n_totals: int = 5
) -> tuple[np.ndarray, np.ndarray]:
    """Return what the kernel finds, and the truth."""
    x = np.random.default_rng(seed).integers(-50, 50, (n_rows, 64)).astype(np.float32)
    totals = np.zeros(n_totals, np.float32)
    module().launch("sums", 4, 64, (x, totals, np.int32(n_rows), np.int32(n_totals), fault), seed=seed)
    truth = np.zeros(n_totals, np.float32)
    np.add.at(truth, np.arange(n_rows) % n_totals, x.sum(axis=1))
    return totals, truth


def test_a_right_kernel_is_right_in_every_order() -> None:
    for seed in SEEDS:
        found, truth = sums(seed=seed)
        assert np.array_equal(found, truth)


def test_a_seed_gives_the_same_run() -> None:
    """Also of a kernel whose answer depends on the order."""
    first, again, other = (sums(WITHOUT_BARRIER, seed=seed)[0] for seed in (1, 1, 2))
    assert np.array_equal(first, again, equal_nan=True)
    assert not np.array_equal(first, other, equal_nan=True)


def test_a_missing_barrier_changes_the_answer() -> None:
    wrong = [seed for seed in SEEDS if not np.array_equal(*sums(WITHOUT_BARRIER, seed=seed), equal_nan=True)]
    assert wrong == list(SEEDS)


def test_unset_shared_memory_shows() -> None:
    found, _ = sums(WITHOUT_CLEARING, n_totals=4)
    assert np.isnan(found).all()


def test_an_index_behind_shared_memory_is_named() -> None:
    with pytest.raises(KernelError, match="byte 256 of shared variable line, which has 256"):
        sums(SHARED_TOO_FAR)


def test_an_index_behind_a_buffer_is_named() -> None:
    x, totals = np.zeros((12, 64), np.float32), np.zeros(5, np.float32)
    with pytest.raises(KernelError, match=r"thread \(\d+, 0, 0\) of block \(0, 0, 0\) touched byte 3\d+ of argument 0"):
        module().launch("sums", 1, 64, (x, totals, np.int32(13), np.int32(5), RIGHT))
    with pytest.raises(KernelError, match="byte 20 of argument 1, which has 20"):
        module().launch("sums", 1, 64, (x, totals, np.int32(12), np.int32(6), RIGHT))


def test_what_is_written_before_a_buffer_is_found() -> None:
    with pytest.raises(KernelError, match="before the beginning of argument 0"):
        module().launch("writes_before", 1, 32, (np.zeros(32, np.int32), np.int32(-1)))


@pytest.mark.parametrize("fault", [LEAVES_EARLY, OTHER_BARRIER])
def test_a_divergent_barrier_is_an_error(fault: np.int32) -> None:
    with pytest.raises(KernelError, match=r"divergent barrier: thread .* line \d+, thread .*"):
        sums(fault)


def test_a_shuffle_that_a_lane_misses_is_an_error() -> None:
    with pytest.raises(KernelError, match=r"all threads wait: thread .* in line 43"):
        module().launch("writes_before", 1, 32, (np.zeros(32, np.int32), np.int32(3)))


def test_shuffles_votes_and_atomics() -> None:
    values, votes, most, last = np.arange(32.0), np.zeros(32, np.uint32), np.zeros(1, np.uint64), np.zeros(1, np.int32)
    module().launch("exchanges", 1, 32, (values, votes, most, last))
    lanes = np.arange(32)
    assert np.array_equal(values, (lanes ^ 1) + 10.0 * np.where(lanes % 8 < 2, lanes, lanes - 2))
    assert set(votes[:16]) == {0xFFF0}
    assert set(votes[16:]) == {0xAAAA0000}
    assert (most[0], last[0]) == (31 * 1000000007, 32)


def test_arguments_must_be_what_the_kernel_declares() -> None:
    assert module().parameters("sums") == ["const *f4", "*f4", "i4", "i4", "i4"]
    x, totals, n = np.zeros((12, 64), np.float32), np.zeros(5, np.float32), np.int32(5)
    wrong = {
        "takes 5 arguments": (x, totals, n),
        r"declared i4, got i8": (x, totals, 12, n, n),
        r"declared const \*f4, got \*f8": (x.astype(float), totals, n, n, n),
        "has gaps": (x[:, ::2], totals, n, n, n),
        "overlaps another": (x, x[0], n, n, n),
    }
    for said, args in wrong.items():
        with pytest.raises(KernelError, match=said):
            module().launch("sums", 1, 64, args)
    with pytest.raises(KernelError, match="no launch"):
        module().launch("sums", 1, 1025, (x, totals, n, n, n))
    with pytest.raises(KeyError, match="there are sums"):
        module().parameters("other")


def test_source_that_does_not_compile_is_refused() -> None:
    with pytest.raises(RuntimeError, match=r"kernel\.cu:1"):
        Emulator('extern "C" __global__ void k() { x = 1; }')
    with pytest.raises(ValueError, match="dynamic shared memory"):
        Emulator("extern __shared__ float x[];")


def test_an_update_without_atomic_is_a_race() -> None:
    """Of two blocks, which the fibres of one system thread cannot show; and a missing barrier."""
    x, totals = np.ones((4, 64), np.float32), np.zeros(1, np.float32)

    def report(fault: np.int32) -> str | None:
        return find_races(SOURCE, "sums", 2, 64, (x, totals, np.int32(4), np.int32(1), fault))

    assert report(RIGHT) is None
    assert totals[0] == 256
    assert "data race" in str(report(WITHOUT_ATOMIC))
    assert "data race" in str(report(WITHOUT_BARRIER))


LAST_BLOCK = r"""
extern "C" __global__ void last_block(double* parts, int* done, double* total, int without) {
    __shared__ int last;
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = blockIdx.x + 1;
        if (without != 1) __threadfence();  // publishes
        last = atomicAdd(done, 1) == gridDim.x - 1;
        if (without != 2) __threadfence();  // takes
    }
    __syncthreads();
    if (last && threadIdx.x == 1) for (int at = 0; at < gridDim.x; at++) *total += parts[at];
}
"""


def test_fences_order_what_blocks_hand_over() -> None:
    def report(without: int) -> str | None:
        args = (np.zeros(4), np.zeros(1, np.int32), total, np.int32(without))
        return find_races(LAST_BLOCK, "last_block", 4, 2, args)

    total = np.zeros(1)
    assert report(0) is None
    assert total[0] == 10
    assert "data race" in str(report(1))
    assert "data race" in str(report(2))


def test_a_kernel_may_have_the_name_of_a_function_of_the_system() -> None:
    numbers = np.zeros(1, np.float32)
    source = 'extern "C" __global__ void wait(float* numbers) { numbers[0] = 3; }'
    Emulator(source).launch("wait", 1, 1, [numbers])
    assert numbers[0] == 3
