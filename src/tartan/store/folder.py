"""Create, open, lock and extend run folders; ledger.py commits to them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from tartan.base.checks import path_of
from tartan.base.files import FileWriter, disk_errors, is_parquet, remove_abandoned
from tartan.base.lock import WRITERS_NAME, FolderLock, SharedLock
from tartan.base.zarr_input import refuse_unsafe
from tartan.core.pairs.grid import Tile
from tartan.core.pairs.ledger import FAILED_ITEM, NOT_COMPUTED, Failure
from tartan.errors import ConfigError, DiskFullError, InternalError, StoreError
from tartan.store import checksums, dense, healing, manifest, statistics, writers
from tartan.store.claims import NAME as CLAIMS_NAME
from tartan.store.claims import Claims, settle
from tartan.store.dense import Dense
from tartan.store.failures import FailureLog, read_failures
from tartan.store.healing import Healing
from tartan.store.items import ItemTable, StoredItems
from tartan.store.keeper import Rows
from tartan.store.layout import STATUS, TRACE_NAME, check_request, lay_out, refuse_occupied, remove_leftovers
from tartan.store.ledger import Ledger
from tartan.store.links import refuse_links
from tartan.store.manifest import Manifest
from tartan.store.reduced import RESULT_NAME, Parts, version_of_result
from tartan.store.seal import is_sealed, write_seal
from tartan.store.shares import read_n_parts, record_parts
from tartan.store.versions import FILE_NAME as VERSIONS_NAME
from tartan.store.versions import FORMAT_WITH_LOG, Record, RunVersion, VersionLog, inputs_without, stamp_log
from tartan.store.view import ResultView, output_name

if TYPE_CHECKING:
    import zarr


class RunFolder(Ledger):
    """A run on disk; use ``create`` or ``open``.

    Attributes
    ----------
    path : Path
    manifest : Manifest
    writable : bool
    wanted : WantedPairs or WantedTriples
        Pairs or triples and chunks that the run computes.
    """

    def __init__(self, path: Path, manifest: Manifest, writer: FileWriter | None) -> None:
        self._disregarded: list[int] = []
        self._naming = threading.Lock()  # of a feature of the folder, by threads that commit
        super().__init__(path, manifest, writer)
        self._lock: FolderLock | SharedLock | None = None
        self._place = path  # of statistics: the folder of this writer where it is one of several
        self._read_version: int | None = None  # set where it is a version that is read, and not only its slots
        self._log_stamp: tuple[int, ...] = ()

    def _adopt(self, manifest: Manifest) -> None:
        self.versions = VersionLog.read(self.path, manifest) if self.writable else None
        self.live = self._find_live(manifest)
        super()._adopt(manifest)
        log = self.versions
        if log is not None and log.there and self.opens and isinstance(self.results, Parts):
            self.results.keep_for(log.lifetimes(), log.ranks())
        named = manifest.inputs.get("kind", "array") != "array"
        n_left = manifest.workload.get("n_left")
        self._stored_items = StoredItems(self.path, manifest.n_items, n_left=n_left, required=named)

    def _find_live(self, manifest: Manifest) -> np.ndarray | None:
        """Return which slots a writer compares: those of the newest version; None for all."""
        if self.versions is None or not (self.versions.there or self._disregarded):
            return None
        live = self.versions.at().live(manifest.n_items)
        live[self._disregarded] = False
        return None if live.all() else live

    @property
    def writer(self) -> FileWriter:
        """What writes the files of the folder; a StoreError where it was opened for reading."""
        return self._write_access()

    def forget_inputs(self, needed: np.ndarray) -> None:
        """Take the names of files that are not items any more out of the manifest; the caller holds the lock."""
        inputs = inputs_without(self.manifest, self.keys, needed)
        if inputs != self.manifest.inputs:
            described = replace(self.manifest, inputs=inputs)
            self._replace_manifest(described)
            self._adopt(described)

    def disregard(self, slot: int) -> None:
        """Take a slot for none of an item from now on, here and not in the folder: it is to be replaced."""
        self._disregarded.append(slot)
        self._adopt(self.manifest)

    @property
    def is_whole(self) -> bool:
        """Whether the newest version lacks nothing that a change took from it, what is disregarded included."""
        disregarded, self._disregarded = self._disregarded, []
        try:
            self._adopt(self.manifest)
            return self.n_left == 0 and not self.has_opened()
        finally:
            self._disregarded = disregarded
            self._adopt(self.manifest)

    def read_as(self, number: int) -> None:
        """Take the folder for a version that is read: from now on reading it ends where that expires."""
        self._read_version, self._log_stamp = number, stamp_log(self.path)

    def require_kept(self) -> None:
        """Refuse to go on reading a version that has expired since it was opened: what was read may be gone.

        Raises
        ------
        StoreError
            Then (code "expired-version").
        """
        number = self._read_version
        if number is None or (stamp := stamp_log(self.path)) == self._log_stamp:
            return
        first = VersionLog.read(self.path, Manifest.load(self.path)).first
        if first > number:
            raise StoreError(
                f"version {number} of {self.path} has expired while it was read (tartan expire); read version "
                f"{first} or later",
                code="expired-version",
                context={"path": str(self.path), "version": number, "first": first},
            )
        self._log_stamp = stamp

    @property
    def version(self) -> RunVersion | None:
        """The version that is read; None where slots are, which are the items of a run that has no log."""
        return None

    @property
    def stored(self) -> RunFolder:
        """The folder whose items are the slots: this one, unless a version is read."""
        return self

    def name_of(self, slot: int, version: RunVersion) -> str:
        """Return what a version calls the item of a slot."""
        return version.names.get(slot) or self.stored.keys[slot]

    @property
    def slots(self) -> np.ndarray | None:
        """Which slots the items are, int64 (n,); None where they are all."""
        return None if self.version is None else self.version.slots

    @classmethod
    def create(
        cls,
        path: str | Path,
        manifest: Manifest,
        items: ItemTable | None = None,
        *,
        candidates: np.ndarray | None = None,
        samples: Mapping[str, np.ndarray] | None = None,
        known: np.ndarray | None = None,
        writer: FileWriter | None = None,
        held: bool = False,
    ) -> RunFolder:
        """Create a run folder; it is a run from the moment its manifest exists.

        Parameters
        ----------
        path : path
            Absent, empty, or left by a creation that was killed.
        manifest : Manifest
        items : ItemTable or None
            None for array items.
        candidates : int64 array (m, 2), optional
            The pairs of a candidate list, i < j where the run is symmetric.
        samples : dict of arrays, optional
            A few scores of each output, from which the codec is chosen; it is fixed here.
        known : uint64 array (n,), optional
            Checksums of items; see ``note_checksums``.
        writer : FileWriter, optional
            Writer of files; default: a new one for ``path``.
        held : bool
            Whether the caller holds the lock of the folder.

        Raises
        ------
        StoreError
            If the folder holds a run or something else, is locked, or cannot be written.
        DiskFullError
            If the disk is full.
        """
        path = Path(path)
        check_request(manifest, items)
        with disk_errors(path):
            path.mkdir(parents=True, exist_ok=True)
        refuse_occupied(path, manifest.outputs)
        with contextlib.nullcontext() if held else FolderLock(path):
            refuse_occupied(path, manifest.outputs)
            remove_leftovers(path, manifest.outputs)
            writer = writer or FileWriter(path)
            writer.clear_temporary()
            lay_out(path, manifest, items, candidates, samples or {}, known, writer)
            writer.sync()
        return cls(path, manifest, writer)

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        writable: bool = False,
        writer: FileWriter | None = None,
        arity: int | None = 2,
        slots: bool = False,
    ) -> RunFolder:
        """Open the slots of a run, which are its items where it has no log of versions (version_view.py opens those).

        Parameters
        ----------
        path : path
        writable : bool
        writer : FileWriter, optional
        arity : {2, 3, None}
            What the caller can use: runs of pairs, of triples, or either.
        slots : bool
            Whether the caller knows that slots may be no items any more.

        Raises
        ------
        ConfigError
            If it is a run of the other kind.
        RunNotFoundError
            If there is no run.
        CorruptResultError
            If its manifest or array descriptions are damaged.
        StoreError
            If a newer Tartan wrote it, or it cannot be written although ``writable``.
        """
        path = path_of("path", path)
        description = Manifest.load(path)
        if arity is not None and arity != description.arity:
            kinds = {2: "pairs", 3: "triples"}
            raise ConfigError(
                f"{path} is a run of {kinds[description.arity]}, and this is for runs of {kinds[arity]}",
                code="other-arity",
                context={"path": str(path)},
            )
        if writable:
            refuse_links(path, description.outputs)
            writer = writer or FileWriter(path)
        folder = cls(path, description, writer if writable else None)
        if writable and folder.healing:
            with folder.lock():
                pass  # carries it out
        if not writable and not slots and folder.has_log:
            raise InternalError(f"{path} has versions; version_view.py opens one of them for reading")
        return folder

    @property
    def has_log(self) -> bool:
        """Whether an item was ever removed, replaced or renamed. Read anew each time."""
        return (self.path / VERSIONS_NAME).exists() or self.manifest.format >= FORMAT_WITH_LOG

    @contextlib.contextmanager
    def lock(self) -> Iterator[RunFolder]:
        """Hold the exclusive right to write; on leaving, flush everything and merge failures.

        What several writers left is taken over first (writers.py).

        Raises
        ------
        StoreError
            If another process holds it, or one of several writers is alive (code "locked", naming it), or the folder
            cannot be written.
        """
        writer = self._write_access()
        with FolderLock(self.path) as held:
            self._lock, self._may_forget = held, True
            writer.clear_temporary()
            remove_abandoned(self.path, ".", ".tmp")  # exports into the folder
            self._adopt(Manifest.load(self.path))
            self._describe_arrays(self.manifest.n_items)
            self._take_over()
            try:
                self._carry_out(Healing.read(self.path, self.manifest.n_items))
                yield self
            finally:
                self._lock, self._may_forget = None, False
                with contextlib.suppress(DiskFullError):  # the log stays, nothing is lost
                    self._merge_failures()
                self.flush()

    @contextlib.contextmanager
    def join(self, group: str, about: Mapping[str, Any] | None = None, **ways: Any) -> Iterator[RunFolder]:
        """Hold the right to write as one of several writers; on leaving, flush everything.

        Chunks may be committed, and ``write_stats`` writes the statistics of this writer; failures go to a log of its
        own. Nothing is removed, merged or added up: that is for the next process that holds ``lock``.

        Parameters
        ----------
        group : str
            The execution that this writer belongs to; writers of two groups exclude each other.
        about : mapping, optional
            What the lease of this writer says of it; ``what`` is shown where others are told who holds the folder.
        **ways
            ``flock`` and ``name`` of ``SharedLock``, ``step`` of ``Claims``.

        Raises
        ------
        StoreError
            If another process holds the folder alone, or a writer of another group is alive (code "locked", naming
            it), or failures are being taken back (code "healing"), or the folder cannot be written.
        """
        before = self._write_access(), self._log
        step = {name: ways.pop(name) for name in ("step",) if name in ways}
        with SharedLock(self.path, group, about, **ways) as held:
            self._adopt(Manifest.load(self.path))
            if self.healing:
                raise _make_healing_error(self.path)
            writer = before[0].beside(held.place)
            self._lock, self._place, self._writer = held, held.place, writer
            self._log = FailureLog(self.path, writer, held.place)
            self._claims = Claims(self.path, writer, held.place, self.targets, **step)
            try:
                yield self
            finally:
                try:
                    self.flush()
                finally:
                    self._lock, self._place, self._claims = None, self.path, None
                    self._writer, self._log = before

    @property
    def is_shared(self) -> bool:
        """Whether this object writes as one of several writers."""
        return self._claims is not None

    @property
    def has_leftovers(self) -> bool:
        """Whether several writers left something that is not taken over. Read anew each time."""
        return any((self.path / name).exists() for name in (WRITERS_NAME, writers.GONE_NAME, CLAIMS_NAME))

    @property
    def n_parts(self) -> int | None:
        """Into how many parts the run is divided; None where it is not. Read anew each time."""
        return read_n_parts(self.path)

    def divide(self, n_parts: int) -> None:
        """Record into how many parts the run is divided; the caller is one of several writers.

        Raises
        ------
        ConfigError
            If it is divided into another number of parts.
        """
        record_parts(self.path, n_parts, self._write_access())
        self.refuse_other_division(n_parts)

    def refuse_other_division(self, n_parts: int) -> None:
        """Refuse another number of parts than the run is divided into; raises as ``divide``."""
        recorded = self.n_parts
        if recorded not in (None, n_parts):
            raise ConfigError(
                f"{self.path} is divided into {recorded} parts, not {n_parts}: give --part I/{recorded}, or let "
                f"`tartan resume {self.path}` compute what is missing",
                context={"option": "--part", "n_parts": recorded},
            )

    def _take_over(self) -> None:
        """Publish what several writers decided for, keep what failed and what it cost, and remove the rest."""
        writer = self._write_access()
        writers.fence(self.path)
        writer.remove(self.path / writers.RANKS_NAME)
        settle(self.path, self.path / writers.GONE_NAME, writer, self.targets, lambda chunk: self.chunk_state(*chunk))
        found = writers.writers_failures(self.path)
        if found and self._log is not None:
            side = self.manifest.chunk
            blocks = ((row * side, column * side, self.chunk_status(row, column)) for row, column in self.committed())
            statuses = ((row, column, codes) for row, column, codes in blocks if codes is not None)
            true = writers.still_true(found, statuses)
            self._log.replace(read_failures(self.path, true))
        checksums.collect_checksums(self.path, writers.writers_places(self.path), writer)
        writers.keep_statistics(self.path)

    @property
    def checksums(self) -> np.ndarray:
        """Checksums of all items as they were compared, uint64 (n,): NOT_KNOWN where there is none. Read anew."""
        return checksums.read_checksums([self.path, *writers.writers_places(self.path)], self.manifest.n_items)

    def note_checksums(self, items: np.ndarray, sums: np.ndarray) -> None:
        """Record checksums of items, before the first chunk that has scores of them."""
        self._write_access().append(self._place / checksums.FILE_NAME, checksums.encode_checksums(items, sums))

    @property
    def items(self) -> ItemTable | None:
        """Keys and fingerprints, read when first used; None for rows without names."""
        return self._stored_items.table

    @property
    def keys(self) -> Sequence[str]:
        """Stable keys of all items."""
        return self._stored_items.keys

    @property
    def finished(self) -> bool:
        """Whether nothing is left to compute, and what a reduced run keeps is merged. Read anew each time."""
        if self.healing or (self.manifest.reduce is not None and not self.has_result):
            return False
        return self.n_left == 0

    @property
    def has_result(self) -> bool:
        """Whether a reduced run has its merged result, and nothing is seen to be cut off. Read anew each time."""
        return is_parquet(path := self.path / RESULT_NAME) and self._is_of_newest(path)

    def _is_of_newest(self, result: Path) -> bool:
        """Whether a merged result is that of the newest version; without a log there is one."""
        log = self.versions or VersionLog.read(self.path, self.manifest)
        return not log.there or version_of_result(result) == log.last

    @property
    def healing(self) -> bool:
        """Whether failures are being taken back, by this process or by one that was killed then."""
        return (self.path / healing.FILE_NAME).exists()

    @property
    def has_failures(self) -> bool:
        """Whether a pair has failed, itself or with an item. Read anew each time."""
        return bool(self.counts()[FAILED_ITEM:].any())

    @property
    def n_left(self) -> int:
        """Number of pairs that are still to be computed. Read anew each time."""
        return int(self.counts()[NOT_COMPUTED])

    @property
    def sealed(self) -> bool:
        """Whether this user made the folder on this machine, as it is described now."""
        return is_sealed(self.path, self.manifest)

    @property
    def stats(self) -> dict[str, Any]:
        """Statistics that the last ``write_stats`` recorded; empty before."""
        return statistics.read_statistics(self.path)

    def extend(
        self,
        n_items: int,
        items: ItemTable | None = None,
        inputs: Mapping[str, Any] | None = None,
        change: Record | None = None,
    ) -> None:
        """Start a new generation of ``n_items`` items in all: the old ones first, then the new ones.

        Old pairs stay; the chunks at the old edge become partial. Atomic: if killed before the end, the run is
        unchanged. ``inputs`` replaces the manifest's record of where the items come from. ``change`` is what the log
        of versions says of the new generation; a run that has no log needs none.

        Raises
        ------
        ConfigError
            If there are not more items than before, or the old ones are not the first of the new table.
        """
        writer = self._write_access()
        self._check_extension(n_items, items)
        extended = replace(
            self.manifest,
            n_items=n_items,
            generations=[*self.manifest.generations, n_items],
            inputs=dict(inputs) if inputs is not None else self.manifest.inputs,
        )
        if change is not None and self.versions is not None:  # it does not count before the manifest has its generation
            self.write_versions(self.versions.with_record(change))
            extended = replace(extended, format=self.manifest.format)
        if items is not None:
            items.write(self.path, writer)
        self._describe_arrays(n_items)
        self._replace_manifest(extended)
        self._adopt(extended)

    def write_versions(self, log: VersionLog) -> None:
        """Replace the log of versions, atomically; the caller holds the lock. Older Tartans refuse the folder then."""
        writer = self._write_access()
        described = replace(self.manifest, format=FORMAT_WITH_LOG)
        log.write(self.path, writer)
        writer.sync()
        if described != self.manifest:
            self._replace_manifest(described)
        self._adopt(described)

    def commit_kept(
        self,
        chunk: tuple[int, int],
        rows: Rows,
        counts: Sequence[int],
        failures: Sequence[Failure] = (),
        tiles: Collection[Tile] | None = None,
    ) -> int:
        """Commit a chunk of triples, or some tiles of it: from the first of these on older Tartans refuse the folder.

        See ``Ledger.commit_kept``.
        """
        if tiles is not None:
            with self._naming:
                if manifest.FINISHED_TILES not in self.manifest.features:
                    features = [*self.manifest.features, manifest.FINISHED_TILES]
                    described = replace(self.manifest, features=features)
                    self._replace_manifest(described)
                    self.manifest = described
        return super().commit_kept(chunk, rows, counts, failures, tiles)

    def _replace_manifest(self, described: Manifest) -> None:
        """Write another manifest, sealed where this one is."""
        writer, text = self._write_access(), described.to_json().encode()
        if self.sealed:
            write_seal(self.path, text, writer, beside=True)
        writer.sync()
        writer.replace(self.path / manifest.FILE_NAME, [text])
        writer.sync()

    def heal(self, decided: Healing) -> None:
        """Take failures back; the caller holds the lock. Atomic: if killed, the next writer finishes it."""
        decided.write(self.path, self._write_access())
        self._carry_out(decided)

    def forget_failed(self, table: ItemTable | None) -> None:
        """Take all chunks of triples in which something failed, or that have a failed item, out of the ledger.

        The caller holds the lock. Killed in between, failures lack their reasons until they are tried again.

        Parameters
        ----------
        table : ItemTable or None
            The items with the fingerprints of now; None where they have none.
        """
        writer, side, cubes = self._write_access(), self.manifest.chunk, self.cubes
        if cubes is None:
            raise InternalError(f"{self.path} knows which pairs failed, and forgets no whole chunk")
        lines = {failure.i // side for failure in self.failures() if failure.j is None}
        if table is not None:
            table.write(self.path, writer)
        self.forget_result()
        if self._log is not None:
            self._log.replace([])
        for chunk in list(self.committed()):
            if not lines.isdisjoint(cubes.lines_of(chunk)) or self.counts([chunk])[FAILED_ITEM:].any():
                self._forget(*chunk)
        self._adopt(self.manifest)

    def _carry_out(self, decided: Healing | None) -> None:
        """Carry out a decision on failures, whatever of it is done already."""
        if decided is None or self._log is None:
            return
        if self.items is not None and decided.fingerprints:
            decided.table(self.items).write(self.path, self._write_access())
        self.note_checksums(*decided.checksums())
        side = self.manifest.chunk
        for row, column in list(self.committed()):
            status = self.chunk_status(row, column)
            if status is not None:
                ranges = (range(at * side, at * side + length) for at, length in zip((row, column), status.shape))
                self._take_back(row, column, decided.mark_taken_back(status, *ranges))
        self._log.replace(decided.failures)
        self.flush()
        self._write_access().remove(self.path / healing.FILE_NAME)
        self.flush()
        self._adopt(self.manifest)

    def _take_back(self, row: int, column: int, which: np.ndarray) -> None:
        """Make pairs of a chunk pairs that are not computed; a merged result that has them is no longer the result."""
        if self.manifest.reduce is not None and which.any():
            self.forget_result()
        self.take_back(row, column, which)

    def view(self, output: str | None = None, fill: float = np.nan) -> ResultView:
        """Return one output for reading by blocks or bands.

        Raises
        ------
        ConfigError
            If there is no such output, or the run keeps no matrix.
        """
        self._require_dense()
        return ResultView(self, output, fill)

    def array(self, output: str | None = None) -> zarr.Array[Any]:
        """Return an output as a Zarr array (n, n), as stored; raises as ``view``."""
        self._require_dense()
        return self._open_zarr(output_name(self, output))

    def status(self) -> zarr.Array[Any]:
        """Return the ledger as a Zarr array (n, n) of uint8: codes of ``tartan.core.pairs.ledger``."""
        return self._open_zarr(STATUS)

    def _open_zarr(self, name: str) -> zarr.Array[Any]:
        import zarr

        from tartan.base.zarr_store import RegularStore

        class Store(RegularStore):
            """Keeps the folder: a temporary one lasts as long as what reads it."""

            owner = self

        if self.pair_list is not None:
            raise ConfigError(
                f"{self.path} keeps the scores of its pairs in a list, and no Zarr array; matrix(), pairs() and "
                "`tartan export` read them"
            )
        path = self.path / f"{name}.zarr"
        array = zarr.open_array(Store(path, read_only=True), mode="r", zarr_format=3)
        refuse_unsafe(array, str(path))
        return array

    def _require_dense(self) -> None:
        if isinstance(self.results, Parts):
            raise ConfigError(
                f"{self.path} keeps {self.kept}, no matrix: pairs() and `tartan export RUN pairs.parquet` have "
                "what it keeps; run again without that reduction for more"
            )

    def flush(self) -> int:
        """Force everything written since the last call to the disk (fsync); return the number of files."""
        if self._lock is not None:
            self._lock.renew()
        return self._write_access().sync()

    def write_stats(self, stats: Mapping[str, Any], counted: Iterable[str] = ()) -> None:
        """Replace ``stats.json``: of the run, or of this writer where it is one of several.

        Parameters
        ----------
        stats : mapping
        counted : iterable of str, optional
            Writers whose statistics are in these, and count no more.
        """
        self._write_access().replace(
            self._place / writers.STATISTICS_NAME, [statistics.encode_statistics(stats, counted)]
        )

    def write_stats_of(self, name: str, stats: Mapping[str, Any]) -> None:
        """Replace the statistics of one of several writers that does not see this folder; ``name`` is its own."""
        statistics.write_of(self.path / WRITERS_NAME / name, stats, self._write_access())

    def write_trace(self, lines: Iterable[str]) -> None:
        """Replace ``trace.json``."""
        with self._write_access().new_file(self.path / TRACE_NAME) as file:
            file.writelines(line.encode() for line in lines)

    def writers_stats(self) -> dict[str, dict[str, Any]]:
        """Return the statistics of several writers that are not added to those of the run yet, by writer."""
        return statistics.of_writers(self.path)

    def forget_writers_stats(self, names: Iterable[str]) -> None:
        """Remove statistics of several writers, which have been added up; the caller holds the lock."""
        writers.forget_statistics(self.path, names)

    def replace_result(self, write: Callable[[BinaryIO], None]) -> Path:
        """Let ``write`` write the merged result of a reduced run to an open file; return where it is then."""
        target = self.path / RESULT_NAME
        with self._write_access().new_file(target) as file:
            write(file)
        return target

    def forget_result(self) -> None:
        """Remove the merged result of a reduced run, because parts will be added that it lacks."""
        self._write_access().remove(self.path / RESULT_NAME)

    def _merge_failures(self) -> None:
        if self._log is not None:
            self._log.merge()

    def _describe_arrays(self, n_items: int) -> None:
        if self.cubes is not None or self.pair_list is not None:
            return
        arrays = self.results.arrays if isinstance(self.results, Dense) else {}
        dense.describe_all({**arrays, STATUS: self._status}, self._write_access(), n_items)

    def _check_extension(self, n_items: int, table: ItemTable | None) -> None:
        if self.cubes is not None:
            raise ConfigError(f"{self.path} is a run of triples; only runs of pairs take new items")
        manifest.refuse_too_many(n_items, self.manifest.arity)
        old = self.keys
        if n_items <= len(old):
            raise ConfigError(f"{self.path} has {len(old)} items already, {n_items} were given; add new ones")
        if (table is None and self.items is not None) or (table is not None and len(table) != n_items):
            raise ConfigError(f"{self.path}: give the table of all {n_items} items, old and new")
        if table is not None and list(table.keys[: len(old)]) != list(old):
            raise ConfigError(f"{self.path}: the items of the run must come first, in their order")


def _make_healing_error(folder: Path) -> StoreError:
    return StoreError(
        f"{folder}: failures are being taken back, and the process that did it was stopped; run `tartan resume "
        f"{folder}` first",
        code="healing",
        context={"path": str(folder)},
    )
