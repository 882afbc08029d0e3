"""Sessions of one rank: results against NumPy, snapshots, conflicts, and what is refused."""

from __future__ import annotations

import os
import time
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest
import zarr
from numpy.typing import NDArray

from tartan import blocks
from tartan.base.confined import ConfinedFolder
from tartan.blocks.applications.matmul import matmul
from tartan.errors import ConfigError, DiskFullError, ResourceError, StoreError, SubtaskError

Array = NDArray[Any]


def session(**options: Any) -> blocks.Session:
    return blocks.Session(workers=2, **options)


def task(function: Any, grid: Any, subscribe: Any, **options: Any) -> blocks.Task:
    return blocks.Task(function, grid, subscribe, releases_gil=True, **options)


def double(a: Array, b: Array) -> None:
    b[...] = 2 * a


@pytest.mark.parametrize("seed", range(6))
def test_products_of_any_shape_equal_numpy(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    n, m, k = rng.integers(1, 60, 3)
    block = [int(size) for size in rng.integers(1, 30, 3)]
    a, b = rng.integers(-9, 9, (n, k)), rng.integers(-9, 9, (k, m))
    np.save(tmp_path / "a.npy", a)
    zarr.create_array(str(tmp_path / "b.zarr"), data=b)
    with session() as s:
        A = s.space(tmp_path / "a.npy", block=(block[0], block[2]))
        B = s.space(tmp_path / "b.zarr", block=(block[2], block[1]))
        C = s.space(shape=(n, m), dtype=int, block=(block[0], block[1]))

        def wants(i: int, j: int) -> Any:
            rows, columns = C.block(i, j)
            return A.read[rows, :], B.read[:, columns], C.write[rows, columns]

        report = s.run(task(lambda x, y, out, xp: xp.matmul(x, y, out=out), C.grid, wants))
        assert report.subtasks == len(C.grid)
        np.testing.assert_array_equal(C.array(), a @ b)
        C.to_zarr(tmp_path / "c.zarr")
        np.testing.assert_array_equal(zarr.open_array(tmp_path / "c.zarr")[:], a @ b)
        with pytest.raises(StoreError, match="exists"):
            C.to_zarr(tmp_path / "c.zarr")


@pytest.mark.parametrize("boundary", ["zero", "reflect", "nearest", "clip"])
@pytest.mark.parametrize("shape", [(23, 17), (7, 40), (5, 5)])
def test_halos_are_those_of_scipy(boundary: str, shape: tuple[int, int]) -> None:
    from scipy import ndimage

    image = np.random.default_rng(1).standard_normal(shape)
    kernel = np.random.default_rng(2).standard_normal((7, 7))

    def mean(window: Array, out: Array) -> None:
        out[...] = ndimage.correlate(window, kernel, mode="constant")[3:-3, 3:-3]

    def extent(window: Array, out: Array) -> None:
        out[...] = window.size

    modes = {"zero": "constant", "reflect": "reflect", "nearest": "nearest"}
    with session() as s:
        old, new = s.space(image, block=6), s.space(like=image, block=6)

        def wants(i: int, j: int) -> Any:
            block = new.block(i, j)
            return old.read[blocks.halo(block, 3, boundary=boundary)], new.write[block]  # type: ignore[arg-type]

        s.run(task(extent if boundary == "clip" else mean, new.grid, wants))
        if boundary == "clip":
            assert new[0, 0] == min(9, shape[0]) * min(9, shape[1])
        else:
            expected = ndimage.correlate(image, kernel, mode=modes[boundary])
            np.testing.assert_allclose(new.array(), expected, atol=1e-12)


def test_a_task_reads_what_was_there_when_it_began() -> None:
    """Each element becomes the sum of its neighbours of before, in place, however subtasks follow each other."""
    values = np.arange(20.0)

    def shift(around: Array, own: Array) -> None:
        own[...] = around[:-2] + around[2:]

    with session() as s:
        A = s.space(values, block=3)
        for _ in range(3):
            s.run(task(shift, A.grid, lambda i: (A.read[blocks.halo(A.block(i), 1)], A.update[A.block(i)])))
            padded = np.pad(values, 1)
            values = padded[:-2] + padded[2:]
        np.testing.assert_array_equal(A.array(), values)


def test_ranges_need_not_be_blocks() -> None:
    rng = np.random.default_rng(3)
    values = rng.integers(0, 99, (13, 11))
    with session() as s:
        A = s.space(values, block=4)
        expected = values.copy()
        for _ in range(5):
            rows = [0, *sorted(rng.choice(np.arange(1, 13), 3, replace=False).tolist()), 13]
            bands = [slice(a, b) for a, b in pairwise(rows)]

            def add(own: Array, index: tuple[int, ...]) -> None:
                own += index[0] + 1

            s.run(task(add, range(len(bands)), lambda k, bands=bands: A.update[bands[k], 2:]))
            for k, band in enumerate(bands):
                expected[band, 2:] += k + 1
            np.testing.assert_array_equal(A.array(), expected)
        np.testing.assert_array_equal(A[3:9, -4], expected[3:9, -4])


@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_are_read_where_they_lie(order: Any) -> None:
    """Rows of an array in memory need no room of the session; what does not lie in one piece is gathered as ever."""
    values = np.asarray(np.random.default_rng(4).standard_normal((64, 512)), order=order)
    before = values.copy()

    def add(rows: Array, block: Array, own: Array, out: Array) -> None:
        assert rows.flags.c_contiguous
        assert block.flags.c_contiguous
        assert not rows.flags.writeable
        own += rows[:, :256]
        out[...] = block.sum()

    with session(host_cache=200_000 if order == "C" else 1_000_000) as s:
        A, sums = s.space(values, block=(16, 256)), s.space(shape=(4, 2), block=1)
        wants = lambda i, j: (  # noqa: E731
            A.read[A.block(i, j)[0], :],
            A.read[A.block(i, j)],
            A.update[A.block(i, j)],
            sums.write[i, j],
        )
        s.run(task(add, A.grid, wants))
        np.testing.assert_array_equal(A.array(), values + np.tile(values[:, :256], 2))
        np.testing.assert_allclose(sums.array(), values.reshape(4, 16, 2, 256).sum(axis=(1, 3)))
    np.testing.assert_array_equal(values, before)


def test_what_is_not_written_is_zero_or_an_error() -> None:
    def half(own: Array) -> None:
        own[: len(own) // 2] = 7

    with session() as s:
        A = s.space(np.full(64, 5.0), block=16)
        s.run(task(half, A.grid, lambda i: A.write[A.block(i)]))
        np.testing.assert_array_equal(A.array(), np.tile([7.0] * 8 + [0.0] * 8, 4))
        with pytest.raises(SubtaskError, match="unwritten"):
            s.run(task(half, A.grid, lambda i: A.write[A.block(i)], debug=True))
        s.run(task(double, A.grid, lambda i: (A.read[A.block(i)], A.write[A.block(i)]), debug=True))
        assert A[0] == 14


@pytest.mark.slow
def test_worker_processes_give_the_same_bits_as_threads() -> None:
    a = np.random.default_rng(0).standard_normal((40, 40))
    found = []
    for in_threads in (True, False):
        with session() as s:
            A, B = s.space(a, block=16), s.space(like=a, block=16)
            wanted = {index: (A.read[:, A.block(*index)[1]], B.write[B.block(*index)]) for index in B.grid}

            def fold(columns: Array, out: Array) -> None:
                out[...] = np.sin(columns[: out.shape[0]]) + columns.sum()

            s.run(blocks.Task(fold, B.grid, lambda i, j, wanted=wanted: wanted[i, j], releases_gil=in_threads))
            found.append(B.array())
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("n_dimensions", [1, 3, 4])
def test_spaces_of_other_dimensions(n_dimensions: int) -> None:
    values = np.random.default_rng(0).integers(0, 9, (5, 4, 3, 6)[:n_dimensions]).astype(np.int16)
    with session() as s:
        A, B = s.space(values, block=2), s.space(like=values, block=3)
        s.run(task(double, B.grid, lambda *index: (A.read[B.block(*index)], B.write[B.block(*index)])))
        np.testing.assert_array_equal(np.asarray(B), 2 * values)


# -- room ------------------------------------------------------------------------------------------------------


def test_more_than_memory_goes_to_disk_and_comes_back() -> None:
    values = np.random.default_rng(0).standard_normal((64, 1024))
    with session(host_cache=200_000) as s:
        A = s.space(values, block=(4, 1024))
        for _ in range(3):
            s.run(task(double, range(16), lambda i: (A.read[A.block(i, 0)], A.write[A.block(i, 0)])))
        np.testing.assert_array_equal(A.array(), 8 * values)
        assert s.total.bytes_spilled > values.nbytes
        assert s.total.bytes_restored > values.nbytes


@pytest.mark.slow
def test_a_product_beyond_memory_reads_little_more_than_it_must(tmp_path: Path) -> None:
    """Disk words stay below 3 n^2 + 2 n^3 / sqrt(M), with room for M words, a quarter of the three matrices."""
    n, block = 256, 16
    room = 3 * n * n // 4
    a, b = np.random.default_rng(0).standard_normal((2, n, n))
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "b.npy", b)
    with session(host_cache=8 * room) as s:
        A, B = s.space(tmp_path / "a.npy", block=block), s.space(tmp_path / "b.npy", block=block)
        C = s.space(shape=(n, n), block=block)

        def wants(i: int, j: int) -> Any:
            rows, columns = C.block(i, j)
            return A.read[rows, :], B.read[:, columns], C.write[rows, columns]

        s.run(task(lambda x, y, out, xp: xp.matmul(x, y, out=out), C.grid, wants))
        np.testing.assert_allclose(C.array(), a @ b)
        words = (s.total.bytes_read + s.total.bytes_spilled + s.total.bytes_restored) / 8
        assert words <= 3 * n**2 + 2 * n**3 / room**0.5


@pytest.mark.exhaustive
def test_a_product_far_beyond_memory_is_cut(tmp_path: Path) -> None:
    """The same with room for a sixteenth of the three matrices, to some hundredths."""
    n, block = 1024, 32
    room = 3 * n * n // 16
    a, b = np.random.default_rng(0).standard_normal((2, n, n)).astype("f4")
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "b.npy", b)
    with session(host_cache=4 * room) as s:
        found, report, _ = matmul(s, tmp_path / "a.npy", tmp_path / "b.npy", block=block)
        np.testing.assert_allclose(found.array(), a @ b, atol=1e-2)
    assert report.subtasks == 2 * (n // block) ** 2
    words = (report.bytes_read + report.bytes_spilled + report.bytes_restored) / 4
    assert words <= 1.05 * (3 * n**2 + 2 * n**3 / room**0.5)


def test_blocks_of_a_product_are_smaller_where_memory_is_short() -> None:
    """Two lines of blocks of 1,024 alone would not fit."""
    a, b = np.random.default_rng(0).standard_normal((2, 600, 600)).astype("f4")
    sides = []
    for room in (1 << 23, 1 << 20):
        with session(host_cache=room) as s:
            found = matmul(s, a, b)[0]
            sides.append(found.blocks.block)
            np.testing.assert_allclose(found.array(), a @ b, atol=1e-3)
    assert sides == [(600, 600), (64, 64)]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["f4", "c16"])
def test_a_product_has_the_same_bits_however_it_is_cut(dtype: str) -> None:
    a, b = (np.random.default_rng(0).standard_normal((2, 180, 180))).astype(dtype)
    found = []
    for room in (1 << 22, 15_000 * a.itemsize):
        with session(host_cache=room) as s:
            product, report, _ = matmul(s, a, b, block=20)
            found.append((product.array(), report.subtasks))
    assert found[0][1] < found[1][1]
    np.testing.assert_array_equal(found[0][0], found[1][0])


def test_a_disk_that_is_full_while_blocks_go_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> BinaryIO:
        return open("/dev/full", "wb")

    values = np.ones((32, 1024))
    with session(host_cache=100_000, folder=tmp_path) as s:
        A = s.space(values, block=(4, 1024))
        own = task(double, range(8), lambda i: (A.read[A.block(i, 0)], A.write[A.block(i, 0)]))
        with monkeypatch.context() as patch:
            patch.setattr(ConfinedFolder, "new_file", full)
            with pytest.raises(DiskFullError):
                s.run(own)
        s.run(own)
        np.testing.assert_array_equal(A.array(), 2.0)


def test_blocks_that_never_fit_name_the_least_room() -> None:
    with session(host_cache=10_000) as s:
        A = s.space(np.zeros((64, 64)), block=64)
        with pytest.raises(ResourceError, match="at least") as caught:
            s.run(task(double, A.grid, lambda i, j: (A.read[:, :], A.write[:, :])))
        assert caught.value.context["needed_bytes"] == 64 * 64 * 8  # the source is read where it lies
        B = s.space(np.ones(8), block=4)
        s.run(task(double, B.grid, lambda i: (B.read[B.block(i)], B.write[B.block(i)])))
        assert B.array().sum() == 16


# -- refused before anything runs ------------------------------------------------------------------------------


def untouched(*arrays: Array) -> None:
    raise AssertionError("nothing may run")


def test_two_subtasks_that_write_one_element() -> None:
    with session() as s:
        A = s.space(np.zeros((8, 8)), block=4)
        with pytest.raises(ConfigError, match=r"subtask \(0,\).*subtask \(1,\).*\[3:4, 0:8\]"):
            s.run(task(untouched, [0, 1], lambda i: A.write[3 * i : 3 * i + 4, :]))


def test_tasks_that_run_together_and_meet() -> None:
    with session() as s:
        A, B = s.space(np.zeros(8), block=4), s.space(np.zeros(8), block=4)
        first = task(untouched, [0], lambda i: (A.read[0:4], B.write[0:4]))
        with pytest.raises(ConfigError, match="both write"):
            s.run(first, task(untouched, [0], lambda i: B.write[3:6]))
        second = task(untouched, [0], lambda i: (B.read[2:6], A.write[0:2]))
        with pytest.raises(ConfigError, match=r"reads .* at the same time"):
            s.run(first, second)
        s.run(
            task(double, [0], lambda i: (A.read[0:4], B.write[0:4])),
            task(double, [0], lambda i: (A.read[4:8], B.write[4:8])),
        )


@pytest.mark.parametrize(
    ("subscribe", "message"),
    [
        (
            lambda A, i: A.read[0:9],
            r"subtask \(0,\): a subscription to <Space 0: float64 \(8,\) .*0:9 is not within 0:8",
        ),
        (lambda A, i: A.read[2:2], "empty"),
        (lambda A, i: A.read[0:4:2], "step"),
        (lambda A, i: A.read[0, 0], "2 intervals for a space of 1"),
        (lambda A, i: None, "subscribes to"),
        (lambda A, i: A, "subscribes to"),
        (lambda A, i: A.write[blocks.halo(A.block(0), 1)], "only read"),
        (lambda A, i: A.read[blocks.halo(A.block(0), (1, 1))], "2 widths"),
        (lambda A, i: (A.read[0:2], A.read[0:2], A.write[0:2]), "does not take the 3 arrays"),
    ],
)
def test_subscriptions_that_cannot_be(subscribe: Any, message: str) -> None:
    with session() as s:
        A = s.space(np.zeros(8), block=4)
        with pytest.raises(ConfigError, match=message):
            task(double, [0], lambda i: subscribe(A, i))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "needs a source"),
        ({"source": np.zeros(3), "shape": 3}, "convert"),
        ({"source": np.array(["a"])}, "hold numbers"),
        ({"source": "missing.npy"}, "does not exist"),
        ({"shape": (2, 0)}, "at least 1"),
        ({"shape": (1, 1, 1, 1, 1)}, "5 dimensions"),
        ({"shape": (4, 4), "block": (2,)}, "one size a dimension"),
        ({"shape": 4, "block": 0}, "block=0"),
        ({"shape": 4, "block": 2.5}, "block=2.5"),
        ({"shape": (2.5, 4)}, "describe no space"),
        ({"shape": (10**6, 10**6), "block": 10}, "10,000,000,000 blocks"),
        ({"shape": 4, "place": "nowhere"}, "nowhere"),
        ({"shape": 4, "dtype": "no such"}, "describe no space"),
    ],
)
def test_spaces_that_cannot_be(arguments: dict[str, Any], message: str) -> None:
    with session() as s, pytest.raises(ConfigError, match=message):
        s.space(**arguments)


@pytest.mark.parametrize(
    "options",
    [
        {"copies": 2},
        {"affinity": "near"},
        {"host_cache": 0},
        {"workers": 0},
        {"evaluate": 2},
        {"on": 4},
        {"steal": np.ones((50, 50))},
        {"evaluate": np.ones((50, 50))},
    ],
)
def test_options_that_cannot_be(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        blocks.Session(**options)
    assert len(str(caught.value)) < 300
    assert "\n" not in str(caught.value)


def test_closed_sessions_and_spaces_of_others() -> None:
    with session() as s:
        A = s.space(np.zeros(8), block=4)
        own = task(double, A.grid, lambda i: (A.read[A.block(i)], A.write[A.block(i)]))
        with session() as other, pytest.raises(ConfigError, match="another session"):
            other.run(own)
    for use in (A.array, lambda: s.run(own), lambda: s.space(shape=3)):
        with pytest.raises(ConfigError, match="closed"):
            use()
    s.close()


def test_a_source_that_changes(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.zeros(8))
    with session() as s:
        A, B = s.space(path, block=4), s.space(shape=8, block=4)
        np.save(path, np.ones(9))
        os.utime(path, ns=(1, 1))
        with pytest.raises(StoreError, match="changed"):
            s.run(task(double, B.grid, lambda i: (A.read[A.block(i)], B.write[B.block(i)])))


@pytest.mark.parametrize("ways", [{"zarr_format": 2}, {"zarr_format": 3}, {"zarr_format": 3, "shards": (4, 4)}])
def test_a_chunk_of_a_source_that_changes(tmp_path: Path, ways: dict[str, Any]) -> None:
    path = tmp_path / "a.zarr"
    stored = zarr.create_array(path, shape=(8, 6), chunks=(2, 2), dtype="f8", **ways)
    stored[:4] = 1.0  # the rest are fill values, without files
    with session() as s:
        A = s.space(path, block=(4, 6))
        np.testing.assert_array_equal(A[:4], 1.0)
        np.testing.assert_array_equal(A[4:], 0.0)
    with session() as s:
        A = s.space(path, block=(4, 6))
        stored[0, 0] = 2.0
        later = max(file.stat().st_mtime_ns for file in path.rglob("*")) + 1_000_000_000
        changed = next(file for file in path.rglob("*") if file.is_file() and file.name in ("0.0", "0"))
        os.utime(changed, ns=(later, later))
        with pytest.raises(StoreError, match="changed"):
            A.array()


@pytest.mark.parametrize("key", [(..., 0), (1, ...), (1, ..., 2), (..., -1, slice(1, 3)), (2, slice(0, 2)), 0, ...])
def test_ranges_have_the_shapes_of_numpy(key: Any) -> None:
    values = np.arange(60.0).reshape(3, 4, 5)
    with session() as s:
        np.testing.assert_array_equal(s.space(values, block=2)[key], values[key], strict=True)


def test_a_source_is_no_place_for_results(tmp_path: Path) -> None:
    zarr.create_array(str(tmp_path / "group" / "a.zarr"), data=np.ones((4, 4)), chunks=(2, 2))
    with session() as s:
        A, C = s.space(tmp_path / "group" / "a.zarr", block=2), s.space(shape=(4, 4), block=2)
        for place in ("group/a.zarr", "group", "group/a.zarr/c"):
            with pytest.raises(ConfigError, match="never written"):
                C.to_zarr(tmp_path / place, overwrite=True)
        np.testing.assert_array_equal(A.array(), 1.0)


def test_a_source_is_never_written(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.ones(8))
    given = np.ones(8)
    with session() as s:
        for A in (s.space(path, block=4), s.space(given, block=4)):
            s.run(task(double, A.grid, lambda i, A=A: (A.read[A.block(i)], A.update[A.block(i)])))
            np.testing.assert_array_equal(A.array(), 2.0)
    np.testing.assert_array_equal(np.load(path), 1.0)
    np.testing.assert_array_equal(given, 1.0)


# -- functions that fail ---------------------------------------------------------------------------------------


def raises(a: Array, b: Array) -> None:
    raise ValueError("no such number")


def raises_an_array(a: Array, b: Array) -> None:
    raise ValueError(np.ones((30, 30)))


def returns(a: Array, b: Array) -> Any:
    return a


def changes_what_it_reads(a: Array, b: Array) -> None:
    a[0] = 1


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (raises, r"^subtask \(0,\) of raises failed: ValueError: no such number\n(.*\n)+.* in raises\n"),
        (raises_an_array, r"^subtask \(0,\) of raises_an_array failed: ValueError: \[\[1[^\n]{500,1100}\n"),
        (returns, r"^subtask \(0,\) of returns: returns returned ndarray"),
        (changes_what_it_reads, "array that it only reads .*read-only.*; it reads number 0: subscribe with update"),
    ],
)
def test_functions_that_do_what_they_must_not(function: Any, message: str) -> None:
    with session() as s:
        A = s.space(np.ones(8), block=4)
        with pytest.raises(SubtaskError, match=message):
            s.run(task(function, [0], lambda i: (A.read[0:4], A.write[0:4])))
        np.testing.assert_array_equal(A.array(), 1.0)
        s.run(task(double, A.grid, lambda i: (A.read[A.block(i)], A.write[A.block(i)])))
        np.testing.assert_array_equal(A.array(), 2.0)


def test_a_failure_that_passes_is_tried_again() -> None:
    tried: list[tuple[int, ...]] = []

    def fails_once(a: Array, b: Array, index: tuple[int, ...]) -> None:
        tried.append(index)
        if len(tried) == 1:
            b[...] = 99
            raise OSError("once")
        double(a, b)

    with session() as s:
        A = s.space(np.ones(8), block=4)
        report = s.run(task(fails_once, A.grid, lambda i: (A.read[A.block(i)], A.write[A.block(i)])))
        assert report.repeated == 1
        assert len(tried) == 3
        np.testing.assert_array_equal(A.array(), 2.0)


def ends_its_process(a: Array, b: Array) -> None:
    os._exit(3)


def never_ends(a: Array, b: Array) -> None:
    while True:
        time.sleep(0.01)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "options", "code"), [(ends_its_process, {}, "died"), (never_ends, {"timeout": 0.2}, "timeout")]
)
def test_functions_that_die_or_never_end(function: Any, options: dict[str, Any], code: str) -> None:
    with blocks.Session(workers=1) as s:
        A = s.space(np.ones(8), block=4)
        with pytest.raises(SubtaskError) as caught:
            s.run(blocks.Task(function, [0], lambda i: (A.read[0:4], A.write[0:4]), **options))
        assert caught.value.code == code
        s.run(blocks.Task(double, A.grid, lambda i: (A.read[A.block(i)], A.write[A.block(i)])))
        np.testing.assert_array_equal(A.array(), 2.0)


def test_nan_is_a_number_like_others() -> None:
    with session() as s:
        A = s.space(np.array([np.nan, 1.0]), block=1)
        s.run(task(double, A.grid, lambda i: (A.read[A.block(i)], A.write[A.block(i)])))
        np.testing.assert_array_equal(A.array(), [np.nan, 2.0])


def test_progress_is_told_by_subtasks() -> None:
    told: list[tuple[int, int]] = []
    with session(progress=lambda done, total: told.append((done, total))) as s:
        A = s.space(np.ones(8), block=2)
        s.run(task(double, A.grid, lambda i: (A.read[A.block(i)], A.write[A.block(i)])))
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_a_task_of_nothing() -> None:
    with session() as s:
        assert s.run(task(double, [], lambda i: None)).subtasks == 0
        with pytest.raises(ConfigError, match="not a task"):
            s.run("a task")  # type: ignore[arg-type]


def test_what_is_read_stays_where_other_parts_are_written(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(12.0))
    with session() as s:
        A, found = s.space(tmp_path / "a.npy", block=4), s.space(shape=3, block=1)
        wants = lambda i: (A.read[A.block(i)], found.write[i])  # noqa: E731
        total = task(lambda a, out: out.__setitem__(..., a.sum()), A.grid, wants)
        assert s.run(total).hits == 0
        s.run(task(double, [1], lambda i: (A.read[A.block(i)], A.write[A.block(i)])))
        again = s.run(total)
        assert again.hits == again.ranges == 3
        np.testing.assert_array_equal(found.array(), [6.0, 44.0, 38.0])
