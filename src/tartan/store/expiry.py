"""Free what no version of a run needs any more: whole chunks of slots that are not items, or every byte of them.

The log decides, in one rename, which versions can be read from then on; what is freed afterwards none of them reads.
Each file is removed, or replaced by one in which only pairs of such slots differ, so readers of the versions that stay
are not disturbed. Killed in between, the next writer goes on where bytes are to be erased; where only space is freed,
the next ``tartan expire`` does.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tartan.core.pairs.ledger import NOT_COMPUTED
from tartan.errors import ConfigError, CorruptResultError
from tartan.store import checksums, maps
from tartan.store.dense import Dense
from tartan.store.failures import FailureLog
from tartan.store.items import ItemTable
from tartan.store.layout import TRACE_NAME
from tartan.store.listed import ListedScores
from tartan.store.reduced import Parts
from tartan.store.versions import VersionLog

if TYPE_CHECKING:
    from tartan.base.files import FileWriter
    from tartan.store.folder import RunFolder

#: What the key of a slot is after its bytes were erased; the number of the slot follows.
ERASED_KEY = "removed-"
#: Entries of stats.json that may hold names and messages.
_TELLING = ("stopped",)
#: Folders that may be made again, and hold what items are, or rows of their scores.
_DERIVED = ("cache", "linkage")


def expire_versions(folder: RunFolder, keep: int, *, erase: bool = False) -> int:
    """Forget all versions but the newest, and free what they alone needed; the caller holds the lock.

    Parameters
    ----------
    folder : RunFolder
    keep : int
        How many versions stay.
    erase : bool
        Whether no byte is left of what is in none of them; chunks that it shares with others are written anew.

    Returns
    -------
    int
        Bytes that the chunks of scores were larger before.

    Raises
    ------
    ConfigError
        If fewer than one version would stay, or more than one together with ``erase``.
    """
    log = folder.versions
    assert log is not None
    if keep < 1 or (erase and keep != 1):
        raise ConfigError(f"{keep} versions are kept; it must be 1 or more, and 1 where bytes are erased")
    first = max(log.first, log.last - keep + 1)
    if first > log.first or (erase and log.there):
        folder.write_versions(log.since(first, erase=erase))
    return free(folder)


def free(folder: RunFolder) -> int:
    """Free what no version that can be read needs, as the log says; return how many bytes of chunks that were."""
    log = folder.versions
    assert log is not None
    if not log.there or folder.cubes is not None:
        return 0
    needed = log.needed()
    if needed.all():
        if log.erase:
            folder.write_versions(replace(log, erase=False))
        return 0
    if folder.pair_list is not None:
        return _free_listed(folder, folder.pair_list, log, needed)
    freed = sum(_free_chunk(folder, chunk, needed, erase=log.erase) for chunk in list(folder.committed_of_slots()))
    _finish_erasing(folder, log, needed)
    return max(0, freed)  # a chunk of a few scores may be longer without some of them


def _finish_erasing(folder: RunFolder, log: VersionLog, needed: NDArray[np.bool_]) -> None:
    if log.erase:
        _erase_rest(folder, log, needed)
        folder.flush()
        folder.write_versions(replace(log.erased(), erase=False))


def _free_listed(folder: RunFolder, listed: ListedScores, log: VersionLog, needed: NDArray[np.bool_]) -> int:
    """Erase the scores of pairs of a list that no version needs; a list is no shorter without them."""
    if log.erase:
        gone = np.flatnonzero(~needed[listed.pairs].all(axis=1) & (listed.codes != NOT_COMPUTED))
        listed.set_codes(folder.writer, gone, np.zeros(len(gone), np.uint8))
    _finish_erasing(folder, log, needed)
    return 0


def _free_chunk(folder: RunFolder, chunk: tuple[int, int], needed: NDArray[np.bool_], *, erase: bool) -> int:
    """Remove a chunk that nothing needs; with ``erase`` write it anew without the pairs of other slots."""
    writer, side, n = folder.writer, folder.manifest.chunk, folder.manifest.n_items
    rows, columns = (needed[at * side : min(n, (at + 1) * side)] for at in chunk)
    keep = rows[:, None] & columns[None, :]
    if keep.all():
        return 0
    status, targets = folder.stored_status(*chunk), folder.targets(chunk)
    before = _count_bytes(targets)
    if status is None or not (status[keep] != NOT_COMPUTED).any():
        for path in reversed(targets):  # the status first
            writer.remove(path)
        return before
    if not erase or not (status[~keep] != NOT_COMPUTED).any():
        return 0
    try:
        for path, data in _encode_kept(folder, chunk, keep):
            writer.replace(path, data)
    except CorruptResultError:  # it is computed again
        for path in reversed(targets):
            writer.remove(path)
    else:
        folder.take_back(*chunk, ~keep)
    return before - _count_bytes(targets)


def _encode_kept(
    folder: RunFolder, chunk: tuple[int, int], keep: NDArray[np.bool_]
) -> Iterator[tuple[Path, list[Any]]]:
    """Yield the outputs of a chunk with nothing but the pairs to keep."""
    results = folder.results
    if isinstance(results, Parts):
        yield from results.without(chunk, keep)
        return
    assert isinstance(results, Dense)
    ends = [(chunk, keep)]
    if folder.pairs.both_ways and chunk[0] != chunk[1]:
        ends.append((chunk[::-1], keep.T))
    for array in results.arrays.values():
        for end, kept in ends:
            block = array.read(*end)
            if block is not None:
                path, data = array.file(*end, block[: kept.shape[0], : kept.shape[1]], kept)
                yield path, list(data)


def _count_bytes(paths: list[Path]) -> int:
    total = 0
    for path in paths:
        with contextlib.suppress(OSError):
            total += os.lstat(path).st_size
    return total


def _erase_rest(folder: RunFolder, log: VersionLog, needed: NDArray[np.bool_]) -> None:
    """Take slots that are not items out of all files but the chunks; each step may be repeated."""
    writer = folder.writer
    folder.forget_inputs(needed)  # by the names that the items still have
    _erase_items(folder, needed, writer)
    known = np.flatnonzero(needed & (folder.checksums != 0))
    writer.replace(folder.path / checksums.FILE_NAME, [checksums.encode_checksums(known, folder.checksums[known])])
    ends = [(one, [end for end in (one.i, one.j) if end is not None]) for one in folder.failures()]
    FailureLog(folder.path, writer).replace([failure for failure, slots in ends if needed[slots].all()])
    made = maps.read_map(folder.path)
    if made is not None:
        gone = np.flatnonzero(~needed[: len(made)])
        made.points[gone], made.stress[gone] = np.nan, np.nan
        maps.write_map(folder.path, made, writer)
    folder.write_stats({name: value for name, value in folder.stats.items() if name not in _TELLING})
    if not folder.has_result:
        folder.forget_result()
    writer.remove(folder.path / TRACE_NAME)
    for name in _DERIVED:
        if (folder.path / name).is_dir():
            writer.remove_tree(folder.path / name)


def _erase_items(folder: RunFolder, needed: NDArray[np.bool_], writer: FileWriter) -> None:
    table = folder.items
    if table is None:
        return
    gone = np.flatnonzero(~needed)
    keys, taken = list(table.keys), {table.keys[slot] for slot in np.flatnonzero(needed).tolist()}
    for slot in gone.tolist():
        key = f"{ERASED_KEY}{slot}"
        while key in taken:
            key += "#"
        taken.add(key)
        keys[slot] = key
    columns: dict[str, Any] = {}
    for name in ("sizes", "mtimes", "ctimes", "identities"):
        values = getattr(table, name)
        columns[name] = None if values is None else np.where(needed, values, -1)
    contents = (
        None if table.contents is None else ["" if not needed[at] else one for at, one in enumerate(table.contents)]
    )
    ItemTable(keys, contents=contents, **columns).write(folder.path, writer)
