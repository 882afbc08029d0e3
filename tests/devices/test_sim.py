"""The simulator: its fence, its clock, its options."""

from __future__ import annotations

import math
import pickle
import threading
from typing import Any

import numpy as np
import pytest

from tartan.devices.sim import MemoryMeter, RealClock, SimDevice, SimOptions, VirtualClock, parse_sim_options
from tartan.errors import ConfigError, DeviceError, DeviceMemoryError


def loaded(device: SimDevice, values: Any) -> Any:
    host = np.asarray(values, np.float32)
    array = device.allocate(host.shape, host.dtype)
    device.upload(host, array)
    return array


class TestFence:
    @pytest.mark.parametrize(
        "use",
        [
            lambda x: x + 1,
            lambda x: np.sqrt(x),
            lambda x: np.concatenate([x, x]),
            lambda x: x.sum(),
            lambda x: np.asarray(x),
            lambda x: float(x[0]),
            lambda x: bool(x[0]),
            lambda x: x[[0, 1]],
            lambda x: x.__setitem__(0, 1.0),
            lambda x: x.__array_namespace__().zeros((3,)),
        ],
    )
    def test_contents_are_for_compute_alone(self, use: Any) -> None:
        device = SimDevice()
        x = loaded(device, [1, 2, 3])
        with pytest.raises(DeviceError) as caught:
            use(x)
        assert caught.value.code == "outside-compute"
        device.compute("compare", 1, lambda: use(x))

    def test_shape_dtype_and_slices_are_free(self) -> None:
        x = loaded(SimDevice(), np.zeros((4, 5)))
        assert (x.shape, x.dtype, x.ndim, x.size, x.nbytes, len(x)) == ((4, 5), np.float32, 2, 20, 80, 4)
        assert x[1:3, None, ..., 0].shape == (2, 1)
        assert x[2, 3].shape == ()
        assert x.T.shape == (5, 4)
        assert [row.shape for row in x] == [(5,)] * 4

    def test_host_arrays_do_not_mix_with_device_arrays(self) -> None:
        device = SimDevice()
        x, host = loaded(device, [1, 2, 3]), np.ones(3, np.float32)
        for mix in (lambda: x + host, lambda: host + x, lambda: device.xp.maximum(x, host)):
            with pytest.raises(TypeError, match="upload"):
                device.compute("compare", 1, mix)

    def test_a_host_array_is_not_taken_for_a_result(self) -> None:
        device = SimDevice()
        result = device.compute("compare", 3, lambda: np.ones(3))
        with pytest.raises(DeviceError) as caught:
            device.download(result, np.empty(3))
        assert caught.value.code == "host-array"

    def test_arrays_of_another_simulator_are_refused(self) -> None:
        x = loaded(SimDevice(), [1.0])
        other = SimDevice()
        with pytest.raises(DeviceError):
            other.download(x, np.empty(1, np.float32))
        with pytest.raises(TypeError):
            other.compute("compare", 1, lambda: other.xp.sqrt(x))

    def test_native_code_reaches_the_memory_inside_compute(self) -> None:
        device = SimDevice()
        x = loaded(device, [1, 2, 3])
        result = device.compute("compare", 3, lambda: device.xp.asarray(np.cumsum(np.asarray(x))))
        host = np.empty(3, np.float32)
        device.download(result, host)
        np.testing.assert_array_equal(host, [1, 3, 6])

    def test_asarray_copies_host_memory(self) -> None:
        device = SimDevice()
        host = np.ones(3)
        on_device = device.compute("compare", 1, lambda: device.xp.asarray(host))
        host.fill(7)
        back = np.empty(3)
        device.download(on_device, back)
        np.testing.assert_array_equal(back, np.ones(3))

    def test_another_thread_is_outside_compute(self) -> None:
        device = SimDevice()
        x = loaded(device, [1.0])
        errors: list[BaseException] = []

        def peek() -> None:
            try:
                x.sum()
            except DeviceError as error:
                errors.append(error)

        def compute() -> None:
            thread = threading.Thread(target=peek)
            thread.start()
            thread.join()

        device.compute("compare", 1, compute)
        assert len(errors) == 1

    def test_a_slot_that_was_never_filled_shows(self) -> None:
        device = SimDevice()
        empty = device.allocate((3,), "float32")
        host = np.empty(3, np.float32)
        device.download(device.compute("compare", 3, lambda: empty * 2), host)
        assert np.isnan(host).all()

    def test_arrays_do_not_travel(self) -> None:
        with pytest.raises(TypeError, match="download"):
            pickle.dumps(loaded(SimDevice(), [1.0]))

    def test_results_with_names_keep_them(self) -> None:
        device = SimDevice()
        x = loaded(device, np.eye(3))
        result = device.compute("compare", 1, lambda: device.xp.linalg.svd(x))
        assert result.S.shape == (3,)


class TestMemory:
    def test_capacity_counts_what_is_alive(self) -> None:
        device = SimDevice(SimOptions(memory_bytes=1000))
        first = device.allocate((600,), "uint8")
        assert device.free_bytes() == 400
        with pytest.raises(DeviceMemoryError) as caught:
            device.allocate((500,), "uint8")
        assert caught.value.context["wanted_bytes"] == 500
        view = first[:10]
        del first
        assert device.free_bytes() == 400  # the view holds it
        del view
        assert device.free_bytes() == 1000
        assert device.peak_bytes == 600

    def test_temporaries_count(self) -> None:
        device = SimDevice(SimOptions(memory_bytes=1000))
        x = loaded(device, np.zeros(100))
        with pytest.raises(DeviceMemoryError):
            device.compute("compare", 1, lambda: x[:, None] + x[None, :])
        device.compute("compare", 1, lambda: x + x)
        assert device.free_bytes() == 600

    def test_views_cost_nothing(self) -> None:
        device = SimDevice(SimOptions(memory_bytes=100))
        x = device.allocate((100,), "uint8")
        shaped, words = device.compute("compare", 1, lambda: (x.reshape(10, 10), x[:96].view(np.uint64)))
        assert [array.shape for array in (x[1:], shaped, words)] == [(99,), (10, 10), (12,)]
        assert device.free_bytes() == 0

    def test_absurd_sizes_are_refused(self) -> None:
        with pytest.raises(DeviceMemoryError):
            SimDevice().allocate((2**40, 2**40), "float64")

    def test_meter_is_exact_under_threads(self) -> None:
        meter = MemoryMeter(1000)

        def churn() -> None:
            for _ in range(500):
                if meter.reserve(7):
                    meter.release(7)

        threads = [threading.Thread(target=churn) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert meter.used_bytes == 0
        assert not meter.reserve(1001)


class TestTime:
    def test_engines_are_busy_for_what_the_model_says(self) -> None:
        clock = VirtualClock()
        options = SimOptions(
            upload_bytes_per_second=100,
            download_bytes_per_second=50,
            preprocess_seconds=2.0,
            compare_seconds=0.5,
            speed=2.0,
        )
        device = SimDevice(options, clock=clock)
        x = loaded(device, np.zeros(25))  # 100 bytes: 1 s
        device.compute("preprocess", 3, lambda: None)  # 3 s
        device.compute("compare", 8, lambda: None)  # 2 s
        device.compute("copy", 100, lambda: None)  # free
        device.download(x, np.empty(25, np.float32))  # 2 s
        assert device.busy_seconds == {"upload": 1.0, "compute": 5.0, "download": 2.0}
        assert clock.now() == 8.0

    def test_no_options_no_time(self) -> None:
        clock = VirtualClock()
        device = SimDevice(clock=clock)
        loaded(device, np.zeros(1000))
        device.compute("compare", 10**9, lambda: None)
        assert clock.now() == 0.0

    def test_an_idle_engine_does_not_save_time_up(self) -> None:
        clock = VirtualClock()
        device = SimDevice(SimOptions(compare_seconds=1.0), clock=clock)
        device.compute("compare", 1, lambda: None)
        clock.advance(10.0)
        device.compute("compare", 1, lambda: None)
        assert clock.now() == 12.0

    def test_waking_late_does_not_add_up(self) -> None:
        clock = LateClock(lateness_seconds=1e-4)
        device = SimDevice(SimOptions(compare_seconds=0.001), clock=clock)
        for _ in range(1000):
            device.compute("compare", 1, lambda: None)
        assert clock.now() == pytest.approx(1.0 + 1e-4, abs=1e-9)

    def test_waking_very_late_is_not_forgiven(self) -> None:
        clock = LateClock(lateness_seconds=1.0)
        device = SimDevice(SimOptions(compare_seconds=1.0), clock=clock)
        for _ in range(10):
            device.compute("compare", 1, lambda: None)
        assert clock.now() > 19.0

    def test_work_slower_than_the_model_takes_its_time(self) -> None:
        clock = VirtualClock()
        device = SimDevice(SimOptions(compare_seconds=1.0), clock=clock)
        device.compute("compare", 1, lambda: clock.advance(5.0))
        device.compute("compare", 1, lambda: None)
        assert clock.now() == 6.0

    def test_the_clocks_reach_their_deadline(self) -> None:
        for clock in (RealClock(), VirtualClock()):
            deadline = clock.now() + 0.002
            clock.wait_until(deadline)
            assert clock.now() >= deadline
            clock.wait_until(deadline - 1.0)

    def test_spread_is_seeded_and_keeps_the_mean(self) -> None:
        options = SimOptions(compare_seconds=1.0, spread=0.5, seed=3)
        devices = [SimDevice(options, clock=VirtualClock()) for _ in range(2)]
        for device in devices:
            for _ in range(200):
                device.compute("compare", 20, lambda: None)
        seconds = [device.busy_seconds["compute"] for device in devices]
        assert seconds[0] == seconds[1]
        # Mean 4000 s, standard deviation 0.5 * sqrt(4000) = 32 s.
        assert seconds[0] == pytest.approx(4000, abs=4 * 32)
        assert seconds[0] != 4000


class LateClock(VirtualClock):
    """Wakes its callers late by the same amount each time."""

    def __init__(self, lateness_seconds: float) -> None:
        super().__init__()
        self._lateness_seconds = lateness_seconds

    def wait_until(self, deadline: float) -> None:
        super().wait_until(deadline + self._lateness_seconds)


class TestOptions:
    def test_text_form(self) -> None:
        options = parse_sim_options(
            "compare=1.1ms, preprocess=20us,upload=10GB/s,download=1MiB/s,memory=2GB,spread=0.3,speed=2,seed=7"
        )
        assert options == SimOptions(
            memory_bytes=2 * 10**9,
            upload_bytes_per_second=1e10,
            download_bytes_per_second=2.0**20,
            preprocess_seconds=2e-5,
            compare_seconds=1.1e-3,
            spread=0.3,
            speed=2.0,
            seed=7,
        )

    def test_no_text_is_the_default(self) -> None:
        assert parse_sim_options("") == SimOptions()
        assert SimOptions().upload_bytes_per_second == math.inf

    @pytest.mark.parametrize(
        "text",
        [
            "color=red", "compare=5", "compare=-1ms", "upload=10GB", "memory=3items", "memory=x", "speed=fast",
            "seed=1.5", "speed=0", "compare",
        ],
    )  # fmt: skip
    def test_what_cannot_be_understood_is_refused(self, text: str) -> None:
        with pytest.raises(ConfigError):
            parse_sim_options(text)
