"""The result of a list of pairs as a list: scores and codes in the order of the list, without chunks of a matrix.

A list of millions of pairs touches tens of thousands of chunks, in each of which nearly nothing is a score. Where an
application scores single pairs, the folder has ``listed/0``, ``listed/1``, ...: each *block* has ``BLOCK_PAIRS`` pairs
of ``candidates.npy`` in their order, the last one fewer: for each output the scores, little endian, then a code of the
ledger (uint8) a pair, then the crc32c of all that, in four bytes. A block exists when its pairs were computed, whole or
not at all; there is no other ledger.

Everything that reads chunks reads them through ``ListArray``, which makes a chunk of what the list has of it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tartan.base.checksum import crc32c
from tartan.base.files import FileWriter, open_regular
from tartan.core.pairs.ledger import DONE, NOT_COMPUTED
from tartan.core.pairs.workload import Candidates
from tartan.errors import CorruptResultError, InternalError, StoreError
from tartan.store.grid_io import ChunkArray, fill_value, list_numbered, make_damaged_error
from tartan.store.keeper import Rows
from tartan.store.manifest import Manifest
from tartan.store.pairs import WantedPairs
from tartan.store.reduced import Parts

FOLDER_NAME = "listed"
# By judgement: 5 MB of float32 and codes, written in milliseconds, and lost by a kill a tenth of a second of work.
BLOCK_PAIRS = 1 << 20
"""Pairs of a block."""

# By format.
_CRC_BYTES = 4
_CODE = np.dtype(np.uint8)


class ListedScores:
    """Scores and codes of all pairs of a list, in its order.

    Parameters
    ----------
    folder : Path
        The run folder.
    manifest : Manifest

    Attributes
    ----------
    wanted : WantedPairs
        The pairs of all slots, removed ones included.
    """

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.path = folder / FOLDER_NAME
        self._outputs = {name: dtype.newbyteorder("=") for name, dtype in manifest.outputs.items()}
        self.wanted = WantedPairs(manifest, folder)
        self._manifest = manifest
        self._read: dict[int, tuple[int, int]] = {}  # what blocks that were read were: time of change, inode
        self._codes: np.ndarray | None = None
        self._scores: dict[str, np.ndarray] = {}
        self._chunks: tuple[dict[tuple[int, int], slice], np.ndarray] | None = None

    @property
    def pairs(self) -> np.ndarray:
        """The pairs, int64 (m, 2), by i and then by j."""
        workload = self.wanted.workload
        assert isinstance(workload, Candidates)
        return workload.pairs

    @property
    def n_blocks(self) -> int:
        """Number of blocks of a finished run."""
        return -(-len(self.pairs) // BLOCK_PAIRS)

    def block_path(self, block: int) -> Path:
        """Return the file of a block."""
        return self.path / str(block)

    def span(self, block: int) -> slice:
        """Return which pairs of the list a block has."""
        return slice(block * BLOCK_PAIRS, min(len(self.pairs), (block + 1) * BLOCK_PAIRS))

    def write_block(self, writer: FileWriter, block: int, scores: Mapping[str, np.ndarray], codes: np.ndarray) -> None:
        """Commit a block; scores of pairs that are not done become the fill value."""
        body = []
        for name, dtype in self._outputs.items():
            values = np.where(codes == DONE, scores[name], fill_value(dtype))
            body.append(values.astype(dtype.newbyteorder("<"), copy=False).tobytes())
        body.append(codes.astype(_CODE, copy=False).tobytes())
        data = b"".join(body)
        writer.replace(self.block_path(block), [data, crc32c(np.frombuffer(data, np.uint8)).to_bytes(4, "little")])

    def read_block(self, block: int) -> tuple[dict[str, np.ndarray], np.ndarray] | None:
        """Return the scores and codes of a block, None where it is not there.

        Raises
        ------
        CorruptResultError
            If it does not match its checksum.
        StoreError
            If the system refuses to read it.
        """
        path, span = self.block_path(block), self.span(block)
        n = span.stop - span.start
        n_bytes = n * (1 + sum(dtype.itemsize for dtype in self._outputs.values())) + _CRC_BYTES
        try:
            with open_regular(path, buffering=0) as file:
                data = np.fromfile(file, np.uint8, min(os.fstat(file.fileno()).st_size, n_bytes + 1))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(f"{path} cannot be read: {error.strerror}", context={"path": str(path)}) from error
        body, found = data[:-_CRC_BYTES], data[-_CRC_BYTES:]
        if len(data) != n_bytes or crc32c(body) != int.from_bytes(found.tobytes(), "little"):
            raise make_damaged_error(path, "does not match its checksum")
        scores, at = {}, 0
        for name, dtype in self._outputs.items():
            values = body[at : at + n * dtype.itemsize].view(dtype.newbyteorder("<"))
            scores[name], at = values.astype(dtype), at + n * dtype.itemsize
        return scores, body[at:]

    def lacking(self, *, verify: bool = True) -> list[int]:
        """Return the blocks that are not there, are damaged, or have pairs that are not computed."""
        found = []
        for block in range(self.n_blocks):
            try:
                read = self.read_block(block) if verify or self.block_path(block).exists() else None
            except CorruptResultError:
                read = None
            if read is None or bool((read[1] == NOT_COMPUTED).any()):
                found.append(block)
        return found

    def verify(self, block: int) -> bool:
        """Whether a block is there and matches its checksum."""
        try:
            return self.read_block(block) is not None
        except CorruptResultError:
            return False

    @property
    def codes(self) -> np.ndarray:
        """The codes of all pairs, uint8 (m,); 0 of those in blocks that are absent or damaged."""
        self._refresh()
        assert self._codes is not None
        return self._codes

    def scores(self, name: str) -> np.ndarray:
        """Return an output of all pairs, (m,); the fill value where it is not known.

        Raises
        ------
        CorruptResultError
            If a block is damaged.
        """
        self._refresh(strict=True)
        return self._scores[name]

    def chunks(self) -> tuple[dict[tuple[int, int], slice], np.ndarray]:
        """Return where the pairs of each chunk lie: slices of an order of the list, and that order, int64 (m,)."""
        if self._chunks is None:
            side, n = self._manifest.chunk, self._manifest.n_items
            across = -(-n // side)
            of = self.pairs[:, 0] // side * across + self.pairs[:, 1] // side
            order = np.argsort(of, kind="stable")
            names, starts = np.unique(of[order], return_index=True)
            ends = [*starts[1:].tolist(), len(of)]
            slices = zip(names.tolist(), starts.tolist(), ends, strict=True)
            self._chunks = {divmod(name, across): slice(a, b) for name, a, b in slices}, order
        return self._chunks

    def of_chunk(self, row: int, column: int) -> np.ndarray:
        """Return which pairs of the list a chunk has, int64 (p,)."""
        slices, order = self.chunks()
        return order[slices.get((row, column), slice(0, 0))]

    def known_chunks(self) -> Iterator[tuple[int, int]]:
        """Yield the chunks of which a pair is known, row by row."""
        slices, order = self.chunks()
        known = self.codes[order] != NOT_COMPUTED
        if known.all():
            yield from slices
            return
        yield from (chunk for chunk, part in slices.items() if known[part].any())

    def set_codes(self, writer: FileWriter, which: np.ndarray, codes: np.ndarray) -> None:
        """Replace the codes of some pairs of the list; the caller holds the lock."""
        for block in np.unique(which // BLOCK_PAIRS).tolist():
            span, read = self.span(block), self.read_block(block)
            if read is not None:
                here = which // BLOCK_PAIRS == block
                changed = read[1].copy()
                changed[which[here] - span.start] = codes[here]
                self.write_block(writer, block, read[0], changed)

    def _refresh(self, *, strict: bool = False) -> None:
        """Read blocks that came or changed since they were read."""
        if self._codes is None:
            m = len(self.pairs)
            self._codes = np.zeros(m, _CODE)
            self._scores = {name: np.full(m, fill_value(dtype), dtype) for name, dtype in self._outputs.items()}
        there = {block for block in list_numbered(self.path) if block < self.n_blocks}
        for block in sorted(there | set(self._read)):
            span, stamp = self.span(block), self._stamp(block)
            if stamp is not None and self._read.get(block) == stamp:
                continue
            try:
                read = None if stamp is None else self.read_block(block)
            except CorruptResultError:
                if strict:
                    raise
                read = None
            if read is None or stamp is None:
                self._codes[span] = NOT_COMPUTED
                self._read.pop(block, None)
                continue
            self._codes[span] = read[1]
            for name, values in read[0].items():
                self._scores[name][span] = values
            self._read[block] = stamp

    def _stamp(self, block: int) -> tuple[int, int] | None:
        try:
            found = self.block_path(block).stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ino


class ListArray(ChunkArray):
    """An output of a list of pairs, or its codes, chunk by chunk, for reading.

    Parameters
    ----------
    pair_list : ListedScores
    name : str or None
        An output; None for the codes.
    manifest : Manifest
    """

    def __init__(self, pair_list: ListedScores, name: str | None, manifest: Manifest) -> None:
        dtype = _CODE if name is None else manifest.outputs[name]
        super().__init__(pair_list.path, dtype, manifest.chunk, compressed=False)
        self._list, self._name = pair_list, name

    def describe(self, writer: FileWriter, n_items: int) -> None:
        """Do nothing: a list has no shape."""

    def chunk_path(self, row: int, column: int) -> Path:
        """Return the block that has the first pair of a chunk."""
        of = self._list.of_chunk(row, column)
        return self._list.block_path(int(of[0]) // BLOCK_PAIRS if len(of) else 0)

    def exists(self, row: int, column: int) -> bool:
        """Whether a pair of the chunk is known."""
        return bool((self._list.codes[self._list.of_chunk(row, column)] != NOT_COMPUTED).any())

    def list_written(self) -> Iterator[tuple[int, int]]:
        """Yield the chunks of which a pair is known, row by row."""
        return self._list.known_chunks()

    def read(self, row: int, column: int) -> np.ndarray | None:
        """Return a chunk as ``ChunkArray.read`` does."""
        of, codes = self._list.of_chunk(row, column), self._list.codes
        if not (codes[of] != NOT_COMPUTED).any():
            return None
        found = np.full((self.chunk, self.chunk), _CODE.type(0) if self._name is None else self.fill, self.dtype)
        corner = np.array([row, column]) * self.chunk
        i, j = (self._list.pairs[of] - corner).T
        found[i, j] = codes[of] if self._name is None else self._list.scores(self._name)[of]
        return found

    def read_named(self, row: int, column: int) -> tuple[str, np.ndarray | None]:
        """Return what names the codes of a chunk, and the chunk."""
        return self.digest(row, column), self.read(row, column)

    def digest(self, row: int, column: int) -> str:
        """Return what names the codes of a chunk."""
        codes = self._list.codes[self._list.of_chunk(row, column)]
        return hashlib.blake2b(codes.tobytes(), digest_size=8).hexdigest() if codes.any() else "0"

    def verify(self, row: int, column: int) -> bool:
        """Whether the blocks that have pairs of a chunk are there and match their checksums."""
        blocks = np.unique(self._list.of_chunk(row, column) // BLOCK_PAIRS)
        return all(self._list.verify(block) for block in blocks.tolist())

    def count(self, row: int, column: int, n_codes: int) -> np.ndarray | None:
        """Return how often each code occurs among the pairs of a chunk."""
        codes = self._list.codes[self._list.of_chunk(row, column)]
        return np.bincount(codes, minlength=n_codes).astype(np.int64) if codes.any() else None

    def file(
        self, row: int, column: int, block: np.ndarray, keep: np.ndarray | None = None
    ) -> tuple[Path, Sequence[Any]]:
        """Refuse: blocks of a list are written, not chunks."""
        raise InternalError(f"{self.path} holds a list of pairs, and takes no chunk")


class ListedParts(Parts):
    """What a threshold run keeps of a list of pairs: chosen from the list when it is read."""

    def __init__(self, folder: Path, manifest: Manifest, pair_list: ListedScores) -> None:
        super().__init__(folder, manifest)
        self._list = pair_list

    def targets(self, chunk: tuple[int, int], *, mirrored: bool = False) -> list[Path]:
        """Return the blocks that have pairs of a chunk."""
        blocks = np.unique(self._list.of_chunk(*chunk) // BLOCK_PAIRS)
        return [self._list.block_path(block) for block in blocks.tolist()]

    def n_rows(self, row: int, column: int) -> int:
        """Return the number of pairs that are kept of a chunk."""
        return len(self._rows(self._list.of_chunk(row, column))["i"])

    def verify(self, row: int, column: int) -> bool:
        """Whether the blocks that have pairs of a chunk are there and match their checksums."""
        return all(self._list.verify(int(path.name)) for path in self.targets((row, column)))

    def bands(self, chunks: Iterator[tuple[int, int]]) -> Iterator[Rows]:
        """Yield what is kept of the given chunks: of all of them in the order of the list."""
        listed = list(chunks)
        if len(listed) == len(self._list.chunks()[0]):
            for block in range(self._list.n_blocks):
                span = self._list.span(block)
                yield self._rows(np.arange(span.start, span.stop))
            return
        for chunk in sorted(listed):
            yield self._rows(self._list.of_chunk(*chunk))

    def _read_groups(self, row: int, column: int) -> tuple[Rows, Rows]:
        return self._rows(self._list.of_chunk(row, column)), self.keeper.empty()

    def _rows(self, of: np.ndarray) -> Rows:
        """Return what is kept of some pairs of the list."""
        decides = self._list.scores(self.keeper.output)[of]
        kept = of[(self._list.codes[of] == DONE) & self.keeper.keeps(decides)]
        pairs = self._list.pairs[kept]
        outputs = {name: self._list.scores(name)[kept] for name in self._manifest.outputs}
        return {"i": pairs[:, 0], "j": pairs[:, 1], **outputs}
