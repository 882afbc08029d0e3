"""Read and write Parquet and Arrow files for a sort.

A source yields batches of tens of thousands of rows, starting at any row, so that a stopped sort can resume. The
memory that a row group takes is known from its metadata before anything is read.
"""

from __future__ import annotations

import io
import mmap
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tartan.base.confined import open_unfinished
from tartan.base.files import arrow_file, fsync, open_regular
from tartan.errors import ConfigError, ItemError
from tartan.sort.categories import Categories
from tartan.sort.columns import ColumnFacts, storage_type
from tartan.sort.formats import TABLE_SUFFIXES, refuse_streams
from tartan.sort.parquet_pages import measure_reading
from tartan.sort.parquet_types import DateUnit, date_unit, int96_columns, refuse_lost_types
from tartan.sort.repaged import RepagedColumns

# By convention of Arrow: batches of 64 Ki rows are the default of its Parquet reader (batch_size).
BATCH_ROWS = 1 << 16
# By judgement: rows that are read at a time, also where texts repeat. No benchmark.
BATCH_BYTES = 16 << 20
# _READ_BYTES, _LEAST_READ_BYTES and _MOST_READ_BYTES, by judgement: a buffer for each column that is read at once, of
# all columns together; smaller than for raw files. `tartan bench sort` measures Parquet.
_READ_BYTES = 16 << 20
# By judgement, see _READ_BYTES.
_LEAST_READ_BYTES = 1 << 16
# By judgement, see _READ_BYTES.
_MOST_READ_BYTES = 1 << 20
# By judgement: pages, the decoded row group, and half as much in records. `tartan bench sort` prints the peak: 527 MB
# for Parquet, 446 for raw.
ARROW_COPIES = 2.5
# By judgement: rows as they are read, put together, packed, and as records, and those that come meanwhile. The tests of
# 300 MB hold the peak.
_BATCH_COPIES = 6


class TableSource:
    """A Parquet or Arrow file to sort.

    Parameters
    ----------
    path : Path
    columns : sequence of str, optional
        Columns that are carried along; default: all.
    dates : {"ns", "us"}
        Unit in which INT96 is read.
    batch_bytes : int
        Of rows that are read at a time.

    Attributes
    ----------
    path, dates, batch_bytes
        As given.
    schema : pyarrow.Schema
        Of the columns that are carried.
    n_rows : int
    reading_bytes : int
        Most memory that reading takes, until rows are records.
    compression : str
        Codec of the file, ``"none"`` if it is not compressed.

    Raises
    ------
    ConfigError
        If there is no such column.
    ItemError
        If the file cannot be read.
    """

    def __init__(
        self,
        path: Path,
        columns: Sequence[str] | None = None,
        *,
        dates: DateUnit = "ns",
        batch_bytes: int = BATCH_BYTES,
    ) -> None:
        self.path, self.dates, self.batch_bytes = path, dates, batch_bytes
        self._reader: _Reader = _open_reader(path, dates, batch_bytes)
        whole = self._reader.schema
        for name in whole.names if columns is None else columns:
            if whole.names.count(name) != 1:
                how = "has no column" if name not in whole.names else "has several columns"
                there = ", ".join(whole.names)
                raise ConfigError(f"{path} {how} {name!r}; there are {there}", context={"column": name})
        names = whole.names if columns is None else list(columns)
        self.schema = pa.schema([whole.field(name) for name in names], metadata=whole.metadata)
        self._typed: dict[str, pa.Field] = {}
        self.n_rows = self._reader.n_rows
        self.reading_bytes = self._reader.count_reading_bytes(names)
        self.compression = self._reader.compression

    def batches(self, first: int = 0, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows from ``first`` on.

        Raises
        ------
        ItemError
            If the file is damaged.
        """
        names = self.schema.names if columns is None else list(columns)
        typed = [name for name in names if name in self._typed]
        try:
            for batch in self._reader.batches(first, names):
                for name in typed:
                    nulls = pa.nulls(batch.num_rows, self._typed[name].type)
                    batch = batch.set_column(batch.schema.get_field_index(name), self._typed[name], nulls)
                yield batch
        except (pa.ArrowException, OSError) as error:
            raise ItemError(f"{self.path} cannot be read: {error}", context={"path": str(self.path)}) from error

    def repage(self, folder: Path, most_bytes: int) -> None:
        """Write the columns into temporary files, if to read them side by side takes more memory than that.

        Parameters
        ----------
        folder : Path
            For the files; empty, and the caller's to remove.
        most_bytes : int
            Of memory.
        """
        if self.reading_bytes > most_bytes and isinstance(self._reader, _ParquetReader):
            self._reader.repage(self.schema.names, folder, most_bytes)
            self.reading_bytes = self._reader.count_reading_bytes(self.schema.names)

    def read_as(self, schema: pa.Schema) -> None:
        """Have columns that are null throughout read as those of the same names in a schema."""
        self._typed = {
            field.name: schema.field(field.name)
            for field in self.schema
            if pa.types.is_null(field.type) and not pa.types.is_null(schema.field(field.name).type)
        }

    def refuse_lost_types(self) -> None:
        """Refuse columns that cannot be carried, or would come out as another type.

        Raises
        ------
        ConfigError
        """
        for field in self.schema:
            storage_type(field)
        self._reader.refuse_lost_types(self.schema.names)

    @property
    def has_int96(self) -> bool:
        """Whether dates are INT96, which no type of Arrow holds as it is."""
        return self._reader.has_int96(self.schema.names)

    def null_count(self, name: str) -> int | None:
        """Return the number of nulls in a column, if the file holds it."""
        if name in self._typed:
            return self.n_rows
        return self._reader.null_count(name)


class _ParquetReader:
    """Yield row groups; ``first`` is found by their metadata."""

    def __init__(self, path: Path, dates: DateUnit, batch_bytes: int) -> None:
        self._path, self._batch_bytes = path, batch_bytes
        self._repaged: RepagedColumns | None = None
        about = pq.read_metadata(arrow_file(path))
        self._buffer_bytes = max(_LEAST_READ_BYTES, min(_MOST_READ_BYTES, _READ_BYTES // max(1, about.num_columns)))
        self._file = pq.ParquetFile(
            arrow_file(path),
            metadata=about,
            pre_buffer=False,
            buffer_size=self._buffer_bytes,
            coerce_int96_timestamp_unit=dates,
        )
        self.schema = self._file.schema_arrow
        self.n_rows = int(about.num_rows)
        groups = [about.row_group(number) for number in range(about.num_row_groups)]
        self._rows = [int(group.num_rows) for group in groups]
        self._groups = groups
        self._longest = longest_repeated(about, self.schema, arrow_file(path))
        codecs = {groups[0].column(c).compression.lower() for c in range(groups[0].num_columns)} if groups else set()
        self.compression = next(iter(codecs)).replace("uncompressed", "none") if len(codecs) == 1 else "snappy"

    def refuse_lost_types(self, names: list[str]) -> None:
        refuse_lost_types(self._path, self._file, names)

    def count_reading_bytes(self, names: Sequence[str]) -> int:
        """Return the memory that a row group takes, or, if that is less, its pages and the rows that are read."""
        rows = _BATCH_COPIES * self._batch_bytes
        if self._repaged is not None:
            return rows
        whole = int(ARROW_COPIES * max((int(group.total_byte_size) for group in self._groups), default=0))
        return min(whole, sum(self._measure(names).values()) + rows)

    def _measure(self, names: Sequence[str]) -> dict[str, int]:
        with open_regular(self._path) as file:
            return measure_reading(file.fileno(), self._file.metadata, names, self._buffer_bytes)

    def repage(self, names: Sequence[str], folder: Path, most_bytes: int) -> None:
        """Have the columns read from files in which they take little memory."""
        groups: list[list[str]] = [[]]
        held = 0
        for name, n_bytes in self._measure(names).items():
            if groups[-1] and held + n_bytes > most_bytes // 2:
                groups.append([])
                held = 0
            groups[-1].append(name)
            held += n_bytes
        n_rows = self._rows_at_once(0, names)
        self._repaged = RepagedColumns(folder, groups, lambda some: self._read(0, some, n_rows))

    def has_int96(self, names: Sequence[str]) -> bool:
        return any(name in names for name in int96_columns(self._file))

    def null_count(self, name: str) -> int | None:
        total = 0
        number = self.schema.get_field_index(name)
        for group in self._groups:
            statistics = group.column(number).statistics if group.num_columns == len(self.schema) else None
            if statistics is None or not statistics.has_null_count:
                return None
            total += int(statistics.null_count)
        return total

    def batches(self, first: int, names: list[str]) -> Iterator[pa.RecordBatch]:
        if self._repaged is not None:
            return self._repaged.batches(first, names)
        return self._read(first, names, self._rows_at_once(first, names))

    def _rows_at_once(self, first: int, names: Sequence[str]) -> int:
        """Return how many rows are read at a time, from row ``first`` on."""
        groups = [self._groups[number] for number in self._wanted(first)[0]]
        # A batch would go over row groups until it has its rows, of whatever length they are.
        sizes = [group.total_byte_size / max(1, group.num_rows) for group in groups]
        texts = (self._longest.get(name, 0) for name in names)
        return rows_at_once(BATCH_ROWS, [int(max(sizes, default=0)), *texts], self._batch_bytes)

    def _wanted(self, first: int) -> tuple[list[int], int]:
        """Return the row groups in which the rows from ``first`` on lie, and how many rows of them come before."""
        start, skip = 0, 0
        wanted: list[int] = []
        for number, rows in enumerate(self._rows):
            if start + rows > first:
                if not wanted:
                    skip = first - start
                wanted.append(number)
            start += rows
        return wanted, skip

    def _read(self, first: int, names: list[str], n_rows: int) -> Iterator[pa.RecordBatch]:
        wanted, skip = self._wanted(first)
        for batch in self._file.iter_batches(n_rows, row_groups=wanted, columns=names):
            if skip >= batch.num_rows:
                skip -= batch.num_rows
                continue
            yield batch.slice(skip).select(names)
            skip = 0


class _ArrowReader:
    """Yield record batches, memory-mapped."""

    compression = "none"

    def __init__(self, path: Path) -> None:
        self._file = pa.ipc.open_file(pa.memory_map(os.fsencode(path)))
        self.schema = self._file.schema
        batches = [self._file.get_batch(number) for number in range(self._file.num_record_batches)]
        self._rows = [batch.num_rows for batch in batches]
        self.n_rows = sum(self._rows)
        self._largest_bytes = max((batch.nbytes for batch in batches), default=0)

    def count_reading_bytes(self, names: Sequence[str]) -> int:
        """Return the memory that the largest record batch takes."""
        return int(ARROW_COPIES * self._largest_bytes)

    def refuse_lost_types(self, names: list[str]) -> None:
        """Refuse none: what an Arrow file holds Arrow writes."""

    def has_int96(self, names: Sequence[str]) -> bool:
        return False

    def null_count(self, name: str) -> int | None:
        batches = (self._file.get_batch(number) for number in range(len(self._rows)))
        return sum(int(batch.column(name).null_count) for batch in batches)

    def batches(self, first: int, names: list[str]) -> Iterator[pa.RecordBatch]:
        start = 0
        for number, rows in enumerate(self._rows):
            if start + rows > first:
                batch = self._file.get_batch(number).select(names)
                for begin in range(max(0, first - start), rows, BATCH_ROWS):
                    yield batch.slice(begin, min(BATCH_ROWS, rows - begin))
            start += rows


_Reader = _ParquetReader | _ArrowReader


def _open_reader(path: Path, dates: DateUnit, batch_bytes: int) -> _Reader:
    kind = TABLE_SUFFIXES.get(path.suffix.lower())
    if kind is None:
        raise ConfigError(f"{path} is not a Parquet or Arrow file; sort files of one kind at a time")
    try:
        refuse_streams(path)
        return _ParquetReader(path, dates, batch_bytes) if kind == "parquet" else _ArrowReader(path)
    except (pa.ArrowException, OSError) as error:
        raise ItemError(f"{path} cannot be read as {kind}: {error}", context={"path": str(path)}) from error


def open_tables(
    paths: Sequence[Path], columns: Sequence[str] | None, *, batch_bytes: int = BATCH_BYTES
) -> list[TableSource]:
    """Open files to sort, all with dates in the unit that holds those of all of them."""
    tables = [TableSource(path, columns, batch_bytes=batch_bytes) for path in paths]
    dated = [table.path for table in tables if table.has_int96]
    if dated and date_unit(dated, tables[0].schema.names) == "us":
        return [TableSource(path, columns, dates="us", batch_bytes=batch_bytes) for path in paths]
    return tables


def common_schema(sources: Sequence[TableSource]) -> pa.Schema:
    """Return the schema that all sources share, and have them read it.

    A column that has no type in a file, because it has no value there (``null``), has that of the others. It may be
    null if it may in one of them.

    Raises
    ------
    ConfigError
        If two differ; names the files and the column.
    """
    first = sources[0]
    fields = list(first.schema)
    typed = [first] * len(fields)
    for other in sources[1:]:
        if other.schema.names != first.schema.names:
            raise ConfigError(
                f"{other.path} has the columns {', '.join(other.schema.names)}, but {first.path} has "
                f"{', '.join(first.schema.names)}; name those to sort with `columns=`"
            )
        for place, theirs in enumerate(other.schema):
            ours = fields[place]
            if pa.types.is_null(ours.type) and not pa.types.is_null(theirs.type):
                ours, typed[place] = theirs.with_nullable(True), other
            if ours.type != theirs.type and not pa.types.is_null(theirs.type):
                raise ConfigError(
                    f"column {ours.name!r} is {theirs.type} in {other.path} and {ours.type} in {typed[place].path}; "
                    "convert them to one type"
                )
            fields[place] = ours.with_nullable(ours.nullable or theirs.nullable)
    schema = pa.schema(fields, metadata=first.schema.metadata)
    for source in sources:
        source.read_as(schema)
    return schema


def column_facts(sources: Sequence[TableSource], schema: pa.Schema, memory_bytes: int) -> list[ColumnFacts]:
    """Find out which columns hold nulls, how long texts are, and which categories there are.

    Text and dictionary columns are read once, others only if the metadata of a file do not count their nulls.

    Parameters
    ----------
    sources : sequence of TableSource
    schema : pyarrow.Schema
    memory_bytes : int
        Of the process; the categories of one column take a quarter of it at most.
    """
    return [_facts_of(sources, field, memory_bytes) for field in schema]


def _facts_of(sources: Sequence[TableSource], field: pa.Field, memory_bytes: int) -> ColumnFacts:
    kind = storage_type(field)
    if pa.types.is_null(kind):
        return ColumnFacts()
    # Texts of a dictionary stay in memory to the end; the sort itself needs most of the rest.
    categories = Categories(field.name, field.type, memory_bytes // 4) if pa.types.is_dictionary(field.type) else None
    is_text = not _has_width(kind)
    counts = [source.null_count(field.name) for source in sources] if field.nullable else [0]
    if not is_text and categories is None and None not in counts:
        return ColumnFacts(has_nulls=any(counts))
    nulls, longest = 0, 0
    for source in sources:
        for batch in source.batches(columns=[field.name]):
            column = batch.column(0)
            nulls += column.null_count
            if categories is not None:
                categories.add(column, str(source.path))
                nulls += column.dictionary.null_count
            longest = max(longest, _longest(column) if is_text else 0)
    return ColumnFacts(has_nulls=nulls > 0, longest=longest, categories=categories)


def _has_width(kind: pa.DataType) -> bool:
    try:
        return bool(kind.bit_width > 0) and not pa.types.is_string_view(kind) and not pa.types.is_binary_view(kind)
    except ValueError:
        return False


def _longest(column: pa.Array) -> int:
    column = column.storage if isinstance(column, pa.ExtensionArray) else column
    if pa.types.is_string_view(column.type):
        column = column.cast(pa.large_string())
    if pa.types.is_binary_view(column.type):
        column = column.cast(pa.large_binary())
    return int(pc.max(pc.binary_length(column)).as_py() or 0)


class TableWriter:
    """Write batches to a Parquet or Arrow file, in row groups of bounded size.

    Parameters
    ----------
    path : Path
        The file under its temporary name.
    kind : {"parquet", "arrow"}
    schema : pyarrow.Schema
    compression : str
        Codec; ``"none"`` for none.
    """

    def __init__(self, path: Path, kind: str, schema: pa.Schema, compression: str) -> None:
        self._file = DirectFile(path)
        dictionaries = [field.name for field in schema if pa.types.is_dictionary(field.type)]
        self._writer: Any
        if kind == "parquet":
            self._writer = pq.ParquetWriter(self._file, schema, compression=compression, use_dictionary=dictionaries)
        else:
            codec = None if compression == "none" else compression
            options = pa.ipc.IpcWriteOptions(compression=codec, unify_dictionaries=True)
            self._writer = pa.ipc.new_file(self._file, schema, options=options)

    def write(self, batch: pa.RecordBatch) -> None:
        """Write one batch as a row group."""
        self._writer.write_batch(batch)

    def finish(self) -> None:
        """Write the end of the file and sync it."""
        self._writer.close()
        self._file.finish()
        self._file.close()

    def abandon(self) -> None:
        """Close the file as it is."""
        self._file.close()


# Write a file past the page cache, so that the cache keeps what other programs need.
#
# It serves writers that only call ``write``. Of two aligned buffers one is filled while a thread writes the other.
# Where the file system refuses direct writes, it is an ordinary file that drops what it has written from the cache.

# By contract: _DIRECT_BYTES of base/files, from which writing past the page cache is faster.
BUFFER_BYTES = 4 << 20
# By arithmetic: a page of memory, and the block that O_DIRECT asks for.
PAGE = 4096


class DirectFile(io.RawIOBase):
    """A new file, written from beginning to end.

    Parameters
    ----------
    path : Path
        Created, or truncated; of a fixed temporary name.

    Attributes
    ----------
    direct : bool
        Whether the page cache is bypassed.
    """

    def __init__(self, path: Path) -> None:
        self._fd, self.direct = _open(path)
        self._buffers = [mmap.mmap(-1, BUFFER_BYTES) for _ in range(2)]
        self._fill = 0
        self._current = 0
        self._written = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tartan-write")
        self._pending: Future[None] | None = None

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._written + self._fill

    def write(self, data: Any) -> int:
        """Take all of the bytes; return their number."""
        view = memoryview(data).cast("B")
        taken = 0
        while taken < len(view):
            part = view[taken : taken + BUFFER_BYTES - self._fill]
            self._buffers[self._current][self._fill : self._fill + len(part)] = part
            self._fill += len(part)
            taken += len(part)
            if self._fill == BUFFER_BYTES:
                self._send(BUFFER_BYTES)
        return taken

    def _send(self, n_bytes: int) -> None:
        self._settle()
        buffer, offset = self._buffers[self._current], self._written
        self._pending = self._thread.submit(self._write_at, memoryview(buffer)[:n_bytes], offset)
        self._written += n_bytes
        self._current ^= 1
        self._fill = 0

    def _write_at(self, data: memoryview, offset: int) -> None:
        with data:
            done = 0
            while done < len(data):
                done += os.pwrite(self._fd, data[done:], offset + done)
        if not self.direct:
            os.fdatasync(self._fd)
            os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def _settle(self) -> None:
        if self._pending is not None:
            pending, self._pending = self._pending, None
            pending.result()

    def finish(self) -> None:
        """Write what is left and sync the file."""
        n_bytes, left = self._written + self._fill, self._fill
        if left:
            self._send(-(-left // PAGE) * PAGE)
        self._settle()
        os.ftruncate(self._fd, n_bytes)
        fsync(self._fd)

    def close(self) -> None:
        """Close the file as it is."""
        if not self.closed:
            self._thread.shutdown(wait=True)
            os.close(self._fd)
            self._pending = None
            for buffer in self._buffers:
                buffer.close()
        super().close()


def _open(path: Path) -> tuple[int, bool]:
    flags = os.O_WRONLY | os.O_TRUNC
    try:
        descriptor = open_unfinished(path, flags | os.O_DIRECT)
    except OSError:
        return open_unfinished(path, flags), False
    return descriptor, True


# Texts that a Parquet file holds once and repeats: how many rows may be read at a time.
#
# A page with one text of a megabyte, and rows that name it, take some kilobytes on disk and gigabytes as rows. The
# sizes in the metadata say nothing of that.

_DICTIONARIES = {"PLAIN_DICTIONARY", "RLE_DICTIONARY"}
_TEXTS = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.string_view(), pa.binary_view())


def longest_repeated(about: pq.FileMetaData, schema: pa.Schema, source: Any) -> dict[str, int]:
    """Return the bytes of the longest text in the dictionaries of each column that has some.

    Parameters
    ----------
    about : pyarrow.parquet.FileMetaData
    schema : pyarrow.Schema
        As the columns are read.
    source : file
        Opened anew for this; a row of each row group is read, and with it the dictionaries.
    """
    names = _columns(about, schema)
    if not names:
        return {}
    file = pq.ParquetFile(source, metadata=about, read_dictionary=names, pre_buffer=False)
    longest = dict.fromkeys(names, 0)
    for group in range(about.num_row_groups):
        for batch in file.iter_batches(1, row_groups=[group], columns=names):
            for name in names:
                longest[name] = max(longest[name], _longest_folded(batch.column(name)))
            break
    return longest


def _columns(about: pq.FileMetaData, schema: pa.Schema) -> list[str]:
    texts = {field.name for field in schema if field.type in _TEXTS}
    groups = [about.row_group(number) for number in range(about.num_row_groups)]
    chunks = (group.column(place) for group in groups for place in range(group.num_columns))
    return sorted({chunk.path_in_schema for chunk in chunks if _DICTIONARIES & set(chunk.encodings)} & texts)


def _longest_folded(column: pa.Array) -> int:
    if not isinstance(column, pa.DictionaryArray):
        return 0
    return int(pc.max(pc.binary_length(column.dictionary.cast(pa.large_binary()))).as_py() or 0)


def rows_at_once(most: int, longest: Sequence[int], n_bytes: int = BATCH_BYTES) -> int:
    """Return how many rows may be read at a time, if their texts are that long."""
    return max(1, min(most, n_bytes // max(1, sum(longest))))
