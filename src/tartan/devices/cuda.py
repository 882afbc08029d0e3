"""An NVIDIA GPU through CuPy. The only module that needs CuPy; importing it does not import CuPy.

Compute has one stream; each way of copies has two, so that a copy is queued while another one is under way. A thread
that waits for its stream sleeps at a blocking event and holds no interpreter lock. No work is ever issued to the null
stream. Memory comes from a pool that belongs to the device; host memory is pinned where it lies, by registering it.

Why nothing races although streams are unordered among each other: every method waits for its own stream before it
returns, also after an error, so a later call of any engine finds the work done. One thing does not follow from this:
temporary arrays that a compare drops while its kernels still run go back to the pool, and an allocation in another
thread could be given the same bytes and fill them. The pool keeps its free blocks apart by stream, so ``allocate``
takes its blocks in the name of a stream of its own, where temporary arrays never arrive.
"""

from __future__ import annotations

import contextlib
import mmap
import queue
import threading
import weakref
from collections.abc import Callable, Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from tartan.base.kernels import Workspace
from tartan.devices.checks import check_copy, check_open, nbytes_of
from tartan.errors import DeviceError, DeviceMemoryError

T = TypeVar("T")
_DRIVER = Path("/proc/driver/nvidia/gpus")
_WAY_OUT = "or use --device cpu"
# By format: CUDA's numbers.
_FOR_ALL_GPUS = 1
# By format: cudaErrorHostMemoryAlreadyRegistered.
_ALREADY_PINNED = 712
# By judgement: a few pages tell whether pinning works at all.
_TRIED_BYTES = 1 << 16
# By contract: THREADS_AN_ENGINE of runtime/device_lane.
_COMPUTE_THREADS = 2
# By construction: GPUs have a copy engine each way; the second copy is set up while the first runs. No benchmark: no
# GPU measured yet.
_COPIES_EACH_WAY = 2
# By judgement: cuBLAS and cuFFT handles with workspaces take some ten MB each; what is more was somebody else's. No
# benchmark: no GPU measured yet.
_LARGEST_HANDLE_BYTES = 2**28


def import_cupy() -> Any:
    """Return the module CuPy.

    Raises
    ------
    DeviceError
        If it is not installed or does not load.
    """
    try:
        import cupy
    except ImportError as error:
        raise DeviceError(
            "device 'cuda' needs CuPy, which cannot be imported "
            f"({error}); install the extra: pip install 'tartan-allpairs[cuda12]' or [cuda13], {_WAY_OUT}",
            code="no-cupy",
        ) from error
    return cupy


class _WorkStream:
    """A stream and the events by which its work is awaited."""

    def __init__(self, cupy: Any) -> None:
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self._cupy = cupy

    def mark(self) -> Any:
        """Return an event behind all work issued so far."""
        event = self._cupy.cuda.Event(block=True, disable_timing=True)
        event.record(self.stream)
        return event

    def wait(self, mark: Any = None) -> None:
        """Sleep until all work issued so far is done, or all before a mark."""
        (self.mark() if mark is None else mark).synchronize()


class _CopyStreams:
    """The streams of one way of copies: each copy has one to itself, further ones wait until one is free."""

    def __init__(self, cupy: Any) -> None:
        self._streams = [_WorkStream(cupy) for _ in range(_COPIES_EACH_WAY)]
        self._free: queue.LifoQueue[_WorkStream] = queue.LifoQueue()
        for stream in self._streams:
            self._free.put(stream)

    @contextlib.contextmanager
    def taken(self) -> Iterator[_WorkStream]:
        """Hold a stream for one copy."""
        stream = self._free.get()
        try:
            yield stream
        finally:
            self._free.put(stream)

    def wait(self) -> None:
        """Sleep until all copies issued so far are done."""
        for stream in self._streams:
            stream.wait()


class CudaDevice:
    """One CUDA GPU, as ``Device``.

    Parameters
    ----------
    index : int
        Number of the GPU, from 0, as CUDA counts them.
    cupy : module, optional
        What to use in CuPy's place (``FakeCupy`` of the tests).
    memory_limit_bytes : int, optional
        Take no more GPU memory than this, handles of cuBLAS included (up to half of it); default: all that is free.

    Raises
    ------
    DeviceError
        If CuPy is missing, or there is no such GPU.
    """

    shares_host_memory = False

    def __init__(self, index: int = 0, *, cupy: Any = None, memory_limit_bytes: int | None = None) -> None:
        self._cupy = import_cupy() if cupy is None else cupy
        self.name = f"cuda:{index}"
        self._index = index
        self._closed = False
        self._memory_limit_bytes = memory_limit_bytes
        check_index(self._cupy, index)
        self.xp: Any = _namespace(self._cupy)
        self._pinned: set[int] = set()
        self._launching = threading.Lock()
        self._workspace = Workspace()
        self._library_errors = library_errors(self._cupy)
        with self._errors("opening"), self._cupy.cuda.Device(index):
            self._pool = self._cupy.cuda.MemoryPool()
            self._compute, self._memory = (_WorkStream(self._cupy) for _ in range(2))
            self._uploads, self._downloads = (_CopyStreams(self._cupy) for _ in range(2))
            self._coming_bytes = _COMPUTE_THREADS * self._handle_bytes()
            if memory_limit_bytes is not None:
                self._memory_limit_bytes = memory_limit_bytes - min(self._coming_bytes, memory_limit_bytes // 2)
            self._pool.set_limit(size=self._memory_limit_bytes)

    def _handle_bytes(self) -> int:
        """Load cuBLAS; return the memory that a handle takes, as CuPy will make one for each thread that computes."""
        cuda = self._cupy.cuda
        try:
            with self._on(self._compute):
                cuda.device.get_cublas_handle()  # loads what all handles share
                before = int(cuda.runtime.memGetInfo()[0])
                handle = cuda.cublas.create()
                after = int(cuda.runtime.memGetInfo()[0])
                cuda.cublas.destroy(handle)
        except self._library_errors:
            raise
        except (ImportError, OSError, RuntimeError):
            return 0  # without cuBLAS: an application that multiplies matrices says so
        return max(0, min(before - after, _LARGEST_HANDLE_BYTES))  # other processes may take memory meanwhile

    def allocate(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Any:
        check_open(self._closed, self.name)
        with self._errors(f"allocation of {nbytes_of(shape, dtype)} bytes"), self._on(self._memory):
            try:
                return self._cupy.empty(shape, dtype)
            except self._cupy.cuda.memory.OutOfMemoryError:
                self._pool.free_all_blocks()  # cached blocks of other sizes count against the limit
                return self._cupy.empty(shape, dtype)

    def free_bytes(self) -> int:
        check_open(self._closed, self.name)
        with self._errors("query"), self._cupy.cuda.Device(self._index):
            free = int(self._cupy.cuda.runtime.memGetInfo()[0]) + int(self._pool.free_bytes())
            free = max(0, free - self._coming_bytes)
            if self._memory_limit_bytes is None:
                return free
            return max(0, min(free, self._memory_limit_bytes - int(self._pool.used_bytes())))

    def staging(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> np.ndarray:
        check_open(self._closed, self.name)
        nbytes = nbytes_of(shape, dtype)
        if nbytes == 0:
            return np.empty(shape, dtype)
        memory = np.frombuffer(mmap.mmap(-1, nbytes), np.uint8)  # pages of its own: only whole ones can be pinned
        if self.pin(memory):
            weakref.finalize(memory, self._unpin, int(memory.ctypes.data)).atexit = False
        return memory.view(dtype).reshape(shape)

    def pin(self, host: np.ndarray) -> bool:
        check_open(self._closed, self.name)
        address = int(host.ctypes.data)
        try:
            with self._cupy.cuda.Device(self._index):
                self._cupy.cuda.runtime.hostRegister(address, host.nbytes, _FOR_ALL_GPUS)
        except self._library_errors as error:
            return getattr(error, "status", None) == _ALREADY_PINNED  # by another GPU of this process
        self._pinned.add(address)
        return True

    def upload(self, host: np.ndarray, target: Any) -> None:
        check_open(self._closed, self.name)
        self._check_device_array(target, "upload")
        check_copy(host, target, what="upload")
        if not target.flags.c_contiguous:
            raise DeviceError("upload: the device array is not C-contiguous", code="copy-not-contiguous")
        if host.nbytes == 0:
            return
        with self._errors("upload"), self._uploads.taken() as lane, self._on(lane), self._await(lane):
            target.data.copy_from_host_async(host.ctypes.data, host.nbytes, lane.stream)

    def download(self, source: Any, host: np.ndarray) -> None:
        check_open(self._closed, self.name)
        self._check_device_array(source, "download")
        check_copy(host, source, what="download")
        if host.nbytes == 0:
            return
        with self._errors("download"), self._downloads.taken() as lane, self._on(lane):
            dense = self._cupy.ascontiguousarray(source)
            with self._await(lane):
                dense.data.copy_to_host_async(host.ctypes.data, host.nbytes, lane.stream)

    def compute(self, stage: str, count: int, call: Callable[[], T]) -> T:
        check_open(self._closed, self.name)
        with self._compute_errors(f"{stage} of {count}"), self._on(self._compute), self._workspace.select():
            try:
                return self._launch(call)
            except self._library_errors as error:
                if not _is_memory_error(self._cupy, error):
                    raise
            # Cached blocks of other sizes, and plans of other shapes, may be all that is in the way.
            with self._launching:
                self._workspace.clear()
            self._pool.free_all_blocks()
            return self._launch(call)

    def _launch(self, call: Callable[[], T]) -> T:
        mark = None
        try:
            with self._launching:
                try:
                    return call()
                finally:
                    mark = self._compute.mark()
        finally:
            self._compute.wait(mark)  # also after an error: its kernels still read the slots

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        # A lost device refuses this too, and its memory goes with the process.
        with (
            contextlib.suppress(*self._library_errors),
            self._cupy.cuda.Device(self._index),
        ):
            for streams in (self._uploads, self._compute, self._downloads):
                streams.wait()
            self._workspace.clear()
            self._pool.free_all_blocks()
        for address in tuple(self._pinned):
            self._unpin(address)

    def _unpin(self, address: int) -> None:
        """Release host memory, unless that is done."""
        if address in self._pinned:
            self._pinned.discard(address)
            with contextlib.suppress(*self._library_errors), self._cupy.cuda.Device(self._index):
                self._cupy.cuda.runtime.hostUnregister(address)

    @contextlib.contextmanager
    def _await(self, lane: _WorkStream) -> Iterator[None]:
        """Wait for a copy; after an error too, since its memory may be used for something else at once."""
        try:
            yield
            lane.wait()
        except BaseException:
            with contextlib.suppress(*self._library_errors):
                lane.stream.synchronize()
            raise

    @contextlib.contextmanager
    def _on(self, lane: _WorkStream) -> Iterator[None]:
        """Select this GPU, a stream and the pool for the calling thread."""
        cuda = self._cupy.cuda
        with cuda.Device(self._index), lane.stream, cuda.using_allocator(self._pool.malloc):
            yield

    @contextlib.contextmanager
    def _errors(self, action: str) -> Iterator[None]:
        try:
            yield
        except self._library_errors as error:
            failure = self._out_of_memory if _is_memory_error(self._cupy, error) else self._failure
            raise failure(action, error) from error

    @contextlib.contextmanager
    def _compute_errors(self, action: str) -> Iterator[None]:
        try:
            yield
        except self._library_errors as error:
            if _is_memory_error(self._cupy, error):
                with self._cupy.cuda.Device(self._index):
                    self._pool.free_all_blocks()
                raise self._out_of_memory(action, error) from error
            # A wrong launch of a user's kernel is the user's error; a crashed kernel takes the device with it.
            if not self._is_lost():
                raise
            raise self._failure(action, error) from error

    def _is_lost(self) -> bool:
        try:
            with self._cupy.cuda.Device(self._index):
                self._compute.stream.synchronize()
        except self._library_errors:
            return True
        return False

    def _out_of_memory(self, action: str, error: BaseException) -> DeviceMemoryError:
        return DeviceMemoryError(
            f"{self.name}: GPU memory ran out in {action} ({error}); use a smaller device cache or tile",
            context={"device": self.name},
            retryable=True,
        )

    def _failure(self, action: str, error: BaseException) -> DeviceError:
        return DeviceError(f"{self.name}: {action} failed: {error}", context={"device": self.name})

    def _check_device_array(self, array: Any, what: str) -> None:
        if not isinstance(array, self._cupy.ndarray):
            raise DeviceError(
                f"{self.name}: {what} got a {type(array).__name__}, not an array of the GPU", code="host-array"
            )


# Kinds of errors of CuPy, by the module of `cupy.cuda` that has them, and the number that stands for "out of memory".
_ERRORS = {"driver.CUDADriverError": 2, "runtime.CUDARuntimeError": 2, "cublas.CUBLASError": 3, "cufft.CuFFTError": 2}


def library_errors(cupy: Any) -> tuple[type[Exception], ...]:
    """Return the errors that CUDA and those of its libraries that are installed raise through CuPy."""
    return (*(kind for kind, _ in _error_kinds(cupy)), cupy.cuda.memory.OutOfMemoryError)


def _error_kinds(cupy: Any) -> Iterator[tuple[type[Exception], int]]:
    """Yield each kind of error, and which number of it stands for "out of memory"."""
    for name, number in _ERRORS.items():
        with contextlib.suppress(ImportError):  # CuPy loads a library when it is first asked for
            yield attrgetter(name)(cupy.cuda), number


def _is_memory_error(cupy: Any, error: Exception) -> bool:
    """Whether an error of CUDA or one of its libraries says that memory ran out."""
    if isinstance(error, cupy.cuda.memory.OutOfMemoryError):
        return True
    code = getattr(error, "status", getattr(error, "result", None))  # cuFFT calls it a result
    return any(isinstance(error, kind) and code == number for kind, number in _error_kinds(cupy))


def check_index(cupy: Any, index: int) -> None:
    """Refuse a GPU that is not there."""
    try:
        count = int(cupy.cuda.runtime.getDeviceCount())
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise DeviceError(
            f"device 'cuda': no GPU can be used ({error}); check the driver with nvidia-smi, and that CuPy is that for "
            f"its CUDA: extra cuda12 or cuda13, {_WAY_OUT}",
            code="no-gpu",
        ) from error
    if not 0 <= index < count:
        there = ", ".join(f"cuda:{k}" for k in range(count)) or "no GPU"
        raise DeviceError(f"device 'cuda:{index}' is not there; found {there}, {_WAY_OUT}", code="no-gpu")


def _namespace(cupy: Any) -> Any:
    """Return the array namespace that belongs to a CuPy; a stand-in brings its own."""
    own = getattr(cupy, "array_namespace", None)
    if own is not None:
        return own
    import array_api_compat.cupy as namespace

    return namespace


def find_gpus(cupy: Any = None, *, driver: Path = _DRIVER) -> list[dict[str, Any]]:
    """Describe the GPUs of this machine; never raises.

    Parameters
    ----------
    cupy : module, optional
        What to use in CuPy's place.
    driver : Path
        Where the driver has a folder for each GPU; asked where CuPy cannot say.

    Returns
    -------
    list of dict
        For each GPU ``name``, ``index``, ``memory_bytes``, ``free_bytes``, ``usable`` (bool) and ``reason``
        (why it is not usable, else ""). GPUs that only the driver knows have ``memory_bytes`` None.
    """
    try:
        cupy = import_cupy() if cupy is None else cupy
        return [_describe(cupy, index) for index in range(int(cupy.cuda.runtime.getDeviceCount()))]
    except Exception as error:  # doctor reports whatever is wrong with a driver
        return [_unusable(index, str(error)) for index in range(_count_folders(driver))]


def why_not_pinned(index: int, cupy: Any = None) -> str:
    """Say why a GPU cannot pin host memory, by pinning a little of it; "" where it can.

    Parameters
    ----------
    index : int
        Number of a usable GPU.
    cupy : module, optional
        What to use in CuPy's place.
    """
    host = np.empty(_TRIED_BYTES, np.uint8)
    try:
        cupy = import_cupy() if cupy is None else cupy
        with cupy.cuda.Device(index):
            cupy.cuda.runtime.hostRegister(int(host.ctypes.data), host.nbytes, _FOR_ALL_GPUS)
            cupy.cuda.runtime.hostUnregister(int(host.ctypes.data))
    except Exception as error:  # doctor reports whatever is wrong with a driver
        return str(error) or type(error).__name__
    return ""


def _describe(cupy: Any, index: int) -> dict[str, Any]:
    try:
        name = cupy.cuda.runtime.getDeviceProperties(index)["name"]
        with cupy.cuda.Device(index):
            free, total = cupy.cuda.runtime.memGetInfo()
    except Exception as error:  # one broken GPU does not hide the others
        return _unusable(index, str(error))
    return {
        "name": name.decode() if isinstance(name, bytes) else str(name),
        "index": index,
        "memory_bytes": int(total),
        "free_bytes": int(free),
        "usable": True,
        "reason": "",
    }


def _unusable(index: int, reason: str) -> dict[str, Any]:
    name = f"GPU {index}"
    return {"name": name, "index": index, "memory_bytes": None, "free_bytes": None, "usable": False, "reason": reason}


def _count_folders(path: Path) -> int:
    try:
        return len(list(path.iterdir()))
    except OSError:
        return 0
