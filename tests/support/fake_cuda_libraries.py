"""The parts of cuFFT and cuBLAS that kernels' host code calls through CuPy, for ``FakeCupy``.

They compute with NumPy, hold work areas in the device's pool, destroy what cuFFT destroys, and refuse arrays, sizes
and types that the libraries would misread.
"""

from __future__ import annotations

import ctypes
import math
import threading
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, Protocol

import numpy as np

from tartan.devices.sim import MemoryMeter

_R2C, _C2R = 0x2A, 0x2C
_FORWARD, _INVERSE = -1, 1
_TYPES = {0: np.dtype(np.float32), 1: np.dtype(np.float64), 2: np.dtype(np.float16), 14: np.dtype(np.uint16)}
_BFLOAT16 = 14
_COMPUTE_32F, _COMPUTE_64F, _COMPUTE_TF32, _DEFAULT = 68, 70, 77, -1
# The types of factors, of the product, and of the two numbers on the host, of each kind of sums.
_KINDS = {_COMPUTE_32F: ((0, 2, 14), 0, ctypes.c_float), _COMPUTE_64F: ((1,), 1, ctypes.c_double)}
_KINDS[_COMPUTE_TF32] = ((0,), 0, ctypes.c_float)


class MemoryRules(Protocol):
    """What the libraries need of the GPUs behind a stand-in."""

    meter: MemoryMeter

    def current_stream(self) -> object:
        """Return the stream of the calling thread; raise where there is none."""

    def misused(self, what: str) -> AssertionError:
        """Record what would be wrong on a GPU; return the error to raise."""

    def unwrap(self, array: Any) -> np.ndarray:
        """Return what is inside a device array."""

    def reserve(self, nbytes: int) -> Callable[[], None]:
        """Take memory of the device's pool; return what gives it back."""

    def before_launch(self, read: Sequence[np.ndarray], written: Sequence[np.ndarray]) -> None:
        """Raise unless the calling thread may read and write these arrays now."""

    def after_use(self, results: Sequence[np.ndarray]) -> None:
        """Take note of arrays that are being written."""


class DeviceAddress(int):
    """The address of a device array, which knows the array."""

    raw: np.ndarray

    @classmethod
    def of(cls, raw: np.ndarray) -> DeviceAddress:
        """Return the address of an array."""
        address = cls(raw.ctypes.data)
        address.raw = raw
        return address


class FakePlan:
    """Stands for ``cupy.cuda.cufft.PlanNd``: one real transform in two dimensions, C order, no gaps."""

    def __init__(
        self,
        machine: MemoryRules,
        shape: tuple[int, int],
        inembed: None,
        istride: int,
        idist: int,
        onembed: None,
        ostride: int,
        odist: int,
        fft_type: int,
        batch: int,
        order: str,
        last_axis: int,
        last_size: int,
    ) -> None:  # the parameters of CuPy
        self._machine = machine
        height, width = shape
        self._real, self._half = (height, width), (height, width // 2 + 1)
        self._forward = fft_type == _R2C
        wanted = (None, None, 1, "C", 1, self._half[1] if self._forward else width)
        if fft_type not in (_R2C, _C2R) or (inembed, onembed, batch, order, last_axis, last_size) != wanted:
            raise machine.misused(f"a plan of kind {fft_type} for {shape} that the stand-in does not know")
        release = machine.reserve(8 * math.prod(self._half))
        weakref.finalize(self, release).atexit = False

    def fft(self, a: Any, out: Any, direction: int) -> None:
        """Transform ``a`` into ``out``; the inverse is not divided by the number of points, and destroys ``a``."""
        source, target = self._machine.unwrap(a), self._machine.unwrap(out)
        kinds = [(self._real, np.float32), (self._half, np.complex64)]
        for raw, (shape, dtype) in zip((source, target), kinds if self._forward else kinds[::-1]):
            if raw.shape != shape or raw.dtype != dtype or not raw.flags.c_contiguous:
                raise self._machine.misused(f"an FFT of {raw.dtype}{raw.shape} by a plan for {shape}")
        if direction != (_FORWARD if self._forward else _INVERSE) or np.may_share_memory(source, target):
            raise self._machine.misused("an FFT in the wrong direction, or in place")
        self._machine.before_launch([source] if self._forward else [], [target] if self._forward else [source, target])
        if self._forward:
            target[...] = np.fft.rfft2(source)
        else:
            target[...] = np.fft.irfft2(source, s=self._real) * math.prod(self._real)
            source[...] = np.nan
        self._machine.after_use([target] if self._forward else [source, target])


def cufft(machine: MemoryRules, error: type[Exception]) -> SimpleNamespace:
    """Return what stands for the module ``cupy.cuda.cufft``."""
    numbers = {"CUFFT_R2C": _R2C, "CUFFT_C2R": _C2R, "CUFFT_FORWARD": _FORWARD, "CUFFT_INVERSE": _INVERSE}
    return SimpleNamespace(CuFFTError=error, PlanNd=partial(FakePlan, machine), **numbers)


class FakeHandles:
    """The handles of cuBLAS, which take memory outside of all pools; one for each thread that asks CuPy for one."""

    def __init__(self, machine: MemoryRules, error: Callable[[int, str], Exception], nbytes: int) -> None:
        self._machine, self._error, self._nbytes = machine, error, nbytes
        self._threads: set[int] = set()

    def create(self) -> int:
        """Make a handle."""
        self._machine.current_stream()
        if not self._machine.meter.reserve(self._nbytes):
            raise self._error(3, "CUBLAS_STATUS_ALLOC_FAILED")
        return HANDLE

    def destroy(self, handle: int) -> None:
        """Give the memory of a handle back."""
        self._machine.meter.release(self._nbytes)

    def of_thread(self) -> int:
        """Stand for ``cupy.cuda.device.get_cublas_handle``."""
        thread = threading.get_ident()
        if thread not in self._threads:
            self.create()
        self._threads.add(thread)
        return HANDLE


def cublas(machine: MemoryRules, error: type[Exception], handles: FakeHandles) -> SimpleNamespace:
    """Return what stands for the module ``cupy.cuda.cublas``."""
    calls = {"create": handles.create, "destroy": handles.destroy, "gemmStridedBatchedEx": partial(_gemm, machine)}
    return SimpleNamespace(CUBLASError=error, **calls)


HANDLE = 0xB1A5


def _gemm(machine: MemoryRules, handle: int, *arguments: Any) -> None:
    """Compute C_i = A_i^T B_i for i < count, column-major; bfloat16 lies in uint16, and sums are as wide as C."""
    transa, transb, rows, columns, inner, alpha = arguments[:6]
    a, b, beta, c = arguments[6:10], arguments[10:14], arguments[14], arguments[15:19]
    count, compute, algorithm = arguments[19:]
    if (handle, transa, transb, algorithm) != (HANDLE, 1, 0, _DEFAULT) or compute not in _KINDS:
        raise machine.misused("a product of a kind that the stand-in does not know")
    factors, product, number = _KINDS[compute]
    if (number.from_address(alpha).value, number.from_address(beta).value) != (1.0, 0.0):
        raise machine.misused("a product that is scaled or added")
    if a[1] != b[1] or a[1] not in factors or c[1] != product:
        raise machine.misused(f"a product of types {a[1]} and {b[1]} into {c[1]}")
    left = _matrices(machine, a, (rows, inner), count)
    right = _matrices(machine, b, (columns, inner), count)
    out = _matrices(machine, c, (columns, rows), count)
    machine.before_launch([left, right], [out])
    first, second = (_numbers(machine, raw, a[1], compute).astype(out.dtype) for raw in (right, left))
    out[...] = first @ second.transpose(0, 2, 1)
    machine.after_use([out])


def _numbers(machine: MemoryRules, raw: np.ndarray, kind: int, compute: int) -> np.ndarray:
    """Return the numbers that are multiplied; those that the GPU would cut to TF32 are refused."""
    if compute == _COMPUTE_TF32 and (raw[np.isfinite(raw)].view(np.uint32) & 0x1FFF).any():
        raise machine.misused("a product in TF32 of numbers that are not rounded to it")
    return (raw.astype(np.uint32) << 16).view(np.float32) if kind == _BFLOAT16 else raw


def _matrices(machine: MemoryRules, given: Sequence[Any], shape: tuple[int, int], count: int) -> np.ndarray:
    """Return column-major matrices, given as address, type, leading dimension and stride, as rows (count, *shape)."""
    address, kind, leading, stride = given
    if not isinstance(address, DeviceAddress) or address.raw.dtype != _TYPES.get(kind):
        raise machine.misused(f"a product of something that is not a device array of type {kind}")
    raw, size = address.raw, address.raw.itemsize
    needed = (count - 1) * stride + (shape[0] - 1) * leading + shape[1]
    if not raw.flags.c_contiguous or needed > raw.size or leading < shape[1]:
        raise machine.misused(f"a product of {count} x {shape} numbers in an array {raw.shape}")
    strides = (stride * size, leading * size, size)
    return np.lib.stride_tricks.as_strided(raw.reshape(-1), (count, *shape), strides)
