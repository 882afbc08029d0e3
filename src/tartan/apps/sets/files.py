"""Files that hold many sets: lines of words, lines of JSON, Parquet."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tartan.base.format import reason_of
from tartan.base.keys import distinguish
from tartan.base.records import PART
from tartan.errors import ItemError

_JSON = (".jsonl", ".ndjson", ".json")
_PARQUET = (".parquet", ".pq")
_PARQUET_MARK = b"PAR1"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_TABLES_OF_TEXT = (".csv",)
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
#: Names that are looked for in objects and tables, in this order, where none is given.
FIELDS = ("set", "items", "text")
# By format: what stands before a list of integers from Parquet, so that a million of them need no JSON.
INTEGERS = b"\x00int64"
_TEXTS = (".txt", ".tsv", ".md")
SUFFIXES = (".txt", *_JSON, *_PARQUET)


def split_file(
    key: str, data: bytes, is_document: bool, field: str | None, max_bytes: int
) -> Sequence[bytes] | Mapping[str, bytes] | None:
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
    max_bytes : int
        Most bytes of the column of a table.

    Raises
    ------
    ValueError
        If the file is damaged or has no such column.
    """
    name = plain_name(key)
    if name.endswith(_TABLES_OF_TEXT):
        raise ValueError("CSV has columns, not sets: write its sets as JSON lines, or the table as Parquet")
    if is_table(name, data):
        return _split_parquet(data, field, max_bytes)
    text = data.removeprefix(_BYTE_ORDER_MARK)
    if name.endswith(".json"):
        whole = _load_whole(text)
        if whole is not None:
            return whole
    if is_document and not name.endswith(_JSON):
        return None
    return [line for line in text.splitlines() if line.strip()]


def plain_name(key: str) -> str:
    """Return the name of the file of an item in lower case, without what says that it is compressed."""
    name = key.rpartition(PART)[0].lower() if PART in key else key.lower()
    return next((name.removesuffix(suffix) for suffix in _COMPRESSED if name.endswith(suffix)), name)


def is_table(name: str, data: bytes) -> bool:
    """Whether a file is Parquet, by its name or by both of its ends."""
    return name.endswith(_PARQUET) or (data.startswith(_PARQUET_MARK) and data.endswith(_PARQUET_MARK))


def is_whole(key: str, data: bytes) -> bool:
    """Whether what is parsed is a whole file that should have been split, and could not be."""
    return PART not in key and (key.lower().endswith(_TABLES_OF_TEXT) or is_table(plain_name(key), data))


def _load_whole(text: bytes) -> list[bytes] | dict[str, bytes] | None:
    """Return the sets of one JSON value: of a list, of an object by name; None for lines of JSON."""
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if isinstance(whole, list) and any(isinstance(one, (list, dict)) for one in whole):
        return [json.dumps(one).encode() for one in whole]
    if isinstance(whole, dict) and whole and all(isinstance(one, (list, dict)) for one in whole.values()):
        return {name: json.dumps(one).encode() for name, one in zip(distinguish(whole), whole.values(), strict=True)}
    return [json.dumps(whole).encode()]


def _split_parquet(data: bytes, field: str | None, max_bytes: int) -> list[bytes]:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        file = parquet.ParquetFile(io.BytesIO(data))
        name = _choose_column(file.schema_arrow, field)
        column = file.read([name]).column(0)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"the Parquet file cannot be read: {reason_of(error)}") from error
    if column.nbytes > max_bytes:
        raise ValueError(f"its column holds more than the limit of {max_bytes} bytes; raise max_bytes if it is genuine")
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
        texts = (pa.string(), pa.large_string())
        if isinstance(kind, pa.ListType | pa.LargeListType):
            return pa.types.is_integer(kind.value_type) or kind.value_type in texts
        return kind in texts

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


def read_record(key: str, data: bytes, field: str | None) -> Any:
    """Return one set of a file: a text, a list, an object of weights, or an array of integers.

    What a file of JSON or Parquet holds is JSON, what a file ``.txt`` holds is text, and of others JSON is what looks
    like it.

    Raises
    ------
    ItemError
        If it is no JSON where it should be, or an object without the field.
    """
    if data.startswith(INTEGERS):
        return np.frombuffer(data, "<i8", offset=len(INTEGERS))
    name = plain_name(key)
    text = data.removeprefix(_BYTE_ORDER_MARK).strip()
    looks = text[:1] in (b"[", b"{", b'"') or text == b"null"
    if name.endswith((*_JSON, *_PARQUET)) or (looks and not name.endswith(_TEXTS)):
        try:
            record = json.loads(text)
        except (ValueError, RecursionError) as error:
            text_file = "" if name.endswith((*_JSON, *_PARQUET)) else ", or, if it is text, name the file .txt"
            raise ItemError(f"it is not JSON: {reason_of(error)}; write one set a line{text_file}") from error
        return _choose_field(record, field) if isinstance(record, dict) else record
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise ItemError(f"it is not text in UTF-8: {reason_of(error)}; convert it, for instance with iconv") from error


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
