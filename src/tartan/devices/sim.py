"""A device without hardware: memory of its own, adjustable speed and size. For tests, plans and benchmarks.

Results are computed by NumPy and are right. Time is spent as the options say: each engine is busy from the moment
that work arrives, or from the end of its previous work, for bytes / bandwidth (copies) or count x cost (stages).
The arrays are fenced off (see ``tartan.devices.guarded``): a forgotten upload is an error, not a number.
Fresh memory is filled with NaN patterns, so that a slot that was never filled shows in the scores.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from tartan.devices.checks import check_copy, check_open, nbytes_of
from tartan.devices.clock import Clock, RealClock
from tartan.devices.guarded import Guard, GuardedArray, MemoryMeter
from tartan.errors import ConfigError, DeviceError, DeviceMemoryError
from tartan.options import parse_bytes

T = TypeVar("T")

# A sleeping thread wakes late by about this much even on an idle machine; real engines do not.
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
        field, read = _field(name.strip())
        changes[field] = read(f"sim option {name.strip()}", value.strip())
    return replace(SimOptions(), **changes)


def _field(name: str) -> tuple[str, Callable[[str, str], Any]]:
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
