"""A stand-in for CuPy, for machines without a GPU: just the part of its interface that ``CudaDevice`` uses.

It computes with NumPy but keeps the manners of a GPU. Copies that are called asynchronous stay undone until their
stream is waited for. Results belong to the stream that made them until then. What would be a race or a slow path on
a GPU raises ``MisuseError`` and is recorded in ``FakeCupy.misuse``:

- use of an array before the stream that works on it was waited for (both may read it);
- work on the null stream, without a selected device, or outside the device's own memory pool;
- host arrays among device arrays;
- memory taken or pinned, or code loaded, while a kernel runs whose blocks are all resident.

Kernels in CUDA C++ (``RawModule``) run on the emulator of ``tartan.testing.emulator``, which finds wrong indices and
missing barriers; cooperative launches run on threads. Of cuFFT and cuBLAS there is what
``support.fake_cuda_libraries`` has. All work is done in the calling thread, and there is one device memory for
all GPUs.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from support.fake_cuda_errors import (
    FakeCompileError,
    FakeCudaRuntimeError,
    FakeLibraryError,
    FakeOutOfMemoryError,
    MisuseError,
)
from support.fake_cuda_libraries import DeviceAddress, FakeHandles, cublas, cufft
from support.fake_cuda_modules import FakeModule
from support.fake_cuda_resident import attribute, occupancy
from tartan.devices.sim import Guard, GuardedArray, MemoryMeter

__all__ = ["FakeCudaRuntimeError", "FakeCupy", "FakeLibraryError", "FakeOutOfMemoryError", "MisuseError"]

_NO_DEVICE, _MAPPED = 100, 2
_OF_UNKNOWN_SIZE = frozenset({"nonzero", "flatnonzero", "argwhere", "unique", "compress", "extract", "union1d"})


@dataclass
class _Selection:
    """What one thread has selected: nested devices, streams, pools."""

    devices: list[int] = field(default_factory=list)
    streams: list[_Stream] = field(default_factory=list)
    pools: list[_Pool] = field(default_factory=list)


class _Stream:
    """Work in order of issue; done when somebody waits for it."""

    def __init__(self, machine: _FakeDriver) -> None:
        self.n_issued = 0
        self.copying = ""
        self._machine = machine
        self._work: deque[tuple[int, Callable[[], object]]] = deque()
        self._lock = threading.Lock()

    def issue(self, work: Callable[[], object]) -> None:
        with self._lock:
            self.n_issued += 1
            self._work.append((self.n_issued, work))

    def finish(self, until: int) -> None:
        """Do the work up to number ``until``."""
        with self._lock:
            while self._work and self._work[0][0] <= until:
                self._work.popleft()[1]()

    def synchronize(self) -> None:
        self._machine.check_alive()
        self.finish(self.n_issued)

    def __enter__(self) -> _Stream:
        self._machine.selection.streams.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._machine.selection.streams.pop()


class _Event:
    """A position in a stream."""

    def __init__(self, machine: _FakeDriver) -> None:
        self._machine = machine
        self._stream: _Stream | None = None
        self._position = 0

    def record(self, stream: _Stream) -> None:
        self._stream, self._position = stream, stream.n_issued

    def synchronize(self) -> None:
        self._machine.check_alive()
        if self._stream is None:
            raise self._machine.misused("wait for an event that was never recorded")
        if self._stream.copying:
            self._machine.while_copying(self._stream.copying)
        self._stream.finish(self._position)

    @property
    def done(self) -> bool:
        """Whether the work before it is done: whoever asks gives it the time."""
        self.synchronize()
        return True


class _Pool:
    """Counts what is taken from the machine's memory in its name."""

    def __init__(self, machine: _FakeDriver) -> None:
        self._machine = machine
        self._meter = MemoryMeter(machine.meter.capacity_bytes)

    def set_limit(self, size: int | None = None) -> None:
        self._meter.capacity_bytes = size or self._machine.meter.capacity_bytes

    def used_bytes(self) -> int:
        return self._meter.used_bytes

    def free_bytes(self) -> int:
        return 0  # keeps nothing back

    def free_all_blocks(self) -> None:
        pass

    def malloc(self, nbytes: int) -> Callable[[], None]:
        """Take memory; return what gives it back."""
        if not self._meter.reserve(nbytes):
            raise FakeOutOfMemoryError(f"out of memory allocating {nbytes} bytes (limit of the pool)")
        if not self._machine.meter.reserve(nbytes):
            self._meter.release(nbytes)
            raise FakeOutOfMemoryError(f"out of memory allocating {nbytes} bytes")
        return partial(self._release, nbytes)

    def _release(self, nbytes: int) -> None:
        self._meter.release(nbytes)
        self._machine.meter.release(nbytes)


@dataclass(frozen=True)
class _Flight:
    """An array that a stream works on."""

    stream: _Stream
    raw: np.ndarray
    writes: bool


class _FakeDriver(Guard):
    """The GPUs behind one FakeCupy: their memory and everything in flight."""

    def __init__(self, memory_bytes: int, while_copying: Callable[[str], object]) -> None:
        import array_api_compat.numpy as module

        super().__init__(module)
        self.meter = MemoryMeter(memory_bytes)
        self.misuse: list[str] = []
        self.launched: list[str] = []
        self.lost = False
        self.n_waits = 0
        self.while_copying = while_copying
        self.n_copying = {"upload": 0, "download": 0}
        self.most_copying = {"upload": 0, "download": 0}
        self.n_resident = 0
        self.crashing: frozenset[str] = frozenset()
        self.mapped: dict[int, int] = {}
        self._threads = threading.local()
        self._in_flight: dict[int, _Flight] = {}
        self._n_flights = 0
        self._seeds = itertools.count()
        self._lock = threading.Lock()

    @property
    def selection(self) -> _Selection:
        if not hasattr(self._threads, "selection"):
            self._threads.selection = _Selection()
        return self._threads.selection  # type: ignore[no-any-return]

    def misused(self, what: str) -> MisuseError:
        self.misuse.append(what)
        return MisuseError(what)

    def next_seed(self) -> int:
        """Return a number for the order of the threads of a launch."""
        return next(self._seeds)

    def check_alive(self) -> None:
        if self.lost:
            raise FakeCudaRuntimeError(700, "cudaErrorIllegalAddress: an illegal memory access was encountered")

    def check_idle(self, what: str) -> None:
        """Refuse what would wait for a kernel that waits for the host."""
        if self.n_resident:
            raise self.misused(f"{what} while a kernel is resident")

    def current_stream(self) -> _Stream:
        if not self.selection.devices:
            raise self.misused("work without a selected device")
        if not self.selection.streams:
            raise self.misused("work on the null stream")
        return self.selection.streams[-1]

    # The rules of Guard

    def run(self, function: Callable[..., Any], args: Any, kwargs: Any, *, takes_host_arrays: bool = False) -> Any:
        if _has_unknown_size(function, args):
            self.n_waits += 1  # the host learns the shape of the result from the GPU
        return super().run(function, args, kwargs, takes_host_arrays=takes_host_arrays)

    def before_use(self, operands: Sequence[np.ndarray]) -> None:
        self.before_launch(operands, [])

    def before_scalar(self, raw: np.ndarray) -> None:
        self.n_waits += 1
        self.before_use([raw])

    def after_use(self, results: Iterable[np.ndarray]) -> None:
        for raw in results:
            self.issue(self.current_stream(), raw)

    def before_launch(self, read: Sequence[np.ndarray], written: Sequence[np.ndarray]) -> None:
        """Raise unless the calling thread may read and write these arrays now."""
        self.check_alive()
        stream = self.current_stream()
        for raw in read:
            self.check_ready(raw, stream, writes=False)
        for raw in written:
            self.check_ready(raw, stream)
        stream.finish(stream.n_issued)  # a stream works in order

    def reserve(self, nbytes: int) -> Callable[[], None]:
        self.check_idle("memory taken")
        if not self.selection.pools:
            raise self.misused("memory taken from the pool of the process, not of the device")
        return self.selection.pools[-1].malloc(nbytes)

    def pointer(self, raw: np.ndarray) -> _Pointer:
        return _Pointer(self, raw)

    # What is in flight

    def check_ready(self, raw: np.ndarray, stream: _Stream, *, writes: bool = True) -> None:
        """Refuse an array whose memory another stream still works on; other slots of an arena do not matter."""
        with self._lock:
            flights = [flight for flight in self._in_flight.values() if flight.stream is not stream]
        if any((writes or flight.writes) and np.may_share_memory(raw, flight.raw) for flight in flights):
            raise self.misused(f"array {raw.dtype}{raw.shape} used before the stream that works on it was waited for")

    def issue(
        self, stream: _Stream, raw: np.ndarray, work: Callable[[], object] = lambda: None, *, writes: bool = True
    ) -> None:
        """Put work on an array into a stream."""
        with self._lock:
            number = self._n_flights = self._n_flights + 1
            self._in_flight[number] = _Flight(stream, raw, writes)

        def work_and_land() -> None:
            work()
            with self._lock:
                del self._in_flight[number]

        stream.issue(work_and_land)

    def issue_copy(self, stream: _Stream, raw: np.ndarray, copy: Callable[[], object], way: str) -> None:
        """Put an upload or a download of an array into a stream, and count it until it is done."""
        with self._lock:
            self.n_copying[way] += 1
            self.most_copying[way] = max(self.most_copying[way], self.n_copying[way])
        stream.copying = way

        def copy_and_count() -> None:
            copy()
            stream.copying = ""
            with self._lock:
                self.n_copying[way] -= 1

        self.issue(stream, raw, copy_and_count, writes=way == "upload")


def _has_unknown_size(function: Callable[..., Any], args: tuple[Any, ...]) -> bool:
    """Whether the shape of a result depends on the values of an array."""
    if function is np.ndarray.__getitem__:
        index = args[1] if isinstance(args[1], tuple) else (args[1],)
        return any(isinstance(part, GuardedArray) and part.dtype == np.bool_ for part in index)
    name = getattr(function, "__name__", "")
    return name in _OF_UNKNOWN_SIZE or (name == "where" and len(args) == 1)


class _Pointer:
    """Stands for ``cupy.cuda.MemoryPointer``."""

    def __init__(self, machine: _FakeDriver, raw: np.ndarray) -> None:
        self._machine = machine
        self._raw = raw

    @property
    def ptr(self) -> DeviceAddress:
        """Address of the array, for libraries."""
        return DeviceAddress.of(self._raw)

    def copy_from_host_async(self, address: int, nbytes: int, stream: _Stream) -> None:
        self._copy(self._raw.ctypes.data, address, nbytes, stream, "upload")

    def copy_to_host_async(self, address: int, nbytes: int, stream: _Stream) -> None:
        self._copy(address, self._raw.ctypes.data, nbytes, stream, "download")

    def _copy(self, target: int, source: int, nbytes: int, stream: _Stream, way: str) -> None:
        self._machine.check_alive()
        self._machine.check_ready(self._raw, stream, writes=way == "upload")
        if nbytes != self._raw.nbytes or not self._raw.flags.c_contiguous:
            raise self._machine.misused(f"copy of {nbytes} bytes from or to an array of {self._raw.nbytes}")
        self._machine.issue_copy(stream, self._raw, lambda: ctypes.memmove(target, source, nbytes), way)


class FakeCupy:
    """Stands for the module ``cupy``.

    Parameters
    ----------
    n_devices : int
        How many GPUs there seem to be.
    memory_bytes : int
        Memory of the GPU.
    handle_bytes : int
        What cuBLAS takes of it, outside of all pools, for the handle of each thread.
    while_copying : callable, optional
        Called with "upload" or "download" by a thread that begins to wait for its copy, which is not done before it
        returns: by waiting there for another copy, a test shows that the device lets both be under way.
    crashing : sequence of str
        Names of kernels that lose the GPU when they are launched with all blocks at once.

    Attributes
    ----------
    misuse : list of str
        What was done that would be wrong on a GPU. Empty after a good test.
    registered : dict of int to int
        Host memory that is pinned now: its address, and its size in bytes.
    n_copying, most_copying : dict of str to int
        Copies that are issued and not done, now and at most so far; of "upload" and of "download".
    launched : list of str
        Names of the kernels of modules that ran, in order.
    n_waits : int
        How often a call had to wait for the GPU, while its thread spins: for a number, by ``bool``, ``int`` or
        ``float``, or for the size of a result, as of ``nonzero`` and of an index of booleans.

    Examples
    --------
    >>> from tartan.devices.cuda import CudaDevice
    >>> device = CudaDevice(0, cupy=FakeCupy())
    >>> device.allocate((2, 3), "float32").shape
    (2, 3)
    """

    ndarray = GuardedArray

    def __init__(
        self,
        *,
        n_devices: int = 1,
        memory_bytes: int = 2**26,
        handle_bytes: int = 0,
        while_copying: Callable[[str], object] = lambda way: None,
        crashing: Sequence[str] = (),
    ) -> None:
        self._machine = _FakeDriver(memory_bytes, while_copying)
        self._machine.crashing = frozenset(crashing)
        self._n_devices = n_devices
        self.misuse = self._machine.misuse
        self.launched = self._machine.launched
        self.n_copying = self._machine.n_copying
        self.most_copying = self._machine.most_copying
        self.RawModule = partial(FakeModule, self._machine)
        self.array_namespace = self._machine.namespace
        cublas_error = type("CUBLASError", (FakeLibraryError,), {})
        handles = FakeHandles(self._machine, cublas_error, handle_bytes)
        self.n_pinned_bytes = 0
        self.registered: dict[int, int] = {}
        self.cuda = SimpleNamespace(
            Device=self._device,
            Stream=self._stream,
            Event=self._event,
            MemoryPool=lambda: _Pool(self._machine),
            using_allocator=self._using_allocator,
            memory=SimpleNamespace(OutOfMemoryError=FakeOutOfMemoryError),
            driver=SimpleNamespace(
                CUDADriverError=type("CUDADriverError", (FakeLibraryError,), {}),
                occupancyMaxActiveBlocksPerMultiprocessor=occupancy,
            ),
            compiler=SimpleNamespace(CompileException=FakeCompileError),
            cublas=cublas(self._machine, cublas_error, handles),
            cufft=cufft(self._machine, type("CuFFTError", (FakeLibraryError,), {})),
            device=SimpleNamespace(get_cublas_handle=handles.of_thread),
            runtime=SimpleNamespace(
                CUDARuntimeError=FakeCudaRuntimeError,
                getDeviceCount=self._count,
                getDeviceProperties=lambda index: {"name": b"Fake GPU %d" % index},
                memGetInfo=self._mem_get_info,
                hostRegister=self._host_register,
                hostUnregister=self._host_unregister,
                deviceGetAttribute=attribute,
                pointerGetAttributes=lambda address: SimpleNamespace(
                    devicePointer=address if address in self._machine.mapped else 0
                ),
            ),
        )
        for name in ("RawModule", "cuda"):
            setattr(self.array_namespace, name, getattr(self, name))

    @property
    def n_waits(self) -> int:
        return self._machine.n_waits

    def lose_device(self) -> None:
        """From now on every call fails, as after a kernel that crashed."""
        self._machine.lost = True

    def empty(self, shape: tuple[int, ...], dtype: Any) -> GuardedArray:
        """Stand for ``cupy.empty``."""
        self._machine.before_use([])
        return self._machine.wrap(np.empty(shape, dtype))

    def ascontiguousarray(self, array: GuardedArray) -> GuardedArray:
        """Stand for ``cupy.ascontiguousarray``: the same array when it has no gaps."""
        raw = self._machine.unwrap(array)
        if raw.flags.c_contiguous:
            return array
        self._machine.before_use([raw])
        return self._machine.wrap(raw.copy())

    def _count(self) -> int:
        if self._n_devices == 0:
            raise FakeCudaRuntimeError(_NO_DEVICE, "cudaErrorNoDevice: no CUDA-capable device is detected")
        return self._n_devices

    @contextmanager
    def _device(self, index: int) -> Iterator[None]:
        if not 0 <= index < self._n_devices:
            raise FakeCudaRuntimeError(101, "cudaErrorInvalidDevice: invalid device ordinal")
        devices = self._machine.selection.devices
        devices.append(index)
        try:
            yield
        finally:
            devices.pop()

    def _stream(self, *, non_blocking: bool) -> _Stream:
        if not non_blocking:
            raise self._machine.misused("a stream that waits for the null stream")
        return _Stream(self._machine)

    def _event(self, *, block: bool, disable_timing: bool) -> _Event:
        if not (block and disable_timing):
            raise self._machine.misused("an event whose waiting thread spins")
        return _Event(self._machine)

    @contextmanager
    def _using_allocator(self, malloc: Callable[[int], Any]) -> Iterator[None]:
        pools = self._machine.selection.pools
        pools.append(malloc.__self__)  # type: ignore[attr-defined]
        try:
            yield
        finally:
            pools.pop()

    def _host_register(self, address: int, nbytes: int, flags: int) -> None:
        if not self._machine.selection.devices:
            raise self._machine.misused("host memory pinned without a selected device")
        if any(address < start + size and start < address + nbytes for start, size in self.registered.items()):
            raise FakeCudaRuntimeError(712, "cudaErrorHostMemoryAlreadyRegistered")
        self._machine.check_idle("memory pinned")
        self.registered[address] = nbytes
        if flags & _MAPPED:
            self._machine.mapped[address] = nbytes
        self.n_pinned_bytes += nbytes

    def _host_unregister(self, address: int) -> None:
        self._machine.check_idle("memory unpinned")
        self._machine.mapped.pop(address, None)
        if self.registered.pop(address, None) is None:
            raise self._machine.misused("host memory unpinned that is not pinned")

    def _mem_get_info(self) -> tuple[int, int]:
        meter = self._machine.meter
        return meter.capacity_bytes - meter.used_bytes, meter.capacity_bytes
