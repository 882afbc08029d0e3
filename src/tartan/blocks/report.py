"""What calls of ``Session.run`` report."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RunReport:
    """What one call of ``Session.run`` did.

    Attributes
    ----------
    seconds : float
        From call to end.
    subtasks : int
    bytes_moved : int
        From rank to rank.
    bytes_bound : int or None
        What ranks must at least move, each with its share of the subtasks, for where the blocks lay; None where no
        bound is known. It is known of one rank, of matrix products, and where blocks lie on no rank yet.
    bytes_read : int
        From sources, on all ranks.
    bytes_spilled, bytes_restored : int
        Written to the local folder because memory was full, and read back.
    ranges, hits : int
        Ranges that subtasks read, and those of them that were in the memory of their rank or on their way to it.
    steals : int
        Subtasks that another rank ran than the one they were given to.
    repeated : int
        Subtasks that ran once more, after a failure or a loss.
    ranks_lost : int
    device_subtasks : int
        Subtasks that were computed on a device that is not the CPU.
    bytes_uploaded, bytes_downloaded : int
        To the memory of devices, and from there.
    device_ranges, device_hits : int
        Ranges that subtasks on devices read, and those of them that were in the memory of their device already.
    seconds_device_waited : float
        For how long devices had subtasks to compute and computed none; the sum over all.
    per_rank : dict of int to int
        Subtasks that each rank ended.
    """

    seconds: float = 0.0
    subtasks: int = 0
    bytes_moved: int = 0
    bytes_bound: int | None = 0
    bytes_read: int = 0
    bytes_spilled: int = 0
    bytes_restored: int = 0
    ranges: int = 0
    hits: int = 0
    steals: int = 0
    repeated: int = 0
    ranks_lost: int = 0
    device_subtasks: int = 0
    bytes_uploaded: int = 0
    bytes_downloaded: int = 0
    device_ranges: int = 0
    device_hits: int = 0
    seconds_device_waited: float = 0.0
    per_rank: dict[int, int] | None = None

    def __add__(self, other: RunReport) -> RunReport:
        return self._with(other, 1)

    def __sub__(self, before: RunReport) -> RunReport:
        return self._with(before, -1)

    def _with(self, other: RunReport, sign: int) -> RunReport:
        """Return the sums, or the differences, of all figures."""
        names = [name for name in self.__dataclass_fields__ if name not in ("per_rank", "bytes_bound")]
        sums = {name: getattr(self, name) + sign * getattr(other, name) for name in names}
        per_rank = dict(self.per_rank or {})
        for rank, count in (other.per_rank or {}).items():
            per_rank[rank] = per_rank.get(rank, 0) + sign * count
        bounds = self.bytes_bound, other.bytes_bound
        bound = None if bounds[0] is None or bounds[1] is None else bounds[0] + sign * bounds[1]
        return RunReport(**sums, bytes_bound=bound, per_rank={rank: n for rank, n in per_rank.items() if n})
