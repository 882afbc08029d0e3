"""Sort lines, CSV and TSV: files, gzip, zstd and pipes.

Rows become records of fixed width, with space for the longest value of each column, and of each numeric key a number
before them. What comes from a pipe is kept in a temporary file first: it is read twice.
"""

from __future__ import annotations

import contextlib
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Literal

import pyarrow as pa

from tartan.base.confined import ConfinedFolder
from tartan.base.files import disk_errors
from tartan.base.machine import held_bytes, peak_bytes
from tartan.errors import ConfigError
from tartan.sort.columns import ColumnFacts, ColumnKey, RowForm
from tartan.sort.delimited import WRITTEN, show_name
from tartan.sort.engine import MAX_RECORD_BYTES, Order, SortOptions
from tartan.sort.exact import NumberFacts
from tartan.sort.formats import Destination, is_table
from tartan.sort.names import refuse_text_name
from tartan.sort.pieces import LONG_TEXT_BYTES, ColumnContent, LineContent, LongTexts, PieceForm, make_key_form
from tartan.sort.printed_tables import Writer
from tartan.sort.printing import common_type, parse_texts
from tartan.sort.quoted_names import split_names, unquote
from tartan.sort.recipes import SourceRecipe, write_text
from tartan.sort.result import SortResult
from tartan.sort.selection import ALL_ROWS, Selection
from tartan.sort.spans import join_spans
from tartan.sort.table_job import (
    LEAST_MEMORY_BYTES,
    WRITTEN_BLOCKS,
    TableRun,
    codec_of,
    describe_source,
    require_memory,
    table_writer,
)
from tartan.sort.text_columns import TextColumns
from tartan.sort.text_files import LINE, TextFacts, TextKey, TextSource, TextWriter, is_utf8
from tartan.sort.text_form import KINDS, PIPE, QUOTES, TextForm, text_form
from tartan.sort.text_reader import MOST_THREADS

_WORDS = {"desc": True, "asc": False}
# By judgement: sixteen times shutil's own, so that calls cost nothing. No benchmark.
_COPY_BYTES = 1 << 20
_SYNTAX = (
    "write COLUMN, with :number, :text or :natural and :desc or :asc behind it if wanted, or of lines OFFSET:LENGTH"
)


@dataclass(frozen=True)
class TextRequest:
    """What a sort of text is asked for, besides the options of every sort.

    Attributes
    ----------
    paths : sequence of Path
        ``-`` is standard input.
    target : Path
        ``-`` is standard output.
    kind : {"lines", "csv", "tsv"} or None
        None: by the names of the files.
    quote : {"double", "none"} or None
        None: doubled in CSV, none in TSV.
    key : str, sequence of str or None
    columns : sequence of str or None
        Columns that are carried along; None for all.
    compression : str or None
        Of a destination that is a table; None: snappy in Parquet, none in Arrow.
    separator : str or None
        Of CSV; None: a comma.
    header : bool
        Whether CSV and TSV begin with a line of names.
    descending, nulls_first, total_order, in_place, overwrite : bool
    selection : Selection
        Which of the sorted rows are written.
    marked : bool
        Whether it is remembered where rows lie, so that others can make the records of some of them.
    """

    paths: Sequence[Path]
    target: Path
    kind: Any = None
    quote: Any = None
    key: str | Sequence[str] | None = None
    columns: Sequence[str] | None = None
    compression: str | None = None
    descending: bool = False
    nulls_first: bool = False
    total_order: bool = False
    in_place: bool = False
    overwrite: bool = False
    selection: Selection = ALL_ROWS
    separator: str | None = None
    header: bool = True
    marked: bool = False


def sort_text(
    request: TextRequest, options: SortOptions, execute: Callable[[TableRun], SortResult], *, quiet: bool
) -> SortResult:
    """Sort files of text.

    Parameters
    ----------
    request : TextRequest
    options : SortOptions
    execute : callable
        Runs the sort, here or on ranks.
    quiet : bool
        Say nothing on stderr.

    Raises
    ------
    ConfigError
        If files differ in form, the key cannot be read, a row is too long, or memory is too little.
    """
    require_memory(options, "text")
    if request.kind is not None and request.kind not in KINDS:
        raise ConfigError(
            f"`format={request.kind!r}` is unknown; choose {', '.join(KINDS)}", context={"option": "format"}
        )
    if request.quote is not None and request.quote not in QUOTES:
        raise ConfigError(
            f"`quote={request.quote!r}` is unknown; choose {', '.join(QUOTES)}", context={"option": "quote"}
        )
    with contextlib.ExitStack() as spools:
        forms = [_form(path, request, request.kind) for path in request.paths]
        first = _target_form(request, forms[0])
        _refuse_ways_of_others(request, [*forms, first])
        if {form.kind for form in forms} | {first.kind} > {"lines"}:
            raise ConfigError("lines and tables of columns cannot be sorted together; say what all are with `format=`")
        paths = [_readable(path, form, options, spools) for path, form in zip(request.paths, forms)]
        target = request.target
        if target == PIPE:
            target = _spool(options, spools) / f"sorted.{first.kind}"
        shown = ["standard input" if path == PIPE else str(path) for path in request.paths]
        run = _text_run(replace(request, paths=paths, target=target), forms, first, options, shown)
        for said in () if quiet else run.said:
            print(f"tartan: {said}", file=sys.stderr)
        result = execute(run)
        result = replace(result, notes=(*result.notes, *run.said))
        if target != request.target:
            with target.open("rb") as file:
                shutil.copyfileobj(file, sys.stdout.buffer, _COPY_BYTES)
            sys.stdout.buffer.flush()
            result = replace(result, path=PIPE)
        return result


def _form(path: Path, request: TextRequest, kind: Any) -> TextForm:
    found = text_form(path, kind, request.quote, separator=request.separator, header=request.header)
    if found is None:
        raise ConfigError(
            f"{path} does not say that it is lines, csv or tsv; say `format=`, for example lines",
            context={"option": "format", "path": str(path)},
        )
    return found


def _target_form(request: TextRequest, first: TextForm) -> TextForm:
    """Return what is written: lines of lines; else what the destination is called, or else what the sources are."""
    if is_table(request.target):
        return first
    if request.compression is not None:
        raise ConfigError("text is compressed by its name, .gz or .zst; omit `compression=`")
    if request.target != PIPE:
        refuse_text_name(request.target, lines=first.kind == "lines")
    if first.kind != "lines" and text_form(request.target) is not None:
        return _form(request.target, request, None)
    return _form(request.target, request, first.kind)


def _refuse_ways_of_others(request: TextRequest, forms: Sequence[TextForm]) -> None:
    """Refuse what CSV and TSV are told where there is none of them."""
    kinds = {form.kind for form in forms}
    if "lines" in kinds and (request.separator is not None or not request.header):
        raise ConfigError(
            "lines have neither separators nor names; omit `separator=` and `header=`, or say `format='csv'`",
            context={"option": "separator" if request.separator is not None else "header"},
        )
    if request.separator is not None and "csv" not in kinds:
        raise ConfigError(
            "`separator=` is for CSV, and in TSV it is a tab; omit it, or say `format='csv'`",
            context={"option": "separator"},
        )


def _readable(path: Path, form: TextForm, options: SortOptions, spools: contextlib.ExitStack) -> Path:
    """Return a file that can be read twice: a pipe is copied into a temporary one."""
    if path == PIPE:
        return _copy_pipe(sys.stdin.buffer, options, spools)
    try:
        if stat.S_ISFIFO(path.stat().st_mode):
            with path.open("rb") as pipe:
                return _copy_pipe(pipe, options, spools, suffix="".join(path.suffixes) if form.codec != "none" else "")
    except OSError as error:
        raise ConfigError(
            f"cannot read {path}: {error.strerror}; name a file that exists and is readable",
            code="unreadable",
            context={"path": str(path)},
        ) from error
    return path


def _copy_pipe(stream: BinaryIO, options: SortOptions, spools: contextlib.ExitStack, suffix: str = "") -> Path:
    copy = _spool(options, spools) / f"input{suffix}"
    with disk_errors(copy), ConfinedFolder(copy.parent).new_file(copy, 0o600) as file:
        shutil.copyfileobj(stream, file, _COPY_BYTES)
    return copy


def _spool(options: SortOptions, spools: contextlib.ExitStack) -> Path:
    folder = tempfile.TemporaryDirectory(prefix="tartan-sort-", dir=options.folders[0])
    return Path(spools.enter_context(folder))


def _text_run(
    request: TextRequest, forms: Sequence[TextForm], target: TextForm, options: SortOptions, shown: Sequence[str]
) -> TextRun:
    keys = _parse_key(request, forms[0])
    is_typed = is_table(request.target)
    paths = list(request.paths)
    if not request.header:
        paths, forms, shown = _without_empty(paths, forms, shown)
    into: dict[str, Any] = {"typed": True} if is_typed else {"target": target}
    # What ranks read need not be kept here.
    spare_bytes = 0 if request.marked else max(0, options.memory_bytes - 2 * LEAST_MEMORY_BYTES) // 8
    facts = TextFacts(
        [LongTexts(options.memory_bytes // 8 // len(keys)) for _ in keys],
        spare_bytes=spare_bytes,
        n_threads=min(options.threads, MOST_THREADS),
        marked=request.marked,
    )
    sources = [
        TextSource(path, form, [key for key, _ in keys], request.columns, **into, shown=name, facts=facts)
        for path, form, name in zip(paths, forms, shown)
    ]
    for other in sources[1:] if request.columns is None else ():
        if other.names != sources[0].names:
            if not request.header:
                raise ConfigError(
                    f"{other.shown} has {len(other.names)} columns, but {sources[0].shown} has "
                    f"{len(sources[0].names)}; say those to sort by their numbers with `columns=`"
                )
            raise ConfigError(
                f"{other.shown} has the columns {', '.join(map(show_name, other.names))}, but {sources[0].shown} has "
                f"{', '.join(map(show_name, sources[0].names))}; name those to sort with `columns=`"
            )
    ways = {"total_order": request.total_order}
    rows, form, n_records = _choose_form(sources, [key for key, _ in keys], facts, typed=is_typed, **ways)
    order = Order(
        form.dtype, tuple(form.key(rows.key([descending for _, descending in keys], nulls_first=request.nulls_first)))
    )
    tables = [_TextTable(source, rows.columns, form) for source in sources]
    files = [describe_source(source.path, source.n_rows * form.dtype.itemsize) for source in sources]
    where = {"in_place": request.in_place, "overwrite": request.overwrite}
    run = TextRun(files, Destination(request.target, form.dtype, n_records, files, **where), order, options)
    run.tables, run.form, run.target, run.selection = tables, form, target, request.selection
    run.n_records, run.longest_row = n_records, facts.rows.longest
    if is_typed:
        run.schema, run.compression = _schema(sources), codec_of(request.target, request.compression, "snappy")
    run.names = [sources[0].names[int(place)] for place in sources[0].carried]
    run.said, run.total_order = rows.say_types(), request.total_order
    return run


def _without_empty(
    paths: Sequence[Path], forms: Sequence[TextForm], shown: Sequence[str]
) -> tuple[list[Path], list[TextForm], list[str]]:
    """Leave files without a byte out, which have no columns that could differ; one stays."""
    some = [number for number, path in enumerate(paths) if path.stat().st_size] or [0]
    return [paths[number] for number in some], [forms[number] for number in some], [shown[number] for number in some]


def _parse_key(request: TextRequest, form: TextForm) -> list[tuple[TextKey, bool]]:
    """Read the key: its parts and their directions; of lines without one the whole line."""
    if not request.key:
        if form.kind != "lines":
            raise ConfigError("name the columns to sort by with `key=`", context={"option": "key"})
        return [(TextKey(LINE, as_number=False), request.descending)]
    texts = [request.key] if isinstance(request.key, str) else list(request.key)
    parts = [part for text in texts for part in split_names(text)]
    return [_part(part, request.descending, lines=form.kind == "lines") for part in parts]


def _part(text: str, descending: bool, *, lines: bool) -> tuple[TextKey, bool]:
    words = text.split(":")
    if len(words) > 1 and words[-1] in _WORDS:
        descending = _WORDS[words.pop()]
    as_number, natural = None, False
    if len(words) > 1 and words[-1] in ("number", "text", "natural"):
        kind = words.pop()
        as_number, natural = kind == "number", kind == "natural"
    if lines and len(words) == 2 and all(word.isdecimal() for word in words) and int(words[1]):
        start = int(words[0])
        return TextKey(LINE, as_number=False, start=start, stop=start + int(words[1])), descending
    if not all(words) or (lines and words != [LINE]):
        raise ConfigError(f"the key {text!r} cannot be read; {_SYNTAX}", context={"option": "key"})
    name = unquote(":".join(words))
    return TextKey(name, as_number=False if lines and as_number is None else as_number, natural=natural), descending


def _choose_form(
    sources: Sequence[TextSource], keys: Sequence[TextKey], facts: TextFacts, *, typed: bool, total_order: bool
) -> tuple[_TextRows, RowForm | PieceForm, int]:
    """Return rows and records that take little room, and the number of records."""
    n_rows = sum(source.n_rows for source in sources)
    rows = _TextRows(sources, keys, facts, carry="columns" if typed else "lines", total_order=total_order)
    plain = rows if typed else _TextRows(sources, keys, facts, carry="columns", total_order=total_order)
    width = sum(one.longest for one in plain.facts)
    is_line = not typed and sources[0].form.kind == "lines" and plain.n_compared == 0
    if (is_line or typed) and width <= LONG_TEXT_BYTES:
        return plain, RowForm(plain.schema, plain.facts), n_rows
    rows = _TextRows(
        sources, keys, facts, carry="columns" if typed else "lines", copy_keys=True, total_order=total_order
    )
    content = ColumnContent(rows.carried_schema, rows.facts[: rows.n_carried]) if typed else LineContent(WRITTEN)
    of_keys = rows.schema_of_keys, rows.facts[rows.n_carried :]
    key_bytes = make_key_form(*of_keys, rows.long_texts).dtype.itemsize
    extra_bytes = content.fixed_bytes if isinstance(content, ColumnContent) else 0
    piece_bytes, n_pieces = facts.rows.choose_piece(key_bytes, extra_bytes)
    form = PieceForm(*of_keys, content, rows.long_texts, piece_bytes, keep_signs=total_order)
    if typed or is_line:
        fixed_bytes = sum(_fixed_bytes(plain))
        if fixed_bytes <= MAX_RECORD_BYTES and n_rows * fixed_bytes <= n_pieces * form.dtype.itemsize:
            return plain, RowForm(plain.schema, plain.facts), n_rows
    return rows, form, n_pieces


def _fixed_bytes(rows: _TextRows) -> Iterator[int]:
    """Yield the bytes of each column of records of fixed width, or more than they may have."""
    for field, facts in zip(rows.schema, rows.facts, strict=True):
        yield 1 + (facts.longest + 4 if pa.types.is_large_binary(field.type) else field.type.bit_width // 8)


class _TextRows:
    """Rows as the form of records takes them: what is carried, and the columns that are compared.

    Attributes
    ----------
    schema : pyarrow.Schema
        What is carried, called ``"0"`` and on, or ``"line"``, then what is compared and not written, called ``"key 0"``
        and on.
    facts : list of ColumnFacts
        One for each column.
    n_carried, n_compared : int
    long_texts : list of LongTexts or None
        For each column that is compared and not written.
    """

    def __init__(
        self,
        sources: Sequence[TextSource],
        keys: Sequence[TextKey],
        facts: TextFacts,
        *,
        carry: Literal["columns", "lines"],
        copy_keys: bool = False,
        total_order: bool,
    ) -> None:
        self._keys, self._lengths = list(keys), facts.keys
        self._total_order, self._carry, self._copy_keys = total_order, carry, copy_keys
        self._kinds = [_find_kind([source.numbers[place] for source in sources]) for place in range(len(keys))]
        if carry == "lines":
            self.schema, self.facts = pa.schema([(WRITTEN, pa.large_binary())]), [ColumnFacts()]
        else:
            self._carry_columns(sources)
        self.n_carried = len(self.schema)
        self.long_texts: list[LongTexts | None] = []
        self._columns = [self._add(place, sources) for place in range(len(keys))]

    def _carry_columns(self, sources: Sequence[TextSource]) -> None:
        n_carried = len(sources[0].carried)
        longest = [max(source.longest[source.carried[place]] for source in sources) for place in range(n_carried)]
        if sources[0].form.kind == "lines" and self._keys[0].is_whole and self._kinds[0] is None:
            longest = [self._lengths[0].longest]
        self.schema = pa.schema([(str(place), pa.large_binary()) for place in range(n_carried)])
        nulls = [any(source.has_nulls[source.carried[place]] for source in sources) for place in range(n_carried)]
        self.facts = [ColumnFacts(has_nulls, width) for has_nulls, width in zip(nulls, longest, strict=True)]

    @property
    def n_compared(self) -> int:
        return len(self.schema) - self.n_carried

    @property
    def carried_schema(self) -> pa.Schema:
        return pa.schema(list(self.schema)[: self.n_carried])

    @property
    def schema_of_keys(self) -> pa.Schema:
        return pa.schema(list(self.schema)[self.n_carried :])

    def _add(self, place: int, sources: Sequence[TextSource]) -> list[str]:
        """Return the columns by which a part of the key is compared, and add those that are not carried."""
        key, kind, first = self._keys[place], self._kinds[place], sources[0]
        is_carried = self._carry == "columns" and not self._copy_keys and first.compared[place] in first.carried
        if kind is None and key.is_whole and is_carried:
            return [str(first.carried.index(first.compared[place]))]
        if kind is None:
            texts = self._lengths[place]
            has_nulls = any(source.has_nulls[source.compared[place]] for source in sources)
            return [self._append(f"key {place}", pa.large_binary(), ColumnFacts(has_nulls, texts.longest), texts)]
        if not pa.types.is_fixed_size_binary(kind):
            return [self._append(f"key {place}", kind, ColumnFacts(has_nulls=True))]
        return [
            self._append(f"key {place}", pa.float64(), ColumnFacts(has_nulls=True)),
            self._append(f"key {place} digits", kind, ColumnFacts()),
        ]

    def _append(self, name: str, kind: pa.DataType, facts: ColumnFacts, texts: LongTexts | None = None) -> str:
        self.schema = self.schema.append(pa.field(name, kind))
        self.facts.append(facts)
        self.long_texts.append(texts)
        return name

    def key(self, descending: Sequence[bool], *, nulls_first: bool) -> list[ColumnKey]:
        """Return the columns that are compared, most significant first."""
        parts = zip(self._columns, descending, strict=True)
        return [ColumnKey(name, down, nulls_first) for names, down in parts for name in names]

    def say_types(self) -> tuple[str, ...]:
        """Say of each key that was not told to be text or numbers what it is."""
        return tuple(
            f"column {key.column} is sorted as {'text' if kind is None else 'numbers'}"
            for key, kind in zip(self._keys, self._kinds)
            if key.as_number is None
        )

    @property
    def columns(self) -> TextColumns:
        """How rows of sources become those of the schema."""
        return TextColumns(
            self.schema,
            tuple(self._keys),
            tuple(self._kinds),
            tuple(names[0].startswith("key") for names in self._columns),
            as_lines=self._carry == "lines",
            total_order=self._total_order,
        )


@dataclass(frozen=True)
class _TextTable:
    """A source of text whose rows are those of a form."""

    source: TextSource
    columns: TextColumns
    form: RowForm | PieceForm

    @property
    def n_rows(self) -> int:
        return self.source.n_rows

    @property
    def reading_bytes(self) -> int:
        return self.source.reading_bytes

    def batches(self, first: int = 0) -> Iterator[pa.RecordBatch]:
        return self.source.rows(first)

    def arrange(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return self.columns.arrange(batch, self.source)

    def write_recipe(self) -> SourceRecipe:
        source = self.source
        assert source.marks is not None
        spans = source.marks.spans(self.form.count_records)
        spans = spans if source.form.codec == "none" else join_spans(spans)  # there is no way into the middle
        columns = tuple(source.names), tuple(source.carried), tuple(source.compared)
        return SourceRecipe(source.shown, tuple(spans), source.form, *columns)


def _find_kind(facts: Sequence[NumberFacts | None]) -> pa.DataType | None:
    """Return how a key of all sources is compared as numbers; None if one of them has texts."""
    together = NumberFacts()
    for one in facts:
        if one is None:
            return None
        together |= one
    return together.kind


def _schema(sources: Sequence[TextSource]) -> pa.Schema:
    """Return the columns of a table that holds what files of text hold.

    Raises
    ------
    ConfigError
        If a name is not UTF-8, or there twice.
    """
    first = sources[0]
    names = [first.names[int(place)] for place in first.carried]
    for name in names:
        if not is_utf8(name) or names.count(name) > 1:
            what = "is the name of several columns" if is_utf8(name) else "is a name of a column that is not UTF-8"
            raise ConfigError(
                f"{show_name(name)!r} of {first.shown} {what}, which tables cannot have; rename it, leave it out with "
                "`columns=`, or sort to text",
                context={"column": show_name(name)},
            )
    found = [[source.types[source.carried[place]] for source in sources] for place in range(len(names))]
    return pa.schema([common_type(types).field(name.decode()) for name, types in zip(names, found, strict=True)])


class TextRun(TableRun):
    """A sort of rows of text."""

    @property
    def _n_makers(self) -> int:
        return min(self.options.threads, MOST_THREADS)

    schema: pa.Schema | None = None
    target: TextForm
    names: Sequence[bytes]
    said: tuple[str, ...]
    total_order: bool

    def _ways_of_reading(self) -> dict[str, Any]:
        first = next(table for table in self.tables if isinstance(table, _TextTable))
        return {"text": write_text(first.columns, self.target, typed=self.schema is not None)}

    def _description(self) -> dict[str, Any]:
        names = [show_name(name) for name in self.names]
        return {**super()._description(), "text": names, "total_order": self.total_order}

    def _expect_kept_bytes(self, kept_bytes: int) -> int:
        """Return what reading took when all was looked at, which it takes again, and blocks that are written."""
        return min(
            kept_bytes,
            max(0, peak_bytes() - held_bytes()) + min(WRITTEN_BLOCKS * self._block_bytes, 4 * self.n_bytes),
        )

    def _writer(self) -> Writer:
        if self.schema is not None:
            return self._table_writer(self.schema)
        writer = TextWriter(self.destination.part, self.target, self.names)
        if not self.form.is_row:
            return writer.write_lines, writer.finish, writer.abandon
        return lambda batch: writer.write(batch, len(self.names)), writer.finish, writer.abandon

    @property
    def _is_table(self) -> bool:
        return self.schema is not None

    def _table_writer(self, schema: pa.Schema) -> Writer:
        writer = table_writer(self.destination, schema, self.compression)

        def write(batch: pa.RecordBatch) -> None:
            columns = [parse_texts(batch.column(place), field.type) for place, field in enumerate(schema)]
            writer.write(pa.RecordBatch.from_arrays(columns, schema=schema))

        return write, writer.finish, writer.abandon
