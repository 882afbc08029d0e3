"""Slots: ranks inside a kernel, on threads of the CPU, against the real proxy and CPU ranks."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from support.compiler import require_compiler
from support.nvrtc import ARCHITECTURES, compile_cuda, find_nvrtc
from tartan import comm
from tartan._native import COMM_CONSTANTS
from tartan.comm.launch import divide_ranks
from tartan.comm.slots import HEADERS, STATE_BYTES
from tartan.errors import ConfigError, DeadlockError, DeviceError, RankLostError, ResourceError
from tartan.testing.emulated_gpu import EmulatedGpu

EXAMPLES = Path(__file__).parents[2] / "examples" / "comm"
SOURCE = """
#include <tartan_comm.h>
using tartan::u64;

extern "C" __global__ void pingpong(tartan::Slots slots, float* all, int n) {
    auto me = slots.here();
    float* rows = all + (me.rank() - 1) * n;
    for (int turn = 0; turn < 3; turn++) {
        const tartan::Status came = me.recv(rows, n * sizeof(float), tartan::ANY_SOURCE, turn);
        for (int at = me.thread(); at < n; at += me.threads()) rows[at] += me.rank();
        me.send(rows, came.bytes, came.source, turn);
    }
    me.barrier();
}

// Every call once; what each slot found goes to rank 0.
extern "C" __global__ void calls(tartan::Slots slots, double* buffers, int n) {
    auto me = slots.here();
    const int self = me.rank(), size = me.size(), next = (self + 1) % size, last = (self + size - 1) % size;
    double* mine = buffers + (self - 1) * (size + 2) * (u64)n;
    double* all = mine + n;
    const u64 bytes = n * sizeof(double);

    int token = self;  // a variable of each thread's own
    me.sendrecv_replace(&token, sizeof token, next, 1, last, 1);
    const tartan::Status seen = me.probe(0, 2);
    tartan::Request request = me.irecv(mine, bytes, 0, 2), answer = me.isend(&token, sizeof token, 0, 3);
    const bool held = me.test<double>(request) || me.wait<double>(request).bytes == seen.bytes;
    me.wait<int>(answer);
    for (int at = me.thread(); at < n; at += me.threads()) mine[at] += self + held;
    me.all_reduce(mine, all, bytes);
    me.send(all, bytes, 0, 4);
    me.all_reduce(mine, all, bytes, tartan::MAX);
    me.send(all, bytes, 0, 4);
    me.reduce(mine, all, bytes, tartan::SUM, 0);
    me.reduce(mine, all, bytes, tartan::MAX, 1);
    if (self == 1) me.send(all, bytes, 0, 5);
    const u64 part = self * sizeof(double);
    u64 found = me.all_gather(mine, part, all, size * bytes);
    me.send(all, found, 0, 6);
    me.gather(mine, part, all, size * bytes, 0);
    found = me.gather(mine, bytes, all, size * bytes, 1);
    if (self == 1) me.send(all, found, 0, 7);
    me.broadcast(mine, bytes, 0);
    me.send(mine, bytes, 0, 8);
    found = me.scatter(all, nullptr, mine, bytes, 0);
    me.send(mine, found, 0, 9);
    u64 lengths[8];
    for (int to = 0; to < size; to++) lengths[to] = (to + 1) * sizeof(double);
    for (int at = me.thread(); at < n; at += me.threads()) mine[at] = 100 * self + at;
    found = me.all_to_all(mine, lengths, all, size * bytes);
    me.send(all, found, 0, 10);
    me.barrier();
    if (self == 1) me.scatter(mine, lengths, all, size * bytes, 1);
    if (self != 1) me.scatter(mine, lengths, all, size * bytes, 1);
}

// A ring of all ranks, and a sum.
extern "C" __global__ void ring(tartan::Slots slots, double* sums, int n) {
    auto me = slots.here();
    double* mine = sums + blockIdx.x * (u64)n;
    long long token = me.rank();
    me.sendrecv_replace(&token, sizeof token, (me.rank() + 1) % me.size(), 0, (me.rank() + me.size() - 1) % me.size());
    for (int at = me.thread(); at < n; at += me.threads()) mine[at] = token + at;
    me.all_reduce(mine, mine, n * sizeof(double));
    me.send(mine, n * sizeof(double), 0, me.rank());
}

extern "C" __global__ void endless(tartan::Slots slots) {
    auto me = slots.here();
    for (volatile int turn = 0;; turn = turn + 1) {
    }
}

// One mistake by slot 0, while the others wait for rank 0.
extern "C" __global__ void mistaken(tartan::Slots slots, int what) {
    auto me = slots.here();
    int number[16] = {};
    if (me.rank() == 1) {
        if (what == 0) me.send(number, 4, 9);
        if (what == 1) me.recv(number, 4, 0);
        if (what == 2) me.recv(number, 8, 0);
        if (what == 3) me.all_reduce(number, number, 4);
        if (what == 4) return;
        if (what == 5) __trap();
        if (what == 6) *static_cast<volatile int*>(nullptr) = 1;
        if (what == 7) me.send(number, 6, 0);
        if (what == 8) me.send(number, 4, 0, -5);
        if (what == 9) auto again = slots.here();
        if (what == 11) me.send(number, 64, 0, 7);
        if (what == 10) {
            tartan::Request request = me.isend(number, 4, 0, 7);
            me.wait<int>(request);
            me.wait<int>(request);
        }
    }
    if (what == 3) me.barrier();
    if (what == 12) me.all_gather(number, 4, number, 8);
    me.recv(number, sizeof number, 0, 1);
}
"""

MISTAKES = [
    (0, ConfigError, "rank 1, a slot: rank 9 does not exist; there are 3"),
    (1, ConfigError, "message of 8 bytes.* is longer than the buffer"),
    (2, ConfigError, "rank 1, a slot: the message from rank 0 with tag 7 is not of the buffer's type, int32"),
    (3, DeadlockError, "different collectives: rank 0 calls barrier; rank 1 calls all_reduce sum of int32"),
    (4, DeadlockError, "rank 1: nothing: it has ended; rank 2: recv from rank 0"),
    (5, RankLostError, "GPU 0 of node 0 .ranks 1 to 2. ended: exit status 3"),
    (6, RankLostError, "GPU 0 of node 0 .ranks 1 to 2. ended: killed by SIGSEGV"),
    (7, ConfigError, "6 bytes are not a whole number of items of 4 bytes"),
    (8, ConfigError, "tag -5 is negative"),
    (9, ConfigError, "Slots::here was called twice"),
    (10, ConfigError, "waited for already"),
    (11, ConfigError, "of 64 bytes .*with tag 7 is longer than the buffer"),
    (12, ConfigError, "the result of 12 bytes is longer than the buffer of 8 bytes"),
]


def kernel(name: str, *args, **options) -> comm.Kernel:
    """Return a kernel of the source above, of 3 threads."""
    return comm.Kernel(SOURCE, name, args, **{"threads": 3, **options})


def test_constants_of_the_header_are_those_of_the_crate() -> None:
    text = (HEADERS / "tartan_comm_memory.h").read_text()
    found = {name: int(value) for name, value in re.findall(r"constexpr u64 (\w+) = (\d+);", text)}
    own = {"ONE_DIMENSION": 1 << 8, "STATE_BYTES": STATE_BYTES, "TEXT_BYTES": 48}
    assert found == COMM_CONSTANTS | own


@pytest.mark.slow
@pytest.mark.parametrize("n", [5, 5000])
def test_slots_answer_cpu_ranks(n) -> None:
    require_compiler()

    def work(ranks):
        for turn in range(3):
            for slot in (1, 2):
                ranks.send(np.arange(n, dtype=np.float32), to=slot, tag=turn)
            for slot in (2, 1):
                assert (ranks.recv(source=slot, tag=turn) == np.arange(n, dtype=np.float32) + slot).all()
        ranks.barrier()
        return ranks.size

    gpu = kernel("pingpong", np.zeros((2, n), np.float32), np.int32(n))
    assert comm.run(cpu=work, gpu=gpu, cpus=1, gpus=1, slots=2, device=EmulatedGpu()) == [3, None, None]


def all_calls(n: int):
    """Return what a CPU rank does beside the kernel ``calls``, and checks of what the slots send it."""

    def work(ranks):
        size, slots = ranks.size, range(1, ranks.size)
        base = np.arange(n, dtype=np.float64) / 7
        token = np.array([0], np.int32)
        ranks.sendrecv_replace(token, 1, size - 1, tag=1, recv_tag=1)
        assert token[0] == size - 1
        for slot in slots:
            ranks.send(base * slot, slot, tag=2)
            assert ranks.recv(slot, 3)[0] == slot - 1
        rows = [base] + [base * slot + (slot + 1) for slot in slots]
        whole = ranks.all_reduce(base)
        assert all(np.array_equal(ranks.recv(slot, 4), whole) for slot in slots)
        most = ranks.all_reduce(base, "max")
        assert all(np.array_equal(ranks.recv(slot, 4), most) for slot in slots)
        expected = rows[0].copy()
        for row in rows[1:]:
            expected += row
        assert np.array_equal(whole, expected)
        assert np.array_equal(most, np.max(rows, axis=0))
        assert np.array_equal(ranks.reduce(base, root=0), whole)
        ranks.reduce(base, "max", root=1)
        assert np.array_equal(ranks.recv(1, 5), most)
        parts = ranks.all_gather(np.empty(0))
        assert np.array_equal(parts, np.concatenate([rows[slot][:slot] for slot in slots]))
        assert all(np.array_equal(ranks.recv(slot, 6), parts) for slot in slots)
        assert np.array_equal(ranks.gather(np.empty(0), root=0), parts)
        ranks.gather(base, root=1)
        assert np.array_equal(ranks.recv(1, 7), np.concatenate(rows))
        ranks.broadcast(base, root=0)
        assert all(np.array_equal(ranks.recv(slot, 8), base) for slot in slots)
        ranks.scatter([base[rank:] for rank in range(size)])
        assert all(np.array_equal(ranks.recv(slot, 9), base[slot:]) for slot in slots)
        got = ranks.all_to_all([np.full(rank, 9.0) for rank in range(size)])
        assert [part.tolist() for part in got[1:]] == [[100.0 * slot] for slot in slots]
        for slot in slots:
            part = slot * (slot + 1) // 2 + np.arange(slot + 1)
            sent = [100.0 * other + part for other in slots]
            assert np.array_equal(ranks.recv(slot, 10), np.concatenate([np.full(slot, 9.0), *sent]))
        ranks.barrier()
        assert ranks.scatter(root=1).tolist() == [100.0]

    return work


@pytest.mark.slow
@pytest.mark.parametrize(("n", "blocks", "nodes"), [(60, 1, 1), (5000, 2, 1)])
def test_all_calls_agree_with_cpu_ranks(n, blocks, nodes) -> None:
    require_compiler()
    gpu = kernel("calls", np.zeros((3, 6, n)), np.int32(n), blocks_per_slot=blocks)
    comm.run(cpu=all_calls(n), gpu=gpu, cpus=1, gpus=1, slots=3, nodes=nodes, device=EmulatedGpu())


@pytest.mark.exhaustive
@pytest.mark.skipif(find_nvrtc() is None, reason="NVRTC is not installed")
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_examples_compile_for_gpus(architecture) -> None:
    source = "".join((EXAMPLES / name).read_text() for name in ("compute.cu", "slots.cu"))
    _, uses = compile_cuda(source, architecture, include=HEADERS)
    assert {"pingpong", "mandelbrot", "cannon", "nbody"} <= uses.keys()


@pytest.mark.exhaustive
@pytest.mark.skipif(find_nvrtc() is None, reason="NVRTC is not installed")
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_header_compiles_for_gpus(architecture) -> None:
    _, uses = compile_cuda(SOURCE, architecture, include=HEADERS)
    assert all(use.spilled_bytes == 0 for use in uses.values())
    ptx = compile_cuda(SOURCE, architecture.replace("sm", "compute"), include=HEADERS)[0].decode()
    for order in ("st.release.sys.u64", "ld.acquire.sys.u64", "ld.acquire.sys.u32", "ld.relaxed.sys.u32", "exit;"):
        assert order in ptx, order


@pytest.mark.slow
def test_slots_of_several_nodes_and_gpus_are_ranks_of_one_world() -> None:
    require_compiler()
    n = 3000

    def work(ranks):
        token = ranks.sendrecv_replace(np.array([ranks.rank]), (ranks.rank + 1) % ranks.size)
        total = ranks.all_reduce(token[0] + np.arange(n, dtype=np.float64))
        assert np.array_equal(total, sum(range(ranks.size)) + ranks.size * np.arange(n))
        if ranks.rank == 0:
            assert all(np.array_equal(ranks.recv(slot, slot), total) for slot in (1, 2, 4, 5))
        return ranks.rank

    gpu = kernel("ring", np.zeros((1, n)), np.int32(n))
    found = comm.run(cpu=work, gpu=gpu, cpus=1, gpus=2, slots=1, nodes=2, device=EmulatedGpu())
    assert found == [0, None, None, 3, None, None]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["endless", "pingpong"])
def test_no_slot_is_left_when_a_rank_fails(name) -> None:
    require_compiler()

    def work(ranks):
        raise ZeroDivisionError("on purpose")

    args = (np.zeros((2, 3), np.float32), np.int32(3)) if name == "pingpong" else ()
    with pytest.raises(ZeroDivisionError, match="on purpose"):
        comm.run(cpu=work, gpu=kernel(name, *args), cpus=1, slots=2, device=EmulatedGpu())


def test_every_wait_of_the_header_looks_at_the_abort_word() -> None:
    headers = sorted(HEADERS.glob("*.h"))
    text = "".join(path.read_text() for path in headers)
    waits = re.findall(r"for \(u32 looks.*?nap\(looks\);", text, re.DOTALL)
    assert len(waits) == text.count("nap(looks);") == 2
    assert all("aborted()" in wait for wait in waits)
    assert "while (load" not in text.replace("while (s.n_blocks && load_acquire", "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "error", "words"),
    [pytest.param(*row, id=str(row[0]), marks=[] if row[0] in (1, 4) else pytest.mark.exhaustive) for row in MISTAKES],
)
def test_a_mistake_in_a_slot_ends_all(what, error, words) -> None:
    require_compiler()

    def work(ranks):
        if what in (1, 2):
            ranks.send(np.float64(2), 1, tag=7)
        if what == 10:
            ranks.recv(1, 7)
        if what == 11:
            ranks.recv(np.empty(2, np.int32), 1, 7)
        if what == 12:
            ranks.all_gather(np.zeros(1, np.int32))
        if what in (0, 3, 5, 6, 7, 8, 9, 10):
            (ranks.barrier if what in (3, 5, 6) else ranks.recv)()
        ranks.recv(1, 1)

    with pytest.raises(error, match=words):
        comm.run(cpu=work, gpu=kernel("mistaken", np.int32(what)), cpus=1, slots=2, device=EmulatedGpu())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "error", "words"),
    [
        ({"source": "#include <nothing.h>\n" + SOURCE}, ConfigError, "do not compile"),
        ({"name": "other"}, ConfigError, "no kernel 'other'; the source has pingpong, calls, ring, endless, mistaken"),
        ({"args": (np.float32(1),)}, ConfigError, "argument 0: declared i4, got f4"),
        ({"threads": 1024}, ResourceError, "3 slots of 1 x 1024 threads .* at most 2 can"),
    ],
    ids=["source", "name", "args", "threads"],
)
def test_kernels_that_cannot_run_are_refused(changed, error, words) -> None:
    require_compiler()
    wrong = comm.Kernel(**{"source": SOURCE, "name": "mistaken", "args": (np.int32(4),), "threads": 3, **changed})
    with pytest.raises(error, match=words):
        comm.run(cpu=lambda ranks: ranks.recv(1, 1), gpu=wrong, cpus=1, slots=3, device=EmulatedGpu())


def test_numbers_that_make_no_world_are_refused() -> None:
    with pytest.raises(ConfigError, match="no function to run"):
        comm.run(cpus=2)
    with pytest.raises(ConfigError, match="no function to run"):
        comm.run(gpu=kernel("calls"), cpus=2, device=EmulatedGpu())
    with pytest.raises(ConfigError, match="threads"):
        kernel("calls", threads=0)
    with pytest.raises(ConfigError, match="memory groups"):
        comm.run(cpu=print, gpu=kernel("calls"), cpus=2, groups=2, device=EmulatedGpu())
    assert divide_ranks(1, 2, 1, n_slots=2) == (0, 0, 0, 1, 1, 1)
    assert divide_ranks(0, 1, 1, n_slots=2) == (0, 0)


@pytest.mark.parametrize(
    ("ways", "match"),
    [
        ({"gpu": "source"}, "run a comm.Kernel, not 'source'"),
        ({"device": 7}, "a device that loads kernels, not 7"),
        ({"device": EmulatedGpu(), "gpus": 0}, "gpus"),
        ({"device": EmulatedGpu(), "slots": 1.5}, "slots"),
    ],
)
def test_what_is_no_kernel_or_device_is_refused(ways, match) -> None:
    with pytest.raises(ConfigError, match=match):
        comm.run(**{"gpu": kernel("calls"), **ways})


@pytest.mark.parametrize(
    ("source", "name", "args", "match"),
    [(5, "f", (), "source .* not 5"), ("", None, (), "name .* not None"), ("", "f", 7, "a tuple, not 7")],
)
def test_what_no_kernel_has_is_refused(source, name, args, match) -> None:
    with pytest.raises(ConfigError, match=match):
        comm.Kernel(source, name, args)


def test_without_a_gpu_slots_are_refused() -> None:
    with pytest.raises(DeviceError, match="EmulatedGpu"):
        comm.run(gpu=comm.Kernel(SOURCE, "pingpong"))
