"""A stand-in for CuPy, for machines without a GPU: just the part of its interface that ``CudaDevice`` uses.

It computes with NumPy but keeps the manners of a GPU. Copies that are called asynchronous stay undone until their
stream is waited for. Results belong to the stream that made them until then. What would be a race or a slow path on
a GPU raises ``MisuseError`` and is recorded in ``FakeCupy.misuse``:

- use of an array before the stream that works on it was waited for (both may read it);
- work on the null stream, without a selected device, or outside the device's own memory pool;
- host arrays among device arrays.

Kernels in CUDA C++ (``RawModule``) run on the emulator of ``tartan.testing.emulator``, which finds wrong indices and
missing barriers. Of cuFFT and cuBLAS there is what ``tartan.testing.fake_cuda_libraries`` has. All work is done in the
calling thread, and there is one device memory for all GPUs.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from tartan.devices.guarded import Guard, GuardedArray, MemoryMeter
from tartan.testing.fake_cuda_libraries import DeviceAddress, FakeHandles, cublas, cufft

if TYPE_CHECKING:
    from tartan.testing.emulator import Emulator

__all__ = ["FakeCudaRuntimeError", "FakeCupy", "FakeLibraryError", "FakeOutOfMemoryError", "MisuseError"]

_NO_DEVICE = 100


class MisuseError(AssertionError):
    """Something that would go wrong on a GPU, perhaps silently."""


class FakeOutOfMemoryError(MemoryError):
    """Stands for ``cupy.cuda.memory.OutOfMemoryError``."""


class FakeCudaRuntimeError(RuntimeError):
    """Stands for ``cupy.cuda.runtime.CUDARuntimeError``."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class FakeLibraryError(RuntimeError):
    """Stands for the errors of the driver, cuBLAS and cuFFT, each of which is a subclass of its own."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


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
        self._stream.finish(self._position)


class _Pool:
    """Counts what is taken from the machine's memory in its name."""

    def __init__(self, machine: _FakeDriver) -> None:
        self._machine = machine
        self._meter = MemoryMeter(machine.meter.capacity_bytes)
        self.n_emptied = 0

    def set_limit(self, size: int | None = None) -> None:
        self._meter.capacity_bytes = size or self._machine.meter.capacity_bytes

    def used_bytes(self) -> int:
        return self._meter.used_bytes

    def free_bytes(self) -> int:
        return 0  # keeps nothing back

    def free_all_blocks(self) -> None:
        self.n_emptied += 1

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

    def __init__(self, memory_bytes: int) -> None:
        import array_api_compat.numpy as module

        super().__init__(module)
        self.meter = MemoryMeter(memory_bytes)
        self.misuse: list[str] = []
        self.launched: list[str] = []
        self.lost = False
        self.n_waits = 0
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

    def current_stream(self) -> _Stream:
        if not self.selection.devices:
            raise self.misused("work without a selected device")
        if not self.selection.streams:
            raise self.misused("work on the null stream")
        return self.selection.streams[-1]

    # The rules of Guard

    def before_use(self, operands: Sequence[np.ndarray]) -> None:
        self.before_launch(operands, [])

    def before_scalar(self, raw: np.ndarray) -> None:
        self.n_waits += 1
        self.before_use([raw])

    def after_use(self, results: Sequence[np.ndarray]) -> None:
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
        self._copy(self._raw.ctypes.data, address, nbytes, stream, writes=True)

    def copy_to_host_async(self, address: int, nbytes: int, stream: _Stream) -> None:
        self._copy(address, self._raw.ctypes.data, nbytes, stream, writes=False)

    def _copy(self, target: int, source: int, nbytes: int, stream: _Stream, *, writes: bool) -> None:
        self._machine.check_alive()
        self._machine.check_ready(self._raw, stream, writes=writes)
        if nbytes != self._raw.nbytes or not self._raw.flags.c_contiguous:
            raise self._machine.misused(f"copy of {nbytes} bytes from or to an array of {self._raw.nbytes}")
        self._machine.issue(stream, self._raw, lambda: ctypes.memmove(target, source, nbytes), writes=writes)


class _RawModule:
    """Stands for ``cupy.RawModule``: compiled by the C++ compiler of the machine, run by the emulator."""

    def __init__(self, machine: _FakeDriver, *, code: str, options: tuple[str, ...] = ()) -> None:
        self._machine = machine
        self._code = code
        self._options = options

    @cached_property
    def _emulator(self) -> Emulator:
        from tartan.testing.emulator import Emulator

        return Emulator(self._code, options=self._options)

    def compile(self) -> None:
        """Compile the source; it is loaded to the selected device."""
        self._machine.current_stream()
        assert self._emulator.names

    def get_function(self, name: str) -> Callable[..., None]:
        """Return what launches a kernel."""
        self.compile()
        return partial(self._launch, name)

    def _launch(self, name: str, grid: tuple[int, ...], block: tuple[int, ...], args: tuple[Any, ...]) -> None:
        from tartan.testing.emulator import KernelError

        given = [self._argument(name, argument) for argument in args]
        read, written = _read_and_written(self._emulator.parameters(name), given)
        self._machine.before_launch(read, written)
        try:
            self._emulator.launch(name, grid, block, given, seed=self._machine.next_seed())
        except KernelError as error:
            raise self._machine.misused(str(error)) from error
        self._machine.launched.append(name)
        for raw in read:
            self._machine.issue(self._machine.current_stream(), raw, writes=False)
        self._machine.after_use(written)

    def _argument(self, name: str, argument: Any) -> Any:
        if isinstance(argument, GuardedArray):
            return np.atleast_1d(self._machine.unwrap(argument))
        if isinstance(argument, np.ndarray):
            raise self._machine.misused(f"{name} got a host array {argument.dtype}{argument.shape}")
        return argument


def _read_and_written(parameters: Sequence[str], args: Sequence[Any]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return the arrays that a kernel only reads, and those that it may write."""
    arrays = [(declared, raw) for declared, raw in zip(parameters, args) if isinstance(raw, np.ndarray)]
    read = [raw for declared, raw in arrays if declared.startswith("const ")]
    return read, [raw for declared, raw in arrays if not declared.startswith("const ")]


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

    Attributes
    ----------
    misuse : list of str
        What was done that would be wrong on a GPU. Empty after a good test.
    registered : dict of int to int
        Host memory that is pinned now: its address, and its size in bytes.
    launched : list of str
        Names of the kernels of modules that ran, in order.
    n_waits : int
        How often a number was taken from the GPU by ``bool``, ``int`` or ``float``, while the calling thread spins.

    Examples
    --------
    >>> from tartan.devices.cuda import CudaDevice
    >>> device = CudaDevice(0, cupy=FakeCupy())
    >>> device.allocate((2, 3), "float32").shape
    (2, 3)
    """

    ndarray = GuardedArray

    def __init__(self, *, n_devices: int = 1, memory_bytes: int = 2**26, handle_bytes: int = 0) -> None:
        self._machine = _FakeDriver(memory_bytes)
        self._n_devices = n_devices
        self.misuse = self._machine.misuse
        self.launched = self._machine.launched
        self.RawModule = partial(_RawModule, self._machine)
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
            alloc_pinned_memory=self._alloc_pinned_memory,
            memory=SimpleNamespace(OutOfMemoryError=FakeOutOfMemoryError),
            driver=SimpleNamespace(CUDADriverError=type("CUDADriverError", (FakeLibraryError,), {})),
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
        self.registered[address] = nbytes
        self.n_pinned_bytes += nbytes

    def _host_unregister(self, address: int) -> None:
        if self.registered.pop(address, None) is None:
            raise self._machine.misused("host memory unpinned that is not pinned")

    def _alloc_pinned_memory(self, nbytes: int) -> bytearray:
        self.n_pinned_bytes += nbytes
        return bytearray(nbytes)

    def _mem_get_info(self) -> tuple[int, int]:
        meter = self._machine.meter
        return meter.capacity_bytes - meter.used_bytes, meter.capacity_bytes
