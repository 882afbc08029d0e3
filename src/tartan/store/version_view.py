"""One version of a run, read as if it were a run of its own: what readers of a folder get where there are versions.

Items, chunks and rows are counted in the items of the version. A chunk of it is put together from the stored chunks in
which the slots of its items lie: from one to four, unless items were replaced. So nothing above this module knows of
slots: what is no item of the version has no number, and no score.

Scores of slots never change, so what is read here is not disturbed by a later version.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tartan.core.pairs.ledger import DONE, NOT_COMPUTED, Failure
from tartan.core.pairs.workload import Candidates, Workload
from tartan.errors import ConfigError, CorruptResultError
from tartan.store.dense import Dense
from tartan.store.folder import RunFolder
from tartan.store.grid_io import ChunkArray, count_codes
from tartan.store.items import ItemTable
from tartan.store.keeper import Rows, concatenate
from tartan.store.layout import STATUS
from tartan.store.manifest import Manifest
from tartan.store.pairs import WantedPairs
from tartan.store.reduced import MERGED_TIMES, Parts
from tartan.store.versions import FILE_NAME as LOG_NAME
from tartan.store.versions import RunVersion, Slots, VersionLog, inputs_without, make_log_error, stamp_log

if TYPE_CHECKING:
    import zarr

Block = NDArray[Any]
# By judgement: chunks of a version that are neighbours share stored ones, two by two; a dozen of 16 MB is less than a
# band of rows. No benchmark.
_HELD_CHUNKS = 12
# Measured: copies of 100 columns at a time take half of the time of a choice one by one (bytes: a seventh), of 16 as
# long.
_LEAST_RUN = 16


class VersionArray(ChunkArray):
    """One stored array of a run as a version of it has it.

    Parameters
    ----------
    stored : ChunkArray
    read : callable
        Returns a stored chunk (row, column), clipped to the slots, or None; also those below the diagonal where both
        ways are stored.
    chunks : VersionChunks
    """

    def __init__(self, stored: ChunkArray, read: Callable[[int, int], Block | None], chunks: VersionChunks) -> None:
        super().__init__(stored.path, stored.dtype, stored.chunk, compressed=stored.compressed)
        self._stored_array, self._read, self._of = stored, read, chunks
        self._held: OrderedDict[tuple[int, int], tuple[int, Block]] = OrderedDict()
        self._holding = threading.Lock()

    def chunk_path(self, row: int, column: int) -> Path:
        """Return the file of the stored chunk that was written last, of those that a chunk is put together from."""
        paths = [self._stored_array.chunk_path(*chunk) for chunk in self._of.sources(row, column)]
        written = [(path.stat().st_mtime_ns, path) for path in paths if path.exists()]
        return max(written)[1] if written else self._stored_array.chunk_path(*self._of.sources(row, column)[0])

    def exists(self, row: int, column: int) -> bool:
        """Whether something of the chunk was written."""
        return any(self._stored_array.exists(*chunk) for chunk in self._of.sources(row, column))

    def list_written(self) -> Iterator[tuple[int, int]]:
        """Yield the chunks of which something was written, row by row."""
        written = set(self._stored_array.list_written())
        self._of.require_kept()
        for row in range(self._of.n_chunks):
            for column in range(row, self._of.n_chunks):
                if not written.isdisjoint(self._of.sources(row, column)):
                    yield row, column

    def read(self, row: int, column: int) -> Block | None:
        """Return a chunk as a new (chunk, chunk) array, or None when nothing of it was written; raises as stored."""
        if not self._of.both_ways and row > column:
            return None
        found = np.empty((self.chunk, self.chunk), self.dtype)
        n_rows, n_columns = self._of.n_items(row), self._of.n_items(column)
        found[n_rows:], found[:n_rows, n_columns:] = self.fill, self.fill
        there = False
        for rows, columns, source, transposed in self._of.pieces(row, column):
            block = self._hold(source)
            if block is None:
                found[np.ix_(rows.at, columns.at)] = self.fill
            elif rows.is_long and columns.is_long and not self._is_folded(source):
                _copy(found, block, rows, columns, transposed=transposed)
            else:
                cut = self._cut(block, rows.inside, columns.inside, source, transposed)
                at = _span(rows.at), _span(columns.at)
                found[at if all(isinstance(axis, slice) for axis in at) else np.ix_(rows.at, columns.at)] = cut
            there |= block is not None
        if not there:
            return None
        if row == column and not self._of.both_ways:  # i <= j are there, as in a run of these items
            for line in range(1, self.chunk):
                found[line, :line] = self.fill
        return found

    def _is_folded(self, source: tuple[int, int]) -> bool:
        """Whether scores may lie on the other side of the diagonal of a stored chunk: items do not ascend."""
        return source[0] == source[1] and not self._of.both_ways and not self._of.ascends

    def _cut(self, block: Block, rows: Slots, columns: Slots, source: tuple[int, int], transposed: bool) -> Block:
        """Return the scores of some slots with others from a stored chunk."""
        if transposed:
            return _choose(block, columns, rows).T
        cut = _choose(block, rows, columns)
        if self._is_folded(source):
            # the stored chunk has (i, j) for i <= j only
            below = rows[:, None] > columns[None, :]
            if below.any():
                cut = np.where(below, _choose(block, columns, rows).T, cut)
        return cut

    def _hold(self, source: tuple[int, int]) -> Block | None:
        """Return a stored chunk, held for the neighbours of the chunk that asks."""
        written = self._written_ns(source)
        with self._holding:
            stamp, block = self._held.get(source, (None, None))
            if block is not None and stamp == written:
                self._held.move_to_end(source)
                return block
        block = self._read(*source)
        self._of.require_kept()
        if block is not None and written is not None:
            with self._holding:
                self._held[source] = written, block
                while len(self._held) > _HELD_CHUNKS:
                    self._held.popitem(last=False)
        return block

    def _written_ns(self, source: tuple[int, int]) -> int | None:
        """Return when a stored chunk was committed last; None if it was not: its status is written last."""
        try:
            return self._of.ledger_path(min(source), max(source)).stat().st_mtime_ns
        except OSError:
            return None

    def count(self, row: int, column: int, n_codes: int) -> NDArray[np.int64] | None:
        """Return how often each of the codes 0 .. n_codes-1 occurs in a chunk, padding included."""
        if not self._of.both_ways and row > column:
            return None
        found, there, cells = np.zeros(n_codes, np.int64), False, self.chunk * self.chunk
        for rows, columns, source, transposed in self._of.pieces(row, column):
            try:
                known = self._stored_array.count(*source, n_codes)
            except CorruptResultError:  # it counts as unknown
                known = None
            if known is None:
                continue
            there = True
            folded = row == column and not self._of.both_ways
            if known.max() == cells and not folded:  # all of one code: which cells are items does not matter
                found[int(known.argmax())] += len(rows.at) * len(columns.at)
                continue
            block = self._hold(source)
            if block is None:
                continue
            codes = self._cut(block, rows.inside, columns.inside, source, transposed)
            if folded:
                codes = np.where(rows.at[:, None] <= columns.at[None, :], codes, np.uint8(NOT_COMPUTED))
            found += count_codes(codes, n_codes)
        self._of.require_kept()
        found[NOT_COMPUTED] = cells - int(found[NOT_COMPUTED + 1 :].sum())
        return found if there else None

    def verify(self, row: int, column: int) -> bool:
        """Whether all stored chunks that it is put together from are there and match their checksums."""
        return all(self._stored_array.verify(*chunk) for chunk in self._of.sources(row, column))


def _copy(found: Block, block: Block, rows: _SlotsOfChunk, columns: _SlotsOfChunk, *, transposed: bool) -> None:
    """Copy scores of some slots with others to where they stand in a chunk of a version, a run of slots at a time."""
    for at, inside, n in rows.runs:
        for across, column, width in columns.runs:
            if transposed:
                found[at : at + n, across : across + width] = block[column : column + width, inside : inside + n].T
            else:
                found[at : at + n, across : across + width] = block[inside : inside + n, column : column + width]


def _span(places: Slots) -> slice | Slots:
    """Return places as a slice where they follow each other, which is read and written several times as fast."""
    first, n = int(places[0]), len(places)
    return slice(first, first + n) if bool((places == np.arange(first, first + n)).all()) else places


def _choose(block: Block, rows: Slots, columns: Slots) -> Block:
    """Return some rows and columns, those that follow each other by one copy: few slots are gone as a rule."""
    ends = np.flatnonzero(np.diff(columns) != 1) + 1
    if len(ends) * _LEAST_RUN > len(columns):
        chosen: Block = block[np.ix_(rows, columns)]
        return chosen
    lines = block[_span(rows)]
    runs = zip([0, *ends], [*ends, len(columns)], strict=True)
    return np.concatenate([lines[:, columns[first] : columns[stop - 1] + 1] for first, stop in runs], axis=1)


class _SlotsOfChunk:
    """Items of a chunk of a version that lie in one stored row of chunks: where in both."""

    def __init__(self, stored: int, at: Slots, inside: Slots) -> None:
        self.stored, self.at, self.inside = stored, at, inside
        ends = np.flatnonzero((np.diff(at) != 1) | (np.diff(inside) != 1)) + 1
        spans = zip([0, *ends.tolist()], [*ends.tolist(), len(at)], strict=True)
        #: Slots that follow each other, in both: first place, first row of the stored chunk, number.
        self.runs = [(int(at[first]), int(inside[first]), stop - first) for first, stop in spans]
        self.is_long = len(self.runs) * _LEAST_RUN <= len(at)


class VersionChunks:
    """Which stored chunks the chunks of a version are put together from.

    Parameters
    ----------
    slots : int64 array (n,)
    side : int
        Of a chunk, in items.
    both_ways : bool
        Whether (i, j) and (j, i) are stored both.
    ledger_path : callable
        Returns the file that says what is known of a stored chunk (row, column).
    require_kept : callable
        Raises where the version has expired since it was opened: what was read may be gone.
    """

    def __init__(
        self,
        slots: Slots,
        side: int,
        *,
        both_ways: bool,
        ledger_path: Callable[[int, int], Path],
        require_kept: Callable[[], None],
    ) -> None:
        self.both_ways, self.ledger_path, self.require_kept = both_ways, ledger_path, require_kept
        self.n_chunks, self.ascends = -(-len(slots) // side), bool((np.diff(slots) > 0).all())
        self._n_slots, self._side = len(slots), side
        self._lines = [_find_pieces(slots[at * side : (at + 1) * side], side) for at in range(self.n_chunks)]

    def pieces(self, row: int, column: int) -> Iterator[tuple[_SlotsOfChunk, _SlotsOfChunk, tuple[int, int], bool]]:
        """Yield items of the rows, of the columns, their stored chunk, and whether that has them the other way."""
        for rows in self._line(row):
            for columns in self._line(column):
                turned = not self.both_ways and rows.stored > columns.stored
                stored = (rows.stored, columns.stored)
                yield rows, columns, stored[::-1] if turned else stored, turned

    def sources(self, row: int, column: int) -> list[tuple[int, int]]:
        """Return the stored chunks that are the ledger of a chunk: those on and above the diagonal."""
        lines = ((rows.stored, columns.stored) for rows in self._line(row) for columns in self._line(column))
        return sorted({(min(line), max(line)) for line in lines})

    def n_items(self, at: int) -> int:
        """Return the number of items of a row or column of chunks."""
        return max(0, min(self._side, self._n_slots - at * self._side))

    def groups(self, band: int, written: set[tuple[int, int]]) -> list[tuple[tuple[int, int], int]]:
        """Return the stored chunks that have items of a row of chunks, of those written, and at which end."""
        lines = {line.stored for line in self._line(band)}
        found = [(chunk, 0) for chunk in written if chunk[0] in lines]
        return sorted(found + [(chunk, 1) for chunk in written if chunk[1] in lines and chunk[0] != chunk[1]])

    def _line(self, at: int) -> list[_SlotsOfChunk]:
        return self._lines[at] if 0 <= at < self.n_chunks else []


def _find_pieces(slots: Slots, side: int) -> list[_SlotsOfChunk]:
    stored = slots // side
    return [
        _SlotsOfChunk(int(line), np.flatnonzero(stored == line), slots[stored == line] % side)
        for line in np.unique(stored)
    ]


class _VersionParts(Parts):
    """What a threshold run keeps, of the items of a version."""

    def __init__(self, folder: Path, manifest: Manifest, stored: RunFolder, chunks: VersionChunks, at: Slots) -> None:
        super().__init__(folder, manifest)
        assert isinstance(stored.results, Parts)
        self._stored, self._of, self._at = stored.results, chunks, at
        self._ledger = stored

    def bands(self, chunks: Iterator[tuple[int, int]]) -> Iterator[Rows]:
        """Yield what is kept of chunks of the version, sorted by chunks."""
        written = set(self._ledger.committed())
        self._of.require_kept()
        if self._rule["kind"] == "top-k":
            yield from self._best_of(set(chunks), written)
            return
        for chunk in sorted(chunks):
            yield self._rows_of(chunk, written)

    def n_rows(self, row: int, column: int) -> int:
        """Return the number of pairs that are kept of a chunk."""
        written = set(self._ledger.committed())
        if self._rule["kind"] == "top-k":  # at most
            return sum(self._stored.n_rows(*source) for source in self._of.sources(row, column) if source in written)
        return len(self._rows_of((row, column), written)["i"])

    def verify(self, row: int, column: int) -> bool:
        """Whether all stored parts that a chunk is put together from are there and whole."""
        return all(self._stored.verify(*source) for source in self._of.sources(row, column))

    def _best_of(self, chunks: set[tuple[int, int]], written: set[tuple[int, int]]) -> Iterator[Rows]:
        """Yield what a top-k run keeps of some chunks of the version, a row of them at a time."""
        n, k = self._of.n_chunks, int(self._rule["k"])
        allowed = np.zeros((n, n), bool)
        for chunk in chunks:
            allowed[chunk] = True
        for band in range(n):
            pieces, n_rows = [self.keeper.empty()], 0
            for source, group in self._of.groups(band, written):
                pieces.append(self._in_band(self._stored.read_done(source, group), band, allowed))
                self._of.require_kept()
                n_rows += len(pieces[-1]["i"])
                if n_rows > MERGED_TIMES * self._manifest.chunk * k:
                    pieces = [self.keeper.cut(concatenate(pieces))]
                    n_rows = len(pieces[0]["i"])
            yield self.keeper.cut(concatenate(pieces))

    def _in_band(self, rows: Rows, band: int, allowed: NDArray[np.bool_]) -> Rows:
        """Return rows of items of a row of chunks with others of the version, as it numbers them."""
        i, j, side = self._at[rows["i"]], self._at[rows["j"]], self._manifest.chunk
        keep = (np.minimum(i, j) >= 0) & (i // side == band)
        keep &= allowed[np.minimum(i, j) // side, np.maximum(i, j) // side]
        return {name: values[keep] for name, values in (rows | {"i": i, "j": j}).items()}

    def _rows_of(self, chunk: tuple[int, int], written: set[tuple[int, int]]) -> Rows:
        side, found = self._manifest.chunk, [self.keeper.empty()]
        for source in self._of.sources(*chunk):
            if source not in written:
                continue
            read = list(self._stored.bands(iter([source])))
            self._of.require_kept()
            for rows in read:
                i, j = self._at[rows["i"]], self._at[rows["j"]]
                if not self._of.both_ways:
                    i, j = np.minimum(i, j), np.maximum(i, j)
                low, high = np.minimum(i, j) // side, np.maximum(i, j) // side
                keep = (np.minimum(i, j) >= 0) & (low == chunk[0]) & (high == chunk[1])
                found.append({name: values[keep] for name, values in (rows | {"i": i, "j": j}).items()})
        joined = {name: np.concatenate([rows[name] for rows in found]) for name in found[0]}
        order = np.lexsort((joined["j"], joined["i"]))
        return {name: values[order] for name, values in joined.items()}


class _VersionPairs(WantedPairs):
    """The pairs that a version has of those that a run is asked for."""

    def __init__(self, manifest: Manifest, stored: WantedPairs, at: Slots) -> None:
        super().__init__(manifest, Path())
        self._stored, self._at = stored, at

    @cached_property
    def workload(self) -> Workload:
        """The workload over all items of the version."""
        listed = self._stored.workload
        if not isinstance(listed, Candidates):
            return super().workload
        pairs = np.sort(self._at[listed.pairs.reshape(-1, 2)], axis=1)
        return Candidates(self._manifest.n_items, pairs[pairs[:, 0] >= 0])


class VersionFolder(RunFolder):
    """One version of a run, for reading.

    Parameters
    ----------
    stored : RunFolder
        The folder as it is stored, opened for reading.
    version : RunVersion
        Of its log.
    opened : int64 array, optional
        Slots of a top-k run that the change which made it has opened, and whose pairs are not marked yet.
    """

    def __init__(self, stored: RunFolder, version: RunVersion, opened: Slots | None = None) -> None:
        opened = np.zeros(0, np.int64) if opened is None else opened
        self._slots_folder, self._version = stored, version
        before = stored.manifest
        refuse_versions(before, stored.path, "reads", version)
        n_slots = before.n_items
        self._at = version.places(n_slots)
        both_ways, path = stored.pairs.both_ways, stored.status_array.chunk_path
        stamp = stamp_log(stored.path)
        ways: dict[str, Any] = {"both_ways": both_ways, "ledger_path": path, "require_kept": self.require_kept}
        self._chunks = VersionChunks(version.slots, before.chunk, **ways)
        n_items = len(version.slots)
        inputs = inputs_without(before, stored.keys, version.live(n_slots))
        workload = {name: value for name, value in before.workload.items() if name != "scores"}  # read by chunks
        if workload["kind"] == "rectangle":
            workload["n_left"] = int((version.slots < workload["n_left"]).sum())
        of_version = replace(before, n_items=n_items, generations=[n_items], inputs=inputs, workload=workload)
        super().__init__(stored.path, of_version, None)
        self._read_version, self._log_stamp = version.number, stamp
        self.opened_code = DONE if version.was_whole and not version.newest else NOT_COMPUTED
        if len(opened):
            self.opened = np.zeros(n_slots, bool)
            self.opened[opened] = True
            self.opened = self.opened[version.slots]

    def __reduce__(self) -> tuple[Any, ...]:
        """Let other processes open the same version."""
        return open_version, (self.path, self._version.number)

    @property
    def stored(self) -> RunFolder:
        """The folder whose items are the slots."""
        return self._slots_folder

    @property
    def version(self) -> RunVersion:
        """The version that is read."""
        return self._version

    def _open_status(self) -> ChunkArray:
        status = self.stored.status_array
        return VersionArray(status, self._read_stored, self._chunks)

    def _read_stored(self, row: int, column: int) -> Block | None:
        if row <= column:
            return self.stored.stored_status(row, column)
        codes = self.stored.stored_status(column, row)
        return None if codes is None else codes.T

    def _adopt(self, manifest: Manifest) -> None:
        super()._adopt(manifest)
        self.wanted = _VersionPairs(manifest, self.stored.pairs, self._at)

    def _open_results(self, manifest: Manifest) -> Dense | Parts:
        if isinstance(self.stored.results, Parts):
            whole = self.version.is_whole(self.stored.manifest.n_items)
            of = self.stored, self._chunks, self._at
            return self.stored.results if whole else _VersionParts(self.path, manifest, *of)
        return Dense({name: self._array_of(name) for name in manifest.outputs})

    def _array_of(self, name: str) -> VersionArray:
        results = self.stored.results
        assert isinstance(results, Dense)
        return VersionArray(results.arrays[name], lambda *chunk: self.stored.read_chunk(name, *chunk), self._chunks)

    @property
    def items(self) -> ItemTable | None:
        """Keys, as the version names them, and fingerprints; None for rows without names."""
        return self._table

    @cached_property
    def _table(self) -> ItemTable | None:
        table, slots = self.stored.items, self.version.slots
        if table is None:
            return None
        columns = (table.sizes, table.mtimes, table.ctimes, table.identities)
        sizes, mtimes, ctimes, identities = (None if one is None else np.asarray(one)[slots] for one in columns)
        contents = None if table.contents is None else [table.contents[slot] for slot in slots.tolist()]
        return ItemTable(list(self.keys), sizes, mtimes, contents, ctimes, identities)

    @cached_property
    def _names(self) -> list[str]:
        keys, names = self.stored.keys, self.version.names
        self.require_kept()
        found = [names.get(slot, keys[slot]) for slot in self.version.slots.tolist()]
        self._check_names(found)
        return found

    def _check_names(self, found: list[str]) -> None:
        """Refuse names that no command gives: one of two items, or with characters that no item of the run has."""
        given = {slot: name for slot, name in self.version.names.items() if self._at[slot] >= 0}
        if not given:
            return
        n_left = int(self.manifest.workload.get("n_left", 0))  # each of two sets has names of its own
        sides = found[:n_left], found[n_left:]
        counts = [Counter(side) for side in sides]
        odd = {name for name in given.values() if not name.strip() or not name.isprintable()}
        for slot, name in given.items():
            if counts[int(self._at[slot] >= n_left)][name] > 1:
                raise make_log_error(self.path / LOG_NAME, f"calls two items {name!r}")
        if odd and (strange := odd.difference(self.stored.keys)):
            raise make_log_error(self.path / LOG_NAME, f"has the name {min(strange)!r}, which no item can have")

    @property
    def keys(self) -> Sequence[str]:
        """Stable keys of all items: of rows without names those that they had at first."""
        if self.stored.items is None and not self.version.names and self.version.is_whole(self.stored.manifest.n_items):
            return self.stored.keys
        return self._names

    @property
    def sealed(self) -> bool:
        """Whether this user made the folder on this machine, as it is stored now."""
        return self.stored.sealed

    @property
    def checksums(self) -> NDArray[np.uint64]:
        """Checksums of all items as they were compared, uint64 (n,)."""
        return self.stored.checksums[self.version.slots]

    @property
    def has_result(self) -> bool:
        """Whether the merged result is there and is that of this version; of an old version nothing is merged."""
        return not self.version.newest or self.stored.has_result

    def failures(self) -> list[Failure]:
        """Return all failures of items and pairs of the version, items first."""
        found = []
        listed = self.stored.failures()
        self.require_kept()
        for failure in listed:
            i = int(self._at[failure.i])
            j = None if failure.j is None else int(self._at[failure.j])
            if i < 0 or (j is not None and j < 0):
                continue
            if j is not None and not self.pairs.both_ways and i > j:
                i, j = j, i
            found.append(replace(failure, i=i, j=j))
        return sorted(found, key=lambda one: (one.j is not None, one.i, -1 if one.j is None else one.j))

    def part_of(self, chunk: tuple[int, int]) -> Path:
        """Return the part that was written last, of those that what is kept of a chunk is put together from."""
        paths = [self.stored.part_of(source) for source in self._chunks.sources(*chunk)]
        return max(paths, key=lambda path: path.stat().st_mtime_ns if path.exists() else -1)

    def _open_zarr(self, name: str) -> zarr.Array[Any]:
        if self.version.is_whole(self.stored.manifest.n_items):
            return self.stored.array(name) if name != STATUS else self.stored.status()
        raise ConfigError(
            f"{self.path} has items that were removed or replaced, and its arrays, as stored, have them still; read "
            f"version {self.version.number} by matrix(), view() or pairs()"
        )


def open_version(path: str | Path, version: int | None = None, *, arity: int | None = 2) -> RunFolder:
    """Open a version of a run for reading; the slots where the run has no log, and nothing else is asked for.

    Parameters
    ----------
    path : path
    version : int, optional
        Default: the newest.
    arity : {2, 3, None}
        As of ``RunFolder.open``.

    Raises
    ------
    ConfigError
        If it is a run of the other kind, or has no such version, or no more.
    StoreError
        As ``RunFolder.open``.
    """
    stored = RunFolder.open(path, arity=arity, slots=True)
    if version is None and not stored.has_log:
        stored.read_as(len(stored.manifest.generations))
        return stored
    try:
        log = VersionLog.read(stored.path, stored.manifest)
    except CorruptResultError:  # perhaps of a manifest that was replaced since
        stored = RunFolder.open(path, arity=arity, slots=True)
        log = VersionLog.read(stored.path, stored.manifest)
    if not log.there and version in (None, log.last):
        stored.read_as(log.last)
        return stored
    found = log.at(version)
    return VersionFolder(stored, found, log.opened if found.newest else None)


def refuse_versions(manifest: Manifest, path: Path, what: str, version: RunVersion) -> None:
    """Refuse versions of runs whose answers cannot be those of other items.

    Raises
    ------
    ConfigError
        Of triples, and of top-k runs of before their log begins.
    """
    if manifest.arity > 2:
        raise ConfigError(f"{path} compares three items at a time; such runs have one version")
    rule = manifest.reduce or {}
    if rule.get("kind") == "top-k" and not version.is_exact:
        raise ConfigError(
            f"{path} kept the best of each item among all that it had, and not what would be among them without some, "
            f"until an item was removed, replaced or renamed; version {version.number} is older: start a new run of "
            "its items"
        )
