"""Describe a finished sort."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tartan.base.format import format_bytes, format_count, format_duration

# The stages of DEPSort (read and sort beside the storage, keep run files on data ranks, merge on compute ranks, write
# beside the storage) with the edge that leads out of each: what would travel if they ran on different machines.
EDGES: dict[str, tuple[str, str]] = {
    "source_read": ("source", "sort"),
    "run_write": ("sort", "run files"),
    "run_read": ("run files", "merge"),
    "output_write": ("merge", "destination"),
}


@dataclass(frozen=True)
class Edge:
    """Bytes between two stages.

    Attributes
    ----------
    source, target : str
        The stages.
    n_bytes : int
        Bytes that went from one to the other.
    busy_seconds, wait_seconds : float
        How long the thread that moves them was busy, and how long it waited.
    """

    source: str
    target: str
    n_bytes: int
    busy_seconds: float
    wait_seconds: float

    @property
    def bytes_per_second(self) -> float | None:
        """Speed while busy, None if nothing moved."""
        return self.n_bytes / self.busy_seconds if self.busy_seconds > 0 else None


@dataclass(frozen=True)
class SortResult:
    """Record of what a sort did.

    Attributes
    ----------
    path : Path
        The sorted file.
    n_records, n_bytes : int
        Records and their bytes, headers of files not counted.
    record_bytes : int
        Width of a record.
    run_files, run_files_adopted : int
        Run files written, and those taken over from an earlier attempt.
    levels, ranges : int
        Merge levels, the last one included, and parts of what was merged.
    packed : bool
        Whether run files were packed.
    pack_reason : str
        Why, or why not.
    bits_per_value, expected_bits_per_value : float or None
        Of packed run files, measured, and by the rule for evenly spread values; None where nothing was packed.
    edges : dict of str to Edge
        Bytes between the stages, by the names in ``EDGES``.
    busy_seconds : dict of str to float
        How long each stage worked; the sum is more than the time that passed, because they overlap.
    phase_seconds : dict of str to float
        How long each phase took, ``sort`` and ``merge``.
    wall_seconds : float
    direct : dict of str to bool or None
        Whether the page cache was bypassed: ``read``, ``runs``, ``write``; None where nothing was moved.
    io : str or None
        How requests reach the kernel: "uring" or "threads".
    memory_bytes, peak_rss_bytes : int
        The limit, and the most that this process has ever held.
    needed_bytes : int
        What it said beforehand that it needs at most; 0 on several ranks.
    notes : tuple of str
        Files that were found and not used, one sentence each.
    ranks : dict or None
        Of a sort on several ranks: ``n_ranks``, those ``lost``, ``link_bytes`` that crossed links in the exchange and
        what they were unpacked (``plain_link_bytes``), records that each wrote (``shares``), the ``largest_share`` over
        the mean, and ``processor_seconds`` of the ranks, their start included. Memory is that of one rank.
    """

    path: Path
    n_records: int
    n_bytes: int
    record_bytes: int
    run_files: int
    run_files_adopted: int
    levels: int
    ranges: int
    packed: bool
    pack_reason: str
    bits_per_value: float | None
    expected_bits_per_value: float | None
    edges: dict[str, Edge]
    busy_seconds: dict[str, float]
    phase_seconds: dict[str, float]
    wall_seconds: float
    direct: dict[str, bool | None]
    io: str | None
    memory_bytes: int
    peak_rss_bytes: int
    needed_bytes: int = 0
    notes: tuple[str, ...] = ()
    ranks: dict[str, Any] | None = None
    adopted_bytes: int = 0

    @property
    def bytes_per_second(self) -> float:
        """Sorted bytes per second of wall time; what an earlier attempt had sorted was merged, and counts half."""
        return (self.n_bytes - self.adopted_bytes / 2) / self.wall_seconds if self.wall_seconds > 0 else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain values, for JSON."""
        about = dataclasses.asdict(self)
        return {**about, "path": str(self.path), "notes": list(self.notes), "bytes_per_second": self.bytes_per_second}

    def summary(self) -> str:
        """Summarise the sort in one line."""
        parts = [
            f"{format_count(self.n_records)} records, {format_bytes(self.n_bytes)} in "
            f"{format_duration(self.wall_seconds)} ({format_bytes(self.bytes_per_second)}/s)"
        ]
        if self.run_files:
            parts.append(f"{self.run_files} run files" + self._describe_packing())
        if self.run_files_adopted:
            parts.append(f"{self.run_files_adopted} run files from before")
        if self.ranks is not None:
            links = f"{format_bytes(self.ranks['link_bytes'])} of {format_bytes(self.ranks['plain_link_bytes'])}"
            parts.append(f"{self.ranks['n_ranks']} ranks, {links} over links")
        parts.append(f"peak memory {format_bytes(self.peak_rss_bytes)}")
        return f"{'; '.join(parts)}; result in {self.path}"

    def _describe_packing(self) -> str:
        if not self.packed or self.bits_per_value is None:
            return ""
        return f" packed to {self.bits_per_value:.1f} of {8 * self.record_bytes} bits"


def edges_of(statistics: Mapping[str, Any]) -> dict[str, Edge]:
    """Read the edges out of the engine's statistics."""
    stages = statistics["edges"]
    return {
        name: Edge(source, target, stages[name]["bytes"], stages[name]["busy_seconds"], stages[name]["wait_seconds"])
        for name, (source, target) in EDGES.items()
    }
