"""Columns of Arrow as lines of text: CSV with quotes only where they are needed."""

from __future__ import annotations

import csv
import functools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tartan.base.format import CONTROL, escape_character
from tartan.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa


def text_lines(columns: Sequence[pa.Array], separator: str, *, quote_empty: bool = False) -> memoryview:
    """Return rows as UTF-8 lines, each with a line end; nulls are empty.

    Parameters
    ----------
    columns : sequence of pyarrow.Array
        Numbers get the shortest digits that read back exactly.
    separator : str
        One character.
    quote_empty : bool
        Whether empty texts stand within quotes, so that they are not null.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = [_quote_cells(column, separator, quote_empty) for column in columns]
    if len(texts) == 1:  # a line without anything would be no row
        texts = [pc.if_else(pc.equal(texts[0], b""), pa.scalar(b'""', pa.large_binary()), texts[0])]
    joined = pc.binary_join_element_wise(*texts, pa.scalar(separator.encode(), pa.large_binary()))
    return concatenate(pc.binary_join_element_wise(joined, *_end()))


def concatenate(values: pa.Array) -> memoryview:
    """Return all bytes of an array of large_binary without nulls, one value after the other."""
    import numpy as np

    offsets = np.frombuffer(values.buffers()[1], np.int64, len(values) + 1, 8 * values.offset)
    data = values.buffers()[2]
    return memoryview(data)[offsets[0] : offsets[-1]] if data is not None else memoryview(b"")


def with_line_ends(values: pa.Array) -> pa.Array:
    """Return an array of large_binary with a line end behind each value."""
    import pyarrow.compute as pc

    return pc.binary_join_element_wise(values, *_end())


def _end() -> tuple[Any, Any]:
    import pyarrow as pa

    return pa.scalar(b"", pa.large_binary()), pa.scalar(b"\n", pa.large_binary())


def _quote_cells(column: pa.Array, separator: str, quote_empty: bool) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.dictionary_decode(), kind.value_type
    if pa.types.is_float16(kind):
        column = column.cast(pa.float32())
    textual = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if not (textual or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        column = column.cast(pa.string())
    values = pc.fill_null(column.cast(pa.large_binary()), b"")
    special = pc.match_substring_regex(values, f'[{re.escape(separator)}"\r\n]')
    if quote_empty:
        special = pc.or_(special, pc.and_(column.is_valid(), pc.equal(values, b"")))
    if not pc.any(special).as_py():
        return values
    doubled = pc.replace_substring(values, '"', '""')
    mark, nothing = (pa.scalar(text, pa.large_binary()) for text in (b'"', b""))
    return pc.if_else(special, pc.binary_join_element_wise(mark, doubled, mark, nothing), values)


# Names of items as cells of text tables: each on one line, and no formula to a spreadsheet.
#
# Characters that break lines, control a terminal or turn the direction of writing become escapes: ``\n``, ``\t``,
# ``\x1b``, ``\u202e``. A name that a spreadsheet would take for a formula (it begins with ``=``, ``+``, ``-`` or ``@``,
# and is not a number) gets an apostrophe before it. Every name has another cell, and ``name_of`` returns the name of a
# cell.

_BREAKING = re.compile(f"[\t\n{CONTROL}]")
_ESCAPE = re.compile(r"\\(?:([ntr\\])|x([0-9a-f]{2})|u([0-9a-f]{4}))")
_FORMULA = re.compile(r"'*[=+\-@]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\"}
# Whatever may need another form: few names do, and the search is one pass of Arrow over many.
_SUSPICIOUS = r"^'*[=+\-@]|\\|[^\x20-\x7e]"


def cell_of(name: str) -> str:
    r"""Return the cell of a name.

    Examples
    --------
    >>> cell_of("a.jpg"), cell_of("=1+1"), cell_of("-3.5"), cell_of("two\nlines")
    ('a.jpg', "'=1+1", '-3.5', 'two\\nlines')
    """
    if _BREAKING.search(name) or _ESCAPE.search(name):
        name = _BREAKING.sub(lambda found: escape_character(found[0]), name.replace("\\", "\\\\"))
    return f"'{name}" if _FORMULA.match(name) and not _NUMBER.fullmatch(name) else name


def name_of(cell: str) -> str:
    """Return the name that a cell stands for."""
    name = cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell
    return _ESCAPE.sub(_character, name)


def cell_column(names: pa.Array) -> pa.Array:
    """Return the cells of a column of text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(names.type):
        return pa.DictionaryArray.from_arrays(names.indices, cell_column(names.dictionary))
    if not pc.any(pc.match_substring_regex(names, _SUSPICIOUS)).as_py():
        return names
    return pa.array([None if name is None else cell_of(name) for name in names.to_pylist()], names.type)


def _character(found: re.Match[str]) -> str:
    letter, short, long = found.groups()
    return _LETTERS[letter] if letter else chr(int(short or long, 16))


def read_cells(path: str | Path, expected: str) -> list[list[str]]:
    """Return the cells of each line of a CSV or TSV file; the first two lines tell which it is.

    Parameters
    ----------
    path : path
        A file, or a pipe as shells make of ``<(...)``, which is read once and kept.
    expected : str
        What it should be, for messages.

    Raises
    ------
    ConfigError
        If it cannot be read, or is no text.
    """
    try:
        text = Path(path).read_text("utf-8-sig") if Path(path).is_file() else _read_pipe(str(path))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text in UTF-8"
        raise ConfigError(f"{path}: {reason}; {expected}") from error
    lines = text.splitlines()
    return list(csv.reader(lines, delimiter="\t" if any("\t" in line for line in lines[:2]) else ","))


@functools.cache
def _read_pipe(path: str) -> str:
    return Path(path).read_text("utf-8-sig")
