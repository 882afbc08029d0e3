"""Which pairs a top-k run compares again after an item left it: it dropped what would be among the best without that.

An item is *opened* when one of its k best leaves: its other pairs were compared, and their scores not kept. They are
marked OPENED in the ledger, but for those that are kept, and count as not computed from then on. Who reads an older
version takes them for done, which they are for it: nothing that it keeps is dropped (``Parts.keep_for``). One that
fails when it is compared again stays OPENED for that reason, and has failed by what is recorded (``RecordedCodes``).

The log of versions names the opened items first, in the record of the change, and the pairs are marked then. Whoever
reads in between takes all pairs of these items for not computed, and the next writer marks them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tartan.core.pairs.ledger import DONE, OPENED
from tartan.errors import CorruptResultError
from tartan.store.reduced import Parts
from tartan.store.versions import Slots

if TYPE_CHECKING:
    from tartan.store.folder import RunFolder


def find_opened(now: RunFolder, gone: Slots) -> Slots:
    """Return the slots of the items that lose one of their best.

    Parameters
    ----------
    now : RunFolder
        The newest version, for reading.
    gone : int64 array
        Slots that are to leave it.

    Returns
    -------
    int64 array
        Ascending; empty where everything is kept. An item with fewer than k best has lost nothing else.
    """
    if not now.opens or not isinstance(now.results, Parts):
        return np.zeros(0, np.int64)
    k, n = int((now.manifest.reduce or {})["k"]), now.manifest.n_items
    slots = np.arange(n, dtype=np.int64) if now.slots is None else now.slots
    leaves = np.isin(slots, gone)
    opened = np.zeros(n, bool)
    for rows in now.results.bands(now.committed()):
        full = np.bincount(rows["i"], minlength=n) >= k
        loses = np.bincount(rows["i"][leaves[rows["j"]]], minlength=n) > 0
        opened |= full & loses & ~leaves
    return np.sort(slots[opened])


def mark_opened(folder: RunFolder) -> None:
    """Mark the pairs of what the last change opened, as the log says; the caller holds the lock. May be repeated."""
    log = folder.versions
    if log is None or not log.unmarked:
        return
    which = np.zeros(folder.manifest.n_items, bool)
    which[log.opened] = True
    live, side = log.at().live(len(which)), folder.manifest.chunk
    for chunk in list(folder.committed_of_slots()):
        status = folder.stored_status(*chunk)
        if status is None:
            continue
        rows, columns = (slice(at * side, at * side + n) for at, n in zip(chunk, status.shape, strict=True))
        wanted = (which[rows][:, None] | which[columns][None, :]) & live[rows][:, None] & live[columns][None, :]
        wanted &= (status == DONE) & ~_find_kept(folder, chunk, which, status.shape)
        if wanted.any():
            folder.set_codes(*chunk, np.where(wanted, OPENED, status))
    folder.flush()
    folder.write_versions(log.marked())


def _find_kept(folder: RunFolder, chunk: tuple[int, int], which: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return the pairs of a chunk, bool (rows, columns), that are kept for all of their items that were opened."""
    results, side = folder.results, folder.manifest.chunk
    assert isinstance(results, Parts)
    kept = np.zeros(shape, np.int8)
    try:
        groups = results.read_groups(chunk)
    except CorruptResultError:  # it is computed again
        return kept > 0
    for rows in groups:
        of_opened = which[rows["i"]]
        i, j = rows["i"][of_opened], rows["j"][of_opened]
        low, high = np.minimum(i, j) - chunk[0] * side, np.maximum(i, j) - chunk[1] * side
        np.add.at(kept, (low, high), 1)
    rows_opened = which[chunk[0] * side :][: shape[0], None]
    columns_opened = which[chunk[1] * side :][None, : shape[1]]
    if folder.manifest.workload["kind"] == "rectangle":
        columns_opened = np.zeros_like(columns_opened)
    needed = rows_opened.astype(np.int8) + columns_opened
    found: np.ndarray = (needed > 0) & (kept >= needed)
    return found | found.T if chunk[0] == chunk[1] else found  # both ways lie in one chunk there
