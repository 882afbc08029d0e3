"""Disk-to-disk sort: files of numbers or records, larger than memory, at the speed of the disk.

>>> from tartan.sort import sort_file
>>> sort_file("numbers.npy", "sorted.npy", memory="1GB")  # doctest: +SKIP
"""

from __future__ import annotations

from tartan.sort.request import sort_file
from tartan.sort.result import Edge, SortResult
from tartan.sort.stages import BlockSorter, sort_blocks

__all__ = ["BlockSorter", "Edge", "SortResult", "sort_blocks", "sort_file"]
