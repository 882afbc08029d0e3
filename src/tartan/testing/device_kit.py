"""What every device must pass: a pytest base class. Subclass it and give it a fixture ``device``::

    class TestMyDevice(DeviceKit):
        @pytest.fixture
        def device(self):
            device = MyDevice()
            yield device
            device.close()

``device`` needs about 50 MB of free memory. Nothing here sleeps or measures time; a device whose engines wait for
each other ends in a failed barrier.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest

from tartan.devices.protocol import Device
from tartan.errors import DeviceError, DeviceMemoryError

__all__ = ["DeviceKit"]

_PATIENCE_SECONDS = 20.0

# What applications use of an array namespace: name, and a function of (xp, a, b); a, b are (5, 8) float32.
_FUNCTIONS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "matmul": lambda xp, a, b: xp.matmul(a, b.T),
    "operator-matmul": lambda xp, a, b: a @ b.T,
    "broadcast-difference": lambda xp, a, b: xp.sum(xp.abs(a[:, None, :] - b[None, :, :]), axis=2),
    "vector-norm": lambda xp, a, b: xp.linalg.vector_norm(a, axis=1, keepdims=True),
    "mean-and-std": lambda xp, a, b: (a - xp.mean(a, axis=1, keepdims=True)) / xp.std(b),
    "sqrt-maximum": lambda xp, a, b: xp.sqrt(xp.maximum(a, xp.zeros_like(a))),
    "where-comparison": lambda xp, a, b: xp.where(a > b, a, -b),
    "stack": lambda xp, a, b: xp.stack([a, b]),
    "concat": lambda xp, a, b: xp.concat([a, b], axis=1),
    "reshape-permute": lambda xp, a, b: xp.permute_dims(xp.reshape(a, (5, 2, 4)), (2, 0, 1)),
    "argmax": lambda xp, a, b: xp.argmax(a, axis=1),
    "isnan-any": lambda xp, a, b: xp.any(xp.isnan(a / b), axis=1),
    "astype": lambda xp, a, b: xp.astype(a, xp.float64) * 2,
    "cumulative": lambda xp, a, b: xp.sort(a, axis=1),
    "arange-take": lambda xp, a, b: xp.take(a, xp.arange(4, -1, -1), axis=0),
    "exp-log": lambda xp, a, b: xp.log(xp.exp(a) + xp.ones(a.shape, dtype=a.dtype)),
    "fft": lambda xp, a, b: xp.real(xp.fft.ifft2(xp.fft.fft2(a) * xp.conj(xp.fft.fft2(b)))),
    "asarray-scalar": lambda xp, a, b: a * xp.asarray(3, dtype=xp.float32),
    "boolean-mask": lambda xp, a, b: xp.where(~(a > 0) & (b > 0), 1.0, 0.0),
}  # fmt: skip


class DeviceKit:
    """The suite. See the module for how to use it."""

    # Copies and memory

    @pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64", "uint8", "bool", "complex64"])
    @pytest.mark.parametrize("shape", [(7,), (3, 5), (2, 3, 4), ()])
    def test_a_copy_there_and_back_keeps_every_bit(self, device: Device, dtype: str, shape: Any) -> None:
        host = _numbers(shape, dtype)
        np.testing.assert_array_equal(_from_device(device, _to_device(device, host)), host, strict=True)

    @pytest.mark.parametrize("shape", [(0,), (0, 4), (4, 0)])
    def test_nothing_can_be_copied_and_computed(self, device: Device, shape: Any) -> None:
        on_device = _to_device(device, np.empty(shape, np.float32))
        result = device.compute("compare", 0, lambda: on_device + on_device)
        assert _from_device(device, result).shape == shape

    def test_memory_that_is_pinned_is_copied_as_any(self, device: Device) -> None:
        host = np.arange(5000, dtype=np.float64)
        first = device.pin(host)
        np.testing.assert_array_equal(_from_device(device, _to_device(device, host)), host)
        assert device.pin(host) == first

    def test_staging_memory_is_a_writable_host_array(self, device: Device) -> None:
        for shape in [(3, 4), (0, 4)]:
            staging = device.staging(shape, "float64")
            staging.fill(3.5)
            np.testing.assert_array_equal(_from_device(device, _to_device(device, staging)), np.full(shape, 3.5))

    def test_a_slot_of_an_arena_is_filled_alone(self, device: Device) -> None:
        arena = _to_device(device, np.zeros((4, 3), np.float32))
        device.upload(np.ones((2, 3), np.float32), arena[1:3])
        expected = np.array([[0] * 3, [1] * 3, [1] * 3, [0] * 3], np.float32)
        np.testing.assert_array_equal(_from_device(device, arena), expected)

    def test_the_host_array_is_free_after_upload(self, device: Device) -> None:
        host = _numbers((1000,), "float32")
        expected = host.copy()
        on_device = _to_device(device, host)
        host.fill(-1)
        np.testing.assert_array_equal(_from_device(device, on_device), expected)

    def test_host_views_with_gaps_are_refused(self, device: Device) -> None:
        wide = np.zeros((4, 6), np.float32)
        on_device = _to_device(device, np.ones((4, 3), np.float32))
        for call in (device.upload, lambda host, array: device.download(array, host)):
            with pytest.raises(DeviceError) as caught:
                call(wide[:, ::2], on_device)
            assert caught.value.code == "copy-not-contiguous"

    def test_results_with_gaps_are_downloaded(self, device: Device) -> None:
        host = _numbers((3, 5), "float32")
        on_device = _to_device(device, host)
        turned = device.compute("compare", 15, lambda: on_device.T)
        np.testing.assert_array_equal(_from_device(device, turned), host.T)

    @pytest.mark.parametrize("wrong", [np.zeros((3, 2), np.float32), np.zeros((2, 3), np.float64)])
    def test_copies_between_unlike_arrays_are_refused(self, device: Device, wrong: np.ndarray) -> None:
        on_device = _to_device(device, np.ones((2, 3), np.float32))
        for call in (device.upload, lambda host, array: device.download(array, host)):
            with pytest.raises(DeviceError) as caught:
                call(wrong, on_device)
            assert caught.value.code == "copy-mismatch"

    def test_too_much_memory_is_refused_and_harms_nothing(self, device: Device) -> None:
        kept = _to_device(device, np.ones(10, np.float32))
        with pytest.raises(DeviceMemoryError):
            device.allocate((2 * device.free_bytes(),), "uint8")
        np.testing.assert_array_equal(_from_device(device, kept), np.ones(10, np.float32))

    def test_memory_returns_when_the_array_goes(self, device: Device) -> None:
        for _ in range(20):  # far more in sum than a small device has
            array = device.allocate((device.free_bytes() // 2 if device.free_bytes() <= 2**28 else 1000,), "uint8")
            del array

    # Compute

    @pytest.mark.parametrize("name", sorted(_FUNCTIONS))
    def test_the_namespace_agrees_with_numpy(self, device: Device, name: str) -> None:
        import array_api_compat.numpy as numpy_namespace

        a, b = _numbers((5, 8), "float32"), _numbers((5, 8), "float32", seed=1)
        expected = np.asarray(_FUNCTIONS[name](numpy_namespace, a, b))
        x, y = _to_device(device, a), _to_device(device, b)
        result = device.compute("compare", 25, lambda: _FUNCTIONS[name](device.xp, x, y))
        got = _from_device(device, result)
        assert got.dtype == expected.dtype
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)

    def test_compute_may_write_into_a_slot(self, device: Device) -> None:
        arena = _to_device(device, np.zeros((3, 4), np.float32))
        item = _to_device(device, _numbers((4,), "float32"))

        def fill() -> None:
            arena[1] = item * 2

        assert device.compute("preprocess", 1, fill) is None
        np.testing.assert_array_equal(_from_device(device, arena)[1], 2 * _numbers((4,), "float32"))

    def test_results_follow_on_each_other(self, device: Device) -> None:
        x = _to_device(device, _numbers((50, 50), "float64"))
        for _ in range(5):
            x = device.compute("compare", 2500, partial(_square, x))
        expected = _numbers((50, 50), "float64")
        for _ in range(5):
            expected = _square(expected)
        np.testing.assert_allclose(_from_device(device, x), expected, rtol=1e-9)

    def test_several_outputs_come_back(self, device: Device) -> None:
        x = _to_device(device, _numbers((6,), "float32"))
        result = device.compute("compare", 6, lambda: {"sum": x + 1, "product": x * 2})
        np.testing.assert_array_equal(_from_device(device, result["sum"]), _numbers((6,), "float32") + 1)
        np.testing.assert_array_equal(_from_device(device, result["product"]), _numbers((6,), "float32") * 2)

    def test_errors_of_the_call_arrive_unchanged(self, device: Device) -> None:
        error = ZeroDivisionError("mine")

        def fail() -> None:
            raise error

        with pytest.raises(ZeroDivisionError) as caught:
            device.compute("compare", 1, fail)
        assert caught.value is error
        assert device.compute("compare", 1, lambda: "still works") == "still works"

    def test_memory_that_runs_out_in_a_call_is_a_device_memory_error(self, device: Device) -> None:
        def take_too_much() -> Any:
            if device.shares_host_memory:
                raise MemoryError("as NumPy would")  # Linux promises memory that it does not have
            return device.xp.empty((4 * device.free_bytes(),), dtype=device.xp.uint8)

        with pytest.raises(DeviceMemoryError):
            device.compute("compare", 1, take_too_much)
        assert device.compute("compare", 1, lambda: "still works") == "still works"

    # Engines

    def test_the_three_engines_work_at_the_same_time(self, device: Device) -> None:
        host = _numbers((1000,), "float32")
        source, target = _to_device(device, host), device.allocate((1000,), "float32")
        back = np.empty_like(host)
        computing, copied = threading.Event(), threading.Barrier(3)

        def inside_compute() -> str:
            computing.set()
            copied.wait(_PATIENCE_SECONDS)  # broken unless both copies end while compute is at work
            return "overlapped"

        def copy(call: Callable[[], None]) -> None:
            assert computing.wait(_PATIENCE_SECONDS)
            call()
            copied.wait(_PATIENCE_SECONDS)

        with ThreadPoolExecutor(3) as pool:
            done = pool.submit(device.compute, "compare", 1, inside_compute)
            up = pool.submit(copy, lambda: device.upload(host, target))
            down = pool.submit(copy, lambda: device.download(source, back))
            assert (done.result(), up.result(), down.result()) == ("overlapped", None, None)
        np.testing.assert_array_equal(back, host)
        np.testing.assert_array_equal(_from_device(device, target), host)

    def test_a_pipeline_of_three_threads_gives_the_right_sums(self, device: Device) -> None:
        n_rounds, slots = 12, 2
        items = np.arange(n_rounds * 64, dtype=np.float32).reshape(n_rounds, 64)
        np.testing.assert_array_equal(_pipeline(device, items, slots), items.sum(axis=1))

    def test_two_threads_copy_each_way(self, device: Device) -> None:
        items = _numbers((32, 500), "float32")
        slots, back = device.allocate(items.shape, items.dtype), np.empty_like(items)
        with ThreadPoolExecutor(2) as up, ThreadPoolExecutor(2) as down:
            uploads = [up.submit(device.upload, row, slots[k]) for k, row in enumerate(items)]

            def fetch(k: int) -> None:
                uploads[k].result(_PATIENCE_SECONDS)
                device.download(slots[k], back[k])

            list(down.map(fetch, range(len(items))))
        np.testing.assert_array_equal(back, items)

    # Life

    def test_it_tells_what_it_is(self, device: Device) -> None:
        assert isinstance(device, Device)
        assert device.name.partition(":")[0] in ("cpu", "cuda", "sim")
        assert device.free_bytes() > 0

    def test_closing_twice_is_fine_and_use_afterwards_is_not(self, device: Device) -> None:
        device.close()
        device.close()
        for call in (
            lambda: device.allocate((1,), "float32"),
            lambda: device.compute("compare", 1, lambda: None),
            lambda: device.free_bytes(),
            lambda: device.staging((1,), "float32"),
        ):
            with pytest.raises(DeviceError) as caught:
                call()
            assert caught.value.code == "closed"


def _numbers(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    """Return small reproducible numbers, positive and negative where the dtype has both."""
    numbers = np.random.default_rng(seed).normal(size=shape) * 3
    return np.asarray(np.abs(numbers) if dtype in ("uint8", "bool") else numbers).astype(dtype)


def _square(x: Any) -> Any:
    return x @ x / len(x)


def _to_device(device: Device, host: np.ndarray) -> Any:
    array = device.allocate(host.shape, host.dtype)
    device.upload(host, array)
    return array


def _from_device(device: Device, array: Any) -> np.ndarray:
    host = device.staging(array.shape, array.dtype)
    device.download(array, host)
    return host


def _pipeline(device: Device, items: np.ndarray, n_slots: int) -> np.ndarray:
    """Upload, sum and download each row of ``items`` in three threads over a few slots."""
    arena = device.allocate((n_slots, items.shape[1]), items.dtype)
    sums = np.empty(len(items), items.dtype)
    uploaded = [threading.Event() for _ in items]
    computed = [threading.Event() for _ in items]
    results: list[Any] = [None] * len(items)

    def upload() -> None:
        for k, row in enumerate(items):
            if k >= n_slots:
                assert computed[k - n_slots].wait(_PATIENCE_SECONDS)
            device.upload(row, arena[k % n_slots])
            uploaded[k].set()

    def compute() -> None:
        for k in range(len(items)):
            assert uploaded[k].wait(_PATIENCE_SECONDS)
            slot = arena[k % n_slots]
            results[k] = device.compute("compare", 1, partial(device.xp.sum, slot[None, :], axis=1))
            computed[k].set()

    def download() -> None:
        for k in range(len(items)):
            assert computed[k].wait(_PATIENCE_SECONDS)
            device.download(results[k], sums[k : k + 1])

    with ThreadPoolExecutor(3) as pool:
        for stage in [pool.submit(stage) for stage in (upload, compute, download)]:
            stage.result()
    return sums
