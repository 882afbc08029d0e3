"""What a linkage will take, before it begins: where its rows lie, and how much memory, disk and time that needs."""

from __future__ import annotations

from dataclasses import dataclass

# By arithmetic: of t joins the rows of at most t clusters are kept, of the n - t that are left and longer ones before;
# most where pairs of items are joined first: 8 (n + (n - 1) + ... + n / 2) = 3 n^2 bytes.
_KEPT_BYTES_A_PAIR = 3
# Seconds a pair of items (n^2 of them): measured, average linkage of 16,000 and 30,000 points on two busy cores:
# 7.3 to 10 ns; Ward's takes twice as long.
_SECONDS = 9e-9
# By judgement: a disk that is not the fastest.
_DISK_BYTES_A_SECOND = 5e8
# Measured: rows of items are read 2.3 times, those of clusters about once.
_READS = 3.0
# By arithmetic: 64 rows, or 64 MB, that are kept up to date, and three of other uses.
_WORKING_ROWS = 8


@dataclass(frozen=True)
class LinkagePlan:
    """Where the rows of a linkage lie.

    Attributes
    ----------
    on_disk : bool
        Whether the rows of joined clusters lie in a file, and those of items too unless they lie somewhere already.
    memory_bytes : int
        At most, besides what is there already.
    item_bytes : int
        Of the file of rows of items; 0 where there is none.
    disk_bytes : int
        Of all files, at most.
    seconds : float
        About how long the joins take.
    """

    on_disk: bool
    memory_bytes: int
    item_bytes: int
    disk_bytes: int
    seconds: float


def plan_linkage(n: int, itemsize: int, memory_bytes: int, *, there: bool, free_bytes: int) -> LinkagePlan:
    """Say where the rows of a linkage will lie.

    Parameters
    ----------
    n : int
        Number of items.
    itemsize : int
        Bytes of a stored distance.
    memory_bytes : int
        That may be used.
    there : bool
        Whether the square matrix lies in memory or in a file already, so that it is not written again.
    free_bytes : int
        Memory that is free: of files, this much is read from memory.
    """
    items, kept = 0 if there else itemsize * n * n, _KEPT_BYTES_A_PAIR * n * n
    seconds, rows = _SECONDS * n * n, _WORKING_ROWS * 8 * n
    if items + kept + rows <= memory_bytes:
        return LinkagePlan(False, items + kept + rows, 0, 0, seconds)
    if itemsize * n * n + kept > free_bytes:
        seconds += _READS * itemsize * n * n / _DISK_BYTES_A_SECOND
    return LinkagePlan(True, rows, items, items + kept, seconds)
