"""Arrays that live in memory of their own, without hardware: NumPy inside, fenced off outside.

A ``GuardedArray`` is no ``ndarray``. Every operation on it, and every function of its ``Namespace``, asks the
``Guard`` first. The guard refuses use outside the device's compute engine, a mixture with host arrays, and more
memory than there is, as a GPU would. So a test that passes with guarded arrays shows that no code takes host memory
for device memory. The simulator and the stand-in for CuPy are built from these parts.

Speed is that of NumPy plus a few microseconds an operation. 0-d results stay arrays, as in CuPy.
"""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from threading import Lock
from types import ModuleType
from typing import Any, NoReturn

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

_BASIC = (int, np.integer, slice, type(None), type(Ellipsis))
_TAKES_HOST_ARRAYS = frozenset({"array", "asarray"})
_HOST_VIEWS = frozenset({"base", "ctypes", "data", "flat", "getfield", "setfield", "tofile"})


class MemoryMeter:
    """Counts bytes in use against a capacity.

    ``release`` takes no lock, because it runs whenever the last reference to an array goes, which may be in the
    middle of ``reserve`` of the same thread.
    """

    def __init__(self, capacity_bytes: int) -> None:
        self.capacity_bytes = capacity_bytes
        self.peak_bytes = 0
        self._used = 0
        self._released: deque[int] = deque()
        self._lock = Lock()

    @property
    def used_bytes(self) -> int:
        with self._lock:
            return self._settle()

    def reserve(self, nbytes: int) -> bool:
        """Take ``nbytes``; False when they do not fit."""
        with self._lock:
            if self._settle() + nbytes > self.capacity_bytes:
                return False
            self._used += nbytes
            self.peak_bytes = max(self.peak_bytes, self._used)
            return True

    def release(self, nbytes: int) -> None:
        """Give ``nbytes`` back."""
        self._released.append(nbytes)

    def _settle(self) -> int:
        while self._released:
            self._used -= self._released.popleft()
        return self._used


class Guard(ABC):
    """The rules of one memory; owns its arrays and its namespace."""

    def __init__(self, module: ModuleType) -> None:
        self.namespace = Namespace(self, module)
        self._roots: set[int] = set()

    @abstractmethod
    def before_use(self, operands: Sequence[np.ndarray]) -> None:
        """Raise unless the calling thread may work on these arrays now."""

    @abstractmethod
    def reserve(self, nbytes: int) -> Callable[[], None]:
        """Take memory for a new array, or raise; return what gives it back."""

    def before_scalar(self, raw: np.ndarray) -> None:
        """Raise unless the calling thread may take a number to the host now."""
        self.before_use([raw])

    def after_use(self, results: Iterable[np.ndarray]) -> None:
        """Take note of arrays that an operation wrote: not of views of what it was given, which are found as asked."""
        return

    def to_host(self, raw: np.ndarray) -> np.ndarray:
        """Return the contents as a host array, where the device can do that implicitly."""
        raise TypeError("implicit copy of a device array to the host; use Device.download")

    def pointer(self, raw: np.ndarray) -> Any:
        """Return what stands for the address of an array, for memories that have addresses."""
        raise AttributeError("arrays of this device have no address")

    def wrap(self, raw: np.ndarray) -> GuardedArray:
        """Return ``raw``, whose memory is from now on counted, as an array of this memory."""
        root = root_of(raw)
        if id(root) not in self._roots:
            release = self.reserve(root.nbytes)
            self._roots.add(id(root))
            weakref.finalize(root, self._forget, id(root), release).atexit = False
        return GuardedArray(raw, self)

    def unwrap(self, array: Any) -> np.ndarray:
        """Return what is inside an array of this memory.

        Raises
        ------
        TypeError
            If it belongs to the host or to another memory.
        """
        if not isinstance(array, GuardedArray) or array._guard is not self:
            raise TypeError(f"{type(array).__name__} is no array of this device; upload it first")
        return array._raw

    def run(self, function: Callable[..., Any], args: Any, kwargs: Any, *, takes_host_arrays: bool = False) -> Any:
        """Call a NumPy function with the insides of guarded arrays and guard what it returns."""
        operands: list[np.ndarray] = []
        args = self._open(args, operands, takes_host_arrays)
        kwargs = self._open(kwargs, operands, takes_host_arrays)
        self.before_use(operands)
        results: list[np.ndarray] = []
        wrapped = self._close(function(*args, **kwargs), results)
        self.after_use(raw for raw in results if "out" in kwargs or not _is_view(raw, operands))
        return wrapped

    def _open(self, value: Any, operands: list[np.ndarray], takes_host_arrays: bool) -> Any:
        if isinstance(value, GuardedArray):
            operands.append(self.unwrap(value))
            return operands[-1]
        if isinstance(value, np.ndarray) and value.ndim:
            if not takes_host_arrays:
                raise TypeError(f"host array {value.dtype}{value.shape} among device arrays; upload it first")
            return value.copy()
        if isinstance(value, list | tuple):
            return type(value)(self._open(part, operands, takes_host_arrays) for part in value)
        if isinstance(value, dict):
            return {key: self._open(part, operands, takes_host_arrays) for key, part in value.items()}
        return value

    def _close(self, value: Any, results: list[np.ndarray]) -> Any:
        if isinstance(value, np.ndarray | np.generic):
            results.append(np.asarray(value))
            return self.wrap(results[-1])
        if isinstance(value, tuple | list):
            parts = [self._close(part, results) for part in value]
            return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
        return value

    def _forget(self, root_id: int, release: Callable[[], None]) -> None:
        self._roots.discard(root_id)
        release()


def _is_view(raw: np.ndarray, operands: Sequence[np.ndarray]) -> bool:
    return any(np.may_share_memory(raw, operand) for operand in operands)


def root_of(raw: np.ndarray) -> np.ndarray:
    """Return the array that owns the memory of a view."""
    while isinstance(raw.base, np.ndarray):
        raw = raw.base
    return raw


class Namespace:
    """An array namespace whose functions take and return guarded arrays."""

    def __init__(self, guard: Guard, module: ModuleType) -> None:
        self._guard = guard
        self._module = module

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        found = getattr(self._module, name)
        if isinstance(found, ModuleType):
            found = Namespace(self._guard, found)
        elif callable(found) and not isinstance(found, type):
            found = self._guarded(found, name in _TAKES_HOST_ARRAYS)
        setattr(self, name, found)
        return found

    def _guarded(self, function: Callable[..., Any], takes_host_arrays: bool) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            return self._guard.run(function, args, kwargs, takes_host_arrays=takes_host_arrays)

        return call

    def __repr__(self) -> str:
        return f"<guarded {self._module.__name__}>"


class GuardedArray(NDArrayOperatorsMixin):
    """An array of a fenced-off memory. Shape, dtype and slices are free; contents are for the compute engine."""

    __slots__ = ("__weakref__", "_guard", "_raw")

    def __init__(self, raw: np.ndarray, guard: Guard) -> None:
        self._raw = raw
        self._guard = guard

    @property
    def shape(self) -> tuple[int, ...]:
        return self._raw.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._raw.dtype

    @property
    def data(self) -> Any:
        """Whatever stands for the address of the memory, where the guard has such a thing."""
        return self._guard.pointer(self._raw)

    def __array_namespace__(self, *, api_version: str | None = None) -> Namespace:
        return self._guard.namespace

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return self._guard.run(getattr(ufunc, method), inputs, kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return self._guard.run(function, args, kwargs)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        self._guard.before_use([self._raw])
        return np.array(self._guard.to_host(self._raw), dtype=dtype, copy=copy)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name in _HOST_VIEWS:
            raise AttributeError(f"device arrays have no attribute {name!r}")
        found = getattr(self._raw, name)
        if isinstance(found, np.ndarray):
            return self._guard.wrap(found)
        if callable(found):
            return lambda *args, **kwargs: self._guard.run(found, (*args,), kwargs)
        return found

    def __getitem__(self, index: Any) -> Any:
        parts = index if isinstance(index, tuple) else (index,)
        if all(isinstance(part, _BASIC) for part in parts):
            ends = () if any(part is Ellipsis for part in parts) else (Ellipsis,)
            return self._guard.wrap(self._raw[(*parts, *ends)])
        return self._guard.run(np.ndarray.__getitem__, (self, index), {})

    def __setitem__(self, index: Any, value: Any) -> None:
        self._guard.run(np.ndarray.__setitem__, (self, index, value), {})

    def __len__(self) -> int:
        return len(self._raw)

    def __iter__(self) -> Iterator[Any]:
        return (self[k] for k in range(len(self)))

    def _scalar(self) -> np.ndarray:
        self._guard.before_scalar(self._raw)
        return self._raw

    def __bool__(self) -> bool:
        return bool(self._scalar())

    def __int__(self) -> int:
        return int(self._scalar())

    def __float__(self) -> float:
        return float(self._scalar())

    def __index__(self) -> int:
        return self._scalar().__index__()

    def __reduce__(self) -> NoReturn:
        raise TypeError("device arrays do not travel to other processes; download them first")

    def __repr__(self) -> str:
        return f"<device array {self.dtype}{self.shape}>"
