"""The division of memory: what is promised is kept, whatever the numbers; and what a sort will need on disks."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tartan._native import SortJob, sort_overhead
from tartan.errors import ConfigError, DiskFullError
from tartan.sort.plan import PAGE, EngineLayout, Shape, estimate_bits, least_memory_bytes, merge_levels, plan_sort
from tartan.sort.space import LEAST_MEMORY_BYTES, Disk, check_space, memory_for_engine

MB, GB, TB = 10**6, 10**9, 10**12


def overhead(layout: EngineLayout) -> int:
    """What an engine like ours takes."""
    rings = 2 * layout.ring_bytes * layout.ring_depth
    return layout.buffers * layout.buffer_bytes + rings + layout.fan_in * (2 * layout.block_bytes + 16384) + 2 * MB


def shape(n_bytes: int, record_bytes: int = 8, threads: int = 2) -> Shape:
    return Shape(n_bytes // record_bytes, record_bytes, record_bytes in (4, 8), threads)


@given(
    n_bytes=st.integers(0, 20) | st.integers(0, 100 * TB),
    record_bytes=st.sampled_from([1, 4, 8, 100, 5000, 65536]),
    threads=st.integers(1, 64),
    memory_bytes=st.integers(MB, 64 * GB),
)
@settings(deadline=None)
def test_every_plan_keeps_its_promise(n_bytes: int, record_bytes: int, threads: int, memory_bytes: int) -> None:
    what = shape(n_bytes, record_bytes, threads)
    try:
        plan = plan_sort(what, memory_bytes, overhead)
    except ConfigError:
        assert memory_bytes < least_memory_bytes(what, overhead)
        return
    layout = plan.layout
    untouched = layout.buffer_bytes * (layout.buffers - 1) if plan.ranges <= 1 else 0
    assert overhead(layout) - untouched <= plan.memory_bytes <= memory_bytes
    check_layout(layout, what)
    assert plan.ranges * what.capacity(layout.buffer_bytes) >= what.n_records
    assert plan.run_files == (plan.ranges if plan.ranges > 1 else 0)
    assert plan.levels == merge_levels(plan.ranges, layout.fan_in)
    assert plan.temporary_bytes >= (what.n_records * record_bytes if plan.run_files else 0)
    assert (plan.temporary_bytes == 0) == (plan.run_files == 0)


def check_layout(layout: EngineLayout, what: Shape) -> None:
    """What the engine demands."""
    assert layout.buffers >= 3
    assert what.capacity(layout.buffer_bytes) >= 2 * layout.fan_in * max(layout.block_bytes // what.record_bytes, 1)
    assert layout.buffer_bytes % PAGE == layout.block_bytes % PAGE == layout.ring_bytes % PAGE == 0
    assert layout.block_bytes >= what.record_bytes
    assert layout.ring_bytes >= layout.block_bytes + 2 * PAGE


@pytest.mark.parametrize("kind", ["<i8", ">f4", "|u1", "S100", "S65536"])
@pytest.mark.parametrize("memory_bytes", [128 * MB, 300 * MB, 4 * GB])
@pytest.mark.parametrize("n_bytes", [0, 10 * MB, 400 * MB, 100 * GB])
def test_the_engine_accepts_plans_that_it_measures_itself(kind: str, memory_bytes: int, n_bytes: int) -> None:
    width = np.dtype(kind).itemsize
    key = [(0, kind, False)]

    def measured(layout: EngineLayout) -> int:
        return sort_overhead(record_bytes=width, key=key, threads=2, **vars(layout))

    memory = memory_for_engine(memory_bytes, 32 * MB)
    plan = plan_sort(shape(n_bytes, width), memory, measured)
    with SortJob(
        record_bytes=width, key=key, fingerprint=bytes(32), folders=["."], threads=2, **vars(plan.layout)
    ) as engine:
        engine.close(keep_runs=False)


@given(st.integers(1, 10**5), st.integers(2, 1000))
def test_merge_levels_are_the_least_that_do(pieces: int, fan_in: int) -> None:
    levels = merge_levels(pieces, fan_in)
    assert fan_in**levels >= pieces
    assert levels == 0 or fan_in ** (levels - 1) < pieces


@pytest.mark.parametrize("n_bytes", [100 * MB, 4 * GB, 100 * GB, 2 * TB])
@pytest.mark.parametrize("record_bytes", [8, 100])
@pytest.mark.parametrize("memory_bytes", [128 * MB, 256 * MB, GB])
def test_real_sizes_need_one_merge(n_bytes: int, record_bytes: int, memory_bytes: int) -> None:
    memory = memory_for_engine(memory_bytes, 32 * MB)
    plan = plan_sort(shape(n_bytes, record_bytes), memory, overhead)
    assert plan.levels <= (1 if n_bytes <= 4 * GB or (n_bytes <= 100 * GB and memory_bytes >= GB) else 2)


def test_what_fits_into_one_buffer_needs_no_disk() -> None:
    plan = plan_sort(shape(480 * MB), 500 * MB, overhead)
    assert (plan.run_files, plan.levels, plan.temporary_bytes, plan.ranges) == (0, 0, 0, 1)
    assert plan_sort(shape(500 * MB), 500 * MB, overhead).run_files > 1


def test_several_levels_need_room_twice() -> None:
    memory = least_memory_bytes(shape(10 * GB), overhead) + MB
    plan = plan_sort(shape(10 * GB), memory, overhead)
    assert plan.levels > 1
    assert plan.temporary_bytes > 10.01 * GB


def test_packed_run_files_need_less_room() -> None:
    plan = plan_sort(shape(4 * GB), 300 * MB, overhead)
    assert plan.estimate_packed_bytes(64, 64) < 0.8 * plan.temporary_bytes
    assert 0.1 < plan.estimate_packed_bytes(32, 64) / plan.temporary_bytes < 0.3
    assert plan.estimate_packed_bytes(10_000, 64) == plan.temporary_bytes


def test_too_little_room_says_how_much_is_needed() -> None:
    with pytest.raises(ConfigError, match="too little") as caught:
        plan_sort(shape(GB), 100_000, overhead)
    assert plan_sort(shape(GB), caught.value.context["least_bytes"], overhead).levels > 1


def test_expected_bits_follow_the_rule() -> None:
    assert estimate_bits(64, 2**27) == pytest.approx(64 - 27 + 1.4427 + 2, abs=0.001)
    assert estimate_bits(32, 2**24) == pytest.approx(11.44, abs=0.01)
    assert estimate_bits(0, 10**6) == 2


def test_expected_bits_are_the_entropy_of_differences() -> None:
    values = np.sort(np.random.default_rng(5).integers(0, 2**40, 2**16))
    mean = np.diff(values).mean()
    entropy = math.log2(mean) + math.log2(math.e)  # of differences that are spread exponentially
    assert estimate_bits(40, 2**16) - 2 == pytest.approx(entropy, abs=0.01)


class TestMemory:
    def test_what_python_holds_is_taken_off(self) -> None:
        assert memory_for_engine(GB, 300 * MB) < 700 * MB - 8 * MB
        assert memory_for_engine(GB, 300 * MB) > 670 * MB
        assert memory_for_engine(GB, 2 * GB) < 0

    def test_there_is_a_least(self) -> None:
        memory_for_engine(LEAST_MEMORY_BYTES, 0)
        with pytest.raises(ConfigError, match=r"memory of 128 MB is too little; 128 MB is the least|127"):
            memory_for_engine(LEAST_MEMORY_BYTES - 1, 0)


class TestSpace:
    @pytest.mark.parametrize(
        ("temporary", "destination"),
        [([Disk(1, GB)], Disk(1, GB)), ([Disk(1, GB), Disk(2, GB)], Disk(3, GB)), ([Disk(1, GB)], Disk(2, GB))],
    )
    def test_just_enough(self, temporary: list[Disk], destination: Disk) -> None:
        spare = 16 << 20
        shared = 400 * MB if destination in temporary else 0
        space = len(temporary) * (GB - spare) - shared
        check_space(temporary, space, destination, 400 * MB)
        with pytest.raises(DiskFullError):
            check_space(temporary, space + 1, destination, 400 * MB)
        check_space(temporary, 0, destination, GB - spare)
        with pytest.raises(DiskFullError):
            check_space(temporary, 0, destination, GB - spare + 1)

    def test_one_disk_is_counted_once(self) -> None:
        with pytest.raises(DiskFullError, match=r"run files may need 900 MB, but only 8.. MB are free.*tmp"):
            check_space([Disk(1, GB), Disk(1, GB)], 900 * MB, Disk(1, GB), 100 * MB)

    def test_destination_comes_first(self) -> None:
        with pytest.raises(DiskFullError, match="the destination may need 2 GB") as caught:
            check_space([Disk(1, 10 * GB)], 0, Disk(2, GB), 2 * GB)
        assert caught.value.context == {"needed_bytes": 2 * GB, "free_bytes": GB - (16 << 20)}
