"""What slots are measured against on a GPU: copies, alone and beside them, and the same kernels driven by the host."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from cannon import blocks
from mandelbrot import STRIP
from nbody import bodies

from tartan._native import CommArena
from tartan.comm.slots import Kernel, LoadedKernel

_FOR_ALL_GPUS = 1
_FOLDERS = (Path(__file__).parents[2] / "examples" / "comm" / "compute.cu", Path(__file__).with_name("_comm_cut.cu"))
#: Strips under way at once, for each slot.
_AHEAD = 2


class Gpu:
    """The first GPU, with memory of its own and a stream; to be used in a ``with`` statement.

    Parameters
    ----------
    cupy : module
        CuPy, or its stand-in.
    """

    def __init__(self, cupy: Any) -> None:
        self._cupy, self._held = cupy, []
        with cupy.cuda.Device(0):
            self.pool = cupy.cuda.MemoryPool()
            self.stream = self.new_stream()

    def new_stream(self) -> Any:
        """Return a stream that does not wait for others."""
        with self._cupy.cuda.Device(0):
            return self._cupy.cuda.Stream(non_blocking=True)

    def new_event(self) -> Any:
        """Return an event."""
        return self._cupy.cuda.Event(block=True, disable_timing=True)

    def __enter__(self) -> Gpu:
        return self

    def __exit__(self, *_: object) -> None:
        with self._cupy.cuda.Device(0):
            for array in self._held:
                self._cupy.cuda.runtime.hostUnregister(array.ctypes.data)

    def pinned(self, shape: Any, dtype: Any) -> np.ndarray:
        """Return an array of the host, of zeros, that stays in its place."""
        array = np.zeros(shape, dtype)
        with self._cupy.cuda.Device(0):
            self._cupy.cuda.runtime.hostRegister(array.ctypes.data, array.nbytes, _FOR_ALL_GPUS)
        self._held.append(array)
        return array

    def array(self, host: np.ndarray) -> Any:
        """Return a copy on the GPU."""
        with self._cupy.cuda.Device(0), self.stream, self._cupy.cuda.using_allocator(self.pool.malloc):
            array = self._cupy.empty(host.shape, host.dtype)
        self.up(array, host)
        self.wait(self.stream)
        return array

    def up(self, array: Any, host: np.ndarray, stream: Any = None) -> None:
        """Begin to copy to the GPU."""
        stream = stream or self.stream
        with self._cupy.cuda.Device(0), stream:
            array.data.copy_from_host_async(host.ctypes.data, host.nbytes, stream)

    def down(self, array: Any, host: np.ndarray, stream: Any = None) -> None:
        """Begin to copy to the host."""
        stream = stream or self.stream
        with self._cupy.cuda.Device(0), stream:
            array.data.copy_to_host_async(host.ctypes.data, host.nbytes, stream)

    def wait(self, stream: Any) -> None:
        """Wait for a stream."""
        with self._cupy.cuda.Device(0):
            event = self.new_event()
            event.record(stream)
            event.synchronize()

    def kernels(self, *names: str) -> list[Callable[..., None]]:
        """Compile kernels of the cut programs; each takes a stream, blocks, threads and its arguments."""
        with self._cupy.cuda.Device(0), self.stream:
            code = "".join(path.read_text() for path in _FOLDERS)
            module = self._cupy.RawModule(code=code, options=("-std=c++17",))
            functions = [module.get_function(name) for name in names]
        return [self._launcher(function) for function in functions]

    def _launcher(self, function: Any) -> Callable[..., None]:
        def launch(stream: Any, n_blocks: int, threads: int, *args: Any) -> None:
            with self._cupy.cuda.Device(0), stream:
                function((n_blocks,), (threads,), args)

        return launch


def copy_rates(gpu: Gpu, n_bytes: int, times: int = 5) -> Callable[[], tuple[float, float]]:
    """Return what measures copies of pinned memory to the GPU and back, in bytes a microsecond; it takes no memory."""
    host, array = gpu.pinned(n_bytes, np.uint8), gpu.array(np.zeros(n_bytes, np.uint8))
    stream = gpu.new_stream()

    def measure() -> tuple[float, float]:
        rates = []
        for copy in (gpu.up, gpu.down):
            seconds = []
            for _ in range(times):
                start = time.perf_counter()
                copy(array, host, stream)
                gpu.wait(stream)
                seconds.append(time.perf_counter() - start)
            rates.append(n_bytes / min(seconds) / 1e6)
        return rates[0], rates[1]

    return measure


@dataclass(frozen=True)
class CopyingSlots:
    """A device for slots on which copies run beside a kernel, once its slots wait.

    ``waiting`` in the folder tells the copies to begin; what they find is written to ``rates`` there.
    """

    device: Any
    load_cupy: Callable[[], Any]
    folder: Path
    n_bytes: int

    @property
    def pins_memory(self) -> bool:
        """Whether the device does."""
        return bool(self.device.pins_memory)

    def load(self, kernel: Kernel, gpu: int) -> LoadedKernel:
        """Compile a kernel."""
        return _CopyingKernel(self, self.device.load(kernel, gpu))


class _CopyingKernel:
    """A kernel beside which copies run."""

    def __init__(self, device: CopyingSlots, loaded: LoadedKernel) -> None:
        self._device, self._loaded, self.most_slots = device, loaded, loaded.most_slots

    def launch(self, n_slots: int, arena: CommArena, local: int, rank: int) -> None:
        """Measure copies alone, run the kernel, and measure them again beside it."""
        with Gpu(self._device.load_cupy()) as gpu:
            measure = copy_rates(gpu, self._device.n_bytes)
            alone = measure()

            def beside() -> None:
                while not (self._device.folder / "waiting").exists():
                    time.sleep(1e-3)
                made = self._device.folder / "made"
                made.write_text(" ".join(map(str, (*alone, *measure()))))
                made.rename(self._device.folder / "rates")

            copying = threading.Thread(target=beside, daemon=True)
            copying.start()
            self._loaded.launch(n_slots, arena, local, rank)
            copying.join(1.0)


def mandelbrot_by_host(gpu: Gpu, slots: int, threads: int, size: int, steps: int) -> tuple[float, np.ndarray]:
    """Compute a picture: the host launches a strip wherever one is done; return its seconds and the picture."""
    (compute,) = gpu.kernels("strip_step")
    places = [
        (gpu.new_stream(), gpu.array(np.zeros((STRIP, size), np.int32)), gpu.pinned((STRIP, size), np.int32))
        for _ in range(_AHEAD * slots)
    ]
    whole = np.empty((size, size), np.int32)
    start = time.perf_counter()
    free, going, following = deque(places), deque(), 0
    while following < size or going:
        while free and following < size:
            stream, strip, host = free.popleft()
            rows = min(STRIP, size - following)
            numbers = (np.int32(number) for number in (following, rows, size, size, steps))
            compute(stream, 1, threads, strip, *numbers)
            gpu.down(strip, host, stream)
            event = gpu.new_event()
            event.record(stream)
            going.append((event, following, rows, (stream, strip, host)))
            following += STRIP
        event, first, rows, place = going.popleft()
        if not event.done:
            going.append((event, first, rows, place))
            continue
        whole[first : first + rows] = place[2][:rows]
        free.append(place)
    return time.perf_counter() - start, whole


def cannon_by_host(
    gpu: Gpu, slots: int, threads: int, size: int, steps: int, *, carried: bool
) -> tuple[float, np.ndarray]:
    """Multiply matrices: a launch a step, and the host carries blocks between them, or leaves them on the GPU."""
    side = int(slots**0.5)
    slots, inner = side * side, size // side
    (compute,) = gpu.kernels("product_step")
    shape = (slots, inner, inner)
    hosts = [gpu.pinned(shape, np.float64) for _ in range(5)]
    for place in range(slots):
        hosts[0][place], hosts[1][place] = blocks(size, side, *divmod(place, side))
    a, b, c = (gpu.array(host) for host in hosts[:3])
    row, column = np.divmod(np.arange(slots), side)
    from_right, from_below = row * side + (column + 1) % side, (row + 1) % side * side + column
    start = time.perf_counter()
    for step in range(side):
        numbers = (np.int32(number) for number in (inner, side, 0 if carried else step))
        compute(gpu.stream, slots, threads, c, a, b, *numbers)
        if carried and step < side - 1:
            for array, host, moved, places in (
                (a, hosts[0], hosts[3], from_right),
                (b, hosts[1], hosts[4], from_below),
            ):
                gpu.down(array, host)
                gpu.wait(gpu.stream)
                np.take(host, places, axis=0, out=moved, mode="clip")
                gpu.up(array, moved)
    gpu.down(c, hosts[2])
    gpu.wait(gpu.stream)
    seconds = time.perf_counter() - start
    return seconds, hosts[2].reshape(side, side, inner, inner).swapaxes(1, 2).reshape(size, size)


def nbody_by_host(
    gpu: Gpu, slots: int, threads: int, size: int, steps: int, *, carried: bool
) -> tuple[float, np.ndarray]:
    """Move bodies: a launch a step, and the host carries the places of all, or leaves them on the GPU."""
    compute, take = gpu.kernels("move_step", "take")
    host = gpu.pinned((size, 3), np.float64)
    host[:] = bodies(size)
    places, whole, speeds = (gpu.array(array) for array in (host, host, np.zeros((size, 3))))
    start = time.perf_counter()
    for step in range(steps):
        if carried and step:
            gpu.down(places, host)
            gpu.wait(gpu.stream)
            gpu.up(whole, host)
        elif step:
            take(gpu.stream, slots, threads, whole, places, np.int32(3 * size))
        compute(gpu.stream, slots, threads, places, speeds, whole, np.int32(size))
    gpu.down(places, host)
    gpu.wait(gpu.stream)
    return time.perf_counter() - start, host
