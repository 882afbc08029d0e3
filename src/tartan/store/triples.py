"""The folder of a run of triples: a ``RunFolder`` whose chunks are cubes, and which keeps no matrix.

Each chunk of lines (I, J, K) leaves one file, ``parts/<I>-<J>-<K>.parquet``: the triples that are kept of it, and in
its metadata how all its triples ended. The file is the ledger too: a chunk is committed when it is there. The merged
result lies in ``result.parquet``, as that of pairs does. A failed item or triple has its reason in the record of
failures, which is written before the part.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tartan.base.files import arrow_file
from tartan.base.keys import stems
from tartan.core.ledger import FAILED_ITEM, NOT_COMPUTED, Failure
from tartan.core.triples import TripleGrid
from tartan.errors import ConfigError, CorruptResultError
from tartan.store.columns import to_arrow, to_numpy
from tartan.store.export import ExportOptions, format_of, holds_pairs, new_export, refuse_unused
from tartan.store.folder import RunFolder
from tartan.store.grid_io import damaged
from tartan.store.items import ItemTable
from tartan.store.keeper import Rows, concatenate
from tartan.store.ledger import N_CODES
from tartan.store.manifest import Manifest
from tartan.store.pair_files import write_pairs
from tartan.store.pairs import WantedPairs
from tartan.store.parquet import is_whole, write_batches
from tartan.store.reduced import PARTS_NAME, RESULT_NAME, Parts
from tartan.store.tables import key_column
from tartan.store.triple_keeper import ENDS, TripleRule, merged
from tartan.store.view import output_name, require_real

if TYPE_CHECKING:
    import pyarrow as pa

Chunk = tuple[int, int]
_PART = re.compile(r"-".join([r"(0|[1-9][0-9]{0,12})"] * 3) + r"\.parquet", re.ASCII)
COUNTS = b"tartan.counts"
KEYS = tuple(f"key_{end}" for end in ENDS)
BATCH_TRIPLES = 1 << 16


class WantedTriples(WantedPairs):
    """All triples i < j < k of a run; its chunks are named as those of a ``TripleGrid``."""

    @cached_property
    def grid(self) -> TripleGrid:
        """The cuts of the run."""
        chunk, panel, strip, span = (int(self._manifest.grid[name]) for name in ("chunk", "panel", "strip", "span"))
        return TripleGrid(self._manifest.n_items, chunk, panel, strip, span)

    @property
    def both_ways(self) -> bool:
        return False

    @cached_property
    def n_pairs(self) -> int:
        """Number of triples."""
        return self.grid.n_triples

    def chunks(self) -> Iterator[Chunk]:
        """Yield the chunks that hold triples."""
        return self.grid.chunks()

    def n_scores(self, row: int, column: int) -> int:
        """Return the number of triples of a chunk."""
        return self.grid.chunk_count((row, column))


class _NoPairs(Parts):
    """What a run of triples has in place of parts with pairs."""

    def bands(self, chunks: Iterator[Chunk]) -> Iterator[Rows]:
        folder = self._folder.parent
        raise ConfigError(f"{folder} is a run of triples, and keeps no pairs; `tartan export` has what it keeps")


class TripleFolder(RunFolder):
    """A run of triples on disk; use ``create`` or ``open``."""

    arity: ClassVar[int] = 3
    pairs: WantedTriples

    def _open_status(self) -> None:
        """Open nothing: the parts are the ledger."""

    def _adopt(self, manifest: Manifest) -> None:
        super()._adopt(manifest)
        self.pairs = WantedTriples(manifest, self.path)
        self.results = _NoPairs(self.path, manifest)
        self.rule = TripleRule.of(manifest)

    def _describe_arrays(self, n_items: int) -> None:
        """Describe nothing: there are no arrays."""

    @property
    def kept(self) -> str:
        """What the run keeps, in words."""
        rule = self.rule
        if rule.k is not None:
            return f"the {rule.k} triples of each item with the {'largest' if rule.largest else 'smallest'} scores"
        return f"triples of {rule.threshold:g} and {'above' if rule.largest else 'below'}"

    # -- the ledger ------------------------------------------------------------------------------------------

    def part(self, chunk: Chunk) -> Path:
        """Return the file of a chunk."""
        return self.path / PARTS_NAME / ("-".join(map(str, self.pairs.grid.lines_of(chunk))) + ".parquet")

    def committed(self) -> Iterator[Chunk]:
        """Yield the chunks that have a part."""
        grid, chunks = self.pairs.grid, []
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            found = (_PART.fullmatch(entry.name) for entry in (self.path / PARTS_NAME).iterdir())
            lines = sorted(tuple(map(int, part.groups())) for part in found if part)
            chunks = [grid.chunk_at(*three) for three in lines if grid.has_lines(*three)]
        return iter(chunks)

    def counts(self, chunks: Iterable[Chunk] | None = None) -> np.ndarray:
        """Return the number of triples of each code of the ledger, int64 (4,); see ``Ledger.counts``."""
        looked_at = list(self.committed() if chunks is None else chunks)
        total = np.zeros(N_CODES, np.int64)
        for chunk in looked_at:
            with contextlib.suppress(CorruptResultError, FileNotFoundError):
                total += self._counts_of(chunk)
        wanted = self.pairs.n_pairs if chunks is None else sum(self.pairs.n_scores(*chunk) for chunk in looked_at)
        total[NOT_COMPUTED] = wanted - int(total[NOT_COMPUTED + 1 :].sum())
        return total

    def _counts_of(self, chunk: Chunk) -> np.ndarray:
        import pyarrow as pa
        import pyarrow.parquet as pq

        path = self.part(chunk)
        try:
            with arrow_file(path) as file:
                counts = json.loads((pq.read_metadata(file).metadata or {})[COUNTS])
        except FileNotFoundError:
            raise
        except (pa.ArrowException, OSError, ValueError, KeyError) as error:
            raise damaged(path, f"cannot be read ({error})") from error
        whole = isinstance(counts, list) and len(counts) == N_CODES and all(isinstance(count, int) for count in counts)
        if not whole or min(counts) < 0 or sum(counts) != self.pairs.n_scores(*chunk):
            raise damaged(path, "does not say how its triples ended")
        return np.array(counts, np.int64)

    def commit_triples(self, chunk: Chunk, rows: Rows, counts: Sequence[int], failures: Sequence[Failure] = ()) -> int:
        """Commit a chunk: what is kept of it, and how its triples ended. Different threads may, different chunks.

        Returns
        -------
        int
            Bytes of the part.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        writer = self._write_access()
        self.add_failures(failures)
        table = _table(rows).replace_schema_metadata({COUNTS: json.dumps([int(count) for count in counts])})
        stream = pa.BufferOutputStream()
        pq.write_table(table, stream, compression="zstd", write_page_checksum=True)
        data = stream.getvalue()
        writer.replace(self.part(chunk), [data])
        return int(data.size)

    def rows_of(self, chunk: Chunk) -> Rows:
        """Return the triples that a committed chunk keeps.

        Raises
        ------
        CorruptResultError
            If its part is damaged.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        path = self.part(chunk)
        try:
            with arrow_file(path) as file, pq.ParquetFile(file, page_checksum_verification=True) as part:
                table = part.read()
        except (pa.ArrowException, OSError, ValueError) as error:
            raise damaged(path, f"cannot be read ({error})") from error
        names = [*ENDS, *self.manifest.outputs]
        if table.column_names != names:
            raise damaged(path, f"has the columns {table.column_names}")
        return {name: to_numpy(table[name]).astype(dtype) for name, dtype in _dtypes(self.rule).items()}

    def drop_damaged(self) -> None:
        """Take chunks whose parts are damaged out of the ledger; the caller holds the lock."""
        writer = self._write_access()
        for chunk in list(self.committed()):
            try:
                self._counts_of(chunk)
                self.rows_of(chunk)
            except CorruptResultError:
                writer.remove(self.part(chunk))

    def forget_failed(self, table: ItemTable | None) -> None:
        """Take all chunks in which something failed, or that have a failed item, out of the ledger.

        The caller holds the lock. Killed in between, failures lack their reasons until they are tried again.

        Parameters
        ----------
        table : ItemTable or None
            The items with the fingerprints of now; None where they have none.
        """
        writer, side = self._write_access(), self.manifest.chunk
        lines = {failure.i // side for failure in self.failures() if failure.j is None}
        if table is not None:
            table.write(self.path, writer)
        self.forget_result()
        if self._log is not None:
            self._log.replace([])
        for chunk in list(self.committed()):
            if not lines.isdisjoint(self.pairs.grid.lines_of(chunk)) or self._counts_of(chunk)[FAILED_ITEM:].any():
                writer.remove(self.part(chunk))
        self._adopt(self.manifest)

    def new_keeper(self) -> None:
        """Return None: what is chosen from triples is collected by a ``TripleKeeper``."""

    def extend(self, *_: Any) -> None:
        raise ConfigError(f"{self.path} is a run of triples; only runs of pairs take new items")

    # -- the result ------------------------------------------------------------------------------------------

    def merge(self) -> Path:
        """Fold the parts into ``result.parquet`` and return its path."""
        ways = {"compression": "zstd", "write_page_checksum": True}
        return self.replace_result(lambda file: write_batches(file, triple_reader(self), **ways))

    @property
    def result_is_whole(self) -> bool:
        """Whether the merged result is there and undamaged; reads it to its end."""
        return is_whole(self.path / RESULT_NAME, triple_schema(self, list(self.manifest.outputs)))

    def kept_rows(self) -> Iterator[Rows]:
        """Yield what is kept of all committed chunks: one piece, sorted by i, j, k, in top-k runs, else by chunks."""
        if self.rule.k is None:
            yield from (self.rows_of(chunk) for chunk in self.committed())
            return
        pieces = [self.rule.empty()]
        for chunk in self.committed():
            pieces = merged(self.rule, pieces, self.rows_of(chunk))
        yield self.rule.best(concatenate(pieces))


def _dtypes(rule: TripleRule) -> dict[str, np.dtype[Any]]:
    return {name: values.dtype for name, values in rule.empty().items()}


def _table(rows: Rows) -> pa.Table:
    import pyarrow as pa

    return pa.Table.from_arrays([to_arrow(values) for values in rows.values()], names=list(rows))


def triple_schema(folder: TripleFolder, outputs: Sequence[str]) -> pa.Schema:
    """Return the schema of a run's triples; a single output is called ``score``."""
    import pyarrow as pa

    for name in outputs:
        require_real(name, folder.manifest.outputs[name], "a table of triples holds")
    types = [pa.from_numpy_dtype(folder.manifest.outputs[name]) for name in outputs]
    names = ["score"] if len(outputs) == 1 else outputs
    ends = [*((end, pa.int64()) for end in ENDS), *((key, pa.string()) for key in KEYS)]
    return pa.schema([*ends, *zip(names, types, strict=True)])


def triple_reader(
    folder: TripleFolder,
    output: str | None = None,
    names: Sequence[str] | None = None,
    *,
    ascending: bool | None = None,
    limit: int | None = None,
) -> pa.RecordBatchReader:
    """Stream the triples that a run keeps, with a column for each output unless one is named.

    Parameters
    ----------
    folder : TripleFolder
    output : str, optional
    names : sequence of str, optional
        What items are called; default: their keys.
    ascending : bool, optional
        Sort by scores, in memory, equal ones by i, j, k; default: the order of i, j, k.
    limit : int, optional
        At most so many, of sorted ones.
    """
    import pyarrow as pa

    outputs = list(folder.manifest.outputs) if output is None else [output_name(folder, output)]
    schema, keys = triple_schema(folder, outputs), key_column(folder, names)
    pieces: Iterable[Rows] = folder.kept_rows()
    if ascending is not None:
        decides = folder.rule.output if output is None else outputs[0]
        pieces = [_sorted(concatenate([folder.rule.empty(), *pieces]), decides, ascending, limit)]
    batches = (batch for rows in pieces for batch in _batches(rows, outputs, schema, keys))
    return pa.RecordBatchReader.from_batches(schema, batches)


def _sorted(rows: Rows, output: str, ascending: bool, limit: int | None) -> Rows:
    scores = rows[output] if ascending else -rows[output].astype(np.float64)
    order = np.lexsort((*(rows[end] for end in reversed(ENDS)), scores))[:limit]
    return {name: values[order] for name, values in rows.items()}


def _batches(rows: Rows, outputs: Sequence[str], schema: pa.Schema, keys: Any) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    for start in range(0, len(rows["i"]), BATCH_TRIPLES):
        part = slice(start, start + BATCH_TRIPLES)
        ends = [to_arrow(rows[end][part]) for end in ENDS]
        columns = [*ends, *(keys.take(end) for end in ends), *(to_arrow(rows[name][part]) for name in outputs)]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def export_triples(
    folder: TripleFolder,
    path: Path,
    kind: str | None,
    options: ExportOptions,
    *,
    ascending: bool | None = None,
    limit: int | None = None,
) -> Path:
    """Write the triples that a run keeps as Parquet, CSV or TSV.

    Raises
    ------
    ConfigError
        If another format, or an option of matrices, is asked for.
    """
    name = format_of(path, kind)
    try:
        holds_pairs(name, pairs=True)
    except ConfigError:
        raise ConfigError(f"triples are written as CSV, TSV or Parquet; format {name} holds a matrix") from None
    refuse_unused(name, options, pairs=True)
    names = stems(folder.keys) if options.names == "stem" else None
    reader = triple_reader(folder, options.output, names, ascending=ascending, limit=limit)
    with new_export(path, overwrite=options.overwrite) as temporary:
        write_pairs(reader, temporary, name, keys=options.names is not None, key_names=KEYS)
    return path
