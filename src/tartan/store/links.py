"""Refuse run folders with symbolic links in them, before anything is written there.

What is written goes through base/confined.py and follows no link; this says so at once, not in the middle of a run.
Links of other names than those below are the user's, and never touched.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tartan.base import lock
from tartan.base.confined import ConfinedFolder
from tartan.store import (
    checksums,
    claims,
    failures,
    healing,
    items,
    layout,
    listed,
    manifest,
    reduced,
    seal,
    shares,
    versions,
    writers,
)

NAMES = (
    "tmp", lock.FILE_NAME, lock.LEASE_NAME, lock.EPOCH_NAME, lock.WRITERS_NAME, writers.GONE_NAME, claims.NAME,
    manifest.FILE_NAME, seal.FILE_NAME, items.FILE_NAME, layout.CANDIDATES_NAME, shares.FILE_NAME, healing.FILE_NAME,
    failures.FILE_NAME, failures.LOG_NAME, writers.STATISTICS_NAME, writers.RANKS_NAME, layout.TRACE_NAME,
    reduced.PARTS_NAME, reduced.RESULT_NAME, checksums.FILE_NAME, versions.FILE_NAME,
    listed.FOLDER_NAME,
)  # fmt: skip
"""What a run writes to its folder, besides its arrays."""


def refuse_links(folder: Path, outputs: Iterable[str]) -> None:
    """Refuse a run folder in which something that would be written is a link, or lies behind one.

    Parameters
    ----------
    folder : Path
    outputs : iterable of str
        Names of the outputs of the run.

    Raises
    ------
    StoreError
        With the name of the first link.
    """
    confined = ConfinedFolder(folder)
    for name in (*NAMES, *(f"{output}.zarr" for output in (*outputs, layout.STATUS))):
        confined.refuse_links(folder / name)
