"""The chunks of a run and what is known of them: the commit, and everything that reads it back.

The protocol between the writer, a later writer and a reader is in README.md. In one line: the outputs of a chunk
are written first and its status last, so what the status says is there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from tartan.base.files import FileWriter
from tartan.core.ledger import DONE, FAILED_PAIR, NOT_COMPUTED, Failure
from tartan.errors import CorruptResultError, InternalError, StoreError
from tartan.store.claims import Claims, File
from tartan.store.dense import Dense
from tartan.store.failures import FailureLog, read_failures
from tartan.store.grid_io import ChunkArray, damaged, is_one_value
from tartan.store.keeper import Keeper
from tartan.store.layout import STATUS
from tartan.store.manifest import Manifest
from tartan.store.pairs import WantedPairs
from tartan.store.reduced import Parts
from tartan.store.writers import writers_failures

N_CODES = FAILED_PAIR + 1
TAKEN = "taken"
"""State of an encoded chunk that was in the ledger when it was encoded."""


@dataclass(frozen=True)
class EncodedChunk:
    """A finished chunk as the bytes of its files: what one process sends and another commits.

    Attributes
    ----------
    chunk : (int, int)
    state : str
        Of the chunk that it was made from.
    files : tuple of bytes
        In the order of publication.
    failures : tuple of Failure
        Reasons of its failed items and pairs.
    """

    chunk: tuple[int, int]
    state: str
    files: tuple[bytes, ...]
    failures: tuple[Failure, ...] = ()


class Ledger:
    """The committed chunks of one run folder.

    Attributes
    ----------
    path : Path
    manifest : Manifest
    pairs : WantedPairs
        Which pairs and chunks the run is asked for.
    results : Dense or Parts
        Where scores go.
    writable : bool
    """

    def __init__(self, path: Path, manifest: Manifest, writer: FileWriter | None) -> None:
        self.path = path
        self.writable = writer is not None
        self._writer = writer
        self._log = FailureLog(path, writer) if writer is not None else None
        self._may_forget = False  # set by the holder of the run lock
        self._claims: Claims | None = None  # set where this is one of several writers
        self._open_status()
        self._adopt(manifest)

    def _open_status(self) -> None:
        self._status = ChunkArray.open(self.path / f"{STATUS}.zarr")

    def _adopt(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self.pairs = WantedPairs(manifest, self.path)
        self.results: Dense | Parts = (
            Dense.open(self.path, manifest) if manifest.reduce is None else Parts(self.path, manifest)
        )

    @property
    def kept(self) -> str:
        """What the run keeps, in words."""
        rule = self.manifest.reduce
        if rule is None:
            return "the whole matrix"
        largest = bool(rule.get("largest"))
        if rule["kind"] == "top-k":
            return f"the {rule['k']} {'largest' if largest else 'smallest'} scores of each item"
        return f"pairs of {rule['threshold']:g} and {'above' if largest else 'below'}"

    def failures(self) -> list[Failure]:
        """Return all failures, items first."""
        return read_failures(self.path, writers_failures(self.path))

    def committed(self) -> Iterator[tuple[int, int]]:
        """Yield the chunks that have a status, row by row."""
        return (chunk for chunk in self._status.written() if self.pairs.has_chunk(*chunk))

    def committed_ns(self, row: int, column: int) -> int | None:
        """Return when a chunk was committed last, in nanoseconds since 1970; None if it was not."""
        try:
            return self._status.chunk_path(min(row, column), max(row, column)).stat().st_mtime_ns
        except OSError:
            return None

    def commit_times(self) -> list[tuple[float, int]]:
        """Return when each chunk was committed last, in seconds since 1970, and how many pairs it has."""
        times = []
        for row, column in self.committed():
            with contextlib.suppress(OSError):
                at = self._status.chunk_path(row, column).stat().st_mtime
                times.append((at, self.pairs.n_in(row, column)))
        return times

    def chunk_shape(self, row: int, column: int) -> tuple[int, int]:
        """Return the number of rows and columns of a chunk, clipped to the items."""
        n, side = self.manifest.n_items, self.manifest.chunk
        return min(side, n - row * side), min(side, n - column * side)

    def chunk_status(self, row: int, column: int) -> np.ndarray | None:
        """Return the codes of a chunk, uint8 (rows, columns), or None when nothing is known of it.

        A damaged status counts as unknown: everything in its chunk is then to be computed.
        """
        try:
            block = self._status.read(row, column)
        except CorruptResultError:
            return None
        return None if block is None else self._clip(block, row, column)

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
            return None
        array = self.results.arrays[name]
        block = array.read(row, column)
        if block is None:
            raise damaged(array.chunk_path(row, column), "is gone")
        return self._clip(block, row, column)

    def verify_chunk(self, row: int, column: int) -> bool:
        """Whether all outputs of a chunk are there and match their checksums."""
        mirrored = isinstance(self.results, Dense) and self.pairs.both_ways and row != column
        return self.results.verify(row, column) and (not mirrored or self.results.verify(column, row))

    def counts(self, chunks: Iterable[tuple[int, int]] | None = None) -> np.ndarray:
        """Return the number of wanted pairs of each code of the ledger, int64 (4,).

        Parameters
        ----------
        chunks : iterable of (I, J), optional
            Where to count; default: all chunks of the run.
        """
        total, wanted = np.zeros(N_CODES, np.int64), 0
        for row, column in self.committed() if chunks is None else chunks:
            wanted += 0 if chunks is None else self.pairs.n_in(row, column)
            with contextlib.suppress(CorruptResultError):
                scores, itself = self._scores_of(row, column)
                total += scores if not self._halves else (scores + itself) // 2
        wanted = self.pairs.n_pairs if chunks is None else wanted
        total[NOT_COMPUTED] = wanted - int(total[NOT_COMPUTED + 1 :].sum())
        return total

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
        return self.pairs.both_ways and not self.pairs.counted_twice

    def _scores_of(self, row: int, column: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the number of scores of each code in a chunk and its mirror image, and of items with themselves.

        The second is counted only where pairs are halves of it.
        """
        itself = np.zeros(N_CODES, np.int64)
        counts = self._status.count(row, column, N_CODES)
        if counts is None:
            return itself, itself
        if self._has_mirror((row, column)):
            return 2 * counts, itself
        if self._halves and self.pairs.with_itself(*self.pairs.rect(row, column)[:2]).any():
            status = self.chunk_status(row, column)
            if status is not None:
                itself = np.bincount(np.diagonal(status), minlength=N_CODES).astype(np.int64)
        return counts, itself

    def missing(
        self, chunks: Iterable[tuple[int, int]] | None = None, *, verify: bool = True
    ) -> dict[tuple[int, int], np.ndarray]:
        """Return the chunks that are not finished, each with the pairs to compute.

        Parameters
        ----------
        chunks : iterable of (I, J), optional
            Where to look; default: all chunks of the run.
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

    def commit(
        self,
        row: int,
        column: int,
        outputs: Mapping[str, np.ndarray] | None,
        status: np.ndarray,
        failures: Sequence[Failure] = (),
        mirrored: Mapping[str, np.ndarray] | None = None,
    ) -> bool:
        """Commit a chunk. Different chunks may be committed by several threads at once.

        Where this is one of several writers, all of them may commit the same chunk: one version counts, whole, and
        what the ledger has is never replaced.

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

        Returns
        -------
        bool
            Whether this version counts. False: another writer's does, and is published.

        Raises
        ------
        DiskFullError
            If the disk is full; the chunk is then as it was before.
        """
        self._write_access()
        outputs, status, mirrored = self._one_block(row, column, outputs, status, mirrored)
        self.add_failures(failures)
        state, before = self._before(row, column)
        if self._claims is not None and _overlap(before, status):
            self._drop_chosen((row, column))
            return False
        won = self._publish((row, column), state, self._files((row, column), outputs, status, mirrored, before))
        if isinstance(self.results, Parts):
            self.results.published((row, column), counts=won)
        return won

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
        if _overlap(before, status):
            self._drop_chosen((row, column))
            return EncodedChunk((row, column), TAKEN, (), tuple(failures))
        files = self._files((row, column), outputs, status, mirrored, before)
        whole = tuple(b"".join(bytes(memoryview(part).cast("B")) for part in buffers) for _, buffers in files)
        return EncodedChunk((row, column), state, whole, tuple(failures))

    def commit_encoded(self, encoded: EncodedChunk) -> bool:
        """Commit a chunk that another process encoded; its scores are not looked at.

        Returns
        -------
        bool
            As ``commit``; False too where the chunk is not any more what it was encoded from.

        Raises
        ------
        InternalError
            If it is no chunk of this run.
        """
        self._write_access()
        (row, column), targets = encoded.chunk, self.targets(encoded.chunk)
        n_chunks = -(-self.manifest.n_items // self.manifest.chunk)
        taken = encoded.state == TAKEN and not encoded.files
        if not 0 <= row <= column < n_chunks or not (taken or len(targets) == len(encoded.files)):
            raise InternalError(f"chunk {encoded.chunk} with {len(encoded.files)} files is none of this run")
        self.add_failures(encoded.failures)
        if taken or self.chunk_state(row, column) != encoded.state:
            return False
        files = ((path, [data]) for path, data in zip(targets, encoded.files, strict=True))
        return self._publish(encoded.chunk, encoded.state, files)

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
        """Return what a chunk is now: the name of its state, and its codes as ``chunk_status`` does."""
        state, block = self._status.read_named(row, column)
        return state, None if block is None else self._clip(block, row, column)

    def _drop_chosen(self, chunk: tuple[int, int]) -> None:
        """Forget what was chosen from the tiles of a chunk whose version does not count."""
        if isinstance(self.results, Parts):
            self.results.keeper.take(chunk)

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
        if before is None or older is None or not older.any():
            files = self.results.files(chunk, outputs, _done(status), mirrored)
        else:
            files = self.results.files(chunk, outputs, status == DONE, mirrored, older & (before == DONE))
            status = np.where(older, before, status)
        ends = [(chunk[::-1], status.T)] if mirror else []
        return chain(files, (self._status.file(*end, codes) for end, codes in [*ends, (chunk, status)]))

    def targets(self, chunk: tuple[int, int]) -> list[Path]:
        """Return all files of a chunk in the order in which a commit publishes them: the status last."""
        mirrored = self._has_mirror(chunk)
        ends = [chunk[::-1], chunk] if mirrored else [chunk]
        return [*self.results.targets(chunk, mirrored=mirrored), *(self._status.chunk_path(*end) for end in ends)]

    def _has_mirror(self, chunk: tuple[int, int]) -> bool:
        return self.pairs.both_ways and chunk[0] != chunk[1]

    def take_back(self, row: int, column: int, which: np.ndarray) -> None:
        """Make pairs of a committed chunk (bool, its shape) pairs that are not computed; the others stay."""
        status = self.chunk_status(row, column)
        if status is None or not which.any():
            return
        writer, status = self._write_access(), np.where(which, NOT_COMPUTED, status).astype(np.uint8)
        if self._has_mirror((row, column)):
            writer.replace(*self._status.file(column, row, status.T))
        writer.replace(*self._status.file(row, column, status))

    def new_keeper(self) -> Keeper | None:
        """Start to choose from tiles anew, for one execution of a reduced run; None where the whole matrix is kept."""
        if not isinstance(self.results, Parts):
            return None
        return self.results.new_keeper(chunk_by_chunk=self._claims is not None)

    def add_failures(self, failures: Sequence[Failure]) -> None:
        """Record failures; a failed item needs one record, however many pairs it takes along."""
        self._write_access()
        if failures and self._log is not None:
            self._log.add(failures)

    def _clip(self, block: np.ndarray, row: int, column: int) -> np.ndarray:
        rows, columns = self.chunk_shape(row, column)
        return block[:rows, :columns]

    def _forget(self, row: int, column: int) -> None:
        if self._may_forget and self._writer is not None:
            self._writer.remove(self._status.chunk_path(row, column))

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


def _overlap(before: np.ndarray | None, status: np.ndarray) -> bool:
    """Whether some pairs of a commit are in the ledger already."""
    return before is not None and bool(((before != NOT_COMPUTED) & (status != NOT_COMPUTED)).any())


def _done(status: np.ndarray) -> np.ndarray | None:
    """Return which codes are DONE; None for all, which is nearly always and costs no memory to find out."""
    if (status[0, 0] == DONE) if is_one_value(status) else (status.min() == DONE == status.max()):
        return None
    return np.asarray(status == DONE)
