"""Describe this machine: cores, memory, limits of a container, disks, versions, all from /proc and /sys.

Linux only; elsewhere, or where a file cannot be read, functions return None and never raise.
"""

from __future__ import annotations

import os
import resource
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

# By limit of control groups version 1, 2**63 less a page.
_UNLIMITED = 2**60  # version 1 of control groups writes a huge number
_FEATURES = (
    "sse4_2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512_vnni", "neon", "asimd", "sve",
)  # fmt: skip


@dataclass(frozen=True)
class Limits:
    """Limits of the control groups of this process; None means no limit.

    Attributes
    ----------
    memory_bytes : int or None
        Most memory.
    memory_used_bytes : int or None
        Already used in the limiting group; what it keeps of files is not counted, as it is given up when needed.
    cores : float or None
        Processor time, in cores.
    """

    memory_bytes: int | None = None
    memory_used_bytes: int | None = None
    cores: float | None = None


@dataclass(frozen=True)
class Memory:
    """Memory that this process can use, within the limits of its container and its own.

    Attributes
    ----------
    total_bytes, available_bytes : int
        Of the machine, of the container or of the process (``ulimit -v``), whichever is least.
    """

    total_bytes: int
    available_bytes: int


def memory(proc: Path = Path("/proc"), limits: Limits | None = None) -> Memory:
    """Return the memory of this machine or container."""
    known = _meminfo(proc)
    pages = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    total = known.get("MemTotal", pages)
    available = known.get("MemAvailable", total)
    limits = cgroup_limits(proc=proc) if limits is None else limits
    if limits.memory_bytes is not None:
        total = min(total, limits.memory_bytes)
        available = min(available, max(limits.memory_bytes - (limits.memory_used_bytes or 0), 0))
    own = _read_own_limit()
    if own is not None:
        total = min(total, own)
        available = min(available, max(own - _address_bytes(proc), 0))
    return Memory(total, available)


def held_bytes(proc: Path = Path("/proc")) -> int:
    """Return the memory that this process holds now (resident set)."""
    return _read_status(proc / "self", "VmRSS")


def peak_bytes(proc: Path = Path("/proc")) -> int:
    """Return the most memory that this process has held (resident set)."""
    return _read_status(proc / "self", "VmHWM")


def _read_status(folder: Path, name: str) -> int:
    for line in (_text(folder / "status") or "").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return 0


def _read_own_limit() -> int | None:
    """Return the limit of the addresses of this process (``ulimit -v``); None where there is none."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def _address_bytes(proc: Path) -> int:
    words = (_text(proc / "self" / "statm") or "").split()
    return int(words[0]) * os.sysconf("SC_PAGE_SIZE") if words else 0


def _meminfo(proc: Path) -> dict[str, int]:
    fields = (line.split() for line in (_text(proc / "meminfo") or "").splitlines())
    return {words[0].rstrip(":"): int(words[1]) * 1024 for words in fields if len(words) >= 2}


def cgroup_limits(proc: Path = Path("/proc"), sys: Path = Path("/sys/fs/cgroup")) -> Limits:
    """Return the limits of the control groups of this process, version 2 or 1, including those of parents."""
    memory_bytes = used = cores = None
    for folder in _cgroup_folders(proc, sys):
        limit = _number(folder / "memory.max") or _number(folder / "memory.limit_in_bytes")
        if limit is not None and limit < min(memory_bytes or _UNLIMITED, _UNLIMITED):
            memory_bytes = limit
            used = _number(folder / "memory.current") or _number(folder / "memory.usage_in_bytes")
            used = None if used is None else max(used - _file_bytes(folder), 0)
        quota = _quota(folder)
        if quota is not None:
            cores = min(quota, cores or quota)
    return Limits(memory_bytes, used, cores)


def _file_bytes(folder: Path) -> int:
    """Return the memory of a control group that holds contents of files."""
    names = ("inactive_file", "active_file", "total_inactive_file", "total_active_file")
    fields = dict(line.split() for line in (_text(folder / "memory.stat") or "").splitlines() if len(line.split()) == 2)
    kept = [int(fields.get(name, 0)) for name in names]
    return max(kept[0] + kept[1], kept[2] + kept[3])


def _cgroup_folders(proc: Path, sys: Path) -> Iterator[Path]:
    """Yield the folder of each group of this process, and those of its parents."""
    for line in (_text(proc / "self" / "cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        root = sys / controllers if controllers else sys
        folder = root / path.lstrip("/")
        yield folder
        for parent in folder.parents:
            if not parent.is_relative_to(root):
                break
            yield parent


def _quota(folder: Path) -> float | None:
    words = (_text(folder / "cpu.max") or "").split()
    if len(words) == 2 and words[0] != "max":
        return int(words[0]) / int(words[1])
    quota, period = _number(folder / "cpu.cfs_quota_us"), _number(folder / "cpu.cfs_period_us")
    return quota / period if quota and period and quota > 0 else None


def _number(path: Path) -> int | None:
    text = (_text(path) or "").strip()
    return int(text) if text.lstrip("-").isdigit() else None


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


#: What the libraries of native code read, when they are loaded, to know how many threads to start.
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "RAYON_NUM_THREADS")


def thread_limits(n_processes: int) -> dict[str, str]:
    """Return environment variables that divide the usable cores among processes; what is set already stays.

    They count for libraries that are loaded later.
    """
    cores = str(max(1, usable_cores() // n_processes))
    return {name: os.environ.get(name, cores) for name in _THREADS}


def usable_cores(limits: Limits | None = None) -> int:
    """Return the number of cores that this process may use, at least 1."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limits = cgroup_limits() if limits is None else limits
    return max(1, min(allowed, round(limits.cores) if limits.cores is not None else allowed))


def cpu_features(proc: Path = Path("/proc")) -> list[str]:
    """Return the relevant vector extensions of the processor, such as "avx2" and "avx512f"."""
    for line in (_text(proc / "cpuinfo") or "").splitlines():
        name, _, flags = line.partition(":")
        if name.strip() in ("flags", "Features"):
            present = set(flags.split())
            return [feature for feature in _FEATURES if feature in present]
    return []


def disk_space(path: str | os.PathLike[str]) -> tuple[int, int] | None:
    """Return (total, free) bytes of the file system of a path, or None."""
    try:
        usage = shutil.disk_usage(path)
    except OSError:
        return None
    return usage.total, usage.free


def open_file_limits() -> tuple[int, int]:
    """Return the soft and the hard limit of open files; -1 is unlimited."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)


def package_version(name: str) -> str | None:
    """Return the version of an installed distribution without importing it."""
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def tartan_version() -> str:
    """Return the version of Tartan."""
    return package_version("tartan-allpairs") or "unknown"


# A clock that stands still while its process does not run.

# By judgement: longer than a machine is busy between two beats, shorter than any suspension. No benchmark.
MOST_SECONDS = 2.0


class AwakeClock:
    """Count the seconds in which this process ran, for who reads it at least once a second.

    Between two readings at most ``most_seconds`` count. A process that was stopped, or whose machine was, has heard
    nothing in that time, and that says nothing about who is silent.

    Parameters
    ----------
    most_seconds : float
    clock : callable
        Seconds, whether the process runs or not.

    Examples
    --------
    >>> moments = iter([100.0, 101.0, 161.0, 161.5])
    >>> awake = AwakeClock(clock=lambda: next(moments))
    >>> [awake(), awake(), awake()]
    [1.0, 3.0, 3.5]
    """

    def __init__(self, most_seconds: float = MOST_SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._most = clock, most_seconds
        self._read_at, self._seconds = clock(), 0.0

    def __call__(self) -> float:
        """Return the seconds since the clock was made."""
        now = self._clock()
        self._seconds += min(now - self._read_at, self._most)
        self._read_at = now
        return self._seconds
