"""How rows become records, as plain values: what a rank needs to make the records of some rows by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from tartan.sort.categories import Categories
from tartan.sort.columns import ColumnFacts, RowForm
from tartan.sort.pieces import ColumnContent, LineContent, LongTexts, PieceForm
from tartan.sort.spans import Span
from tartan.sort.text_columns import TextColumns
from tartan.sort.text_files import TextKey
from tartan.sort.text_form import TextForm

# By convention: of FormRecipe and TextRecipe, for what is not bytes of digits.
_AS_TEXT, _AS_INT64, _AS_FLOAT64 = -2, -1, 0


@dataclass(frozen=True)
class ColumnRecipe:
    """What is known of a column: ``ColumnFacts``, with categories as an Arrow stream."""

    has_nulls: bool
    longest: int
    categories: bytes = b""


@dataclass(frozen=True)
class LongTextRecipe:
    """``LongTexts``: the longest one, the bound above which texts are long, and these."""

    longest: int
    bound: int
    texts: tuple[bytes, ...]


@dataclass(frozen=True)
class FormRecipe:
    """A ``RowForm``, or, with bytes of a piece, a ``PieceForm``.

    Attributes
    ----------
    schema : bytes
        As Arrow writes it: of the rows, or of the columns that are compared.
    columns : tuple of ColumnRecipe
    block_bytes : int
        Of records that are made at a time.
    equal_zeros : tuple of str
    piece_bytes : int
    content : bytes
        Schema of what is carried; empty where it is one column of lines.
    carried : tuple of ColumnRecipe
    lines : str
        Name of the column of lines.
    long_texts : tuple of LongTextRecipe or None
    keep_signs : bool
    """

    schema: bytes
    columns: tuple[ColumnRecipe, ...]
    block_bytes: int
    equal_zeros: tuple[str, ...] = ()
    piece_bytes: int = 0
    content: bytes = b""
    carried: tuple[ColumnRecipe, ...] = ()
    lines: str = ""
    long_texts: tuple[LongTextRecipe | None, ...] = ()
    keep_signs: bool = False


@dataclass(frozen=True)
class TextRecipe:
    """What the files of text of a sort share: ``TextColumns``, and how they are read."""

    schema: bytes
    keys: tuple[TextKey, ...]
    kinds: tuple[int, ...]
    added: tuple[bool, ...]
    as_lines: bool
    total_order: bool
    target: TextForm
    typed: bool


@dataclass(frozen=True)
class TableRecipe:
    """What the tables of a sort share: the schema that they are read as, the key, the unit of INT96, bytes a batch."""

    schema: bytes
    key: tuple[str, ...]
    dates: str
    batch_bytes: int


@dataclass(frozen=True)
class SourceRecipe:
    """A source: what messages call it, where its rows lie, and of text its form and columns."""

    shown: str
    spans: tuple[Span, ...]
    form: TextForm | None = None
    names: tuple[bytes, ...] = ()
    carried: tuple[str, ...] = ()
    compared: tuple[str, ...] = ()


@dataclass(frozen=True)
class RowsRecipe:
    """How the rows of all sources become records; one of ``text`` and ``table``.

    Attributes
    ----------
    form : FormRecipe
    sources : tuple of SourceRecipe
        As the sources of the job.
    kept_bytes : int
        Memory that reading takes.
    """

    form: FormRecipe
    sources: tuple[SourceRecipe, ...]
    kept_bytes: int
    text: TextRecipe | None = None
    table: TableRecipe | None = None


def write_schema(schema: pa.Schema) -> bytes:
    """Return a schema as Arrow writes it."""
    return bytes(schema.serialize())


def read_schema(text: bytes) -> pa.Schema:
    """Return the schema that ``write_schema`` wrote."""
    return pa.ipc.read_schema(pa.py_buffer(text))


def write_form(form: RowForm | PieceForm) -> FormRecipe:
    """Write down a form of records."""
    if isinstance(form, RowForm):
        schema, columns = write_schema(form.schema_of_sources), _write_columns(form.facts)
        return FormRecipe(schema, columns, form.block_bytes, equal_zeros=tuple(form.equal_zeros))
    content, lines = b"", ""
    carried: tuple[ColumnRecipe, ...] = ()
    if isinstance(form.content, ColumnContent):
        content, carried = write_schema(form.content.schema_of_sources), _write_columns(form.content.facts)
    elif isinstance(form.content, LineContent):
        lines = form.content.column
    return FormRecipe(
        write_schema(form.schema_of_keys),
        _write_columns(form.facts),
        form.block_bytes,
        piece_bytes=form.piece_bytes,
        content=content,
        carried=carried,
        lines=lines,
        long_texts=tuple(None if one is None else LongTextRecipe(*one.write()) for one in form.long_texts),
        keep_signs=form.keep_signs,
    )


def read_form(recipe: FormRecipe) -> RowForm | PieceForm:
    """Return the form that ``write_form`` wrote down."""
    schema = read_schema(recipe.schema)
    columns = _read_columns(schema, recipe.columns)
    form: RowForm | PieceForm
    if not recipe.piece_bytes:
        form = RowForm(schema, columns, equal_zeros=recipe.equal_zeros)
    else:
        content: ColumnContent | LineContent = LineContent(recipe.lines)
        if not recipe.lines:
            carried = read_schema(recipe.content)
            content = ColumnContent(carried, _read_columns(carried, recipe.carried))
        texts = [
            None if one is None else LongTexts.read(one.longest, one.bound, one.texts) for one in recipe.long_texts
        ]
        form = PieceForm(schema, columns, content, texts, recipe.piece_bytes, keep_signs=recipe.keep_signs)
    form.block_bytes = recipe.block_bytes
    return form


def _write_columns(facts: Sequence[ColumnFacts]) -> tuple[ColumnRecipe, ...]:
    return tuple(
        ColumnRecipe(one.has_nulls, one.longest, b"" if one.categories is None else one.categories.write())
        for one in facts
    )


def _read_columns(schema: pa.Schema, recipes: Sequence[ColumnRecipe]) -> list[ColumnFacts]:
    return [
        ColumnFacts(
            one.has_nulls,
            one.longest,
            Categories.read(field.name, field.type, one.categories) if one.categories else None,
        )
        for field, one in zip(schema, recipes, strict=True)
    ]


def write_text(columns: TextColumns, target: TextForm, *, typed: bool) -> TextRecipe:
    """Write down how rows of text are read."""
    return TextRecipe(
        write_schema(columns.schema),
        columns.keys,
        tuple(map(_write_kind, columns.kinds)),
        columns.added,
        columns.as_lines,
        columns.total_order,
        target,
        typed,
    )


def read_text(recipe: TextRecipe) -> TextColumns:
    """Return the columns that ``write_text`` wrote down."""
    return TextColumns(
        read_schema(recipe.schema),
        recipe.keys,
        tuple(map(_read_kind, recipe.kinds)),
        recipe.added,
        as_lines=recipe.as_lines,
        total_order=recipe.total_order,
    )


def _write_kind(kind: pa.DataType | None) -> int:
    if kind is None:
        return _AS_TEXT
    if pa.types.is_fixed_size_binary(kind):
        return int(kind.byte_width)
    return _AS_INT64 if pa.types.is_int64(kind) else _AS_FLOAT64


def _read_kind(number: int) -> pa.DataType | None:
    known = {_AS_TEXT: None, _AS_INT64: pa.int64(), _AS_FLOAT64: pa.float64()}
    return known[number] if number in known else pa.binary(number)
