"""The CUDA device over the stand-in for CuPy, and the stand-in itself: does it catch what it is for?"""

from __future__ import annotations

import mmap
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from support.compiler import require_compiler
from support.fake_cupy import FakeCudaRuntimeError, FakeCupy, FakeOutOfMemoryError, MisuseError
from tartan.base.kernels import kept
from tartan.devices.cuda import CudaDevice, find_gpus, why_not_pinned
from tartan.errors import DeviceError, DeviceMemoryError


def loaded(device: CudaDevice, values: Any) -> Any:
    host = np.asarray(values, np.float32)
    array = device.allocate(host.shape, host.dtype)
    device.upload(host, array)
    return array


class TestDevice:
    @pytest.mark.slow
    def test_staging_memory_is_pinned_as_long_as_it_is_used(self) -> None:
        cupy = FakeCupy()
        device = CudaDevice(cupy=cupy)
        staging = device.staging((10, 3), "float32")
        assert cupy.registered == {staging.ctypes.data: 120}
        assert staging.ctypes.data % mmap.PAGESIZE == 0
        assert staging.flags.writeable
        assert staging.flags.c_contiguous
        kept, other = staging.reshape(-1)[7:].view(np.uint8), device.staging((5,), "int8")
        del staging
        assert len(cupy.registered) == 2
        del kept
        assert list(cupy.registered.values()) == [5]
        device.close()
        assert cupy.registered == {}
        del other
        assert cupy.misuse == []

    def test_host_memory_is_pinned_until_the_device_closes(self) -> None:
        cupy, host = FakeCupy(n_devices=2), np.zeros(1000)
        device, other = CudaDevice(cupy=cupy), CudaDevice(1, cupy=cupy)
        assert device.pin(host)
        assert other.pin(host)  # by the first
        assert list(cupy.registered.values()) == [8000]
        other.close()
        assert len(cupy.registered) == 1
        device.close()
        assert cupy.registered == {}

    def test_memory_whose_pinning_is_refused_is_ordinary_memory(self) -> None:
        cupy = FakeCupy()

        def refuse(*_: int) -> None:
            raise FakeCudaRuntimeError(2, "cudaErrorMemoryAllocation")

        assert why_not_pinned(0, cupy) == ""
        assert cupy.registered == {}
        cupy.cuda.runtime.hostRegister = refuse
        device = CudaDevice(cupy=cupy)
        assert not device.pin(np.zeros(10))
        staging = device.staging((4,), "int32")
        staging.fill(3)
        x = device.allocate((4,), "int32")
        device.upload(staging, x)
        device.download(x, back := np.zeros(4, "int32"))
        assert back.tolist() == [3] * 4
        assert why_not_pinned(0, cupy) == "cudaErrorMemoryAllocation"

    def test_the_limit_of_the_pool_holds(self) -> None:
        device = CudaDevice(cupy=FakeCupy(memory_bytes=1000), memory_limit_bytes=600)
        assert device.free_bytes() == 600
        kept = device.allocate((500,), "uint8")
        assert device.free_bytes() == 100
        with pytest.raises(DeviceMemoryError) as caught:
            device.allocate((200,), "uint8")
        assert caught.value.retryable
        del kept
        assert device.free_bytes() == 600

    def test_handles_of_libraries_are_counted(self) -> None:
        """One of the thread that opens the device is there, and two will come of those that compute."""
        cupy = FakeCupy(memory_bytes=1000, handle_bytes=50)
        device = CudaDevice(cupy=cupy, memory_limit_bytes=600)
        assert device.free_bytes() == 600 - 2 * 50
        held = device.allocate((500,), "uint8")
        with pytest.raises(DeviceMemoryError):
            device.allocate((1,), "uint8")
        del held
        assert CudaDevice(cupy=FakeCupy(memory_bytes=1000, handle_bytes=50), memory_limit_bytes=150).free_bytes() == 75
        assert CudaDevice(cupy=FakeCupy(memory_bytes=1000, handle_bytes=50)).free_bytes() == 1000 - 3 * 50
        with pytest.raises(DeviceMemoryError, match="ALLOC_FAILED"):
            CudaDevice(cupy=FakeCupy(memory_bytes=10, handle_bytes=50))

    def test_libraries_that_are_not_installed_are_not_missed_before_they_are_used(self) -> None:
        class Bare(SimpleNamespace):
            def __getattr__(self, name: str) -> Any:
                raise ImportError(f'Failure finding "lib{name}.so"')  # as CuPy's modules do

        cupy = FakeCupy()
        cupy.cuda = Bare(**{name: part for name, part in vars(cupy.cuda).items() if name not in ("cublas", "cufft")})
        device = CudaDevice(cupy=cupy)
        assert device.compute("compare", 1, lambda: 3) == 3
        with pytest.raises(DeviceMemoryError):
            device.allocate((2**25,), "float32")
        device.close()

    def test_no_such_gpu(self) -> None:
        with pytest.raises(DeviceError, match="cuda:0, cuda:1") as caught:
            CudaDevice(2, cupy=FakeCupy(n_devices=2))
        assert caught.value.code == "no-gpu"

    def test_no_gpu_at_all(self) -> None:
        with pytest.raises(DeviceError, match="--device cpu") as caught:
            CudaDevice(cupy=FakeCupy(n_devices=0))
        assert caught.value.code == "no-gpu"

    def test_no_cupy(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(__import__("sys").modules, "cupy", None)
        with pytest.raises(DeviceError, match=r"tartan-allpairs\[cuda12\]") as caught:
            CudaDevice()
        assert caught.value.code == "no-cupy"

    def test_a_lost_device_is_a_device_error(self) -> None:
        cupy = FakeCupy()
        device = CudaDevice(cupy=cupy)
        x = loaded(device, [1, 2, 3])
        cupy.lose_device()
        calls: list[Callable[[], object]] = [
            lambda: device.compute("compare", 3, lambda: x + x),
            lambda: device.upload(np.ones(3, np.float32), x),
            lambda: device.download(x, np.ones(3, np.float32)),
            lambda: device.allocate((3,), "float32"),
        ]
        for call in calls:
            with pytest.raises(DeviceError) as caught:
                call()
            assert not caught.value.retryable
        device.close()

    def test_a_wrong_launch_is_the_users_error(self) -> None:
        device = CudaDevice(cupy=FakeCupy())

        def launch() -> None:
            raise FakeCudaRuntimeError(9, "cudaErrorInvalidConfiguration")

        with pytest.raises(FakeCudaRuntimeError):
            device.compute("compare", 1, launch)
        assert device.compute("compare", 1, lambda: 1) == 1

    @pytest.mark.parametrize(
        ("library", "code"),
        [
            ("driver.CUDADriverError", 2),
            ("runtime.CUDARuntimeError", 2),
            ("cublas.CUBLASError", 3),
            ("cufft.CuFFTError", 2),
        ],
    )
    def test_memory_errors_of_all_libraries(self, library: str, code: int) -> None:
        """Each is tried again after the pool is emptied; then the tile is too large."""
        cupy = FakeCupy()
        device, calls = CudaDevice(cupy=cupy), []
        kind = attrgetter(library)(cupy.cuda)

        def once() -> int:
            calls.append(1)
            if len(calls) == 1:
                raise kind(code, "no memory")
            return 7

        def always() -> None:
            raise kind(code, "no memory")

        def another() -> None:
            raise kind(code + 7, "wrong use")

        assert device.compute("compare", 1, once) == 7
        with pytest.raises(DeviceMemoryError, match="no memory") as caught:
            device.compute("compare", 1, always)
        assert caught.value.retryable
        with pytest.raises(kind, match="wrong use"):
            device.compute("compare", 1, another)

    def test_what_is_kept_on_a_device_goes_when_memory_runs_out_and_with_it(self) -> None:
        device, other, made = CudaDevice(cupy=FakeCupy()), CudaDevice(cupy=FakeCupy()), list[int]()

        def make() -> int:
            made.append(1)
            return len(made)

        def use(fails: bool = False) -> int:
            found = kept("plan", make)
            if fails and len(made) < 3:
                raise FakeOutOfMemoryError("no memory")
            return found

        assert [device.compute("compare", 1, use) for _ in range(2)] == [1, 1]
        assert other.compute("compare", 1, use) == 2
        assert device.compute("compare", 1, partial(use, True)) == 3
        assert kept("plan", make) == 4  # outside of any device nothing is kept
        device.close()
        assert other.compute("compare", 1, use) == 2

    def test_a_device_that_is_lost_in_a_library_is_lost(self) -> None:
        cupy = FakeCupy()
        device = CudaDevice(cupy=cupy)

        def crash() -> None:
            cupy.lose_device()
            raise cupy.cuda.cublas.CUBLASError(14, "CUBLAS_STATUS_INTERNAL_ERROR")

        with pytest.raises(DeviceError, match=r"INTERNAL_ERROR|illegal") as caught:
            device.compute("compare", 1, crash)
        assert not isinstance(caught.value, DeviceMemoryError)

    def test_host_arrays_are_not_taken_for_device_arrays(self) -> None:
        device = CudaDevice(cupy=FakeCupy())
        for call in (device.upload, device.download):
            with pytest.raises(DeviceError) as caught:
                call(np.zeros(3), np.zeros(3))
            assert caught.value.code == "host-array"

    def test_a_target_with_gaps_is_refused(self) -> None:
        device = CudaDevice(cupy=FakeCupy())
        arena = loaded(device, np.zeros((4, 4)))
        with pytest.raises(DeviceError) as caught:
            device.upload(np.zeros((4, 2), np.float32), arena[:, :2])
        assert caught.value.code == "copy-not-contiguous"


PATIENCE_SECONDS = 20.0


class TestCopies:
    """Two at a time each way; a thread that waits for its copy meets that of the other thread here."""

    @pytest.mark.parametrize("way", ["upload", "download"])
    def test_two_are_in_flight_each_way(self, way: str) -> None:
        meeting = threading.Barrier(2)

        def meet(of: str) -> None:
            if of == way:
                meeting.wait(PATIENCE_SECONDS)  # broken unless the other copy is issued while this one is in flight

        cupy = FakeCupy(while_copying=meet)
        device = CudaDevice(cupy=cupy)
        sent = np.arange(40, dtype=np.float32).reshape(4, 10)
        slots, back = device.allocate(sent.shape, sent.dtype), np.zeros_like(sent)
        with ThreadPoolExecutor(2) as pool:
            uploaded = [pool.submit(device.upload, sent[k], slots[k]) for k in range(4)] if way == "upload" else []
            if way == "download":
                device.upload(sent, slots)
            assert [one.result() for one in uploaded] == [None] * len(uploaded)
            downloaded = [pool.submit(device.download, slots[k], back[k]) for k in range(4)]
            assert [one.result() for one in downloaded] == [None] * 4
        np.testing.assert_array_equal(back, sent)
        assert cupy.most_copying[way] == 2
        assert cupy.n_copying == {"upload": 0, "download": 0}
        assert cupy.misuse == []

    def test_a_third_waits_for_a_stream(self) -> None:
        cupy = FakeCupy()
        device = CudaDevice(cupy=cupy)
        sent = np.arange(80, dtype=np.float32).reshape(8, 10)
        slots, back = device.allocate(sent.shape, sent.dtype), np.zeros_like(sent)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(device.upload, sent, list(slots)))
            list(pool.map(device.download, list(slots), back))
        np.testing.assert_array_equal(back, sent)
        assert max(cupy.most_copying.values()) <= 2

    @pytest.mark.parametrize("way", ["upload", "download"])
    def test_a_fault_in_the_second_leaves_nothing_behind(self, way: str) -> None:
        """The second copy is issued, but the event by which it is awaited cannot be made."""
        first_is_issued, second_has_failed = threading.Event(), threading.Event()

        def hold(of: str) -> None:
            first_is_issued.set()
            assert second_has_failed.wait(PATIENCE_SECONDS)

        cupy = FakeCupy(while_copying=lambda of: hold(of) if of == way else None)
        device = CudaDevice(cupy=cupy)
        sent = np.arange(20, dtype=np.float32).reshape(2, 10)
        slots, back = device.allocate(sent.shape, sent.dtype), np.zeros_like(sent)
        if way == "download":
            device.upload(sent, slots)

        def copy(k: int) -> None:
            device.upload(sent[k], slots[k]) if way == "upload" else device.download(slots[k], back[k])

        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(copy, 0)
            assert first_is_issued.wait(PATIENCE_SECONDS)
            make_event = cupy.cuda.Event
            cupy.cuda.Event = refuse_events
            with pytest.raises(DeviceError, match=f"{way} failed: no more events"):
                copy(1)
            cupy.cuda.Event = make_event
            assert cupy.n_copying[way] == 1
            assert cupy.most_copying[way] == 2
            second_has_failed.set()
            assert first.result() is None
        assert cupy.n_copying == {"upload": 0, "download": 0}
        copy(1)  # its stream is free again
        if way == "upload":
            device.download(slots, back)
        np.testing.assert_array_equal(back, sent)
        device.close()
        assert cupy.misuse == []
        assert cupy.registered == {}
        assert cupy.cuda.runtime.memGetInfo()[0] == 2**26 - slots.nbytes


def refuse_events(**_: Any) -> None:
    raise FakeCudaRuntimeError(999, "no more events")


class TestFoundGpus:
    def test_describes_each(self) -> None:
        gpus = find_gpus(FakeCupy(n_devices=2, memory_bytes=1000))
        assert [gpu["name"] for gpu in gpus] == ["Fake GPU 0", "Fake GPU 1"]
        assert gpus[1] == {
            "name": "Fake GPU 1", "index": 1, "memory_bytes": 1000, "free_bytes": 1000, "usable": True, "reason": "",
        }  # fmt: skip

    def test_a_broken_gpu_does_not_hide_the_others(self) -> None:
        cupy = FakeCupy(n_devices=2)
        properties = cupy.cuda.runtime.getDeviceProperties

        def broken_first(index: int) -> Any:
            if index == 0:
                raise FakeCudaRuntimeError(46, "cudaErrorDevicesUnavailable")
            return properties(index)

        cupy.cuda.runtime.getDeviceProperties = broken_first
        gpus = find_gpus(cupy)
        assert [gpu["usable"] for gpu in gpus] == [False, True]
        assert "Unavailable" in gpus[0]["reason"]

    def test_a_cupy_for_another_cuda_is_named(self, tmp_path: Path) -> None:
        cupy, message = (
            FakeCupy(),
            "cudaErrorInsufficientDriver: CUDA driver version is insufficient for CUDA runtime version",
        )

        def refused() -> int:
            raise FakeCudaRuntimeError(35, message)

        cupy.cuda.runtime.getDeviceCount = refused
        with pytest.raises(DeviceError, match=r"driver version is insufficient.*extra cuda12 or cuda13"):
            CudaDevice(cupy=cupy)
        (tmp_path / "0000:01:00.0").mkdir()
        (gpu,) = find_gpus(cupy, driver=tmp_path)
        assert (gpu["usable"], "insufficient" in gpu["reason"]) == (False, True)

    def test_never_raises(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        (tmp_path / "0000:01:00.0").mkdir()
        monkeypatch.setitem(__import__("sys").modules, "cupy", None)
        (gpu,) = find_gpus(driver=tmp_path)
        assert not gpu["usable"]
        assert "CuPy" in gpu["reason"]
        assert find_gpus(driver=tmp_path / "absent") == []
        assert find_gpus(FakeCupy(n_devices=0), driver=tmp_path / "absent") == []


class Careless(CudaDevice):
    """A device that forgets to wait for its streams."""

    def forget_to_wait(self) -> None:
        self._compute.wait = lambda mark=None: None  # type: ignore[method-assign]
        self._await = lambda lane: nullcontext()  # type: ignore[method-assign]


class TestTheStandIn:
    """What would be a race on a GPU is an error here."""

    def test_an_upload_that_is_not_waited_for(self) -> None:
        cupy = FakeCupy()
        device = Careless(cupy=cupy)
        device.forget_to_wait()
        x = loaded(device, [1, 2, 3])
        with pytest.raises(MisuseError, match="waited for"):
            device.compute("compare", 3, lambda: x + x)
        assert len(cupy.misuse) == 1

    def test_a_result_that_is_not_waited_for(self) -> None:
        cupy = FakeCupy()
        device = Careless(cupy=cupy)
        x = loaded(device, [1, 2, 3])
        device.forget_to_wait()
        y = device.compute("compare", 3, lambda: x + x)
        with pytest.raises(MisuseError, match="waited for"):
            device.download(y, np.empty(3, np.float32))

    def test_a_download_that_is_not_waited_for_leaves_the_host_unchanged(self) -> None:
        device = Careless(cupy=FakeCupy())
        x = loaded(device, [1, 2, 3])
        device.forget_to_wait()
        host = np.zeros(3, np.float32)
        device.download(x, host)
        np.testing.assert_array_equal(host, np.zeros(3))

    def test_arrays_that_a_kernel_only_reads_may_be_read_elsewhere_but_not_written(self) -> None:
        require_compiler()
        device = Careless(cupy=FakeCupy())
        x, y = loaded(device, [1, 2, 3]), loaded(device, [0, 0, 0])
        device.forget_to_wait()
        source = 'extern "C" __global__ void copy(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x]; }'
        copy = device.xp.RawModule(code=source)
        device.compute("compare", 3, lambda: copy.get_function("copy")((1,), (3,), (x, y)))
        device.download(x, np.empty(3, np.float32))
        with pytest.raises(MisuseError, match="waited for"):
            device.upload(np.zeros(3, np.float32), x)
        with pytest.raises(MisuseError, match="waited for"):
            device.download(y, np.empty(3, np.float32))

    def test_work_outside_compute(self) -> None:
        x = loaded(CudaDevice(cupy=FakeCupy()), [1, 2, 3])
        with pytest.raises(MisuseError, match="selected device"):
            x + x

    def test_work_on_the_null_stream(self) -> None:
        cupy = FakeCupy()
        x = loaded(CudaDevice(cupy=cupy), [1, 2, 3])
        with pytest.raises(MisuseError, match="null stream"), cupy.cuda.Device(0):
            x + x

    def test_memory_outside_the_pool(self) -> None:
        cupy = FakeCupy()
        stream = cupy.cuda.Stream(non_blocking=True)
        with pytest.raises(MisuseError, match="pool"), cupy.cuda.Device(0), stream:
            cupy.empty((3,), "float32")

    def test_implicit_copies_to_the_host(self) -> None:
        device = CudaDevice(cupy=FakeCupy())
        x = loaded(device, [1, 2, 3])
        with pytest.raises(TypeError, match="download"):
            device.compute("compare", 1, lambda: np.asarray(x))

    @pytest.mark.parametrize(
        "make",
        [
            lambda cuda: cuda.Stream(non_blocking=False),
            lambda cuda: cuda.Event(block=False, disable_timing=True),
            lambda cuda: cuda.Event(block=True, disable_timing=True).synchronize(),
        ],
    )
    def test_streams_and_events_of_the_wrong_kind(self, make: Callable[[Any], object]) -> None:
        with pytest.raises(MisuseError):
            make(FakeCupy().cuda)

    def test_transforms_that_the_library_would_misread(self) -> None:
        cupy = FakeCupy()
        device = CudaDevice(cupy=cupy)
        cufft = device.xp.cuda.cufft
        photo, small = loaded(device, np.ones((4, 6))), loaded(device, np.ones((4, 5)))
        plan = device.compute(
            "preprocess", 1, lambda: cufft.PlanNd((4, 6), None, 1, 0, None, 1, 0, cufft.CUFFT_R2C, 1, "C", 1, 4)
        )
        half = device.allocate((4, 4), np.complex64)
        device.compute("preprocess", 1, lambda: plan.fft(photo, half, cufft.CUFFT_FORWARD))
        found = np.empty((4, 4), np.complex64)
        device.download(half, found)
        assert found[0, 0] == 24
        for wrong in (
            lambda: plan.fft(small, half, cufft.CUFFT_FORWARD),
            lambda: plan.fft(photo, half, cufft.CUFFT_INVERSE),
            lambda: cufft.PlanNd((4, 6), None, 1, 0, None, 1, 0, cufft.CUFFT_R2C, 2, "C", 1, 4),
        ):
            with pytest.raises(MisuseError):
                device.compute("preprocess", 1, wrong)

    def test_work_areas_of_plans_are_memory_of_the_pool(self) -> None:
        device = CudaDevice(cupy=FakeCupy(memory_bytes=2000), memory_limit_bytes=1000)
        cufft = device.xp.cuda.cufft
        made = [
            device.compute(
                "preprocess", 1, lambda: cufft.PlanNd((8, 8), None, 1, 0, None, 1, 0, cufft.CUFFT_C2R, 1, "C", 1, 8)
            )
        ]
        assert device.free_bytes() == 1000 - 8 * 8 * 5
        made.clear()
        assert device.free_bytes() == 1000

    def test_products_of_what_is_no_device_array(self) -> None:
        device = CudaDevice(cupy=FakeCupy())
        cuda, x = device.xp.cuda, loaded(device, np.ones((2, 8)))
        one, zero = np.ones(1, np.float32), np.zeros(1, np.float32)

        def multiply(address: Any, inner: int, handle: int | None = None) -> None:
            cuda.cublas.gemmStridedBatchedEx(
                *(cuda.device.get_cublas_handle() if handle is None else handle, 1, 0, 2, 2, inner, one.ctypes.data),
                *(address, 0, 8, inner, x.data.ptr, 0, 8, inner, zero.ctypes.data, out.data.ptr, 0, 2, 4, 1, 68, -1),
            )

        out = device.allocate((2, 2), np.float32)
        device.compute("compare", 1, lambda: multiply(x.data.ptr, 8))
        for address, inner, handle in ((x.data.ptr, 9, None), (int(x.data.ptr), 8, None), (x.data.ptr, 8, 7)):
            call = partial(multiply, address, inner, handle)
            with pytest.raises(MisuseError, match="product"):
                device.compute("compare", 1, call)
