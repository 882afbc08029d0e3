"""Slots: ranks inside a kernel, on threads of the CPU, against the real proxy and CPU ranks."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tartan import comm
from tartan._native import COMM_CONSTANTS
from tartan.comm.slots import HEADERS, STATE_BYTES
from tartan.testing.compiler import require_compiler
from tartan.testing.emulated_gpu import EmulatedGpu

PINGPONG = """
#include <tartan_comm.h>
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
"""


def test_constants_of_the_header_are_those_of_the_crate() -> None:
    text = (HEADERS / "tartan_comm_memory.h").read_text()
    found = {name: int(value) for name, value in re.findall(r"constexpr u64 (\w+) = (\d+);", text)}
    own = {"ONE_DIMENSION": 1 << 8, "STATE_BYTES": STATE_BYTES}
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

    kernel = comm.Kernel(PINGPONG, "pingpong", (np.zeros((2, n), np.float32), np.int32(n)), threads=4)
    assert comm.run(cpu=work, gpu=kernel, cpus=1, gpus=1, slots=2, device=EmulatedGpu()) == [3, None, None]
