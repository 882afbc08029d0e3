"""Pairs or triples as Arrow tables: i, j, key_i, key_j and the scores, of triples k and key_k, too; chunk by chunk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tartan.base.daemon_pool import ahead
from tartan.base.keys import IndexKeys
from tartan.core.pairs.ledger import DONE, NOT_COMPUTED
from tartan.errors import ConfigError
from tartan.store.bars import ENDS
from tartan.store.columns import texts_to_arrow, to_arrow, to_numpy
from tartan.store.cubes import sort_rows
from tartan.store.dense import Dense
from tartan.store.folder import RunFolder
from tartan.store.keeper import Rows
from tartan.store.listed import ListedScores
from tartan.store.parquet import is_whole, read_table, write_batches
from tartan.store.reduced import RESULT_NAME, RESULT_VERSION, Parts
from tartan.store.version_view import open_version
from tartan.store.view import output_name, part_type

if TYPE_CHECKING:
    import pyarrow as pa

# By judgement: 65,536 rows are a megabyte or two of Arrow, the order of its own batches. No benchmark.
BATCH_ROWS = 1 << 16
# By convention of this format: what ends the names of the columns of a complex output.
_PARTS = ("_real", "_imag")


def row_schema(folder: RunFolder, outputs: list[str]) -> pa.Schema:
    """Return the schema of a run's pairs or triples; a single output is called ``score``.

    A complex output is two columns, of its real and its imaginary part.

    Raises
    ------
    ConfigError
        If two columns would have one name.
    """
    import pyarrow as pa

    names, ends = ["score"] if len(outputs) == 1 else outputs, ends_of(folder)
    columns = [*((end, pa.int64()) for end in ends), *((f"key_{end}", pa.string()) for end in ends)]
    for output, name in zip(outputs, names, strict=True):
        dtype = folder.manifest.outputs[output]
        kind = pa.from_numpy_dtype(part_type(dtype))
        columns += [(f"{name}{part}", kind) for part in (_PARTS if dtype.kind == "c" else ("",))]
    if len({name for name, _ in columns}) < len(columns):
        raise ConfigError(f"{folder.path}: columns of a table would share a name; name one of its outputs")
    return pa.schema(columns)


def ends_of(folder: RunFolder) -> tuple[str, ...]:
    """Return what the items of a pair or triple are called: i, j, of triples k."""
    return ENDS[: folder.manifest.arity]


def _batches(pieces: Iterable[tuple[Rows, np.ndarray | None]], table: _RowTable) -> Iterator[pa.RecordBatch]:
    for rows, done in pieces:
        for start in range(0, len(rows["i"]), BATCH_ROWS):
            yield table.batch(rows, done, slice(start, start + BATCH_ROWS))


def pair_rows(folder: RunFolder, outputs: list[str]) -> Iterator[tuple[Rows, np.ndarray | None]]:
    """Yield all pairs that the ledger knows as columns i, j and one for each output, and which of them are done.

    Dense runs come chunk by chunk, row by row inside a chunk. Reduced runs yield what they keep.
    """
    if folder.pair_list is not None and not isinstance(folder.results, Parts):
        yield from _listed_rows(folder.pair_list, outputs)
    elif isinstance(folder.results, Parts):
        yield from ((rows, None) for rows in folder.results.bands(folder.committed()))
    else:
        yield from _dense_rows(folder, folder.results, outputs)


def _pieces(folder: RunFolder, outputs: list[str]) -> Iterator[tuple[Rows, np.ndarray | None]]:
    """Yield what ``pair_rows`` does, or the triples that a run keeps."""
    if folder.cubes is None:
        return pair_rows(folder, outputs)
    return ((rows, None) for rows in folder.cubes.bands(folder.committed()))


def key_column(folder: RunFolder, names: Sequence[str] | None = None) -> Any:
    """Return the keys of all items, or other names of them, as an Arrow array of text."""
    import pyarrow as pa

    if names is not None:
        return texts_to_arrow(names)
    if isinstance(folder.keys, IndexKeys):
        return to_arrow(np.arange(folder.manifest.n_items, dtype=np.int64)).cast(pa.string())
    return texts_to_arrow(folder.keys)


def row_reader(
    folder: RunFolder,
    output: str | None = None,
    names: Sequence[str] | None = None,
    *,
    ascending: bool | None = None,
    limit: int | None = None,
) -> pa.RecordBatchReader:
    """Stream the pairs or triples of a run, at most 65,536 a batch; failed pairs have null scores.

    While a batch is used, the next is read.

    Parameters
    ----------
    folder : RunFolder
    output : str, optional
        Default: a column for each output.
    names : sequence of str, optional
        What items are called; default: their keys. Of A x B, j counts within B.
    ascending : bool, optional
        Triples sorted by scores, in memory, equal ones by i, j, k; default: as ``pair_rows``.
    limit : int, optional
        At most so many, of sorted ones.
    """
    outputs = list(folder.manifest.outputs) if output is None else [output_name(folder, output)]
    table = _RowTable(folder, outputs, names, folder.manifest.workload.get("n_left", 0))
    pieces = _pieces(folder, outputs)
    if ascending is not None and folder.cubes is not None:
        rule = folder.cubes.rule
        decides = rule.output if output is None else outputs[0]
        pieces = iter([(sort_rows((rows for rows, _ in pieces), rule, decides, ascending, limit), None)])
    return _reader(table.schema, _batches(pieces, table))


def _reader(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> pa.RecordBatchReader:
    import pyarrow as pa

    return pa.RecordBatchReader.from_batches(schema, ahead(batches))


def merge_parts(folder: RunFolder) -> Path:
    """Fold the parts of a reduced run into ``result.parquet`` and return its path."""
    if folder.manifest.reduce is None:
        raise ConfigError(f"{folder.path} keeps the whole matrix; there are no parts to merge")
    ways: dict[str, Any] = {"compression": "zstd", "write_page_checksum": True}
    if (
        folder.cubes is None
    ):  # few numbers come twice: dictionaries of them take twice the time and half as much room again
        ways["use_dictionary"] = ["key_i", "key_j"]
    if folder.version is None and folder.versions is not None and folder.versions.there:
        return _merge_version(folder, ways)
    table = _RowTable(folder, list(folder.manifest.outputs))  # j counts on from A here, as it does in the parts
    pieces = _pieces(folder, table.outputs)
    return folder.replace_result(
        lambda file: write_batches(file, _reader(table.schema, _batches(pieces, table)), **ways)
    )


def _merge_version(folder: RunFolder, ways: dict[str, Any]) -> Path:
    """Fold what the newest version keeps into ``result.parquet``, which says of which one it is."""
    newest = open_version(folder.path)
    assert newest.version is not None
    table = _RowTable(newest, list(newest.manifest.outputs))
    table.schema = table.schema.with_metadata({RESULT_VERSION: str(newest.version.number)})
    pieces = _pieces(newest, table.outputs)
    return folder.replace_result(
        lambda file: write_batches(file, _reader(table.schema, _batches(pieces, table)), **ways)
    )


def mend_result(folder: RunFolder) -> None:
    """Take what is damaged out of a complete run, and merge its result again where only that is lacking."""
    if not folder.lacking() and result_is_whole(folder):
        return
    with folder.lock():
        lacking = folder.lacking()
        if not result_is_whole(folder):
            folder.forget_result()
            if not lacking:
                merge_parts(folder)


def result_is_whole(folder: RunFolder) -> bool:
    """Whether the merged result of a reduced run is there and undamaged: reads it to its end. Dense runs have none."""
    if folder.manifest.reduce is None:
        return True
    return folder.has_result and is_whole(folder.path / RESULT_NAME, row_schema(folder, list(folder.manifest.outputs)))


def read_merged(folder: RunFolder, output: str) -> Rows | None:
    """Read i, j and one output of all pairs that ``merge_parts`` wrote; None where that file is damaged."""
    import pyarrow as pa

    names = list(folder.manifest.outputs)
    column = dict(zip(names, row_schema(folder, names).names[-len(names) :], strict=True))[output]
    try:
        table = read_table(folder.path / RESULT_NAME, ["i", "j", column])
    except (pa.ArrowException, OSError, ValueError):
        return None
    return {"i": to_numpy(table["i"]), "j": to_numpy(table["j"]), output: to_numpy(table[column])}


class _RowTable:
    """Builds batches of one schema; in them j counts from ``first_column`` on."""

    def __init__(
        self, folder: RunFolder, outputs: list[str], names: Sequence[str] | None = None, first_column: int = 0
    ) -> None:
        self.schema = row_schema(folder, outputs)
        self.outputs = outputs
        self._ends = ends_of(folder)
        self._first_column = first_column
        numbered = names is None and isinstance(folder.keys, IndexKeys)
        self._keys = None if numbered else key_column(folder, names)

    def batch(self, rows: Rows, done: np.ndarray | None, part: slice) -> pa.RecordBatch:
        import pyarrow as pa

        ends = [to_arrow(rows[end][part]) for end in self._ends]
        columns = [*ends, *map(self._key, ends)]
        if self._first_column:
            columns[1] = to_arrow(rows["j"][part] - self._first_column)
        scores = [half for name in self.outputs for half in _split(rows[name][part])]
        if done is None:
            columns += map(to_arrow, scores)
        else:
            columns += [pa.array(values, mask=~done[part]) for values in scores]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _key(self, indices: Any) -> Any:
        import pyarrow as pa

        return indices.cast(pa.string()) if self._keys is None else self._keys.take(indices)


def _split(scores: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return the real and the imaginary parts of complex scores; real ones as they are."""
    if scores.dtype.kind != "c":
        return (scores,)
    return np.ascontiguousarray(scores.real), np.ascontiguousarray(scores.imag)


def _listed_rows(listed: ListedScores, outputs: list[str]) -> Iterator[tuple[Rows, np.ndarray | None]]:
    """Yield the pairs of a list in its order, a block at a time."""
    for block in range(listed.n_blocks):
        span = listed.span(block)
        known = np.flatnonzero(listed.codes[span] != NOT_COMPUTED) + span.start
        pairs, done = listed.pairs[known], listed.codes[known] == DONE
        scores = {name: listed.scores(name)[known] for name in outputs}
        yield {"i": pairs[:, 0], "j": pairs[:, 1], **scores}, None if done.all() else done


def _dense_rows(folder: RunFolder, results: Dense, outputs: list[str]) -> Iterator[tuple[Rows, np.ndarray | None]]:
    """Yield a band of rows of a chunk at a time, so that the index columns stay small."""
    side = folder.manifest.chunk
    height = max(1, 4 * BATCH_ROWS // side)
    for chunk in chunks_both_ways(folder):
        status = folder.score_status(*chunk)
        if status is None:
            continue
        blocks = {name: folder.read_chunk(name, *chunk) for name in outputs}
        for start in range(0, len(status), height):
            codes = status[start : start + height]
            i, j = np.nonzero(codes != NOT_COMPUTED)
            rows: Rows = {"i": i + chunk[0] * side + start, "j": j + chunk[1] * side}
            for name, block in blocks.items():
                if block is not None:
                    rows[name] = block[start : start + height][i, j]
            done = codes[i, j] == DONE
            yield rows, None if done.all() else done


def chunks_both_ways(folder: RunFolder) -> Iterator[tuple[int, int]]:
    """Yield the committed chunks, and their mirror images where (i, j) and (j, i) are two scores."""
    for row, column in folder.committed():
        yield row, column
        if folder.pairs.both_ways and row != column:
            yield column, row
