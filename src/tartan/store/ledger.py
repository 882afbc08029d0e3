"""The chunks of a run and what is known of them: the commit, and everything that reads it back.

The protocol between the writer, a later writer and a reader is in README.md. In one line: the outputs of a chunk
are written first and its status last, so what the status says is there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np

from tartan.base.files import FileWriter
from tartan.core.pairs.grid import Tile
from tartan.core.pairs.ledger import DONE, NOT_COMPUTED, OPENED, Failure
from tartan.errors import ConfigError, CorruptResultError, InternalError, StoreError
from tartan.store.bars import BarKeeper
from tartan.store.claims import (
    TAKEN,
    Claims,
    EncodedChunk,
    File,
    Steps,
    contend,
    find_lacking,
    leave_opened,
    mark_lacking,
)
from tartan.store.cubes import N_CODES, CubeParts, WantedTriples
from tartan.store.dense import Dense
from tartan.store.failures import FailureLog, RecordedCodes, of_items, of_live, read_failures
from tartan.store.grid_io import ChunkArray, is_one_value, make_damaged_error
from tartan.store.keeper import Keeper, Rows
from tartan.store.layout import STATUS
from tartan.store.listed import BLOCK_PAIRS, ListArray, ListedParts, ListedScores
from tartan.store.manifest import Manifest
from tartan.store.pairs import WantedPairs
from tartan.store.reduced import Parts
from tartan.store.writers import writers_failures


class Ledger:
    """The committed chunks of one run folder.

    Attributes
    ----------
    path : Path
    manifest : Manifest
    wanted : WantedPairs or WantedTriples
        Which pairs or triples and chunks the run is asked for.
    cubes : CubeParts or None
        What a run of triples has in place of a status and ``results``; None of one of pairs.
    writable : bool
    """

    def __init__(self, path: Path, manifest: Manifest, writer: FileWriter | None) -> None:
        self.path = path
        self.writable = writer is not None
        self._writer = writer
        self._log = FailureLog(path, writer) if writer is not None else None
        self._may_forget = False  # set by the holder of the run lock
        self._claims: Claims | None = None  # set where this is one of several writers
        self.manifest = manifest
        self.live: np.ndarray | None = None  # which slots are items still; None for all (versions.py)
        # What pairs that a removal opened are here (opening.py): done for who reads a version that had them.
        self.opened_code = NOT_COMPUTED if writer is not None else DONE
        self.opened: np.ndarray | None = None  # slots of which no pair is marked yet, bool (n,)
        self._recorded = RecordedCodes(path)
        # Of a list of pairs whose scores lie in a list, too; None: in chunks.
        self.pair_list = ListedScores(path, manifest) if manifest.is_listed else None
        self._codes = None if manifest.arity > 2 else self._open_status()
        self._adopt(manifest)

    def _open_status(self) -> ChunkArray:
        if self.pair_list is not None:
            return ListArray(self.pair_list, None, self.manifest)
        return ChunkArray.open(self.path / f"{STATUS}.zarr", np.dtype(np.uint8), self.manifest.chunk)

    def _adopt(self, manifest: Manifest) -> None:
        self.manifest = manifest
        listed = self.pair_list
        own = listed is not None and self.live is None
        self.wanted: WantedPairs | WantedTriples
        self.wanted = listed.wanted if own and listed else WantedPairs(manifest, self.path, self.live)
        self.cubes: CubeParts | None = None
        self._results: Dense | Parts | None = None
        if manifest.arity > 2:
            self.wanted = WantedTriples(manifest)
            self.cubes = CubeParts(self.path, manifest, self.wanted)
        else:
            self._results = self._open_results(manifest)

    def _open_results(self, manifest: Manifest) -> Dense | Parts:
        listed = self.pair_list
        if listed is not None and manifest.reduce is not None:
            return ListedParts(self.path, manifest, listed)
        if listed is not None:
            return Dense({name: ListArray(listed, name, manifest) for name in manifest.outputs})
        if manifest.reduce is None:
            return Dense.open(self.path, manifest)
        return Parts(self.path, manifest, self._status_of_rows, self._all_done)

    @property
    def pairs(self) -> WantedPairs:
        """Which pairs and chunks a run of pairs is asked for; a ConfigError where triples are compared."""
        if not isinstance(self.wanted, WantedPairs):
            raise self._of_triples()
        return self.wanted

    @property
    def results(self) -> Dense | Parts:
        """Where the scores of a run of pairs go; a ConfigError where triples are compared."""
        if self._results is None:
            raise self._of_triples()
        return self._results

    @property
    def status_array(self) -> ChunkArray:
        """The codes of a run of pairs, as they are stored."""
        return self._status

    @property
    def _status(self) -> ChunkArray:
        """The codes of a run of pairs."""
        if self._codes is None:
            raise self._of_triples()
        return self._codes

    @property
    def _known(self) -> ChunkArray | CubeParts:
        """What says how the pairs or triples of chunks ended."""
        return self.cubes or self._status

    def _of_triples(self) -> ConfigError:
        return ConfigError(
            f"{self.path} is a run of triples, and keeps no pairs; `tartan export` has what it keeps",
            code="other-arity",
            context={"path": str(self.path)},
        )

    @property
    def kept(self) -> str:
        """What the run keeps, in words."""
        rule = self.manifest.reduce
        if rule is None:
            return "the whole matrix"
        largest, cells = bool(rule.get("largest")), "pairs" if self.cubes is None else "triples"
        if rule["kind"] == "top-k":
            order = "largest" if largest else "smallest"
            if self.cubes is None:
                return f"the {rule['k']} {order} scores of each item"
            return f"the {rule['k']} triples of each item with the {order} scores"
        return f"{cells} of {rule['threshold']:g} and {'above' if largest else 'below'}"

    def failures(self) -> list[Failure]:
        """Return all failures, items first."""
        return of_items(read_failures(self.path, writers_failures(self.path)), self.manifest.n_items)

    def committed(self) -> Iterator[tuple[int, int]]:
        """Yield the chunks of which something is known, row by row."""
        yield from (chunk for chunk in self._known.list_written() if self.wanted.has_chunk(*chunk))
        self.require_kept()

    def require_kept(self) -> None:
        """Refuse to go on reading a version that has expired since it was opened: what was read may be gone."""

    def committed_of_slots(self) -> Iterator[tuple[int, int]]:
        """Yield the chunks of which something is stored, wanted or not: also those of slots that are not items."""
        return (chunk for chunk in self._known.list_written() if chunk[0] <= chunk[1])

    def committed_ns(self, row: int, column: int) -> int | None:
        """Return when a chunk was committed last, in nanoseconds since 1970; None if it was not."""
        try:
            return self._status.chunk_path(min(row, column), max(row, column)).stat().st_mtime_ns
        except OSError:
            return None

    def commit_times(self) -> list[tuple[float, int]]:
        """Return when each chunk was committed last, in seconds since 1970, and how many pairs or triples it has."""
        times = []
        for row, column in self.committed():
            with contextlib.suppress(OSError):
                at = self._known.chunk_path(row, column).stat().st_mtime
                times.append((at, self.wanted.n_in(row, column)))
        return times

    def chunk_shape(self, row: int, column: int) -> tuple[int, int]:
        """Return the number of rows and columns of a chunk, clipped to the items."""
        n, side = self.manifest.n_items, self.manifest.chunk
        return min(side, n - row * side), min(side, n - column * side)

    def chunk_status(self, row: int, column: int) -> np.ndarray | None:
        """Return the codes of a chunk, uint8 (rows, columns), or None when nothing is known of it.

        A damaged status counts as unknown: everything in its chunk is then to be computed.
        """
        codes = self.stored_status(row, column)
        return self._without_opened(codes, row, column) if codes is not None and self.opens else codes

    def stored_status(self, row: int, column: int) -> np.ndarray | None:
        """Return what ``chunk_status`` does, with OPENED where that is stored."""
        try:
            block = self._status.read(row, column)
        except CorruptResultError:
            block = None
        self.require_kept()
        return None if block is None else self._clip(block, row, column)

    @property
    def opens(self) -> bool:
        """Whether the run keeps the best of each item, of which a removal may take some."""
        return self.manifest.arity == 2 and (self.manifest.reduce or {}).get("kind") == "top-k"

    def _without_opened(self, codes: np.ndarray, row: int, column: int) -> np.ndarray:
        """Return the codes of a chunk in which pairs that a removal opened are done, or not computed."""
        if codes.max(initial=0) >= OPENED:
            done = self.opened_code == DONE
            now = (
                np.uint8(DONE)
                if done
                else self._recorded.codes_of(self.pairs.rect(row, column), codes.shape, self.failures)
            )
            codes = np.where(codes == OPENED, now, codes)
        if self.opened is not None:
            side, (n_rows, n_columns) = self.manifest.chunk, codes.shape
            rows, columns = self.opened[row * side :][:n_rows], self.opened[column * side :][:n_columns]
            touched = rows[:, None] | columns[None, :]
            codes = np.where((codes == DONE) & touched, np.uint8(NOT_COMPUTED), codes)
        return codes

    def _status_of_rows(self, row: int, column: int) -> np.ndarray | None:
        """Return the codes of a chunk by which rows of its part count: what was compared counts though it is opened."""
        codes = self.stored_status(row, column)
        return codes if codes is None or not self.opens else np.where(codes == OPENED, np.uint8(DONE), codes)

    def _all_done(self, row: int, column: int) -> bool:
        """Whether all pairs of a whole chunk are done: told by its bytes, which are those of nearly all others."""
        try:
            counts = self._status.count(row, column, N_CODES)
        except CorruptResultError:
            counts = None
        self.require_kept()
        return counts is not None and int(counts[DONE]) == self.manifest.chunk**2

    def has_opened(self) -> bool:
        """Whether a pair of two items is opened, failed since or not."""
        for row, column in self.committed() if self.opens else ():
            codes, (r0, r1, c0, c1) = self.stored_status(row, column), self.pairs.rect(row, column)
            if codes is not None and self.live is not None:
                codes = codes[np.ix_(self.live[r0:r1], self.live[c0:c1])]
            if codes is not None and (codes == OPENED).any():
                return True
        return False

    def score_status(self, row: int, column: int) -> np.ndarray | None:
        """Return the codes of the scores of a block of the matrix; below the diagonal those of its mirror image.

        Only chunks of the upper triangle are the ledger; what ``status.zarr`` holds below it is for other readers.
        """
        if row <= column:
            return self.chunk_status(row, column)
        status = self.chunk_status(column, row)
        return None if status is None else status.T

    def read_chunk(self, name: str, row: int, column: int) -> np.ndarray | None:
        """Return an output of a chunk, (rows, columns), or None when it is not committed.

        Raises
        ------
        CorruptResultError
            If it does not match its checksum, or is gone although the ledger knows the chunk.
        """
        if not isinstance(self.results, Dense):
            raise StoreError(f"{self.path} keeps {self.kept}, no matrix")
        if not self._status.exists(min(row, column), max(row, column)):
            self.require_kept()
            return None
        array = self.results.arrays[name]
        block = array.read(row, column)
        self.require_kept()
        if block is None:
            raise make_damaged_error(array.chunk_path(row, column), "is gone")
        return self._clip(block, row, column)

    def verify_chunk(self, row: int, column: int) -> bool:
        """Whether all outputs of a chunk are there and match their checksums."""
        if self.cubes is not None:
            return self.cubes.verify(row, column)
        mirrored = isinstance(self.results, Dense) and self.pairs.both_ways and row != column
        return self.results.verify(row, column) and (not mirrored or self.results.verify(column, row))

    def counts(self, chunks: Iterable[tuple[int, int]] | None = None) -> np.ndarray:
        """Return the number of wanted pairs or triples of each code of the ledger, int64 (4,).

        Parameters
        ----------
        chunks : iterable of (I, J), optional
            Default: all chunks of the run.
        """
        total, wanted = np.zeros(N_CODES, np.int64), 0
        if self.pair_list is not None and chunks is None:
            return np.bincount(self._live_codes(self.pair_list), minlength=N_CODES).astype(np.int64)[:N_CODES]
        for row, column in self.committed() if chunks is None else chunks:
            wanted += 0 if chunks is None else self.wanted.n_in(row, column)
            with contextlib.suppress(CorruptResultError):
                scores, itself = self._scores_of(row, column)
                total += scores if not self._halves else (scores + itself) // 2
        wanted = self.wanted.n_scores if chunks is None else wanted
        total[NOT_COMPUTED] = wanted - int(total[NOT_COMPUTED + 1 :].sum())
        return total

    def _live_codes(self, listed: ListedScores) -> np.ndarray:
        """Return the codes of the pairs of a list whose slots are items still."""
        return listed.codes if self.live is None else listed.codes[self.live[listed.pairs].all(axis=1)]

    def n_known(self) -> int:
        """Return the number of scores that are there or have failed: cells of the matrix, of both directions."""
        if not self._halves:
            return int(self.counts()[NOT_COMPUTED + 1 :].sum())
        found = np.zeros(N_CODES, np.int64)
        for chunk in self.committed():
            with contextlib.suppress(CorruptResultError):
                found += self._scores_of(*chunk)[0]
        return int(found[NOT_COMPUTED + 1 :].sum())

    @property
    def _halves(self) -> bool:
        """Whether the two scores of a pair count as one."""
        return self.wanted.both_ways and not self.wanted.counted_twice

    def _scores_of(self, row: int, column: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the number of scores of each code in a chunk and its mirror image, and of items with themselves.

        The second is counted only where pairs are halves of it.
        """
        itself = np.zeros(N_CODES, np.int64)
        if self.live is not None or self.opens:
            counts = self._count_live(row, column)
        else:
            counts = self._known.count(row, column, N_CODES)
        if counts is None:
            return itself, itself
        if self._has_mirror((row, column)):
            return 2 * counts, itself
        if self._halves and self.pairs.with_itself(*self.pairs.rect(row, column)[:2]).any():
            status = self.chunk_status(row, column)
            if status is not None:
                codes = np.diagonal(status)
                codes = codes if self.live is None else codes[self.live[slice(*self.pairs.rect(row, row)[:2])]]
                itself = np.bincount(codes, minlength=N_CODES).astype(np.int64)
        return counts, itself

    def _count_live(self, row: int, column: int) -> np.ndarray | None:
        """Count the codes of the pairs of a chunk whose slots are items still."""
        status = self.chunk_status(row, column)
        if status is None:
            return None
        if self.live is None:
            return np.bincount(status.ravel(), minlength=N_CODES).astype(np.int64)
        (r0, r1, c0, c1) = self.pairs.rect(row, column)
        codes = status[np.ix_(self.live[r0:r1], self.live[c0:c1])]
        return np.bincount(codes.ravel(), minlength=N_CODES).astype(np.int64)

    def missing(
        self, chunks: Iterable[tuple[int, int]] | None = None, *, verify: bool = True
    ) -> dict[tuple[int, int], np.ndarray]:
        """Return the chunks that are not finished, each with the pairs to compute.

        Parameters
        ----------
        chunks : iterable of (I, J), optional
            Default: all chunks of the run.
        verify : bool
            Whether to read all outputs and check them. A chunk that fails loses its status (where the folder is
            locked for writing) and is missing as a whole.

        Returns
        -------
        dict of (I, J) to bool array (rows, columns)
        """
        found = {}
        for row, column in self.pairs.chunks() if chunks is None else chunks:
            status = self.chunk_status(row, column)
            if status is not None and verify and not self.verify_chunk(row, column):
                self._forget(row, column)
                status = None
            wanted = self.pairs.mask(row, column)
            if status is not None:
                wanted &= status == NOT_COMPUTED
            if wanted.any():
                found[row, column] = wanted
        return found

    def lacking(self, *, verify: bool = True) -> list[tuple[int, int]]:
        """Return the chunks that are not finished; ``verify`` as for ``missing``."""
        if self.pair_list is not None:
            return self._lacking_of_list(self.pair_list, verify=verify)
        if self.cubes is None:
            return list(self.missing(verify=verify))
        whole = set[tuple[int, int]]()
        for chunk in list(self.committed()):
            if verify and not self.cubes.verify(*chunk):
                self._forget(*chunk)
            elif self.counts([chunk])[NOT_COMPUTED] == 0:
                whole.add(chunk)
        return [chunk for chunk in self.wanted.chunks() if chunk not in whole]

    def _lacking_of_list(self, listed: ListedScores, *, verify: bool) -> list[tuple[int, int]]:
        """Return the chunks of pairs that are not computed; damaged blocks are removed where that is allowed."""
        writer = self._writer if verify and self._may_forget else None
        for block in range(listed.n_blocks) if writer is not None else ():
            if listed.block_path(block).exists() and not listed.verify(block) and writer is not None:
                writer.remove(listed.block_path(block))
        left = listed.codes == NOT_COMPUTED
        if self.live is not None:
            left &= self.live[listed.pairs].all(axis=1)
        chunks = np.unique(listed.pairs[left] // self.manifest.chunk, axis=0)
        return [(row, column) for row, column in chunks.tolist()]

    def commit(
        self,
        row: int,
        column: int,
        outputs: Mapping[str, np.ndarray] | None,
        status: np.ndarray,
        failures: Sequence[Failure] = (),
        mirrored: Mapping[str, np.ndarray] | None = None,
        *,
        last: bool = True,
    ) -> bool:
        """Commit a chunk, or some of its pairs. Different chunks may be committed by several threads at once.

        Several writers may commit the same chunk: of each pair one version counts, and what the ledger has stays.

        Parameters
        ----------
        outputs : dict of arrays (rows, columns), or None
            Clipped to the items; only scores whose status is DONE are kept, the others get the fill value. None where
            the keeper of a reduced run has chosen from all tiles of the chunk.
        status : uint8 array (rows, columns)
            Pairs with NOT_COMPUTED are not touched: what an earlier commit said of them stays.
        failures : sequence of Failure
            The reasons that belong to the codes in ``status``.
        mirrored : dict of arrays (columns, rows), optional
            Scores of (j, i), in runs that are not symmetric; they share the codes of (i, j).
        last : bool
            Whether no other pairs of the chunk follow in this execution.

        Returns
        -------
        bool
            Whether a pair of this version counts; else those of another writer do, and are published.

        Raises
        ------
        DiskFullError
            If the disk is full; the chunk is then as it was before.
        """
        self._write_access()
        outputs, status, mirrored = self._one_block(row, column, outputs, status, mirrored)
        self.add_failures(failures)
        self._choose((row, column), outputs, status, mirrored)
        if self._claims is None:
            state, before = self._before(row, column)
            status = leave_opened(before, status)
            won = before is None or bool((status != NOT_COMPUTED).any())
            if won:
                self._publish((row, column), state, self._files((row, column), outputs, status, mirrored, before))
        else:
            won = self._claims.take(self._contend((row, column), outputs, status, mirrored, self._claims))
        if isinstance(self.results, Parts):
            self.results.on_published((row, column), counts=won, last=last)
        return won

    def _contend(
        self,
        chunk: tuple[int, int],
        outputs: Mapping[str, np.ndarray] | None,
        status: np.ndarray,
        mirrored: Mapping[str, np.ndarray] | None,
        claims: Claims,
    ) -> Steps:
        """Return the steps by which one of several writers commits a chunk."""

        def publishing(state: str, lacking: np.ndarray, before: np.ndarray | None) -> Steps:
            return claims.publishing(chunk, state, self._files(chunk, outputs, lacking, mirrored, before))

        return contend(status, partial(self._before, *chunk), publishing)

    def commit_kept(
        self,
        chunk: tuple[int, int],
        rows: Rows,
        counts: Sequence[int],
        failures: Sequence[Failure] = (),
        tiles: Collection[Tile] | None = None,
    ) -> int:
        """Commit a chunk of triples: what is kept of it, and how all ended. Different threads may, different chunks.

        Parameters
        ----------
        chunk : (int, int)
        rows : dict of arrays
        counts : sequence of int (4,)
        failures : sequence of Failure
        tiles : collection of Tile, optional
            Those that all this is of, where others follow; default: all that were left.

        Returns
        -------
        int
            Bytes of the part.
        """
        writer = self._write_access()
        if self.cubes is None:
            raise InternalError(f"{self.path} knows how each pair ended, and takes no numbers of chunk {chunk}")
        self.add_failures(failures)
        path, data = self.cubes.file(chunk, rows, counts, tiles)
        writer.replace(path, data)
        return sum(len(part) for part in data)

    def encode(
        self,
        row: int,
        column: int,
        outputs: Mapping[str, np.ndarray] | None,
        status: np.ndarray,
        failures: Sequence[Failure] = (),
        mirrored: Mapping[str, np.ndarray] | None = None,
    ) -> EncodedChunk:
        """Return a finished chunk as the bytes of its files, for another process to commit; see ``commit``.

        Where some of its pairs are in the ledger already there are no files, and ``commit_encoded`` commits nothing.
        """
        outputs, status, mirrored = self._one_block(row, column, outputs, status, mirrored)
        state, before = self._before(row, column)
        status = leave_opened(before, status)
        nothing = before is not None and not (status != NOT_COMPUTED).any()
        if nothing or find_lacking(mark_lacking(before), status) is not status:
            return EncodedChunk((row, column), TAKEN, (), tuple(failures))
        self._choose((row, column), outputs, status, mirrored)
        files = self._files((row, column), outputs, status, mirrored, before)
        whole = tuple(b"".join(bytes(memoryview(part).cast("B")) for part in buffers) for _, buffers in files)
        return EncodedChunk((row, column), state, whole, tuple(failures))

    def commit_encoded(self, encoded: EncodedChunk) -> bool:
        """Commit a chunk that another process encoded; its scores are looked at only where it has changed since.

        Returns
        -------
        bool
            Whether this version counts, whole.

        Raises
        ------
        InternalError
            If it is not a chunk of this run.
        """
        self._write_access()
        (row, column), targets = encoded.chunk, self.targets(encoded.chunk)
        n_chunks = -(-self.manifest.n_items // self.manifest.chunk)
        taken = encoded.state == TAKEN and not encoded.files
        if not 0 <= row <= column < n_chunks or not (taken or len(targets) == len(encoded.files)):
            raise InternalError(f"chunk {encoded.chunk} with {len(encoded.files)} files does not belong to this run")
        self.add_failures(encoded.failures)
        if taken:
            return False
        files = ((path, [data]) for path, data in zip(targets, encoded.files, strict=True))
        unchanged = self.chunk_state(row, column) == encoded.state
        # Who lost may have lost to a piece: what that lacks is lacking still.
        return (unchanged and self._publish(encoded.chunk, encoded.state, files)) or self._commit_rest(encoded)

    def _commit_rest(self, encoded: EncodedChunk) -> bool:
        """Commit the pairs of an encoded chunk that the ledger lacks by now; return whether those are all."""
        chunk, files, shape = encoded.chunk, encoded.files, self.chunk_shape(*encoded.chunk)
        status = mark_lacking(self._clip(self._status.decode(files[-1], *chunk), *chunk))
        assert status is not None
        lacks_all = find_lacking(mark_lacking(self._before(*chunk)[1]), status) is status
        if isinstance(self.results, Parts):
            self.results.take_in(chunk, files[0])
            return self.commit(*chunk, None, status) and lacks_all
        outputs, mirrored = self.results.decode(chunk, files, shape, mirrored=self._has_mirror(chunk))
        return self.commit(*chunk, outputs, status, mirrored=mirrored) and lacks_all

    def chunk_state(self, row: int, column: int) -> str:
        """Return what names the state of a chunk, as its status is now; it changes with each commit of the chunk."""
        return self._status.digest(row, column)

    def _publish(self, chunk: tuple[int, int], state: str, files: Iterable[File]) -> bool:
        writer = self._write_access()
        if self._claims is not None:
            return self._claims.publish(chunk, state, files)
        for path, buffers in files:
            writer.replace(path, buffers)
        return True

    def _before(self, row: int, column: int) -> tuple[str, np.ndarray | None]:
        """Return what a chunk is now: the name of its state, and its codes."""
        state, block = self._status.read_named(row, column)
        return state, None if block is None else self._clip(block, row, column)

    def _choose(
        self,
        chunk: tuple[int, int],
        outputs: Mapping[str, np.ndarray] | None,
        status: np.ndarray,
        mirrored: Mapping[str, np.ndarray] | None,
    ) -> None:
        """Let a reduced run choose from the scores of a commit, once."""
        if isinstance(self.results, Parts) and outputs is not None:
            self.results.choose(chunk, outputs, _mark_done(status), mirrored)

    def _files(
        self,
        chunk: tuple[int, int],
        outputs: Mapping[str, np.ndarray] | None,
        status: np.ndarray,
        mirrored: Mapping[str, np.ndarray] | None,
        before: np.ndarray | None,
    ) -> Iterator[File]:
        """Return the files of a commit in the order of ``targets``, made one by one; what earlier ones said stays."""
        mirror = self._has_mirror(chunk)
        older = None if before is None else (status == NOT_COMPUTED) & (before != NOT_COMPUTED)
        again = None if before is None else (before == OPENED) & (status <= DONE)  # what old versions have of it stays
        if before is None or older is None or again is None or not (older.any() or again.any()):
            files = self.results.files(chunk, outputs, _mark_done(status), mirrored)
        else:
            files = self.results.files(chunk, outputs, status == DONE, mirrored, older & (before == DONE) | again)
            status = np.where(older, before, status)
        ends = [(chunk[::-1], status.T)] if mirror else []
        return chain(files, (self._status.file(*end, codes) for end, codes in [*ends, (chunk, status)]))

    def targets(self, chunk: tuple[int, int]) -> list[Path]:
        """Return all files of a chunk in the order in which a commit publishes them: the status last."""
        if self.pair_list is not None:
            blocks = np.unique(self.pair_list.of_chunk(*chunk) // BLOCK_PAIRS)
            return [self.pair_list.block_path(block) for block in blocks.tolist()]
        mirrored = self._has_mirror(chunk)
        ends = [chunk[::-1], chunk] if mirrored else [chunk]
        return [*self.results.targets(chunk, mirrored=mirrored), *(self._status.chunk_path(*end) for end in ends)]

    def _has_mirror(self, chunk: tuple[int, int]) -> bool:
        return self.wanted.both_ways and chunk[0] != chunk[1]

    def take_back(self, row: int, column: int, which: np.ndarray) -> None:
        """Make pairs of a committed chunk (bool, its shape) pairs that are not computed; the others stay."""
        status = self.stored_status(row, column)
        if status is None or not which.any():
            return
        self.set_codes(row, column, np.where(which, NOT_COMPUTED, status))

    def set_codes(self, row: int, column: int, codes: np.ndarray) -> None:
        """Replace the codes of a committed chunk; the caller holds the lock."""
        writer, status = self._write_access(), codes.astype(np.uint8)
        if self.pair_list is not None:
            of = self.pair_list.of_chunk(row, column)
            i, j = (self.pair_list.pairs[of] - np.array([row, column]) * self.manifest.chunk).T
            self.pair_list.set_codes(writer, of, status[i, j])
            return
        if self._has_mirror((row, column)):
            writer.replace(*self._status.file(column, row, status.T))
        writer.replace(*self._status.file(row, column, status))

    def new_keeper(self) -> Keeper | BarKeeper | None:
        """Start to choose from tiles anew, for one execution of a reduced run; None where the whole matrix is kept."""
        if self.cubes is not None:
            return self.cubes.new_keeper()
        if not isinstance(self.results, Parts):
            return None
        return self.results.new_keeper(chunk_by_chunk=self._claims is not None)

    def part_of(self, chunk: tuple[int, int]) -> Path:
        """Return the file that says what a reduced run keeps of a chunk."""
        return self.results.targets(chunk, mirrored=False)[0] if self.cubes is None else self.cubes.chunk_path(*chunk)

    def add_failures(self, failures: Sequence[Failure]) -> None:
        """Record failures; a failed item needs one record, however many pairs it takes along.

        Of slots that are no items any more none is recorded: others stand in for them when chunks are loaded.
        """
        self._write_access()
        failures = of_live(failures, self.live)
        if failures and self._log is not None:
            self._log.add(failures)

    def _clip(self, block: np.ndarray, row: int, column: int) -> np.ndarray:
        rows, columns = self.chunk_shape(row, column)
        return block[:rows, :columns]

    def _forget(self, row: int, column: int) -> None:
        if self._may_forget and self._writer is not None:
            paths = self.targets((row, column)) if self.pair_list is not None else None
            for path in paths or [self._known.chunk_path(row, column)]:
                self._writer.remove(path)

    def _write_access(self) -> FileWriter:
        if self._writer is None:
            raise StoreError(f"{self.path} was opened for reading", code="read-only")
        return self._writer

    def _one_block(
        self,
        row: int,
        column: int,
        outputs: Mapping[str, np.ndarray] | None,
        status: np.ndarray,
        mirrored: Mapping[str, np.ndarray] | None,
    ) -> tuple[Mapping[str, np.ndarray] | None, np.ndarray, Mapping[str, np.ndarray] | None]:
        """Check what is committed; on the diagonal join the two halves, which lie in one chunk."""
        status = np.asarray(status, np.uint8)
        self._check_block(row, column, outputs, status, mirrored)
        if row != column or not self.pairs.both_ways:
            return outputs, status, mirrored
        above = status != NOT_COMPUTED
        if outputs is not None:
            if mirrored is None:
                return outputs, status, None
            outputs = {name: np.where(above, block, mirrored[name]) for name, block in outputs.items()}
        return outputs, np.where(above, status, status.T), None

    def _check_block(
        self,
        row: int,
        column: int,
        outputs: Mapping[str, np.ndarray] | None,
        status: np.ndarray,
        mirrored: Mapping[str, np.ndarray] | None,
    ) -> None:
        shape = self.chunk_shape(row, column)
        if status.shape != shape:
            raise InternalError(f"chunk ({row}, {column}) has {shape} pairs, {status.shape} codes were given")
        if outputs is None:
            return
        for name in self.manifest.outputs:
            if name not in outputs or outputs[name].shape != shape:
                raise InternalError(f"chunk ({row}, {column}): {shape} scores of {name!r} are needed")
        if not self.pairs.both_ways and mirrored is not None:
            raise InternalError(f"chunk ({row}, {column}): this run has no mirrored scores")
        if self.pairs.both_ways and mirrored is None and row != column:
            raise InternalError(f"chunk ({row}, {column}): mirrored scores are missing")


def _mark_done(status: np.ndarray) -> np.ndarray | None:
    """Return which codes are DONE; None for all, which is nearly always and costs no memory to find out."""
    if (status[0, 0] == DONE) if is_one_value(status) else (status.min() == DONE == status.max()):
        return None
    return np.asarray(status == DONE)
