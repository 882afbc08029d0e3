"""The run files that a rank keeps: in folders of its own, sorted by its engine, served to others piece by piece."""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tartan._native import SortFailure, SortPieces, run_facts
from tartan.base.confined import ConfinedFolder, make_private
from tartan.base.files import disk_errors
from tartan.base.lock import FILE_NAME as LOCK_NAME
from tartan.base.lock import FolderLock
from tartan.cluster import wire
from tartan.cluster.bulk import Parcel
from tartan.core.sorting.shares import ChunkGrid
from tartan.errors import StoreError, TransportError
from tartan.sort.work import MANIFEST_NAME

_RUN_FILE = re.compile(r"run-([0-9a-f]+)-([0-9a-f]+)-0\.trun")
_OURS = re.compile(r"run-[0-9a-f]+-[0-9a-f]+-\d+\.trun(\.part)?|manifest\.(json|part)")
# By judgement: more ranks of one sort than one machine holds (MOST_LOCAL of cluster/launch).
_MOST_FOLDERS = 1024
# By judgement: an answer of some requests to a disk, so that an answer is read while one before it is sent. No
# benchmark.
ANSWER_BYTES = 1 << 20
"""Of the records of one answer, unless a block is larger."""
# By arithmetic: ANSWER_BYTES each; what a rank holds for others besides its own work.
ANSWERS_AT_ONCE = 3

Piece = tuple[int, int, int]
"""A chunk, the first record that is wanted of its run, and the one behind the last."""
Key = Sequence[tuple[int, str, bool]]


@dataclass(frozen=True)
class PieceHead:
    """What comes with the stored blocks of a piece.

    Attributes
    ----------
    chunk : int
    block_records, records : int
        Records of a block of the run, and of the run.
    first : int
        Number of the first block.
    begin, end : int
        The records that are wanted.
    sizes, checksums : bytes
        Of the blocks, as little-endian numbers of 4 bytes.
    """

    chunk: int
    block_records: int
    records: int
    first: int
    begin: int
    end: int
    sizes: bytes
    checksums: bytes


@dataclass
class RankFolders:
    """Folders of one rank in its temporary folders; a context manager that holds them.

    Ranks of one machine may share a temporary folder, so each takes the first folder that no other holds. What a rank
    that is gone has left in its folders is found by the next.

    Attributes
    ----------
    parents : sequence of Path
    name : str
        Of the job.
    job : str
        The manifest.
    fingerprint : bytes
        Which run files are of this job.
    note : callable
    """

    parents: Sequence[Path]
    name: str
    job: str
    fingerprint: bytes
    note: Callable[[str], None]
    paths: list[Path] = field(default_factory=list)
    _locks: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def __enter__(self) -> RankFolders:
        for number in range(_MOST_FOLDERS):
            if self._take(number):
                self._write_manifest()
                return self
        raise StoreError(f"{self.parents[0]} holds {_MOST_FOLDERS} folders of this sort; remove {self.name}*")

    def __exit__(self, *_: object) -> None:
        self._locks.close()

    def _take(self, number: int) -> bool:
        """Take one folder in every temporary folder; none if another rank holds one of them."""
        paths = [parent / f"{self.name}-{number}" for parent in self.parents]
        with contextlib.ExitStack() as stack:
            for path in paths:
                with disk_errors(path):
                    make_private(path, option="--tmp")
                    ConfinedFolder(path).refuse_links(path)
                try:
                    stack.enter_context(FolderLock(path))
                except StoreError as error:
                    if error.code != "locked":
                        raise
                    return False
            self.paths += paths
            self._locks.push(stack.pop_all())
        return True

    def take_left(self) -> None:
        """Take also the folders that are left of ranks that are gone."""
        for number in range(_MOST_FOLDERS):
            paths = [parent / f"{self.name}-{number}" for parent in self.parents]
            if not any(path.exists() for path in paths):
                return
            if not set(paths) & set(self.paths):
                self._take(number)

    def find_runs(self, grid: ChunkGrid) -> dict[int, Path]:
        """Return the whole run files of this job by chunk; remove what is not."""
        found: dict[int, Path] = {}
        for folder in self.paths:
            for name, _ in ConfinedFolder(folder).entries(folder):
                if not _OURS.fullmatch(name) or name == MANIFEST_NAME:
                    continue
                chunk = self._chunk_of(folder / name, grid)
                if chunk is None or chunk in found:
                    self.remove(folder / name)
                else:
                    found[chunk] = folder / name
        return found

    def _chunk_of(self, path: Path, grid: ChunkGrid) -> int | None:
        if not _RUN_FILE.fullmatch(path.name):
            return None
        try:
            facts = run_facts(str(path))
        except SortFailure as failure:
            self.note(f"run file {path} is incomplete or damaged ({failure}); its records are sorted again")
            return None
        first, end = facts["first_record"], facts["first_record"] + facts["records"]
        chunk = int(first) // grid.chunk_records
        if bytes(facts["fingerprint"]) != self.fingerprint or grid.range_of(chunk) != (first, end):
            self.note(f"run file {path} is of other sources, another key or other memory; it is sorted again")
            return None
        return chunk

    def remove(self, path: Path) -> None:
        """Remove a file in one of the folders."""
        ConfinedFolder(path.parent).remove(path, missing_ok=True)

    def remove_all(self) -> None:
        """Remove the folders with all that is in them, also those left of ranks that are gone."""
        with contextlib.suppress(StoreError, OSError):
            self.take_left()
        self.remove_own()

    def remove_own(self) -> None:
        """Remove the folders that this rank holds, with all that is in them."""
        for path in self.paths:
            folder = ConfinedFolder(path)
            with contextlib.suppress(OSError, StoreError):
                for name, _ in list(folder.entries(path)):
                    if _OURS.fullmatch(name) or name == LOCK_NAME:
                        folder.remove(path / name, missing_ok=True)
                ConfinedFolder(path.parent).remove_folder(path)

    def remove_empty(self) -> None:
        """Remove the folders in which there is no run file."""
        if not any(_RUN_FILE.fullmatch(name) for path in self.paths for name, _ in ConfinedFolder(path).entries(path)):
            self.remove_own()

    def _write_manifest(self) -> None:
        path = self.paths[0] / MANIFEST_NAME
        temporary, folder = path.with_suffix(".part"), ConfinedFolder(path.parent)
        text = json.dumps({"fingerprint": self.fingerprint.hex(), "job": json.loads(self.job)}, indent=1)
        with disk_errors(path):
            folder.remove(temporary, missing_ok=True)
            with folder.new_file(temporary, 0o600) as file:
                file.write(f"{text}\n".encode())
            folder.move(temporary, path)


def find_chunk_records(parents: Sequence[Path], name: str, fingerprint: bytes) -> int:
    """Return the records of the chunks of an earlier attempt at the same job whose run files are here; 0 without any.

    Parameters
    ----------
    parents, name, fingerprint
        As of ``RankFolders``; who holds the folders does not matter.
    """
    largest: dict[int, Path] = {}
    for path in (path for parent in parents for path in parent.glob(f"{name}-*/run-*.trun")):
        match = _RUN_FILE.fullmatch(path.name)
        if match is not None:
            largest[int(match[2], 16)] = path
    for records in sorted(largest, reverse=True):
        with contextlib.suppress(SortFailure):
            if bytes(run_facts(str(largest[records]))["fingerprint"]) == fingerprint:
                return records
    return 0


def sweep(parents: Sequence[Path], name: str) -> None:
    """Remove what ranks that are gone have left in their folders, once nothing of it is needed."""
    folders = RankFolders(parents, name, "{}", b"", lambda text: None)
    folders.remove_all()
    folders.__exit__()


class RunShelf:
    """The runs that a rank keeps, open for questions of other ranks.

    Parameters
    ----------
    record_bytes : int
    key : sequence of (int, str, bool)
    """

    def __init__(self, record_bytes: int, key: Key) -> None:
        self._record_bytes, self._key = record_bytes, list(key)
        self._lock = threading.Lock()
        self._runs: dict[int, tuple[Path, SortPieces, dict[str, int]]] = {}
        self._room = threading.BoundedSemaphore(ANSWERS_AT_ONCE)

    def put(self, chunk: int, path: Path) -> int:
        """Open the run of a chunk; return the bytes of its blocks as they are stored."""
        pieces = SortPieces(str(path), record_bytes=self._record_bytes, key=self._key)
        facts = pieces.facts()
        with self._lock:
            self._runs[chunk] = (path, pieces, facts)
        return int(facts["data_bytes"])

    def drop(self, chunk: int) -> Path | None:
        """Forget the run of a chunk; return its path."""
        with self._lock:
            found = self._runs.pop(chunk, None)
        return found[0] if found else None

    def pieces(self, chunk: int) -> SortPieces:
        """Return the run of a chunk."""
        return self._find(chunk)[0]

    def _find(self, chunk: int) -> tuple[SortPieces, dict[str, int]]:
        with self._lock:
            if chunk not in self._runs:
                raise TransportError(f"this rank does not keep the run of chunk {chunk}")
            _, pieces, facts = self._runs[chunk]
        return pieces, facts

    def serve(self, request: bytes) -> Parcel:
        """Answer another rank: blocks of some pieces; see ``fetch_pieces``."""
        wanted = wire.decode(request, list[tuple[int, int, int]])
        self._room.acquire()
        try:
            heads, stored = self.read(wanted)
        except BaseException:
            self._room.release()
            raise
        return Parcel(wire.encode(heads), [memoryview(stored.data)], self._room.release)

    def read(self, wanted: Sequence[Piece]) -> tuple[list[PieceHead], NDArray[np.uint8]]:
        """Return the blocks in which pieces lie, one behind the other."""
        heads, places = [], []
        for chunk, begin, end in wanted:
            pieces, facts = self._find(chunk)
            per_block = facts["block_records"]
            if not 0 <= begin < end <= facts["records"]:
                raise TransportError(f"the run of chunk {chunk} has no records {begin} to {end}")
            first, last = begin // per_block, -(-end // per_block)
            sizes, checksums = pieces.blocks(first, last - first)
            texts = [array.astype("<u4", copy=False).tobytes() for array in (sizes, checksums)]
            heads.append(PieceHead(chunk, per_block, facts["records"], first, begin, end, *texts))
            places.append((pieces, first, last - first, int(sizes.sum(dtype=np.int64))))
        stored = np.empty(sum(n_bytes for *_, n_bytes in places), np.uint8)
        at = 0
        for pieces, first, count, n_bytes in places:
            pieces.read(first, count, stored[at : at + n_bytes])
            at += n_bytes
        return heads, stored


def cut_requests(
    pieces: Sequence[tuple[int, str, int, int]], block_records: int, record_bytes: int
) -> Iterator[tuple[str, list[Piece]]]:
    """Yield where to ask for which pieces at a time, in the order of the pieces, each answer of ``ANSWER_BYTES``.

    Parameters
    ----------
    pieces : sequence of (int, str, int, int)
        Chunk, address, first record, and the one behind the last.
    block_records, record_bytes : int
        A piece is cut at whole blocks.
    """
    most = max(1, ANSWER_BYTES // (record_bytes * block_records)) * block_records
    waiting: list[Piece] = []
    where, n_waiting = "", 0
    for chunk, address, begin, end in pieces:
        while begin < end:
            # Two pieces that share a block fetch it twice, so pieces end with blocks.
            stop = min(end, (begin // block_records) * block_records + most)
            if waiting and (address != where or n_waiting + stop - begin > most or len(waiting) >= MOST_PIECES):
                yield where, waiting
                waiting, n_waiting = [], 0
            where = address
            waiting.append((chunk, begin, stop))
            n_waiting += stop - begin
            begin = stop
    if waiting:
        yield where, waiting


# By arithmetic: three numbers of up to 9 bytes each in msgpack stay below REQUEST_LIMIT of cluster/bulk (64 KiB), and
# their heads below its HEAD_LIMIT.
MOST_PIECES = 1024
