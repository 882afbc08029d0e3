"""The pairs of a run in the order of their scores, out of core: nearest first, or only the nearest of all.

A pair is a word of 64 bits where score and indices fit (single precision, up to 65,536 items), else a record of
score, i and j. Either way equal scores are in the order of i, then j, and pairs without a score come last.

Asked for a number of pairs, the scores are counted by their upper 16 bits first; then only pairs that can be among
the first are sorted. So the best million of a billion pairs cost two readings of the matrix, and no disk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tartan._native import count_pairs, decode_pairs, encode_pairs
from tartan.base.machine import held_bytes
from tartan.base.shown_names import show_names
from tartan.errors import ConfigError
from tartan.options import parse_bytes
from tartan.sort.stages import BlockSorter
from tartan.sort.work import check_folders
from tartan.store.export import ExportOptions, new_export
from tartan.store.pair_files import KEYS, write_pairs
from tartan.store.reduced import Parts
from tartan.store.tables import chunks_both_ways, key_column, pair_rows
from tartan.store.view import output_name, require_real

if TYPE_CHECKING:
    import pyarrow as pa

    from tartan.store.folder import RunFolder

# By judgement: LEAST_MEMORY_BYTES of sort/table_job (300 MB) and a band of the run. `tartan bench sort`: 350 MB for
# 10**8 pairs.
LEAST_MEMORY_BYTES = 400 * 10**6
"""What Arrow, a chunk of the run and the engine need at least."""
# By contract: MOST_ITEMS of crates/tartan-kernels/src/pairs.rs.
WORD_ITEMS = 1 << 16
# BAND_PAIRS and BATCH_PAIRS, by judgement: arrays of 16 and 4 MiB, within the least memory. `tartan bench sort`
# measures them.
BAND_PAIRS = 1 << 21
# By judgement, see BAND_PAIRS.
BATCH_PAIRS = 1 << 19
# By format: the last of 32 bits.
NO_SCORE = 0xFFFFFFFF
# By arithmetic: keys by number and a score, in Arrow, in records and in a page.
TABLE_BYTES = 96  # a pair in Arrow and on its way into Parquet
Columns = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # i, j, scores, which of them are none


@dataclass(frozen=True)
class PairOrder:
    """What is asked for.

    Attributes
    ----------
    output : str or None
        By which output; None for the first.
    ascending : bool
    limit : int or None
        How many pairs, the first ones; None for all.
    memory_bytes : int
        Promise for the whole process.
    folders : tuple of Path
        For run files.
    """

    output: str | None = None
    ascending: bool = True
    limit: int | None = None
    memory_bytes: int = 10**9
    folders: tuple[Path, ...] = field(default=())


def pair_order(
    folder: RunFolder,
    output: str | None = None,
    *,
    ascending: bool | None = None,
    limit: int | None = None,
    memory: str | int | None = None,
    tmp: str | Path | Sequence[str | Path] | None = None,
) -> PairOrder:
    """Check what ``tartan.Run.pairs_sorted`` was given.

    Raises
    ------
    ConfigError
        If the memory is not a number of bytes, or a folder is not there.
    """
    memory_bytes = held_bytes() + 10**9 if memory is None else parse_bytes(memory, option="memory")
    folders = [tmp] if isinstance(tmp, str | Path) else list(tmp or ())
    checked = tuple(check_folders([Path(one) for one in folders])) if folders else ()
    up = not folder.manifest.larger_is_nearer if ascending is None else ascending
    return PairOrder(output, up, limit, memory_bytes, checked)


def sort_pairs(folder: RunFolder, order: PairOrder, names: Sequence[str] | None = None) -> pa.RecordBatchReader:
    """Stream the pairs of a run in the order of their scores; items are called by their keys, or by ``names``.

    Returns
    -------
    pyarrow.RecordBatchReader
        Columns i, j, key_i, key_j (dictionaries) and score. Failed pairs come last, with a null score; with a limit
        they do not come.

    Raises
    ------
    ConfigError
        If there is no such output, the limit is negative, or the memory is too little.
    DiskFullError
        If the folders have too little space.
    """
    import pyarrow as pa

    if order.limit is not None and order.limit < 0:
        raise ConfigError(f"limit: {order.limit} is negative; ask for 0 pairs or more", context={"option": "limit"})
    if order.memory_bytes < LEAST_MEMORY_BYTES:
        raise ConfigError(
            f"memory: {order.memory_bytes:,} bytes are too little to sort pairs; "
            f"{LEAST_MEMORY_BYTES // 10**6}MB is the least",
            code="memory",
            context={"option": "memory", "least_bytes": LEAST_MEMORY_BYTES},
        )
    name = output_name(folder, order.output)
    pairs = _pairs_of(folder, name, not order.ascending)
    table = _Table(folder, folder.manifest.outputs[name], names)
    return pa.RecordBatchReader.from_batches(table.schema, _batches(pairs, table, order))


def write_sorted_pairs(
    folder: RunFolder, path: Path, order: PairOrder, kind: str = "parquet", options: ExportOptions | None = None
) -> None:
    """Write the pairs of a run to a file, in the order of their scores.

    Parameters
    ----------
    folder : RunFolder
    path : Path
    order : PairOrder
    kind : {"parquet", "csv", "tsv"}
    options : ExportOptions, optional
        ``names`` and ``overwrite`` count.

    Raises
    ------
    ConfigError, DiskFullError
        As ``sort_pairs``.
    StoreError
        If the file exists and may not be replaced.
    """
    chosen = options or ExportOptions()
    names = None if chosen.names in (None, "full") else show_names(folder.keys, chosen.names)
    with (
        new_export(path, overwrite=chosen.overwrite) as temporary,
        sort_pairs(folder, order, names) as reader,
    ):
        ways = {"compression": "lz4", "use_dictionary": list(KEYS)}
        write_pairs(reader, temporary, kind, keys=chosen.names is not None, **ways)


def _batches(pairs: _Pairs, table: _Table, order: PairOrder) -> Iterator[pa.RecordBatch]:
    bar, n_pairs = pairs.bar(order.limit)
    left = n_pairs if order.limit is None else min(order.limit, n_pairs)
    if not left:
        return
    width = pairs.dtype.itemsize
    sorter = BlockSorter(
        dtype=pairs.dtype,
        key=pairs.key,
        n_bytes=n_pairs * width,
        memory=order.memory_bytes,
        tmp=order.folders or None,
        kept_bytes=pairs.reading_bytes + BATCH_PAIRS * (width + TABLE_BYTES),
    )
    with sorter:
        for records in pairs.records(bar):
            sorter.push(records)
        for block in sorter.yield_sorted(BATCH_PAIRS * width):
            columns = [column[:left] for column in pairs.columns(block)]
            if order.limit is not None:
                scored = ~columns[3]
                columns = [column[scored] for column in columns]
            if len(columns[0]):
                yield table.batch(*columns)
            left -= len(columns[0])
            if left <= 0 or (order.limit is not None and not scored.all()):
                return


class _Pairs(Protocol):
    """Pairs of one output as records that an engine can sort."""

    dtype: np.dtype[Any]
    key: str | None
    reading_bytes: int

    def bar(self, limit: int | None) -> tuple[int, int]:
        """Return what ``records`` may leave out if ``limit`` pairs are wanted, and how many it then yields at most."""

    def records(self, bar: int) -> Iterator[np.ndarray]:
        """Yield all pairs up to a bar."""

    def columns(self, block: np.ndarray) -> Columns:
        """Take sorted records apart."""


def _pairs_of(folder: RunFolder, name: str, descending: bool) -> _Pairs:
    dtype = folder.manifest.outputs[name]
    require_real(name, dtype, "an order needs")
    words = folder.manifest.n_items <= WORD_ITEMS and np.can_cast(dtype, np.float32)
    if words and not isinstance(folder.results, Parts):
        return _Words(folder, name, descending)
    return _Records(folder, name, descending)


class _Words:
    """Pairs as words; see ``tartan_kernels::pairs``."""

    dtype: np.dtype[Any] = np.dtype(np.uint64)
    key: str | None = None

    def __init__(self, folder: RunFolder, name: str, descending: bool) -> None:
        self._folder = folder
        self._name = name
        self._descending = descending
        self._stored = folder.manifest.outputs[name]
        side = folder.manifest.chunk
        self.reading_bytes = 3 * side * side * (self._stored.itemsize + 1) + 3 * 8 * BAND_PAIRS

    def bar(self, limit: int | None) -> tuple[int, int]:
        n_pairs = self._folder.n_known()
        if limit is None or limit >= n_pairs:
            return NO_SCORE, n_pairs
        counts = np.zeros(1 << 16, np.uint64)
        for scores, codes, _ in self._bands():
            count_pairs(scores, codes, self._descending, counts)
        up_to = np.cumsum(counts)
        last = int(np.searchsorted(up_to, limit))
        if last == len(counts):  # more have no score than have one
            return NO_SCORE - 1, int(up_to[-1])
        return min(last << 16 | 0xFFFF, NO_SCORE - 1), int(up_to[last])

    def records(self, bar: int) -> Iterator[np.ndarray]:
        for scores, codes, (row, column) in self._bands():
            yield encode_pairs(scores, codes, row, column, self._descending, bar)

    def columns(self, block: np.ndarray) -> Columns:
        i, j, scores = decode_pairs(block, self._descending)
        missing = np.isnan(scores)
        if self._stored.kind != "f":
            scores[missing] = 0
        return i, j, scores.astype(self._stored, copy=False), missing

    def _bands(self) -> Iterator[tuple[np.ndarray, np.ndarray, tuple[int, int]]]:
        """Yield the committed chunks in bands of rows: scores, codes, indices of the first."""
        side = self._folder.manifest.chunk
        height = max(1, BAND_PAIRS // side)
        for row, column in chunks_both_ways(self._folder):
            codes = self._folder.score_status(row, column)
            scores = None if codes is None else self._folder.read_chunk(self._name, row, column)
            if codes is None or scores is None:
                continue
            for start in range(0, len(codes), height):
                band = slice(start, start + height)
                numbers = np.ascontiguousarray(scores[band], np.float32)
                yield numbers, np.ascontiguousarray(codes[band]), (row * side + start, column * side)


class _Records:
    """Pairs as records of a flag (no score), the score, i and j: any number of items, any kind of number."""

    def __init__(self, folder: RunFolder, name: str, descending: bool) -> None:
        self._folder = folder
        self._name = name
        dtype = folder.manifest.outputs[name].newbyteorder("<")
        index = np.dtype("<u4") if folder.manifest.n_items <= 1 << 32 else np.dtype("<u8")
        self.dtype = np.dtype([("none", "|u1"), ("score", dtype), ("i", index), ("j", index)])
        self.key: str | None = f"none,score:{'desc' if descending else 'asc'},i,j"
        self.reading_bytes = 3 * folder.manifest.chunk**2 * (dtype.itemsize + 1) + 16 * self.dtype.itemsize * (1 << 18)

    def bar(self, limit: int | None) -> tuple[int, int]:
        del limit  # all are sorted
        results = self._folder.results
        if isinstance(results, Parts):
            return NO_SCORE, sum(results.n_rows(*chunk) for chunk in self._folder.committed())
        return NO_SCORE, self._folder.n_known()

    def records(self, bar: int) -> Iterator[np.ndarray]:
        del bar
        for rows, done in pair_rows(self._folder, [self._name]):
            records = np.zeros(len(rows["i"]), self.dtype)
            records["i"], records["j"], records["score"] = rows["i"], rows["j"], rows[self._name]
            if done is not None:
                records["none"] = ~done
                records["score"][~done] = 0
            yield records

    def columns(self, block: np.ndarray) -> Columns:
        ends = (block[end].astype(np.int64) for end in ("i", "j"))
        i, j = ends
        return i, j, np.ascontiguousarray(block["score"]), block["none"] > 0


class _Table:
    """Builds batches."""

    def __init__(self, folder: RunFolder, dtype: np.dtype[Any], names: Sequence[str] | None) -> None:
        import pyarrow as pa

        self._keys = key_column(folder, names)
        self._first_column = folder.manifest.workload.get("n_left", 0)
        key = pa.dictionary(pa.int32(), pa.string())
        ends = [("i", pa.int64()), ("j", pa.int64()), ("key_i", key), ("key_j", key)]
        self.schema = pa.schema([*ends, ("score", pa.from_numpy_dtype(dtype))])

    def batch(self, i: np.ndarray, j: np.ndarray, scores: np.ndarray, missing: np.ndarray) -> pa.RecordBatch:
        import pyarrow as pa

        keys = [pa.DictionaryArray.from_arrays(pa.array(end, pa.int32()), self._keys) for end in (i, j)]
        score = pa.array(scores, mask=missing if missing.any() else None)
        return pa.RecordBatch.from_arrays(
            [pa.array(i), pa.array(j - self._first_column), *keys, score], schema=self.schema
        )
