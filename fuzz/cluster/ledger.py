"""The chunks of a simulated run: few cells each, in files whose bytes name the commit that made them.

Which cells a commit takes, whose version counts and in which order files appear is decided by ``store/claims.py``;
here is only what is in the files. Every commit writes other numbers, so that one which replaces another is seen.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path

import numpy as np

from fuzz.cluster.disk import SimulatedFolder
from fuzz.cluster.host import ROOT
from tartan.core.pairs.ledger import DONE, NOT_COMPUTED

Chunk = tuple[int, int]
SIDE = 2
CELLS = SIDE * SIDE


@cache
def wanted_cells(chunk: Chunk) -> np.ndarray:
    """Return which cells of a chunk are pairs, bool (4,)."""
    return np.array([chunk[0] != chunk[1] or cell == 1 for cell in range(CELLS)])


@cache
def path_of(kind: str, chunk: Chunk) -> Path:
    """Return where a file of a chunk lies."""
    return ROOT / kind / f"{chunk[0]}.{chunk[1]}"


@cache
def key_of(kind: str, chunk: Chunk) -> str:
    """Return what the disk calls a file of a chunk."""
    return f"{kind}/{chunk[0]}.{chunk[1]}"


def targets(chunk: Chunk) -> list[Path]:
    """Return the files of a chunk in the order of their publication."""
    return [path_of("scores", chunk), path_of("status", chunk)]


def pack(payload: bytes) -> bytes:
    """Return the contents of a file with their checksum."""
    return zlib.crc32(payload).to_bytes(4, "little") + payload


@lru_cache(1 << 14)
def unpack(data: bytes) -> bytes | None:
    """Return what a file says; None where it is damaged."""
    if len(data) < 5 or zlib.crc32(data[4:]) != int.from_bytes(data[:4], "little"):
        return None
    return data[4:]


@lru_cache(1 << 14)
def read_status(data: bytes) -> tuple[str, np.ndarray | None]:
    """Return the name of the state that a status makes, and its codes."""
    codes = unpack(data)
    return f"{zlib.crc32(data):08x}", None if codes is None else np.frombuffer(codes, np.uint8)


@lru_cache(1 << 14)
def find_lacking(data: bytes | None, on_diagonal: bool) -> np.ndarray | None:
    """Return which cells of a chunk a status lacks, None where none: of one on the diagonal or of another."""
    wanted = wanted_cells((0, 0) if on_diagonal else (0, 1))
    codes = None if data is None else read_status(data)[1]
    left = wanted if codes is None else wanted & (codes == NOT_COMPUTED)
    return left if left.any() else None


class SimulatedLedger:
    """The chunks of a run as one process reads and writes them."""

    def __init__(self, folder: SimulatedFolder) -> None:
        self._folder = folder

    def _bytes(self, kind: str, chunk: Chunk) -> bytes | None:
        return self._folder.peek(key_of(kind, chunk))

    def read(self, chunk: Chunk) -> tuple[str, np.ndarray | None]:
        """Return the name of the state of a chunk, and its codes."""
        data = self._bytes("status", chunk)
        return ("0", None) if data is None else read_status(data)

    def state(self, chunk: Chunk) -> str:
        """Return the name of the state of a chunk."""
        return self.read(chunk)[0]

    def scores(self, chunk: Chunk) -> np.ndarray | None:
        """Return the numbers of a chunk; None where they are damaged."""
        data = self._bytes("scores", chunk)
        payload = None if data is None else unpack(data)
        return None if payload is None else np.frombuffer(payload, np.uint32)

    def lacking(self, chunk: Chunk) -> np.ndarray | None:
        """Return which cells are still to be computed; None where none is."""
        return find_lacking(self._bytes("status", chunk), chunk[0] == chunk[1])

    def verify(self, chunk: Chunk) -> bool:
        """Whether the scores of a chunk are whole."""
        return self.scores(chunk) is not None

    def files(
        self, chunk: Chunk, status: np.ndarray, before: np.ndarray | None, version: int
    ) -> Iterator[tuple[Path, list[bytes]]]:
        """Yield the files of a commit; what an earlier one said stays."""
        scores = np.where(status == DONE, np.uint32(version), np.uint32(0))
        if before is not None:
            older = (status == NOT_COMPUTED) & (before != NOT_COMPUTED)
            if older.any():
                there = self.scores(chunk)
                scores = np.where(older, 0 if there is None else there, scores).astype(np.uint32)
                status = np.where(older, before, status).astype(np.uint8)
        yield path_of("scores", chunk), [pack(scores.tobytes())]
        yield path_of("status", chunk), [pack(status.astype(np.uint8).tobytes())]
