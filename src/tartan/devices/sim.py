"""A device without hardware: memory of its own, adjustable speed and size. For tests, plans and benchmarks.

Results are computed by NumPy and are right. Time is spent as the options say: each engine is busy from the moment
that work arrives, or from the end of its previous work, for bytes / bandwidth (copies) or count x cost (stages).
The arrays are fenced off (see ``tartan.devices.sim``): a forgotten upload is an error, not a number.
Fresh memory is filled with NaN patterns, so that a slot that was never filled shows in the scores.
"""

from __future__ import annotations

import math
import re
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from types import ModuleType
from typing import Any, NoReturn, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
from numpy.lib.mixins import NDArrayOperatorsMixin

from tartan.devices.checks import check_copy, check_open, nbytes_of
from tartan.errors import ConfigError, DeviceError, DeviceMemoryError
from tartan.options import parse_bytes

# Arrays that live in memory of their own, without hardware: NumPy inside, fenced off outside.
#
# A ``GuardedArray`` is no ``ndarray``. Every operation on it, and every function of its ``Namespace``, asks the
# ``Guard`` first. The guard refuses use outside the device's compute engine, a mixture with host arrays, and more
# memory than there is, as a GPU would. So a test that passes with guarded arrays shows that no code takes host memory
# for device memory. The simulator and the stand-in for CuPy are built from these parts.
#
# Speed is that of NumPy plus a few microseconds an operation. 0-d results stay arrays, as in CuPy.

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
            raise TypeError(f"{type(array).__name__} is not an array of this device; upload it first")
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
            found = self._guard_function(found, name in _TAKES_HOST_ARRAYS)
        setattr(self, name, found)
        return found

    def _guard_function(self, function: Callable[..., Any], takes_host_arrays: bool) -> Callable[..., Any]:
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


T = TypeVar("T")

# A sleeping thread wakes late by about this much even on an idle machine; real engines do not.
# By judgement: Linux lets sleeps of threads be 50 us late (timer slack), and waking a thread of Python costs more.
# `tartan bench simulated` reaches 0.98 of the model with it.
_LATENESS_OF_SLEEP_SECONDS = 5e-4


@dataclass(frozen=True)
class SimOptions:
    """Size and speed of a simulated device.

    Attributes
    ----------
    memory_bytes : int
        Capacity; temporary arrays of a compare count too.
    upload_bytes_per_second, download_bytes_per_second : float
        Bandwidth of the two copy engines, in bytes/s.
    preprocess_seconds : float
        Cost of one item.
    compare_seconds : float
        Cost of one pair.
    spread : float
        Standard deviation of the cost of one item or pair, as a fraction of its mean. Costs follow a gamma
        distribution.
    speed : float
        Costs of compute are divided by this.
    seed : int
        Seed of the generator behind ``spread``.
    """

    memory_bytes: int = 2 * 2**30
    upload_bytes_per_second: float = math.inf
    download_bytes_per_second: float = math.inf
    preprocess_seconds: float = 0.0
    compare_seconds: float = 0.0
    spread: float = 0.0
    speed: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        costs = (self.preprocess_seconds, self.compare_seconds, self.spread)
        rates = (self.memory_bytes, self.upload_bytes_per_second, self.download_bytes_per_second, self.speed)
        if min(costs) < 0 or min(rates) <= 0:
            raise ConfigError(f"sim: costs must not be negative, sizes and speeds must be positive: {self}")

    def seconds_per_unit(self, stage: str) -> float:
        """Return the mean cost of one item or pair of a stage, in seconds; 0 for stages that cost nothing."""
        costs = {"preprocess": self.preprocess_seconds, "compare": self.compare_seconds}
        return costs.get(stage, 0.0) / self.speed


class _Engine:
    """One engine: does one thing after another, each for as long as the model says.

    ``busy_seconds`` counts what the model says, so that it is the same in every run.
    """

    def __init__(self, clock: Clock) -> None:
        self.busy_seconds = 0.0
        self._clock = clock
        self._free_at = -math.inf
        self._late_seconds = 0.0
        self._lock = threading.Lock()

    def run(self, cost_seconds: float, work: Callable[[], T]) -> T:
        with self._lock:
            # The caller woke up late from the previous wait through no fault of its own: what it brings at once
            # counts as brought in time. Otherwise lateness would add up over a run.
            arrived = self._clock.now() - self._late_seconds
            self._late_seconds = 0.0
            begin = max(arrived, self._free_at)
            result = work()
            end = self._free_at = begin + cost_seconds
            self.busy_seconds += cost_seconds
        if self._clock.now() < end:
            self._clock.wait_until(end)
            self._late_seconds = min(self._clock.now() - end, _LATENESS_OF_SLEEP_SECONDS)
        return result


class _SimGuard(Guard):
    """Arrays may be used by the thread that is inside ``compute``; all of them together have to fit."""

    def __init__(self, name: str, meter: MemoryMeter, module: ModuleType) -> None:
        super().__init__(module)
        self.computing_thread: int | None = None
        self._name = name
        self._meter = meter

    def before_use(self, operands: Sequence[np.ndarray]) -> None:
        if self.computing_thread != threading.get_ident():
            raise DeviceError(
                f"{self._name}: device arrays were used outside Device.compute; "
                "move the work there, or download the array first",
                code="outside-compute",
            )

    def to_host(self, raw: np.ndarray) -> np.ndarray:
        return raw  # device code of the simulator is host code; the way to native functions

    def reserve(self, nbytes: int) -> Callable[[], None]:
        if not self._meter.reserve(nbytes):
            raise self.out_of_memory(nbytes)
        return lambda: self._meter.release(nbytes)

    def out_of_memory(self, nbytes: int) -> DeviceMemoryError:
        """Return the error that says that ``nbytes`` more do not fit."""
        capacity, used = self._meter.capacity_bytes, self._meter.used_bytes
        return DeviceMemoryError(
            f"{self._name}: {nbytes} bytes do not fit, {used} of {capacity} bytes are in use; "
            "use a smaller device cache or tile",
            context={"wanted_bytes": nbytes, "used_bytes": used, "capacity_bytes": capacity},
            retryable=True,
        )


class SimDevice:
    """The simulator, as ``Device``.

    Parameters
    ----------
    options : SimOptions, optional
        Size and speed; the default takes no time and has 2 GiB.
    clock : Clock, optional
        Default: real time. With a VirtualClock nothing ever waits.
    name : str
        Tells several simulators of one run apart.

    Examples
    --------
    >>> import numpy as np
    >>> device = SimDevice(SimOptions(memory_bytes=10**6))
    >>> x = device.allocate((3,), "float32")
    >>> device.upload(np.ones(3, "float32"), x)
    >>> y, host = device.compute("compare", 3, lambda: x + x), np.empty(3, "float32")
    >>> device.download(y, host)
    >>> host
    array([2., 2., 2.], dtype=float32)
    """

    shares_host_memory = False

    def __init__(self, options: SimOptions | None = None, *, clock: Clock | None = None, name: str = "sim") -> None:
        import array_api_compat.numpy as module

        self.name = name
        self.options = options or SimOptions()
        self._meter = MemoryMeter(self.options.memory_bytes)
        self._guard = _SimGuard(name, self._meter, module)
        self.xp: Any = self._guard.namespace
        clock = clock or RealClock()
        self._engines = {engine: _Engine(clock) for engine in ("upload", "compute", "download")}
        self._random = np.random.default_rng(self.options.seed)
        self._closed = False

    @property
    def busy_seconds(self) -> Mapping[str, float]:
        """Seconds that each engine ("upload", "compute", "download") was busy so far."""
        return {name: engine.busy_seconds for name, engine in self._engines.items()}

    @property
    def peak_bytes(self) -> int:
        """Most memory that was in use at any time, in bytes."""
        return self._meter.peak_bytes

    def allocate(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> GuardedArray:
        check_open(self._closed, self.name)
        if nbytes_of(shape, dtype) > self._meter.capacity_bytes:
            raise self._guard.out_of_memory(nbytes_of(shape, dtype))
        try:
            array = self._guard.wrap(raw := np.empty(shape, dtype))
        except MemoryError as error:
            raise DeviceMemoryError(f"{self.name}: the host has no memory for {np.dtype(dtype)}{shape}") from error
        raw.reshape(-1).view(np.uint8).fill(0xFF)
        return array

    def free_bytes(self) -> int:
        check_open(self._closed, self.name)
        return self._meter.capacity_bytes - self._meter.used_bytes

    def staging(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> np.ndarray:
        check_open(self._closed, self.name)
        return np.empty(shape, dtype)

    def pin(self, host: np.ndarray) -> bool:
        check_open(self._closed, self.name)
        return False

    def upload(self, host: np.ndarray, target: Any) -> None:
        check_open(self._closed, self.name)
        raw = self._inside(target)
        check_copy(host, raw, what="upload")
        cost = host.nbytes / self.options.upload_bytes_per_second
        self._engines["upload"].run(cost, lambda: np.copyto(raw, host))

    def download(self, source: Any, host: np.ndarray) -> None:
        check_open(self._closed, self.name)
        raw = self._inside(source)
        check_copy(host, raw, what="download")
        cost = host.nbytes / self.options.download_bytes_per_second
        self._engines["download"].run(cost, lambda: np.copyto(host, raw))

    def compute(self, stage: str, count: int, call: Callable[[], T]) -> T:
        check_open(self._closed, self.name)
        return self._engines["compute"].run(self._cost_seconds(stage, count), lambda: self._inside_compute(call))

    def close(self) -> None:
        self._closed = True

    def _inside(self, array: Any) -> np.ndarray:
        try:
            return self._guard.unwrap(array)
        except TypeError as error:
            raise DeviceError(f"{self.name}: {error}", code="host-array") from error

    def _inside_compute(self, call: Callable[[], T]) -> T:
        self._guard.computing_thread = threading.get_ident()
        try:
            return call()
        finally:
            self._guard.computing_thread = None

    def _cost_seconds(self, stage: str, count: int) -> float:
        mean = self.options.seconds_per_unit(stage)
        spread = self.options.spread
        if not (mean and spread and count):
            return mean * count
        # The sum of `count` gamma variables of one scale is a gamma variable: one draw a call.
        return float(self._random.gamma(count / spread**2, mean * spread**2))


_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_DURATION = re.compile(r"(\d+(?:\.\d+)?(?:e-?\d+)?)(s|ms|us|ns)")


def parse_sim_options(text: str) -> SimOptions:
    """Read options such as ``compare=1.1ms,preprocess=20ms,upload=10GB/s,memory=2GB``.

    Parameters
    ----------
    text : str
        Comma-separated ``name=value``: ``compare`` and ``preprocess`` (s, ms, us, ns), ``upload`` and
        ``download`` (size/s), ``memory`` (size), ``spread``, ``speed`` (numbers), ``seed`` (integer).

    Raises
    ------
    ConfigError
        If a name or a value cannot be understood.
    """
    changes: dict[str, Any] = {}
    for part in filter(None, text.split(",")):
        name, _, value = part.partition("=")
        field, read = _parse_field(name.strip())
        changes[field] = read(f"sim option {name.strip()}", value.strip())
    return replace(SimOptions(), **changes)


def _parse_field(name: str) -> tuple[str, Callable[[str, str], Any]]:
    fields: dict[str, tuple[str, Callable[[str, str], Any]]] = {
        "memory": ("memory_bytes", lambda option, text: parse_bytes(text, option=option)),
        "upload": ("upload_bytes_per_second", _rate),
        "download": ("download_bytes_per_second", _rate),
        "preprocess": ("preprocess_seconds", _duration),
        "compare": ("compare_seconds", _duration),
        "spread": ("spread", _number),
        "speed": ("speed", _number),
        "seed": ("seed", _integer),
    }
    if name not in fields:
        raise ConfigError(f"sim has no option {name!r}; there are {', '.join(fields)}")
    return fields[name]


def _rate(option: str, text: str) -> float:
    if not text.endswith("/s"):
        raise ConfigError(f"{option}: {text!r} is not a bandwidth; write 10GB/s")
    return float(parse_bytes(text.removesuffix("/s"), option=option))


def _duration(option: str, text: str) -> float:
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ConfigError(f"{option}: {text!r} is not a duration; write 1.1ms, 20us or 3s")
    return float(match.group(1)) / _PER_SECOND[match.group(2)]


def _number(option: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"{option}: {text!r} is not a number") from None


def _integer(option: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"{option}: {text!r} is not a whole number") from None


# Clocks for the simulator: the real one, and one that never waits.


class Clock(Protocol):
    """Time in seconds from an arbitrary origin. Safe for use by several threads."""

    def now(self) -> float:
        """Return the time; never runs backwards."""
        ...

    def wait_until(self, deadline: float) -> None:
        """Return when ``now() >= deadline``; at once if that is so already."""
        ...


class RealClock:
    """The monotonic clock of the machine."""

    def now(self) -> float:
        return time.perf_counter()

    def wait_until(self, deadline: float) -> None:
        while (remaining := deadline - time.perf_counter()) > 0:
            time.sleep(remaining)


class VirtualClock:
    """A clock that jumps to every deadline instead of waiting for it.

    Examples
    --------
    >>> clock = VirtualClock()
    >>> clock.wait_until(3600.0)
    >>> clock.now()
    3600.0
    """

    def __init__(self, start_seconds: float = 0.0) -> None:
        self._now = start_seconds
        self._lock = threading.Lock()

    def now(self) -> float:
        return self._now

    def wait_until(self, deadline: float) -> None:
        with self._lock:
            self._now = max(self._now, deadline)

    def advance(self, seconds: float) -> None:
        """Let time pass without anybody waiting for it."""
        with self._lock:
            self._now += seconds
