"""Check space: memory of this process, and temporary space on disks.

Temporary space is counted by file system: several folders, and the destination, may share one.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tartan.base.format import format_bytes
from tartan.errors import ConfigError, DiskFullError

# By judgement: the process alone holds about half of it; with less left, runs are short and merge levels many. No
# benchmark.
LEAST_MEMORY_BYTES = 128 * 10**6
# Memory that Python may still take: modules imported late, progress, messages, and pages that the allocator keeps.
# _RESERVE_BYTES and _RESERVE_SHARE, by judgement. `tartan bench sort` prints the peak, 443 MB of a memory of 1 GB.
_RESERVE_BYTES = 8 * 10**6
_RESERVE_SHARE = 0.01
# By judgement: logs and other programs on a disk that a sort fills. No benchmark.
_SPARE_DISK_BYTES = 16 << 20


def memory_for_engine(memory_bytes: int, held_bytes: int) -> int:
    """Return the memory that the engine may take so that the whole process stays within ``memory_bytes``.

    Parameters
    ----------
    memory_bytes : int
        Limit for the whole process.
    held_bytes : int
        Memory that the process already holds: interpreter, NumPy, the caller's data.

    Returns
    -------
    int
        Negative if the process already holds more than the limit.

    Raises
    ------
    ConfigError
        Code "memory", if the limit is below ``LEAST_MEMORY_BYTES``.
    """
    if memory_bytes < LEAST_MEMORY_BYTES:
        raise ConfigError(
            f"memory of {format_bytes(memory_bytes)} is too little; {format_bytes(LEAST_MEMORY_BYTES)} is the least",
            code="memory",
            context={"option": "memory", "memory_bytes": memory_bytes, "least_bytes": LEAST_MEMORY_BYTES},
        )
    return memory_bytes - held_bytes - _RESERVE_BYTES - int(memory_bytes * _RESERVE_SHARE)


@dataclass(frozen=True)
class Disk:
    """One file system.

    Attributes
    ----------
    device : int
        Number of the device; folders on one file system share it.
    free_bytes : int
        Bytes that this user can still write.
    """

    device: int
    free_bytes: int


def disks_of(folders: Iterable[Path]) -> list[Disk]:
    """Return the file system of each folder."""
    disks = []
    for folder in folders:
        facts = os.statvfs(folder)
        disks.append(Disk(folder.stat().st_dev, facts.f_bavail * facts.f_frsize))
    return disks


def check_space(temporary: Sequence[Disk], temporary_bytes: int, destination: Disk, destination_bytes: int) -> None:
    """Refuse a sort that does not fit on the disks.

    Parameters
    ----------
    temporary : sequence of Disk
        File systems for run files.
    temporary_bytes, destination_bytes : int
        Bytes that are still to be written.

    Raises
    ------
    DiskFullError
        If there is too little; its message says how much is missing and where.
    """
    free: dict[int, int] = defaultdict(int)
    for disk in (*temporary, destination):
        free[disk.device] = max(disk.free_bytes - _SPARE_DISK_BYTES, 0)
    left = free[destination.device] - destination_bytes
    if left < 0:
        raise _full("the destination", destination_bytes, free[destination.device], "choose another disk")
    free[destination.device] = left
    space = sum(free[device] for device in {disk.device for disk in temporary})
    if space < temporary_bytes:
        raise _full("run files", temporary_bytes, space, "name more or larger temporary folders (tmp)")


def _full(what: str, needed: int, free: int, way_out: str) -> DiskFullError:
    return DiskFullError(
        f"{what} may need {format_bytes(needed)}, but only {format_bytes(free)} are free besides the "
        f"{format_bytes(_SPARE_DISK_BYTES)} of each disk that stay free; free some, or {way_out}",
        context={"needed_bytes": needed, "free_bytes": free},
        retryable=True,
    )
