"""Block tasks on devices: results against the CPU, what is kept, moved and refused."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from support.compiler import require_compiler
from support.fake_cupy import FakeCupy
from tartan import blocks
from tartan.blocks.applications.convolve import convolve
from tartan.blocks.applications.lu import lu
from tartan.blocks.applications.matmul import matmul
from tartan.blocks.applications.pagerank import pagerank
from tartan.devices import Device
from tartan.devices.cuda import CudaDevice
from tartan.devices.sim import SimDevice, SimOptions
from tartan.errors import ConfigError, DeviceError, DeviceMemoryError, ResourceError, SubtaskError

Array = NDArray[Any]


def session(device: Device | str, **options: Any) -> blocks.Session:
    return blocks.Session(device=device, workers=1, **{"host_cache": 2**22, **options})


def both(fake: FakeCupy, run: Callable[[blocks.Session], Any], **options: Any) -> tuple[Any, Any]:
    """Return what the same code computes on the CPU, and on the stand-in for a GPU."""
    with blocks.Session(workers=1, host_cache=2**22) as s:
        expected = run(s)
    with session(CudaDevice(0, cupy=fake), **options) as s:
        found = run(s)
    assert fake.misuse == []
    return expected, found


def double(a: Array, b: Array, xp: Any) -> None:
    xp.multiply(a, 2, out=b)


def doubled(s: blocks.Session, n: int = 24, block: int = 4, function: Any = double, **options: Any) -> Any:
    A, B = s.space(np.arange(float(n)), block=block), s.space(shape=n, block=block)
    report = s.run(blocks.Task(function, B.grid, lambda i: (A.read[A.block(i)], B.write[B.block(i)]), **options))
    return B.array(), report


@pytest.mark.parametrize("room", [2**20, 60_000, 35_000])
def test_products_have_the_same_bits_on_a_device(room: int) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((100, 90)), rng.standard_normal((90, 110))

    def product(x: Array, y: Array, out: Array, xp: Any) -> None:
        xp.matmul(x, y, out=out)

    def run(s: blocks.Session) -> Any:
        A, B, C = s.space(a, block=16), s.space(b, block=16), s.space(shape=(100, 110), block=16)

        def wants(i: int, j: int) -> Any:
            rows, columns = C.block(i, j)
            return A.read[rows, :], B.read[:, columns], C.write[rows, columns]

        return s.run(blocks.Task(product, C.grid, wants, releases_gil=True)), C.array()

    (_, expected), (report, found) = both(FakeCupy(), run, device_cache=room)
    np.testing.assert_array_equal(found, expected)
    assert (report.device_subtasks, report.bytes_downloaded) == (49, C_BYTES)
    assert report.device_ranges == 98
    assert report.bytes_uploaded >= a.nbytes + b.nbytes
    if room == 2**20:
        assert report.bytes_uploaded == a.nbytes + b.nbytes
        assert report.device_hits == 98 - 14


C_BYTES = 100 * 110 * 8


def test_a_task_reads_on_the_device_what_the_one_before_wrote_there() -> None:
    def run(s: blocks.Session) -> Any:
        A = s.space(np.arange(24.0), block=4)
        reports = [
            s.run(blocks.Task(plus, A.grid, lambda i: A.update[A.block(i)], releases_gil=True)) for _ in range(3)
        ]
        return A.array(), reports

    def plus(a: Array, xp: Any) -> None:
        xp.add(a, 1, out=a)

    (expected, _), (found, reports) = both(FakeCupy(), run)
    np.testing.assert_array_equal(found, expected)
    assert [report.bytes_uploaded for report in reports] == [24 * 8, 0, 0]
    assert [report.device_hits for report in reports] == [0, 6, 6]


@pytest.mark.slow
def test_halos_and_strided_ranges_and_every_dtype() -> None:
    def shift(window: Array, out: Array, xp: Any) -> None:
        out[...] = window[2:, 1:-1]

    def run(s: blocks.Session) -> Any:
        found = []
        for dtype in ("u1", "i2", "f4", "f8", "c8", "?"):
            image = np.arange(11 * 13).reshape(11, 13).astype(dtype)
            old, new = s.space(image, block=5), s.space(like=image, block=5)

            def wants(i: int, j: int, old: Any = old, new: Any = new) -> Any:
                block = new.block(i, j)
                return old.read[blocks.halo(block, 1, boundary="reflect")], new.write[block]

            s.run(blocks.Task(shift, new.grid, wants, releases_gil=True))
            found.append(new.array())
            old = new
            thin = s.space(shape=(11, 3), dtype=dtype, block=(11, 1))
            column = lambda i, j, old=old, thin=thin: (old.read[:, 4 + j], thin.write[:, j])  # noqa: E731
            s.run(blocks.Task(copy, thin.grid, column, releases_gil=True))
            found.append(thin.array())
        return found

    def copy(a: Array, b: Array, xp: Any) -> None:
        b[...] = a

    expected, found = both(FakeCupy(), run)
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_array_equal(one, other)


def test_functions_without_xp_run_on_the_cpu_beside_a_device() -> None:
    def on_cpu(a: Array, b: Array) -> None:
        assert isinstance(a, np.ndarray)
        b[...] = np.asarray(a) + 1

    fake = FakeCupy()
    with session(CudaDevice(0, cupy=fake)) as s:
        found, report = doubled(s, function=on_cpu, releases_gil=True)
        np.testing.assert_array_equal(found, np.arange(24.0) + 1)
        assert (report.device_subtasks, report.bytes_uploaded, report.subtasks) == (0, 0, 6)


def test_a_task_has_a_function_for_each_kind() -> None:
    def on_cpu(a: Array, b: Array) -> None:
        b[...] = a + 1

    def on_gpu(a: Array, b: Array, xp: Any, index: tuple[int, ...]) -> None:
        assert not isinstance(a, np.ndarray)
        b[...] = a + 100 * (1 + index[0])

    def run(s: blocks.Session) -> Any:
        A, B = s.space(np.arange(8.0), block=4), s.space(shape=8, block=4)
        wants = lambda i: (A.read[A.block(i)], B.write[B.block(i)])  # noqa: E731
        s.run(blocks.Task(cpu=on_cpu, gpu=on_gpu, grid=B.grid, subscribe=wants, releases_gil=True))
        first = B.array()
        s.run(blocks.Task(cpu=on_cpu, grid=B.grid, subscribe=wants, releases_gil=True))
        return first, B.array()

    (cpu, cpu_only), (gpu, gpu_only) = both(FakeCupy(), run)
    np.testing.assert_array_equal(cpu, np.arange(8.0) + 1)
    np.testing.assert_array_equal(gpu, np.arange(8.0) + np.repeat([100.0, 200.0], 4))
    np.testing.assert_array_equal(cpu_only, cpu)
    np.testing.assert_array_equal(gpu_only, cpu)


def test_what_is_not_written_is_zero_and_with_debug_an_error() -> None:
    def half(a: Array, b: Array, xp: Any) -> None:
        b[:2] = a[:2]

    for device in (CudaDevice(0, cupy=FakeCupy()), SimDevice()):
        with session(device) as s:
            found, _ = doubled(s, n=8, function=half)
            np.testing.assert_array_equal(found, [0, 1, 0, 0, 4, 5, 0, 0])
            with pytest.raises(SubtaskError, match="left 16 bytes of its output 0 unwritten"):
                doubled(s, n=8, function=half, debug=True)
            np.testing.assert_array_equal(doubled(s, n=8, debug=True)[0], 2 * np.arange(8.0))


@pytest.mark.parametrize("room", [2**20, 300])
def test_a_change_of_a_read_array_reaches_nothing_and_with_debug_is_an_error(room: int) -> None:
    def spoil(a: Array, b: Array, xp: Any) -> None:
        b[...] = a
        a[...] = -1

    source = np.arange(16.0)
    fake = FakeCupy()
    with session(CudaDevice(0, cupy=fake), device_cache=room) as s:
        A, B = s.space(source, block=16), s.space(shape=(4, 16), block=(1, 16))
        wants = lambda i, j: (A.read[:], B.write[i, :])  # noqa: E731

        def take(a: Array, b: Array, xp: Any) -> None:
            spoil(a, b[0], xp)

        for _ in range(2):
            report = s.run(blocks.Task(take, B.grid, wants))
            assert report.device_subtasks == 4
            np.testing.assert_array_equal(B.array(), np.tile(np.arange(16.0), (4, 1)))
            np.testing.assert_array_equal(A.array(), source)
        assert report.bytes_uploaded == (0 if room == 2**20 else 4 * source.nbytes)
        if room == 2**20:
            with pytest.raises(SubtaskError, match="changed array 0, which it only reads"):
                s.run(blocks.Task(take, B.grid, wants, debug=True))
        else:
            with pytest.raises(ResourceError, match="needs 384 B at once") as caught:
                s.run(blocks.Task(take, B.grid, wants, debug=True))
            assert caught.value.context["needed_bytes"] == 3 * source.nbytes
        np.testing.assert_array_equal(source, np.arange(16.0))
    assert fake.misuse == []


def test_blocks_larger_than_the_memory_of_a_device_are_refused_with_the_least_size() -> None:
    with session("sim:memory=1MB", device_cache=1000) as s:
        with pytest.raises(ResourceError, match=r"device-cache of at least 1\.60 kB") as caught:
            doubled(s, n=200, block=100)
        assert (caught.value.code, caught.value.context["needed_bytes"]) == ("device-memory", 1600)
        np.testing.assert_array_equal(doubled(s, n=200, block=50)[0], 2 * np.arange(200.0))


def test_memory_that_runs_out_names_the_subtask_and_the_way_out() -> None:
    def greedy(a: Array, b: Array, xp: Any, index: tuple[int, ...]) -> None:
        b[...] = a + (xp.zeros(2**20)[0] if index == (3,) else 0)

    fake = FakeCupy(memory_bytes=2**20)
    with session(CudaDevice(0, cupy=fake), device_cache=2**16) as s:
        with pytest.raises(DeviceMemoryError, match=r"subtask \(3,\) of .*greedy: .*smaller --device-cache"):
            doubled(s, function=greedy)
        np.testing.assert_array_equal(doubled(s)[0], 2 * np.arange(24.0))


def test_ranges_that_wait_in_the_memory_make_place_for_what_a_function_allocates() -> None:
    def greedy(a: Array, b: Array, xp: Any, index: tuple[int, ...]) -> None:
        b[...] = a + xp.zeros(60_000)[0] if index[0] % 2 else a

    fake = FakeCupy(memory_bytes=640_000)
    with session(CudaDevice(0, cupy=fake), device_cache=400_000) as s:
        found, report = doubled(s, n=24_000, block=4000, function=greedy)
        np.testing.assert_array_equal(found, np.arange(24_000.0))
        assert report.repeated == 0
    assert fake.misuse == []


def test_functions_that_raise_or_return_arrays_are_tried_twice_and_refused() -> None:
    def raises(a: Array, b: Array, xp: Any) -> None:
        raise ValueError("no such thing")

    def returns(a: Array, b: Array, xp: Any) -> Any:
        return a + 1

    with session(CudaDevice(0, cupy=FakeCupy())) as s:
        for function, message in (
            (raises, r"subtask \(\d,\) of .*raises failed: ValueError: no such thing"),
            (returns, "returned GuardedArray; write into the arrays"),
        ):
            with pytest.raises(SubtaskError, match=message):
                doubled(s, function=function)
        assert s.total.repeated == 0  # of runs that ended
        np.testing.assert_array_equal(doubled(s)[0], 2 * np.arange(24.0))


def test_views_that_functions_keep_on_a_device_hold_their_memory() -> None:
    kept: list[Any] = []

    def keeps(a: Array, b: Array, xp: Any) -> None:
        b[...] = 2 * a
        kept.append((a[0], a[1:], b[:-1]))

    fake = FakeCupy()
    with session(CudaDevice(0, cupy=fake), device_cache=2**16) as s:
        np.testing.assert_array_equal(doubled(s, function=keeps)[0], 2 * np.arange(24.0))
        np.testing.assert_array_equal(doubled(s)[0], 2 * np.arange(24.0))
    assert len(kept) == 6
    assert fake.misuse == []
    kept.clear()


def test_a_call_without_end_holds_the_device_and_no_more() -> None:
    over = threading.Event()

    def waits(a: Array, b: Array, xp: Any) -> None:
        over.wait(60)

    try:
        with session("sim") as s:
            with pytest.raises((SubtaskError, DeviceError), match=r"its time limit|longer than its limit"):
                doubled(s, function=waits, timeout=0.05)
            with pytest.raises(DeviceError, match="has sim still, after its time limit; open a new session"):
                doubled(s)
    finally:
        over.set()


def test_a_lost_device_ends_the_task_and_says_so() -> None:
    fake = FakeCupy()
    with session(CudaDevice(0, cupy=fake)) as s:
        doubled(s)
        fake.lose_device()
        with pytest.raises(DeviceError, match=r"subtask \(0,\) of double: cuda:0: .* failed"):
            doubled(s)


def test_what_no_device_can_do_is_refused_before_anything_runs() -> None:
    A = np.arange(4).astype(">f8")
    with session("sim") as s:
        old, new = s.space(A, block=2), s.space(shape=4, block=2)
        wants = lambda i: (old.read[old.block(i)], new.write[new.block(i)])  # noqa: E731
        with pytest.raises(ConfigError, match="space 0 holds >f8, with which no device computes"):
            s.run(blocks.Task(double, new.grid, wants))
        s.run(blocks.Task(cpu=lambda a, b: np.multiply(a, 2, out=b), grid=new.grid, subscribe=wants, releases_gil=True))
        np.testing.assert_array_equal(new.array(), 2 * np.arange(4.0))
    with blocks.Session(workers=1) as s:
        new = s.space(shape=4, block=2)
        task = blocks.Task(gpu=lambda b: None, grid=new.grid, subscribe=lambda i: new.write[new.block(i)])
        with pytest.raises(ConfigError, match="runs on devices only, and the session computes on the CPU"):
            s.run(task)
        with pytest.raises(ConfigError, match="one function, or one for CPUs"):
            blocks.Task(double, new.grid, wants, gpu=double)
        with pytest.raises(ConfigError, match="does not take the 1 array "):
            blocks.Task(cpu=lambda a: None, gpu=double, grid=[0], subscribe=lambda i: new.write[new.block(i)])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "gpu"}, "there is no device 'gpu'"),
        ({"device": ["sim", "cpu"]}, "one rank computes on one device, and there are 2: sim, cpu; .*local:2"),
        ({"device": []}, "choose cpu, cuda, cuda:1 or sim"),
        ({"device": "sim", "device_cache": 0}, "device_cache"),
        ({"device": SimDevice(SimOptions()), "on": "local:2"}, "belongs to this process"),
    ],
)
def test_devices_that_are_not_understood(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        blocks.Session(**options)


def test_a_device_that_is_not_there_says_what_is_missing() -> None:
    with pytest.raises(DeviceError, match="no GPU can be used"):
        session(CudaDevice(0, cupy=FakeCupy(n_devices=0)))


def test_host_memory_is_pinned_where_its_size_was_chosen() -> None:
    fake = FakeCupy()
    with session(CudaDevice(0, cupy=fake)) as s:
        assert list(fake.registered.values()) == [2**22]
        doubled(s)
    assert fake.registered == {}
    assert fake.misuse == []


def dominant(n: int, dtype: str) -> Array:
    a = np.random.default_rng(0).uniform(-1, 1, (n, n))
    return (a + np.diag(np.full(n, n))).astype(dtype)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "block"), [(40, 16), (150, 70)])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_lu_on_a_device_multiplies_back(n: int, block: int, dtype: str) -> None:
    a = dominant(n, dtype)

    def run(s: blocks.Session) -> Any:
        factors, report = lu(s, a, block=block)
        return factors.array(), report

    (expected, _), (found, report) = both(FakeCupy(), run)
    limit = 10 * n * np.finfo(found.dtype).eps * np.abs(a).max()
    lower, upper = np.tril(found, -1) + np.eye(n, dtype=found.dtype), np.triu(found)
    assert np.abs(a - lower @ upper).max() <= limit
    np.testing.assert_allclose(found, expected, rtol=0, atol=limit)
    assert report.device_subtasks == report.subtasks
    assert report.bytes_uploaded == a.nbytes  # each block once, then they stay


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda a: np.copyto(a, np.diag([1.0] * 6 + [0.0] + [1.0] * 5)),
            r"\(1, 1\) of Trail: the pivot in row 6 .*zero",
        ),
        (lambda a: a.__setitem__((0, 0), 0.0), "the pivot in row 0 .* is zero"),
        (lambda a: a.__setitem__((0, 0), 1e-12), "grows to"),
    ],
)
def test_matrices_that_need_pivots_are_refused_on_a_device(change: Any, message: str) -> None:
    a = dominant(12, "f8")
    change(a)
    with session(CudaDevice(0, cupy=FakeCupy())) as s, pytest.raises(SubtaskError, match=message):
        lu(s, a, block=4)


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("boundary", ["zero", "reflect", "nearest", "clip"])
@pytest.mark.parametrize(
    ("shape", "sides", "dtype"),
    [((45, 32), [(3, 5), (5, 1)], "f8"), ((30, 41, 3), [(9, 9)], "u1"), ((17, 9), [(11, 9), (3, 3)], "f4")],
)
def test_convolutions_on_a_device(boundary: Any, shape: Any, sides: Any, dtype: str) -> None:
    rng = np.random.default_rng(0)
    image = rng.uniform(0, 200, shape).astype(dtype)
    kernels = [rng.uniform(-1, 1, side).astype("f4") for side in sides]

    def run(s: blocks.Session) -> Any:
        found, report = convolve(s, image, kernels, block=12, boundary=boundary)
        return found.array(), report

    (expected, _), (found, report) = both(FakeCupy(), run)
    assert found.dtype == expected.dtype
    near = 1e-12 if dtype == "f8" else 2e-6
    np.testing.assert_allclose(found, expected, rtol=near, atol=near * np.abs(expected).max())
    assert report.device_subtasks == report.subtasks


def ranks_of_pages(s: blocks.Session) -> Any:
    edges = np.random.default_rng(0).integers(0, 35, (150, 2))
    ranks, report = pagerank(s, edges, n_pages=40, block=7, most_steps=5)
    return ranks.array(), report


@pytest.mark.slow
def test_ranks_of_pages_have_the_same_bits_on_a_device() -> None:
    require_compiler()
    (expected, _), (found, report) = both(FakeCupy(), ranks_of_pages)
    np.testing.assert_array_equal(found, expected)
    assert report.device_subtasks == report.subtasks


def test_ranks_of_pages_have_the_same_bits_on_a_device_without_kernels() -> None:
    with blocks.Session(workers=1, host_cache=2**22) as s:
        expected, _ = ranks_of_pages(s)
    with session("sim") as s:
        found, report = ranks_of_pages(s)
    np.testing.assert_array_equal(found, expected)
    assert report.device_subtasks == report.subtasks


@pytest.mark.parametrize(("left", "right"), [("f4", "f4"), ("i1", "u2"), ("f4", "f8")])
def test_matmul_has_the_same_bits_on_a_device(left: str, right: str) -> None:
    rng = np.random.default_rng(3)
    a, b = (rng.integers(0, 100, shape).astype(kind) for shape, kind in (((29, 70), left), ((70, 41), right)))

    def run(s: blocks.Session) -> Any:
        product, report, _ = matmul(s, a, b, block=16)
        return product.array(), report

    (expected, _), (found, report) = both(FakeCupy(), run)
    np.testing.assert_array_equal(found, expected)
    assert report.device_subtasks == report.subtasks == 6


class WatchedDevice(SimDevice):
    """A simulator that says when arrays were copied."""

    def __init__(self) -> None:
        super().__init__()
        self.copied = threading.Condition()
        self.n_uploaded = self.n_downloaded = 0

    def upload(self, host: Array, target: Any) -> None:
        super().upload(host, target)
        with self.copied:
            self.n_uploaded += 1
            self.copied.notify_all()

    def download(self, source: Any, host: Array) -> None:
        super().download(source, host)
        with self.copied:
            self.n_downloaded += 1
            self.copied.notify_all()

    def reaches(self, n_uploaded: int, n_downloaded: int) -> bool:
        """Wait until these numbers of arrays were copied."""
        with self.copied:
            return self.copied.wait_for(
                lambda: self.n_uploaded >= n_uploaded and self.n_downloaded >= n_downloaded, timeout=60
            )


def test_copies_happen_while_a_function_computes() -> None:
    device = WatchedDevice()

    def waits(a: Array, b: Array, xp: Any, index: tuple[int, ...]) -> None:
        (number,) = index
        assert device.reaches(min(number + 2, 6), number)  # the range of the next, the results of all before
        xp.multiply(a, 2, out=b)

    with session(device) as s:
        found, report = doubled(s, function=waits)
        np.testing.assert_array_equal(found, 2 * np.arange(24.0))
        assert (report.device_subtasks, report.repeated) == (6, 0)


def test_a_session_resumes_on_a_device_with_the_same_functions_only(tmp_path: Path) -> None:
    def on_cpu(a: Array) -> None:
        a += 1

    def on_gpu(a: Array, xp: Any) -> None:
        xp.add(a, 2, out=a)

    def other(a: Array, xp: Any) -> None:
        xp.subtract(a, 2, out=a)

    def task(s: blocks.Session, gpu: Any) -> blocks.Task:
        A = s.spaces[0]
        wants = lambda i: A.update[A.block(i)]  # noqa: E731
        return blocks.Task(cpu=on_cpu, gpu=gpu, grid=A.grid, subscribe=wants, releases_gil=True)

    with session("sim", folder=tmp_path) as s:
        s.space(np.zeros(4), block=2)
        s.run(task(s, on_gpu))
        s.checkpoint()
    with blocks.resume(tmp_path, device="sim", workers=1, host_cache=2**22) as s:
        with pytest.raises(ConfigError, match="is not what it was when the checkpoint was written"):
            s.run(task(s, other))
        assert s.run(task(s, on_gpu)).device_subtasks == 2
        np.testing.assert_array_equal(s.spaces[0].array(), np.full(4, 4.0))
