"""Sort Parquet and Arrow files: rows become records, go through the engine, and become rows again.

Unlike raw files, rows are pushed and pulled instead of read and written by the engine, some memory belongs to Arrow,
and the key is made of columns. Everything else, such as resume and cancel, is that of ``SortRun``.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tartan._native import SortJob
from tartan.base.daemon_pool import ahead, map_ahead
from tartan.base.format import format_bytes
from tartan.errors import ConfigError
from tartan.sort.columns import ColumnFacts, ColumnKey, RowForm, is_text_type, storage_type
from tartan.sort.engine import MAX_RECORD_BYTES, Order, SortOptions
from tartan.sort.formats import TABLE_SUFFIXES, Destination, SourceFile, is_table
from tartan.sort.parquet_types import parquet_schema
from tartan.sort.pieces import (
    LONG_TEXT_BYTES,
    ColumnContent,
    LengthCount,
    LongTexts,
    PieceForm,
    as_bytes,
    make_key_form,
)
from tartan.sort.printed_tables import Writer, open_printing_writer, refuse_unprintable
from tartan.sort.pushed import BLOCK_BYTES, PushedRun
from tartan.sort.quoted_names import is_number_of, split_names, unquote
from tartan.sort.recipes import RowsRecipe, SourceRecipe, TableRecipe, write_form, write_schema
from tartan.sort.selection import ALL_ROWS, Picker, Selection, choose_leaders
from tartan.sort.spans import RowMarks, Span
from tartan.sort.tables import BUFFER_BYTES, TableSource, TableWriter, column_facts, common_schema, open_tables
from tartan.sort.text_form import TextForm, text_form

if TYPE_CHECKING:
    from tartan.sort.progress import SortProgress
    from tartan.sort.result import SortResult
    from tartan.sort.work import WorkFolders

# By judgement: LEAST_MEMORY_BYTES of sort/space (128 MB), Arrow's libraries, and a row group of some ten MB in
# ARROW_COPIES. No benchmark.
LEAST_MEMORY_BYTES = 300 * 10**6
"""Least memory for Arrow, decoded pages and the engine; large row groups need more, and the error says so."""
_CODECS = {"parquet": ("none", "snappy", "gzip", "brotli", "lz4", "zstd"), "arrow": ("none", "lz4", "zstd")}
# By construction: two blocks that are pulled, one that becomes rows, one that is written, and one on its way.
WRITTEN_BLOCKS = 5
# By construction: rows that are gathered, what they become, and what is encoded of it.
_GATHERED_BLOCKS = 3
# By judgement: rows that are held while the first of them are chosen; choosing joins them once more. No benchmark.
_LEADERS_SHARE = 16
# By construction: pulled twice, as rows, and gathered.
_LEADERS_COPIES = 5
# By judgement: with little memory, blocks are smaller, and so are the row groups that are written: 4.7 MB at 300 MB and
# the whole of BLOCK_BYTES from 1 GB on. No benchmark.
_BLOCK_SHARE = 64
# By judgement, see _BLOCK_SHARE.
_LEAST_BLOCK_BYTES = 1 << 20
# By judgement: what is left beside the process, which takes half of the least memory, and the engine. No benchmark.
READING_SHARE = 0.3
# By judgement: pieces that are pulled at a time. No benchmark.
PULLED_BYTES = 2 << 20
# By judgement: two that are pulled, and eight that taking them apart needs. No benchmark.
_PULLED_COPIES = 10
# By judgement: a long row is there as it is read, as a value, as it is written and as records, on the way in or out.
ROW_COPIES = 6


@dataclass(frozen=True)
class TableRequest:
    """What a sort of tables is asked for, besides the options of every sort.

    Attributes
    ----------
    paths : sequence of Path
        Parquet and Arrow files.
    target : Path
    key : tuple of ColumnKey
        Most significant first; may be omitted for a single column.
    columns : sequence of str or None
        Columns that are carried along; None for all.
    compression : str or None
        Of the destination; None: as the first source.
    quote : {"double", "none"} or None
        Of a destination that is CSV or TSV.
    separator : str or None
        Of a destination that is CSV.
    header : bool
        Whether a destination that is CSV or TSV begins with a line of names.
    selection : Selection
        Which of the sorted rows are written.
    in_place, overwrite : bool
    descending, nulls_first : bool
        For the only column, if no key is given.
    total_order : bool
        Whether -0.0 comes before 0.0.
    marked : bool
        Whether it is remembered where rows lie, so that others can make the records of some of them.
    """

    paths: Sequence[Path]
    target: Path
    key: tuple[ColumnKey, ...] = ()
    columns: Sequence[str] | None = None
    compression: str | None = None
    in_place: bool = False
    overwrite: bool = False
    descending: bool = False
    nulls_first: bool = False
    total_order: bool = False
    quote: Any = None
    separator: str | None = None
    header: bool = True
    selection: Selection = ALL_ROWS
    marked: bool = False


def table_run(request: TableRequest, options: SortOptions) -> TableRun:
    """Inspect the sources and prepare the sort; ``run`` of the result executes it.

    Raises
    ------
    ConfigError
        If files differ in form, a column is missing or cannot be sorted, or memory is too little.
    """
    require_memory(options, "Parquet and Arrow files")
    text = _target_text(request)
    request = _with_names(request)
    tables = open_tables(request.paths, request.columns, batch_bytes=choose_block_bytes(options.memory_bytes))
    schema = common_schema(tables)
    for table in tables:
        table.refuse_lost_types()
    if text is not None:
        refuse_unprintable(tables, schema, text)
    elif TABLE_SUFFIXES[request.target.suffix.lower()] == "parquet":
        schema = parquet_schema(schema)
    spool = _repage(tables, options)
    key = request.key
    facts = column_facts(tables, schema, options.memory_bytes)
    if not len(schema):
        raise ConfigError(
            f"{tables[0].path} has no columns, so nothing to sort by; give a table with one at least", code="no-input"
        )
    if not key and len(schema) > 1:
        names = ", ".join(schema.names)
        raise ConfigError(f"name the columns to sort by with `key=`; there are {names}", context={"option": "key"})
    key = key or (ColumnKey(schema.names[0], request.descending, request.nulls_first),)
    marks = [RowMarks() for _ in tables] if request.marked else None
    form, n_records, longest = choose_form(
        schema, facts, key, tables, options.memory_bytes, keep_signs=request.total_order, marks=marks
    )
    compared = key if form.is_row else [replace(one, name=f"key {place}") for place, one in enumerate(key)]
    order = Order(form.dtype, tuple(form.key(compared)))
    sources = [describe_source(table.path, table.n_rows * form.dtype.itemsize) for table in tables]
    target = Destination(
        request.target, form.dtype, n_records, sources, in_place=request.in_place, overwrite=request.overwrite
    )
    run = TableRun(sources, target, order, options)
    run.tables, run.form, run.text, run.selection = (
        [
            KeyedTable(table, schema, key, form, None if marks is None else marks[place])
            for place, table in enumerate(tables)
        ],
        form,
        text,
        request.selection,
    )
    run.n_records, run.longest_row, run.spool = n_records, longest, spool
    if text is None:
        run.compression = codec_of(request.target, request.compression, tables[0].compression)
    return run


def _repage(tables: Sequence[TableSource], options: SortOptions) -> tempfile.TemporaryDirectory[str] | None:
    """Write columns that are too large to be read side by side into temporary files; return their folder."""
    most_bytes = int(READING_SHARE * options.memory_bytes)
    spool = None
    for number, table in enumerate(tables):
        if table.reading_bytes > most_bytes:
            spool = spool or tempfile.TemporaryDirectory(prefix="tartan-sort-", dir=options.folders[0])
            folder = Path(spool.name) / str(number)
            folder.mkdir(0o700)
            table.repage(folder, most_bytes)
    return spool


def _with_names(request: TableRequest) -> TableRequest:
    """Return what is asked for with the names of columns in place of their numbers in the first file."""
    named = [*(request.columns or ()), *(column.name for column in request.key)]
    if not any(name.isdecimal() for name in named):
        return request
    names = TableSource(request.paths[0]).schema.names

    def name_of(word: str) -> str:
        return names[int(word) - 1] if word not in names and is_number_of(word, len(names)) else word

    columns = None if request.columns is None else [name_of(name) for name in request.columns]
    return replace(request, columns=columns, key=tuple(replace(one, name=name_of(one.name)) for one in request.key))


def _target_text(request: TableRequest) -> TextForm | None:
    """Return the form of a destination that is CSV or TSV; None for Parquet and Arrow."""
    if is_table(request.target):
        return None
    text = text_form(request.target, None, request.quote, separator=request.separator, header=request.header)
    if text is not None and request.separator is not None and text.kind != "csv":
        raise ConfigError(
            "`separator=` is for CSV; omit it, or name the destination .csv", context={"option": "separator"}
        )
    if text is None or text.kind == "lines":
        raise ConfigError(
            f"{request.target} is not the name of a table; give it a suffix of "
            f"{', '.join(TABLE_SUFFIXES)}, .csv or .tsv",
            context={"path": str(request.target)},
        )
    if request.compression is not None:
        raise ConfigError("text is compressed by its name, .gz or .zst; omit `compression=`")
    return text


def require_memory(options: SortOptions, what: str) -> None:
    """Refuse too little memory for Arrow.

    Raises
    ------
    ConfigError
    """
    if options.memory_bytes < LEAST_MEMORY_BYTES:
        raise ConfigError(
            f"memory of {format_bytes(options.memory_bytes)} is too little for {what}; "
            f"{format_bytes(LEAST_MEMORY_BYTES)} is the least",
            code="memory",
            context={"option": "memory", "least_bytes": LEAST_MEMORY_BYTES},
        )


def codec_of(target: Path, wanted: str | None, usual: str) -> str:
    """Return the codec of a table that is written: the usual one, if its format has it and no other is wanted."""
    known = _CODECS[TABLE_SUFFIXES[target.suffix.lower()]]
    if wanted is None:
        return usual if usual in known else "none"
    if wanted not in known:
        raise ConfigError(
            f"`compression={wanted!r}` is unknown to {target.name}; there are {', '.join(known)}",
            context={"option": "compression"},
        )
    return wanted


def table_writer(target: Destination, schema: pa.Schema, compression: str) -> TableWriter:
    """Open a destination that is a Parquet or Arrow file."""
    return TableWriter(target.part, TABLE_SUFFIXES[target.path.suffix.lower()], schema, compression)


def parse_columns(key: str | Sequence[str] | None, *, descending: bool, nulls_first: bool) -> tuple[ColumnKey, ...]:
    """Read ``"score:desc,name"``; () for nothing.

    Raises
    ------
    ConfigError
        If a part has no name.
    """
    if not key:
        return ()
    directions = {"desc": True, "asc": False}
    found = []
    for text in [part for one in ([key] if isinstance(key, str) else key) for part in split_names(one)]:
        name, _, word = text.rpartition(":")
        if word not in directions:
            name, word = text, "desc" if descending else "asc"
        if not name:
            raise ConfigError(f"the key {key!r} has an empty part; write COLUMN or COLUMN:desc, separated by commas")
        found.append(ColumnKey(unquote(name), directions[word], nulls_first))
    return tuple(found)


def describe_source(path: Path, n_bytes: int) -> SourceFile:
    """Describe a file whose rows take ``n_bytes`` as records."""
    status = path.stat()
    return SourceFile(path, 0, n_bytes, status.st_size, status.st_mtime_ns, status.st_ino)


class RowBatches(Protocol):
    """A source of rows that is read from any of its spans on."""

    def batches_at(self, span: Span, skip: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows from a span on, without the first ones."""

    def arrange(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows as the form of records takes them; several threads may ask at a time."""


@dataclass(frozen=True)
class KeyedTable:
    """A table whose batches have the columns that are compared behind those that are carried, if the form asks."""

    table: TableSource
    schema: pa.Schema
    key: Sequence[ColumnKey]
    form: RowForm | PieceForm
    marks: RowMarks | None = None

    @property
    def n_rows(self) -> int:
        return self.table.n_rows

    @property
    def reading_bytes(self) -> int:
        return self.table.reading_bytes

    def batches(self, first: int = 0) -> Iterator[pa.RecordBatch]:
        return self.table.batches(first)

    def batches_at(self, span: Span, skip: int) -> Iterator[pa.RecordBatch]:
        return self.table.batches(span[0] + skip)

    def write_recipe(self) -> SourceRecipe:
        marks = None if self.form.is_row else self.marks
        spans = [(0, -1, self.n_rows)] if marks is None else marks.spans(self.form.count_records)
        return SourceRecipe(str(self.table.path), tuple(spans))

    def arrange(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self.form.is_row:
            return batch
        columns = [*batch.columns, *(batch.column(batch.schema.get_field_index(one.name)) for one in self.key)]
        return pa.RecordBatch.from_arrays(columns, names=[str(place) for place in range(len(columns))])


class RowSource(Protocol):
    """A source of rows."""

    @property
    def n_rows(self) -> int:
        """How many there are."""

    @property
    def reading_bytes(self) -> int:
        """Most memory that reading takes, until rows are records."""

    def batches(self, first: int = 0) -> Iterator[pa.RecordBatch]:
        """Yield the rows from ``first`` on."""

    def arrange(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows as the form of records takes them; several threads may ask at a time."""

    def write_recipe(self) -> SourceRecipe:
        """Write down where the rows lie, and how they are read."""


class TableRun(PushedRun):
    """A sort of rows: those of tables, or of another kind of source and destination."""

    tables: Sequence[RowSource]
    form: RowForm | PieceForm
    compression: str
    text: TextForm | None = None
    selection: Selection = ALL_ROWS
    n_records: int = 0
    longest_row: int = 0
    spool: tempfile.TemporaryDirectory[str] | None = None
    """Temporary files that the tables are read from, until the end."""
    n_written: int = 0
    """Rows that were written."""
    _leaders: np.ndarray | None = None
    _has_chosen: bool = False

    @property
    def n_bytes(self) -> int:
        width = self.order.dtype.itemsize
        return (self.n_records if self._leaders is None else len(self._leaders)) * width

    def run(self, *, resume: bool, quiet: bool) -> SortResult:
        """Sort, and return what was done; what Arrow took to look at the sources is given back first."""
        self.choose_first_rows()
        self._block_bytes = self._group_bytes if self.form.is_row else PULLED_BYTES
        if self._leaders is not None:
            self._block_bytes = max(1, min(self._block_bytes, self._leaders.nbytes))
        pa.default_memory_pool().release_unused()
        with self.reading():
            result = super().run(resume=resume, quiet=quiet)
        return replace(result, n_records=self.n_written)

    def reading(self) -> contextlib.AbstractContextManager[Any]:
        """Return a context at whose end temporary files that tables are read from are removed."""
        return self.spool or contextlib.nullcontext()

    def describe(self) -> dict[str, Any]:
        """Say which job this is."""
        return self._description()

    def read_records(self) -> Iterator[np.ndarray]:
        """Yield the records of all rows."""
        return self._read_records(0)

    @property
    def has_first_rows(self) -> bool:
        """Whether the rows that are written are all known, so that nothing else is sorted."""
        return self._leaders is not None

    def choose_first_rows(self) -> None:
        """Look the sources through for the first rows, if only these are wanted; a second call does nothing."""
        self.form.block_bytes = self._group_bytes
        if self.selection.top is None or self._has_chosen:
            return
        self._has_chosen = True
        self._leaders = choose_leaders(
            self._read_records(0),
            self.form,
            self.order.parts,
            self.order.dtype,
            unique=self.selection.unique,
            top=self.selection.top,
            most_bytes=self.options.memory_bytes // _LEADERS_SHARE,
        )

    def _count_kept_bytes(self) -> int:
        """Return the memory for rows: those that are read, and later those that are written."""
        reading = max((table.reading_bytes for table in self.tables), default=0)
        writing = 2 * BUFFER_BYTES
        if self._leaders is not None:  # nothing else is read any more, or written
            return writing + _LEADERS_COPIES * self._leaders.nbytes + ROW_COPIES * self.longest_row
        if self.form.is_row:
            writing += WRITTEN_BLOCKS * self._block_bytes
        else:
            writing += _PULLED_COPIES * PULLED_BYTES
            writing += _GATHERED_BLOCKS * self._group_bytes if self._is_table else 0
        return max(reading, writing) + ROW_COPIES * self.longest_row

    def _expect_kept_bytes(self, kept_bytes: int) -> int:
        """Return what is read at a time, and of few rows no more than copies of all of them while they are written."""
        reading = max((table.reading_bytes for table in self.tables), default=0)
        return min(kept_bytes, reading + 2 * BUFFER_BYTES + ROW_COPIES * self.n_bytes)

    @property
    def _group_bytes(self) -> int:
        """Bytes of rows that are made or written at a time."""
        return choose_block_bytes(self.options.memory_bytes)

    def _description(self) -> dict[str, Any]:
        about = {**super()._description(), "columns": [[field.name, str(field.type)] for field in self.form.schema]}
        chosen = self.selection
        if chosen.unique or chosen.top is not None:
            about["selection"] = [chosen.unique, chosen.top, self._leaders is not None]
        return about

    def _records(self, first: int, count: int) -> Iterator[np.ndarray]:
        """Yield ``count`` records, from record ``first`` on; -1 means all the rest."""
        if self._leaders is not None:
            yield self._leaders[first : None if count < 0 else first + count]
            return
        left = count if count >= 0 else self.n_records - first
        for records in self._read_records(first):
            if left <= 0:
                return
            part = records[:left]
            left -= len(part)
            yield part

    def _read_records(self, first: int) -> Iterator[np.ndarray]:
        """Yield all records from record ``first`` on."""
        for table in self.tables:
            if self.form.is_row and first >= table.n_rows:
                first -= table.n_rows
                continue
            for records in self._make_records(table, first if self.form.is_row else 0):
                if self.form.is_row or first <= 0:
                    yield records
                elif first < len(records):
                    yield records[first:]
                if not self.form.is_row:
                    first -= len(records)
            first = 0 if self.form.is_row else first

    @property
    def _n_makers(self) -> int:
        """Threads that make records ahead of the engine, which takes them in their order."""
        return 1

    def _make_records(self, table: RowSource, first: int) -> Iterator[np.ndarray]:
        """Yield the records of a source from row ``first`` on."""
        return make_records(self.form, table.batches(first), table.arrange, self._n_makers)

    def write_recipe(self) -> RowsRecipe:
        """Write down how the records are made, for those who make some of them."""
        reading = max((table.reading_bytes for table in self.tables), default=0) + ROW_COPIES * self.longest_row
        sources = tuple(table.write_recipe() for table in self.tables)
        return RowsRecipe(write_form(self.form), sources, reading, **self._ways_of_reading())

    def _ways_of_reading(self) -> dict[str, Any]:
        first = next(table for table in self.tables if isinstance(table, KeyedTable))
        names = tuple(column.name for column in first.key)
        return {"table": TableRecipe(write_schema(first.schema), names, first.table.dates, first.table.batch_bytes)}

    def _write(self, engine: SortJob, work: WorkFolders, progress: SortProgress) -> None:
        with self._time_phase("merge"):
            self.write_rows(self._yield_sorted(engine, work, progress))

    def write_rows(self, blocks: Iterator[np.ndarray]) -> None:
        """Write the rows of sorted records; each block may be another one's memory from the one behind the next on."""
        pa.default_memory_pool().release_unused()  # what reading took
        picker = Picker(self.form, self.order.parts, unique=self.selection.unique, top=self.selection.top)
        with contextlib.ExitStack() as stack:
            write, finish, abandon = self._writer()
            stack.callback(abandon)
            if not self.form.is_row and self._is_table:
                write, finish = gather_batches(write, finish, self._group_bytes)
            for rows in stack.enter_context(contextlib.closing(ahead(self._yield_rows(blocks, picker)))):
                write(rows)
            finish()
        self.n_written = picker.n_rows

    def _yield_rows(self, blocks: Iterator[np.ndarray], picker: Picker) -> Iterator[Any]:
        """Yield what the writer takes of the rows that are written."""
        for records in blocks:
            yield from self.form.rows(picker.pick(records))
            if picker.is_done:
                break
        yield from self.form.finish()

    @property
    def _is_table(self) -> bool:
        """Whether rows are written in groups."""
        return self.text is None

    def _writer(self) -> Writer:
        """Open the destination; return what writes a batch, what writes the end, and what closes it as it is."""
        if self.text is not None:
            return open_printing_writer(self.destination.part, self.text, self.form.schema)
        writer = table_writer(self.destination, self.form.schema, self.compression)
        return writer.write, writer.finish, writer.abandon


def make_records(
    form: RowForm | PieceForm,
    batches: Iterator[pa.RecordBatch],
    arrange: Callable[[pa.RecordBatch], pa.RecordBatch],
    n_makers: int,
) -> Iterator[np.ndarray]:
    """Yield the records of rows in their order; several threads make them ahead of who takes them."""
    if n_makers == 1:
        for batch in batches:
            yield from form.blocks(arrange(batch))
        return

    def make(batch: pa.RecordBatch) -> list[np.ndarray]:
        return list(form.blocks(arrange(batch)))

    with contextlib.closing(map_ahead(make, batches, n_makers)) as made:
        for blocks in made:
            yield from blocks


def choose_block_bytes(memory_bytes: int) -> int:
    """Return how many bytes of rows are read, made or written at a time."""
    return max(_LEAST_BLOCK_BYTES, min(BLOCK_BYTES, memory_bytes // _BLOCK_SHARE))


def gather_batches(
    write: Callable[[Any], None], finish: Callable[[], None], n_bytes: int
) -> tuple[Callable[[Any], None], Callable[[], None]]:
    """Return what collects small batches before it hands them on, so that row groups are not small."""
    held: list[pa.RecordBatch] = []

    def flush() -> None:
        if held:
            for batch in pa.Table.from_batches(held).combine_chunks().to_batches():
                write(batch)
            held.clear()

    def take(batch: pa.RecordBatch) -> None:
        held.append(batch)
        if sum(one.nbytes for one in held) >= n_bytes:
            flush()

    def end() -> None:
        flush()
        finish()

    return take, end


def choose_form(
    schema: pa.Schema,
    facts: Sequence[ColumnFacts],
    key: Sequence[ColumnKey],
    tables: Sequence[TableSource],
    memory_bytes: int,
    *,
    keep_signs: bool,
    marks: Sequence[RowMarks] | None = None,
) -> tuple[RowForm | PieceForm, int, int]:
    """Return the form of records that takes less room, the number of records, and the bytes of the longest row.

    A record with room for the longest text of each column is simple, and its rows are found without reading others.
    Where one text is much longer than most, rows are cut into pieces; their texts are read once more to count them.
    ``marks``, one for each table, remember where rows lie that are cut.
    """
    n_rows = sum(table.n_rows for table in tables)
    equal = () if keep_signs else [column.name for column in key]
    texts = [place for place, field in enumerate(schema) if is_text_type(storage_type(field))]
    width = sum(facts[place].longest for place in texts)
    if width <= LONG_TEXT_BYTES or not key:
        return RowForm(schema, facts, equal_zeros=equal), n_rows, width
    refuse_unknown_keys(schema, facts, key)
    content = ColumnContent(schema, facts)
    compared = [schema.get_field_index(column.name) for column in key]
    long = {place: LongTexts(memory_bytes // 8 // len(key)) for place in compared if place in texts}
    lengths = LengthCount()
    names = [schema.names[place] for place in texts]
    for number, table in enumerate(tables):
        for batch in table.batches(columns=names):
            total = np.zeros(batch.num_rows, np.int64)
            for place, column in zip(texts, batch.columns, strict=True):
                column = as_bytes(column)
                total += pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False)
                if place in long:
                    long[place].add(column)
            lengths.add(total)
            if marks is not None:
                marks[number].add(total)
    key_schema = pa.schema([schema.field(place).with_name(f"key {number}") for number, place in enumerate(compared)])
    chosen = [facts[place] for place in compared], content, [long.get(place) for place in compared]
    key_bytes = make_key_form(key_schema, chosen[0], chosen[2]).dtype.itemsize
    piece_bytes, n_pieces = lengths.choose_piece(key_bytes, content.fixed_bytes)
    form = PieceForm(key_schema, *chosen, piece_bytes, keep_signs=keep_signs)
    longest = lengths.longest + content.fixed_bytes
    fixed = RowForm(schema, facts, equal_zeros=equal)
    if fixed.dtype.itemsize <= MAX_RECORD_BYTES and n_rows * fixed.dtype.itemsize <= n_pieces * form.dtype.itemsize:
        return fixed, n_rows, width
    return form, n_pieces, longest


def refuse_unknown_keys(schema: pa.Schema, facts: Sequence[ColumnFacts], key: Sequence[ColumnKey]) -> None:
    """Refuse columns of a key that are not there or cannot be compared."""
    RowForm(schema, [replace(one, longest=0) for one in facts]).key(key)
