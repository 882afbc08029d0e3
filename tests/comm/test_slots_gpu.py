"""Slots launched through CuPy: its stand-in runs their blocks as threads; with a GPU, the same programs run on it."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from support.compiler import require_compiler
from support.fake_cupy import FakeCupy, MisuseError
from support.gpu import require_gpu
from support.nvrtc import ARCHITECTURES, compile_cuda, find_nvrtc
from tartan import comm
from tartan.comm.slots import HEADERS, Kernel
from tartan.comm.slots_gpu import GpuSlots, SlotMemory, checks
from tartan.devices.resident import KernelSource, ResidentKernel
from tartan.errors import ConfigError, DeviceError, RankLostError, ResourceError

SOURCE = """
#include <tartan_comm.h>
extern "C" __global__ void scale(tartan::Slots slots, const float* rows, int n, float by, double* sums) {
    auto me = slots.here();
    const int slot = me.rank() - 1;
    double* mine = sums + slot * n;
    for (int at = me.thread(); at < n; at += me.threads()) mine[at] = rows[slot * n + at] * by;
    me.all_reduce(mine, mine, n * sizeof(double));
    me.send(mine, n * sizeof(double), 0, slot);
    int token = slot;
    me.sendrecv_replace(&token, sizeof token, (me.rank() + 1) % me.size(), 9, (me.rank() + me.size() - 1) % me.size());
    me.send(&token, sizeof token, 0, 10);
    me.barrier();
}
"""
OTHERS = """
#include <tartan_comm.h>
extern "C" __global__ void early(tartan::Slots slots) {
    auto me = slots.here();
    if (me.rank() > 1) me.recv(static_cast<int*>(nullptr), 0, 0);
}
extern "C" __global__ void trapped(tartan::Slots slots) {
    auto me = slots.here();
    if (me.rank() == 1) __trap();
    me.barrier();
}
extern "C" __global__ void plain(int* numbers) { numbers[0] = 1; }
"""
TYPED = """
#include <tartan_comm_arguments.h>
struct Pair { float low, high; };
extern "C" __global__ void typed(tartan::Slots slots, const Pair* pairs, unsigned char* bytes, bool flag, long many) {}
"""


def crashing_cupy():
    """Return a stand-in whose kernel ``trapped`` takes the GPU with it."""
    return FakeCupy(crashing=["trapped"])


FAKE = GpuSlots(FakeCupy)


def scaled(ranks, n):
    """Check, as rank 0, what the slots of the kernel ``scale`` send; return the sum."""
    total = ranks.all_reduce(np.arange(n, dtype=np.float64))
    slots = range(ranks.size - 1)
    rows = np.arange(len(slots) * n, dtype=np.float32).reshape(-1, n)
    expected = np.arange(n, dtype=np.float64)
    for row in rows:
        expected += (row * np.float32(0.5)).astype(np.float64)
    assert np.array_equal(total, expected)
    assert all(np.array_equal(ranks.recv(slot + 1, slot), total) for slot in slots)
    token = ranks.sendrecv_replace(np.array([-1], np.int32), 1, ranks.size - 1, tag=9, recv_tag=9)
    assert token[0] == slots[-1]
    for slot in slots:
        assert ranks.recv(slot + 1, 10)[0] == slot - 1
    ranks.barrier()
    return float(total.sum())


def scale_kernel(slots: int, n: int, **options) -> Kernel:
    """Return the kernel ``scale`` with its arguments."""
    rows = np.arange(slots * n, dtype=np.float32).reshape(slots, n)
    args = (rows, np.int32(n), np.float32(0.5), np.zeros((slots, n)))
    return Kernel(SOURCE, "scale", args, **{"threads": 3, **options})


def resident(name: str, cupy: FakeCupy, source: str) -> ResidentKernel:
    """Load a kernel with all its blocks resident."""
    return ResidentKernel(KernelSource(source, name, "", HEADERS), 3, cupy=cupy)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "blocks"), [pytest.param(5, 1, marks=pytest.mark.exhaustive), (4000, 2)])
def test_slots_run_by_a_cooperative_launch(n, blocks) -> None:
    require_compiler()
    gpu = scale_kernel(2, n, blocks_per_slot=blocks)
    found = comm.run(cpu=partial(scaled, n=n), gpu=gpu, cpus=1, gpus=1, slots=2, device=FAKE)
    rows = np.arange(2 * n, dtype=np.float32) * np.float32(0.5)
    assert found == [float(np.arange(n).sum() + rows.astype(np.float64).sum()), None, None]


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("name", "args", "error", "words"),
    [
        ("other", (), ConfigError, "no kernel 'other'; the source has early, trapped, plain"),
        ("early", (np.int32(1),), ConfigError, "early takes another number of arguments; got tartan::Slots and 1"),
        ("plain", (), ConfigError, "plain does not take tartan::Slots first"),
        ("trapped", (), RankLostError, "kernel trapped has failed on GPU 0: cudaErrorIllegalAddress"),
    ],
)
def test_kernels_that_cannot_run_end_all(name, args, error, words) -> None:
    require_compiler()
    gpu = Kernel(OTHERS, name, args, threads=3)
    with pytest.raises(error, match=words):
        comm.run(cpu=lambda ranks: ranks.recv(1, 1), gpu=gpu, cpus=1, slots=2, device=GpuSlots(crashing_cupy))


@pytest.mark.exhaustive
def test_slots_that_cannot_be_resident_are_refused_with_the_largest_number() -> None:
    require_compiler()
    gpu = scale_kernel(5, 2, blocks_per_slot=2)
    with pytest.raises(ResourceError, match=r"5 slots of 2 x 3 threads .* on GPU 0; at most 4 can"):
        comm.run(cpu=lambda ranks: ranks.recv(1, 1), gpu=gpu, cpus=1, slots=5, device=FAKE)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("at", "wrong", "words"),
    [
        (0, np.zeros(3, np.float32), r"argument 0: another type; got \*f4"),
        pytest.param(1, np.zeros(3, np.int32), r"argument 1: another type; got \*i4", marks=pytest.mark.exhaustive),
        pytest.param(2, np.float32(1), "argument 2: another type; got f4", marks=pytest.mark.exhaustive),
        pytest.param(3, np.int32(1), "argument 3: another type; got i4", marks=pytest.mark.exhaustive),
        pytest.param(3, np.zeros(2, np.int64), r"argument 3: another type; got \*i8", marks=pytest.mark.exhaustive),
    ],
)
def test_arguments_of_another_type_are_refused(at, wrong, words) -> None:
    require_compiler()
    args = [np.zeros(3, np.complex64), np.zeros(3, np.uint8), np.bool_(True), np.int64(1)]
    GpuSlots(FakeCupy).load(Kernel(TYPED, "typed", tuple(args), threads=3), 0)
    args[at] = wrong
    with pytest.raises(ConfigError, match=words):
        GpuSlots(FakeCupy).load(Kernel(TYPED, "typed", tuple(args), threads=3), 0)


@pytest.mark.exhaustive
def test_nothing_is_taken_pinned_or_loaded_while_a_kernel_is_resident() -> None:
    require_compiler()
    cupy = FakeCupy()
    stream, host = cupy.cuda.Stream(non_blocking=True), np.zeros(2 * 4096, np.uint8)
    kernel = resident("plain", cupy, OTHERS)
    base, window = kernel.map(host.ctypes.data, 4096), kernel.map(host.ctypes.data + 4096, 4096)
    assert list(cupy.registered.values()) == [4096, 4096]
    with cupy.cuda.Device(0), stream:
        function = cupy.RawModule(code=OTHERS, options=(f"-I{HEADERS}",)).get_function("early").kernel
        words = SlotMemory(bytes(96)).moved(base, window)
        function((1, 1, 1), (3, 1, 1), (words,), stream=stream, enable_cooperative_groups=True)
    with pytest.raises(MisuseError, match="memory pinned while a kernel is resident"):
        kernel.map(host.ctypes.data + 8192, 1)
    with pytest.raises(MisuseError, match="memory taken while a kernel is resident"):
        kernel.upload(np.zeros(3))
    assert len(cupy.misuse) == 2


@pytest.mark.exhaustive
def test_kernels_use_only_host_memory_that_is_mapped() -> None:
    require_compiler()
    cupy = FakeCupy()
    kernel, host = resident("early", cupy, OTHERS), np.zeros(4096, np.uint8)
    words = SlotMemory(bytes(96)).moved(kernel.map(host.ctypes.data, 4096), 64)
    with pytest.raises(MisuseError, match="not mapped"):
        kernel.run(1, [words])
    with pytest.raises(DeviceError, match="9 blocks cannot be resident at once on GPU 0; 8 can"):
        kernel.run(9, [words])
    kernel.close()
    assert cupy.registered == {}


@pytest.mark.exhaustive
@pytest.mark.skipif(find_nvrtc() is None, reason="NVRTC is not installed")
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_assertions_of_arguments_compile_for_gpus(architecture) -> None:
    given = [np.zeros(3, np.complex64), np.zeros(3, np.uint8), np.bool_(True), np.int64(1)]
    compile_cuda(TYPED + checks("typed", given), architecture, include=HEADERS)
    given[3] = np.float64(1)
    with pytest.raises(ValueError, match="argument 3: another type; got f8"):
        compile_cuda(TYPED + checks("typed", given), architecture, include=HEADERS)


def test_the_source_is_compiled_anew_for_other_headers(tmp_path) -> None:
    source = KernelSource(OTHERS, "early", "", tmp_path)
    (tmp_path / "one.h").write_text("// one")
    first = source.options()
    (tmp_path / "one.h").write_text("// two")
    assert source.options()[:2] == first[:2]
    assert source.options() != first


def test_the_memory_that_slots_use_is_found() -> None:
    words = np.zeros(12, np.uint64)
    words[:9] = [4096, 1 << 20, 7, 8192, 1 << 16, 0, 0, 12288, 1 << 14]
    words.view(np.uint32)[21] = 3
    memory = SlotMemory(words.tobytes())
    assert memory.base == (4096, 8192 + 4 * (1 << 16))
    assert memory.window == (1 << 20, 12288 + 2 * (1 << 14))
    moved = memory.moved(11, 22)
    assert moved.size == 1
    assert np.array_equal(np.frombuffer(moved.tobytes(), np.uint64), [11, 22, *words[2:]])


@pytest.mark.parametrize(
    ("cupy", "words"), [(lambda: FakeCupy(n_devices=0), "no GPU can be used"), (FakeCupy, "cuda:2")]
)
def test_gpus_that_are_not_there_are_named(cupy, words) -> None:
    with pytest.raises(DeviceError, match=f"{words}.*EmulatedGpu"):
        GpuSlots(cupy).require(3)


@pytest.mark.gpu
@pytest.mark.parametrize(("slots", "n", "blocks", "threads"), [(2, 5, 1, 32), (16, 40000, 1, 128), (8, 4000, 4, 96)])
def test_slots_run_on_a_gpu(slots, n, blocks, threads) -> None:
    require_gpu()
    gpu = scale_kernel(slots, n, blocks_per_slot=blocks, threads=threads)
    found = comm.run(cpu=partial(scaled, n=n), gpu=gpu, cpus=1, slots=slots)
    assert found[1:] == [None] * slots


@pytest.mark.gpu
def test_a_kernel_that_traps_on_a_gpu_ends_all() -> None:
    require_gpu()
    with pytest.raises(RankLostError, match="trapped"):
        comm.run(cpu=lambda ranks: ranks.barrier(), gpu=Kernel(OTHERS, "trapped"), cpus=1, slots=2)


@pytest.mark.gpu
def test_more_slots_than_a_gpu_can_hold_are_refused() -> None:
    require_gpu()
    with pytest.raises(ResourceError, match="at most"):
        comm.run(cpu=lambda ranks: ranks.recv(1, 1), gpu=Kernel(OTHERS, "early"), cpus=1, slots=100_000)
