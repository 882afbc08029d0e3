"""Columns of Arrow as lines of text: CSV with quotes only where they are needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


def text_lines(columns: Sequence[pa.Array], separator: str) -> memoryview:
    """Return rows as UTF-8 lines, each with a line end; nulls are empty.

    Parameters
    ----------
    columns : sequence of pyarrow.Array
        Numbers get the shortest digits that read back exactly.
    separator : str
        One character.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = [_quoted(column, separator) for column in columns]
    if len(texts) == 1:  # a line without anything would be no row
        texts = [pc.if_else(pc.equal(texts[0], b""), pa.scalar(b'""', pa.large_binary()), texts[0])]
    joined = pc.binary_join_element_wise(*texts, pa.scalar(separator.encode(), pa.large_binary()))
    return concatenated(pc.binary_join_element_wise(joined, *_end()))


def concatenated(values: pa.Array) -> memoryview:
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


def _quoted(column: pa.Array, separator: str) -> pa.Array:
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
    special = pc.match_substring_regex(values, f'[{separator}"\r\n]')
    if not pc.any(special).as_py():
        return values
    doubled = pc.replace_substring(values, '"', '""')
    mark, nothing = (pa.scalar(text, pa.large_binary()) for text in (b'"', b""))
    return pc.if_else(special, pc.binary_join_element_wise(mark, doubled, mark, nothing), values)
