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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from tartan.base.files import disk_errors
from tartan.errors import ConfigError
from tartan.sort.columns import ColumnFacts, ColumnKey, RowForm
from tartan.sort.engine import Order, SortOptions
from tartan.sort.formats import Destination
from tartan.sort.result import SortResult
from tartan.sort.table_job import TableRun, Writer, described, require_memory
from tartan.sort.text_files import LINE, TextKey, TextSource, TextWriter, numbers_of
from tartan.sort.text_form import KINDS, PIPE, TextForm, text_form

_WORDS = {"desc": True, "asc": False}
_COPY_BYTES = 1 << 20
_SYNTAX = "write COLUMN, with :number or :text and :desc or :asc behind it if wanted, or of lines OFFSET:LENGTH"


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
    key : str, sequence of str or None
    columns : sequence of str or None
        Columns that are carried along; None for all.
    descending, nulls_first, total_order, in_place, overwrite : bool
    """

    paths: Sequence[Path]
    target: Path
    kind: Any = None
    key: str | Sequence[str] | None = None
    columns: Sequence[str] | None = None
    descending: bool = False
    nulls_first: bool = False
    total_order: bool = False
    in_place: bool = False
    overwrite: bool = False


def sort_text(request: TextRequest, options: SortOptions, *, resume: bool, quiet: bool) -> SortResult:
    """Sort files of text.

    Raises
    ------
    ConfigError
        If files differ in form, the key cannot be read, a row is too long, or memory is too little.
    """
    require_memory(options, "text")
    if request.kind is not None and request.kind not in KINDS:
        raise ConfigError(
            f"format: {request.kind!r} is unknown; choose {', '.join(KINDS)}", context={"option": "format"}
        )
    with contextlib.ExitStack() as spools:
        forms = [_form(path, request.kind) for path in request.paths]
        paths = [_readable(path, form, options, spools) for path, form in zip(request.paths, forms)]
        first = text_form(request.target, request.kind) or _form(request.target, forms[0].kind)
        if {form.kind for form in forms} | {first.kind} > {"lines"}:
            raise ConfigError("lines and tables of columns cannot be sorted together; say what all are (--format)")
        target = request.target
        if target == PIPE:
            target = _spool(options, spools) / f"sorted.{first.kind}"
        run = _text_run(replace(request, paths=paths, target=target), forms, first, options)
        for said in () if quiet else run.said:
            print(f"tartan: {said}", file=sys.stderr)
        result = run.run(resume=resume and target == request.target, quiet=quiet)
        result = replace(result, notes=(*result.notes, *run.said))
        if target != request.target:
            with target.open("rb") as file:
                shutil.copyfileobj(file, sys.stdout.buffer, _COPY_BYTES)
            sys.stdout.buffer.flush()
            result = replace(result, path=PIPE)
        return result


def _form(path: Path, kind: Any) -> TextForm:
    found = text_form(path, kind)
    if found is None:
        raise ConfigError(
            f"{path} does not say that it is lines, csv or tsv; give a format, for example --format lines",
            context={"option": "format", "path": str(path)},
        )
    return found


def _readable(path: Path, form: TextForm, options: SortOptions, spools: contextlib.ExitStack) -> Path:
    """Return a file that can be read twice: a pipe is copied into a temporary one."""
    if path == PIPE:
        return _copied(sys.stdin.buffer, options, spools)
    try:
        if stat.S_ISFIFO(path.stat().st_mode):
            with path.open("rb") as pipe:
                return _copied(pipe, options, spools, suffix="".join(path.suffixes) if form.codec != "none" else "")
    except OSError as error:
        raise ConfigError(
            f"cannot read {path}: {error.strerror}; name a file that exists and is readable",
            code="unreadable",
            context={"path": str(path)},
        ) from error
    return path


def _copied(stream: BinaryIO, options: SortOptions, spools: contextlib.ExitStack, suffix: str = "") -> Path:
    copy = _spool(options, spools) / f"input{suffix}"
    with disk_errors(copy), copy.open("wb") as file:
        shutil.copyfileobj(stream, file, _COPY_BYTES)
    return copy


def _spool(options: SortOptions, spools: contextlib.ExitStack) -> Path:
    folder = tempfile.TemporaryDirectory(prefix="tartan-sort-", dir=options.folders[0])
    return Path(spools.enter_context(folder))


def _text_run(request: TextRequest, forms: Sequence[TextForm], target: TextForm, options: SortOptions) -> TextRun:
    keys = _parsed(request, forms[0])
    sources = [
        TextSource(path, form, [key for key, _ in keys], request.columns) for path, form in zip(request.paths, forms)
    ]
    for other in sources[1:]:
        if other.names != sources[0].names:
            raise ConfigError(
                f"{other.path} has the columns {', '.join(other.names)}, but {sources[0].path} has "
                f"{', '.join(sources[0].names)}; name those to sort (columns), in files of one form"
            )
    rows = _TextRows(sources, [key for key, _ in keys], total_order=request.total_order)
    form = RowForm(rows.schema, rows.facts)
    order_of = [ColumnKey(name, descending, request.nulls_first) for name, (_, descending) in zip(rows.keys, keys)]
    order = Order(form.dtype, tuple(form.key(order_of)))
    tables = [_TextTable(source, rows) for source in sources]
    files = [described(source.path, source.n_rows * form.dtype.itemsize) for source in sources]
    n_records = sum(source.n_rows for source in sources)
    where = {"in_place": request.in_place, "overwrite": request.overwrite}
    run = TextRun(files, Destination(request.target, form.dtype, n_records, files, **where), order, options)
    run.tables, run.form, run.target, run.carried = tables, form, target, sources[0].carried
    run.said, run.total_order = rows.said(), request.total_order
    return run


def _parsed(request: TextRequest, form: TextForm) -> list[tuple[TextKey, bool]]:
    """Read the key: its parts and their directions; of lines without one the whole line."""
    if not request.key:
        if form.kind != "lines":
            raise ConfigError("key: name the columns to sort by", context={"option": "key"})
        return [(TextKey(LINE, as_number=False), request.descending)]
    texts = [request.key] if isinstance(request.key, str) else list(request.key)
    parts = [part.strip() for text in texts for part in text.split(",")]
    return [_part(part, request.descending, lines=form.kind == "lines") for part in parts]


def _part(text: str, descending: bool, *, lines: bool) -> tuple[TextKey, bool]:
    words = text.split(":")
    if len(words) > 1 and words[-1] in _WORDS:
        descending = _WORDS[words.pop()]
    as_number = None
    if len(words) > 1 and words[-1] in ("number", "text"):
        as_number = words.pop() == "number"
    if lines and len(words) == 2 and all(word.isdecimal() for word in words) and int(words[1]):
        start = int(words[0])
        return TextKey(LINE, as_number=False, start=start, stop=start + int(words[1])), descending
    if not all(words) or (lines and words != [LINE]):
        raise ConfigError(f"the key {text!r} cannot be read; {_SYNTAX}", context={"option": "key"})
    name = ":".join(words)
    return TextKey(name, as_number=False if lines and as_number is None else as_number), descending


class _TextRows:
    """Rows as the form of records takes them: the values, and the columns that are compared.

    Attributes
    ----------
    schema : pyarrow.Schema
    facts : list of ColumnFacts
    keys : list of str
        The columns that are compared, most significant first.
    """

    def __init__(self, sources: Sequence[TextSource], keys: Sequence[TextKey], *, total_order: bool) -> None:
        self._parts = list(keys)
        self._total_order = total_order
        self._numbers = [_widest([source.numbers[place] for source in sources]) for place in range(len(keys))]
        self._carried = sources[0].carried
        longest = {name: max(source.longest[name] for source in sources) for name in self._carried}
        self.schema = pa.schema([(name, pa.large_binary()) for name in self._carried])
        self.facts = [ColumnFacts(longest=longest[name]) for name in self._carried]
        self.keys = []
        self._made: list[tuple[TextKey, pa.DataType | None]] = []  # columns that are compared and not written
        for place, (key, kind) in enumerate(zip(keys, self._numbers)):
            if kind is None and key.stop < 0 and key.column in self._carried:
                self.keys.append(key.column)
                continue
            self.keys.append(f"\0{place}")
            self._made.append((key, kind))
            self.schema = self.schema.append(pa.field(self.keys[-1], kind or pa.large_binary()))
            width = max(source.longest_of(key) for source in sources)
            self.facts.append(ColumnFacts(longest=width) if kind is None else ColumnFacts(has_nulls=True))

    def said(self) -> tuple[str, ...]:
        """Say of each key that was not told to be text or numbers what it is."""
        return tuple(
            f"column {key.column} is sorted as {'text' if kind is None else 'numbers'}"
            for key, kind in zip(self._parts, self._numbers)
            if key.as_number is None
        )

    def batch(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns of the schema."""
        columns = [rows.column(name) for name in self._carried]
        columns += [self._key(rows.column(key.column), key, kind) for key, kind in self._made]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _key(self, column: pa.Array, key: TextKey, kind: pa.DataType | None) -> pa.Array:
        if kind is not None:
            found = numbers_of(column, kind)
            # Minus zero plus zero is zero.
            return pc.add(found, 0.0) if pa.types.is_floating(kind) and not self._total_order else found
        if key.stop < 0:
            return column
        return pc.binary_slice(column.cast(pa.binary()), key.start, key.stop).cast(pa.large_binary())


@dataclass(frozen=True)
class _TextTable:
    """A source of text whose rows are those of a form."""

    source: TextSource
    rows: _TextRows

    @property
    def n_rows(self) -> int:
        return self.source.n_rows

    @property
    def part_bytes(self) -> int:
        return self.source.part_bytes

    def batches(self, first: int = 0) -> Iterator[pa.RecordBatch]:
        for batch in self.source.rows(first):
            yield self.rows.batch(batch)


def _widest(kinds: Sequence[pa.DataType | None]) -> pa.DataType | None:
    """Return a type of numbers that holds what all sources have; None if one has texts."""
    if any(kind is None for kind in kinds):
        return None
    return max(
        (kind for kind in kinds if kind is not None), key=lambda kind: (pa.types.is_floating(kind), kind.bit_width)
    )


class TextRun(TableRun):
    """A sort of rows of text."""

    target: TextForm
    carried: Sequence[str]
    said: tuple[str, ...]
    total_order: bool

    def _description(self) -> dict[str, Any]:
        return {**super()._description(), "text": list(self.carried), "total_order": self.total_order}

    def _writer(self) -> Writer:
        writer = TextWriter(self.destination.part, self.target, self.carried)
        return writer.write, writer.finish, writer.abandon
