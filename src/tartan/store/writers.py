"""What several writers leave in a run folder, and how the next process that holds it alone takes it over.

Each writer has a folder ``writers/HOST.PID.TOKEN`` (base/lock.py): its lease, its unfinished files, the failures that
it found and its statistics. Taking over begins with moving these folders to ``writers-gone``: from then on a writer
that was only silent can publish nothing. What was decided for is published then (claims.py), failures go to the
failures of the run, and of each folder only the statistics stay, until they are added up. Every step may be repeated.
"""

from __future__ import annotations

import contextlib
import stat
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, TypedDict

import msgspec
import numpy as np
from msgspec import Meta

from tartan.base.confined import ConfinedFolder
from tartan.base.files import disk_errors
from tartan.base.json_input import read_json
from tartan.base.lock import WRITER_LEASE_NAME, WRITERS_NAME
from tartan.base.temporary import is_writers_name
from tartan.core.pairs.ledger import FAILED_ITEM, FAILED_PAIR, Failure
from tartan.store.checksums import FILE_NAME as CHECKSUMS_NAME
from tartan.store.failures import LOG_NAME, read_log

GONE_NAME = "writers-gone"
STATISTICS_NAME = "stats.json"
RANKS_NAME = "ranks.json"
"""Names the ranks of a run while they compute it; a driver that was killed leaves it."""
_Amount = Annotated[float, Meta(ge=0, le=1e18)]
_FOLDERS = (WRITERS_NAME, GONE_NAME)
_LEFT = (LOG_NAME, WRITER_LEASE_NAME, CHECKSUMS_NAME)


class _Energy(TypedDict, total=False):
    joules: _Amount
    pairs: _Amount
    unknown: str


class _Summands(TypedDict, total=False):
    loads: _Amount
    parses: _Amount
    disk_hits: _Amount
    host_hits: _Amount
    uploads: _Amount
    pairs_computed: _Amount
    triples_computed: _Amount
    bytes_between_ranks: _Amount
    wall_seconds: _Amount
    executions: _Amount
    host_slots: _Amount
    host_peak: _Amount
    result_buffer_bytes: _Amount
    n_ranks: _Amount
    steals: _Amount
    ranks_lost: _Amount
    system_efficiency: float | None
    bytes_per_level: dict[str, _Amount] | None
    seconds_per_stage: dict[str, _Amount] | None
    items_per_stage: dict[str, _Amount] | None
    sizing: dict[str, Any] | None
    stopped: str | None
    energy: _Energy | None
    counted_writers: list[str]


def writers_failures(folder: Path) -> list[Failure]:
    """Return the failures that several writers found and that are not taken over yet."""
    return [failure for place in _places(folder) for failure in read_log(place / LOG_NAME)]


def writers_statistics(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the statistics of several writers that are not added up yet, by the name of the writer."""
    found = {}
    for place in _places(folder):
        with contextlib.suppress(OSError, ValueError):
            statistics = read_json(place / STATISTICS_NAME)
            if problem_of_statistics(statistics) is None:
                found[place.name] = statistics
    return found


def problem_of_statistics(statistics: Any) -> str | None:
    """Return why statistics are damaged, or None: what is added up must be numbers."""
    try:
        msgspec.convert(statistics, _Summands)
    except msgspec.ValidationError as error:
        return str(error)
    return None


def writers_places(folder: Path) -> list[Path]:
    """Return the folders of several writers that are not taken over yet."""
    return list(_places(folder))


def fence(folder: Path) -> None:
    """Move the folders of all writers away; the caller holds the run folder alone."""
    confined, writers, gone = ConfinedFolder(folder), folder / WRITERS_NAME, folder / GONE_NAME
    places = _folders(confined, writers)
    with disk_errors(gone):
        if places:
            confined.make_folder(gone, exist_ok=True)
        for place in places:
            confined.move(place, gone / place.name)
    _remove_empty(confined, writers)


def keep_statistics(folder: Path) -> None:
    """Remove what writers that are gone left, but for their statistics."""
    confined, gone = ConfinedFolder(folder), folder / GONE_NAME
    with disk_errors(gone):
        for place in _folders(confined, gone):
            for name, _ in confined.entries(place):
                if name in _LEFT or is_writers_name(name):
                    confined.remove(place / name)
            _remove_empty(confined, place)
    _remove_empty(confined, gone)


def forget_statistics(folder: Path, names: Iterable[str]) -> None:
    """Remove the statistics of writers that are gone, which have been added up."""
    confined, gone = ConfinedFolder(folder), folder / GONE_NAME
    with disk_errors(gone):
        for place in _folders(confined, gone):
            if place.name in names:
                confined.remove(place / STATISTICS_NAME, missing_ok=True)
                _remove_empty(confined, place)
    _remove_empty(confined, gone)


def still_true(failures: Collection[Failure], statuses: Iterable[tuple[int, int, np.ndarray]]) -> list[Failure]:
    """Return the failures that the ledger has.

    A writer whose version of a chunk does not count may have found failures that the one that counts has not.

    Parameters
    ----------
    failures : collection of Failure
    statuses : iterable of (int, int, uint8 array)
        Of each committed chunk the items of its first pair, and its codes.
    """
    items = np.unique(np.array([failure.i for failure in failures if failure.j is None], np.int64))
    proven: set[int] = set()
    unclear: set[tuple[int, int]] = set()
    failed_pairs: set[tuple[int, int]] = set()
    for row, column, codes in statuses:
        lacking, rows, columns = codes == FAILED_ITEM, *(np.arange(m) + at for m, at in zip(codes.shape, (row, column)))
        of_rows, of_columns = np.isin(rows, items), np.isin(columns, items)
        proven.update(rows[of_rows & lacking[:, ~of_columns].any(axis=1)].tolist())
        proven.update(columns[of_columns & lacking[~of_rows].any(axis=0)].tolist())
        both = np.nonzero(lacking & of_rows[:, None] & of_columns[None, :])
        unclear.update(zip(rows[both[0]].tolist(), columns[both[1]].tolist(), strict=True))
        found = np.nonzero(codes == FAILED_PAIR)
        failed_pairs.update(zip(rows[found[0]].tolist(), columns[found[1]].tolist(), strict=True))
    # A pair of two listed items does not say which of them it lacks: both, unless one is known to be the reason.
    proven |= {end for pair in unclear if not proven & set(pair) for end in pair}
    return [
        failure
        for failure in failures
        if (failure.i in proven if failure.j is None else (failure.i, failure.j) in failed_pairs)
    ]


def _places(folder: Path) -> Iterator[Path]:
    confined = ConfinedFolder(folder)
    for name in _FOLDERS:
        yield from _folders(confined, folder / name)


def _folders(confined: ConfinedFolder, place: Path) -> list[Path]:
    return [place / name for name, state in confined.entries(place) if stat.S_ISDIR(state.st_mode)]


def _remove_empty(confined: ConfinedFolder, place: Path) -> None:
    """Remove a folder; one that is not there, or holds anything else, stays as it is."""
    with contextlib.suppress(OSError):
        confined.remove_folder(place)
