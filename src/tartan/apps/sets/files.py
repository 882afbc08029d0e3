"""Files that hold many sets: lines of words, lines of JSON, Parquet."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from tartan.base.format import reason_of
from tartan.errors import ItemError

_JSON_LINES = (".jsonl", ".ndjson", ".json")
_PARQUET = (".parquet", ".pq")
_PARQUET_MARK = b"PAR1"
_TABLES_OF_TEXT = (".csv",)
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
#: Names that are looked for in objects and tables, in this order, where none is given.
FIELDS = ("set", "items", "text")
# By format: what stands before a list of integers from Parquet, so that a million of them need no JSON.
INTEGERS = b"\x00int64"
SUFFIXES = (".txt", *_JSON_LINES, *_PARQUET)


def split_file(key: str, data: bytes, is_document: bool, field: str | None) -> Sequence[bytes] | None:
    """Return the sets of a file, each as bytes for ``Sets.parse``; None where the file is one document.

    Parameters
    ----------
    key : str
        Its name, which tells the format.
    data : bytes
        What it holds, unpacked.
    is_document : bool
        A file of plain text is one document rather than one set a line.
    field : str, optional
        Column of a table.

    Raises
    ------
    ValueError
        If the file is damaged or has no such column.
    """
    name = key.lower()
    for suffix in _COMPRESSED:
        name = name.removesuffix(suffix)
    if name.endswith(_TABLES_OF_TEXT):
        raise ValueError("CSV has columns, not sets: write its sets as JSON lines, or the table as Parquet")
    if name.endswith(_PARQUET) or data.startswith(_PARQUET_MARK):
        return _split_parquet(data, field)
    if name.endswith(".json") and data.lstrip()[:1] == b"[":
        whole = _load_json(data)
        # A list of lists or objects; one list of words would be one set, as a line of it is.
        if any(isinstance(one, (list, dict)) for one in whole):
            return [json.dumps(one).encode() for one in whole]
    if is_document and not name.endswith(_JSON_LINES):
        return None
    return [line for line in data.splitlines() if line.strip()]


def is_whole(key: str, data: bytes) -> bool:
    """Whether what is parsed is a whole file that should have been split, and could not be."""
    return key.lower().endswith(_TABLES_OF_TEXT) or data.startswith(_PARQUET_MARK)


def _load_json(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"it is no JSON: {error}") from error


def _split_parquet(data: bytes, field: str | None) -> list[bytes]:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        file = parquet.ParquetFile(io.BytesIO(data))
        name = _choose_column(file.schema_arrow, field)
        column = file.read([name]).column(0)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"the Parquet file cannot be read: {reason_of(error)}") from error
    kind = column.type.value_type if isinstance(column.type, pa.ListType | pa.LargeListType) else None
    if kind is not None and pa.types.is_integer(kind) and kind != pa.uint64():
        return [_pack_integers(one) for chunk in column.chunks for one in chunk]
    return [json.dumps(one).encode() for one in column.to_pylist()]


def _pack_integers(one: Any) -> bytes:
    if not one.is_valid:
        return b"null"
    values = one.values
    if values.null_count:
        return json.dumps(one.as_py()).encode()
    numbers: bytes = values.to_numpy().astype("<i8").tobytes()
    return INTEGERS + numbers


def _choose_column(schema: Any, field: str | None) -> str:
    import pyarrow as pa

    def fits(kind: Any) -> bool:
        nested = isinstance(kind, pa.ListType | pa.LargeListType)
        return nested or kind in (pa.string(), pa.large_string())

    names = [column.name for column in schema if fits(column.type)]
    if field is not None:
        if field not in names:
            raise ValueError(f"it has no column {field!r} of lists or texts; those are {', '.join(names) or 'none'}")
        return field
    found = [name for name in FIELDS if name in names] or names
    if not found or (len(names) > 1 and found is names):
        raise ValueError(
            f"which column holds the sets? {', '.join(names) or 'none'} of them are lists or texts; say field=NAME"
        )
    return found[0]


def read_record(data: bytes, field: str | None) -> Any:
    """Return one set of a file: a text, a list, an object of weights, or an array of integers.

    Raises
    ------
    ItemError
        If it is no JSON, or an object without the field.
    """
    if data.startswith(INTEGERS):
        return np.frombuffer(data, "<i8", offset=len(INTEGERS))
    text = data.strip()
    if text[:1] in (b"[", b"{", b'"') or text == b"null":
        try:
            record = json.loads(text)
        except ValueError as error:
            raise ItemError(f"it begins like JSON, and is none: {error}") from error
        return _choose_field(record, field) if isinstance(record, dict) else record
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ItemError(f"it is no text in UTF-8: {reason_of(error)}; convert it, for instance with iconv") from error


def _choose_field(record: dict[str, Any], field: str | None) -> Any:
    if field is not None:
        if field not in record:
            raise ItemError(f"it has no field {field!r}; its fields are {', '.join(map(repr, record)) or 'none'}")
        return record[field]
    for name in FIELDS:
        if isinstance(record.get(name), (list, dict, str)):
            return record[name]
    if all(isinstance(weight, (int, float)) and not isinstance(weight, bool) for weight in record.values()):
        return record
    raise ItemError(f"which field holds the set? It has {', '.join(map(repr, record))}; say field=NAME")
