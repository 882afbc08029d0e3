"""Columns as records and back: how a row of an Arrow table lies in a record of fixed width.

Each column has its place: numbers, times and decimals as they are; text and bytes with space for the longest value and
its length behind it; a flag in front where there are nulls. A single column of numbers without nulls is its own
record, and nothing is copied. Which parts of the record are compared, and how, follows from the types.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tartan._native import place_texts
from tartan.errors import ConfigError, ItemError
from tartan.sort.categories import Categories
from tartan.sort.keys import KeyPart
from tartan.sort.pushed import BLOCK_BYTES

_LENGTH = np.dtype("<u4")
_FLAG = np.dtype("|u1")
_DECIMALS = {4: ("<i4",), 8: ("<i8",), 16: ("<u8", "<i8"), 32: ("<u8", "<u8", "<u8", "<i8")}


@dataclass(frozen=True)
class ColumnKey:
    """A column that is compared.

    Attributes
    ----------
    name : str
    descending : bool
    nulls_first : bool
        Where rows without a value go, in either direction.
    """

    name: str
    descending: bool = False
    nulls_first: bool = False


@dataclass(frozen=True)
class ColumnFacts:
    """What one pass over the sources shows of a column.

    Attributes
    ----------
    has_nulls : bool
    longest : int
        Bytes of the longest text; 0 for other types.
    categories : Categories or None
        Of a dictionary.
    """

    has_nulls: bool = False
    longest: int = 0
    categories: Categories | None = None


def storage_type(field: pa.Field) -> pa.DataType:
    """Return the type in which the values of a column are carried.

    Extension types, such as UUID, are what they are stored as; dictionaries are numbers of categories.

    Raises
    ------
    ConfigError
        If the type is nested, or unknown here.
    """
    kind = field.type.storage_type if isinstance(field.type, pa.BaseExtensionType) else field.type
    is_dictionary = pa.types.is_dictionary(kind) and kind is field.type
    inner = kind.value_type if is_dictionary else kind
    if is_text_type(inner) or _is_fixed(inner):
        return pa.uint32() if is_dictionary else kind
    if pa.types.is_null(kind):
        return kind
    raise ConfigError(
        f"column {field.name!r} is {field.type}: nested types, intervals and run-end encoding cannot be sorted or "
        "carried along; leave it out with `columns=`, or flatten it first",
        context={"column": field.name, "type": str(field.type)},
    )


class RowForm:
    """The record of a table.

    Parameters
    ----------
    schema : pyarrow.Schema
    facts : sequence of ColumnFacts
        One a column.
    equal_zeros : collection of str
        Columns in which -0.0 equals 0.0, if they hold floats; their records have a flag that says which zero it is. A
        lone column of numbers has none: nothing else tells equal ones apart.

    Attributes
    ----------
    dtype : numpy.dtype
        Fields ``"0"``, ``"0.null"``, ``"0.length"``, ``"1"``, ..
    schema : pyarrow.Schema
        Of what is written; ``schema_of_sources`` is that of what was read.
    facts : list of ColumnFacts
    """

    is_row = True
    """Whether a record is a row."""
    block_bytes = BLOCK_BYTES
    """Of records that are made at a time."""

    def __init__(self, schema: pa.Schema, facts: Sequence[ColumnFacts], *, equal_zeros: Collection[str] = ()) -> None:
        self.schema, self.schema_of_sources = _make_written_schema(schema, facts), schema
        self._signed = {
            number
            for number, field in enumerate(schema)
            if len(schema) > 1 and field.name in equal_zeros and pa.types.is_floating(storage_type(field))
        }
        self._types = [storage_type(field) for field in schema]
        self.facts = list(facts)
        self.dtype = np.dtype([field for number in range(len(schema)) for field in self._fields(number)])

    @property
    def equal_zeros(self) -> list[str]:
        """Columns of which records say which zero it is."""
        return [self.schema.names[number] for number in sorted(self._signed)]

    def count_records(self, lengths: np.ndarray, counts: np.ndarray) -> int:
        """Return the records of rows of which so many have each length."""
        return int(counts.sum())

    @property
    def is_one_number(self) -> bool:
        """Whether a record is the value of the only column, so that its memory is used as it is."""
        alone = len(self._types) == 1 and self.dtype.names == ("0",) and self.facts[0].categories is None
        return alone and not (pa.types.is_boolean(self._types[0]) or pa.types.is_null(self._types[0]))

    def blocks(self, batch: pa.RecordBatch) -> Iterator[np.ndarray]:
        """Yield the records of the rows of a batch."""
        rows = max(1, self.block_bytes // self.dtype.itemsize)  # records are wider than rows
        for start in range(0, batch.num_rows, rows):
            yield np.ascontiguousarray(self.records(batch.slice(start, rows)))

    def rows(self, records: np.ndarray) -> Iterator[pa.RecordBatch]:
        """Yield sorted records as batches."""
        yield self.batch(records)

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yield what is left: nothing, as every record is a row."""
        yield from ()

    def begins_row(self, records: np.ndarray) -> np.ndarray:
        """Tell which records begin a row: all."""
        return np.ones(len(records), bool)

    def key(self, columns: Sequence[ColumnKey]) -> list[KeyPart]:
        """Return the parts of the record that are compared, most significant first.

        Raises
        ------
        ConfigError
            If there is no such column, or one is named twice.
        """
        parts: list[KeyPart] = []
        for position, column in enumerate(columns):
            if column.name in {earlier.name for earlier in columns[:position]}:
                raise ConfigError(f"key: column {column.name!r} is named twice", context={"option": "key"})
            number = self.schema.get_field_index(column.name)
            if number < 0:
                names = ", ".join(self.schema.names)
                raise ConfigError(
                    f"key: there is no column {column.name!r}; there are {names}", context={"option": "key"}
                )
            categories = self.facts[number].categories
            if categories is not None and not categories.can_be_compared:
                raise ConfigError(
                    f"key: {column.name!r} is a dictionary of floats, which is only carried along; decode it first",
                    context={"option": "key"},
                )
            parts += self._parts(number, column)
        return parts

    def records(self, batch: pa.RecordBatch) -> np.ndarray:
        """Return the rows of a batch as records, (n,)."""
        if self.is_one_number:
            self._refuse_nulls(batch.column(0), 0)
            return _numbers(_storage(batch.column(0)), self.dtype["0"]).view(self.dtype)
        records = np.zeros(batch.num_rows, self.dtype)
        for number in range(len(self._types)):
            self._put(records, number, batch.column(number))
        return records

    def batch(self, records: np.ndarray) -> pa.RecordBatch:
        """Return records as a batch with the schema of the table."""
        arrays = [self._array(records, number) for number in range(len(self._types))]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _fields(self, number: int) -> Iterator[tuple[str, np.dtype[Any]]]:
        kind, facts = self._types[number], self.facts[number]
        if facts.has_nulls:
            yield f"{number}.null", _FLAG
        if is_text_type(kind):
            yield f"{number}", np.dtype(f"V{max(1, facts.longest)}")
            yield f"{number}.length", _LENGTH
        else:
            yield f"{number}", _carrier(kind)
        if number in self._signed:
            yield f"{number}.minus", _FLAG

    def _is_text(self, number: int) -> bool:
        return is_text_type(self._types[number])

    def _offset(self, name: str) -> int:
        assert self.dtype.fields is not None
        return int(self.dtype.fields[name][1])

    def _parts(self, number: int, column: ColumnKey) -> Iterator[KeyPart]:
        kind, offset = self._types[number], self._offset(f"{number}")
        if self.facts[number].has_nulls:
            yield KeyPart(self._offset(f"{number}.null"), "|u1", column.nulls_first)
        carrier = self.dtype[f"{number}"]
        if is_text_type(kind):
            yield KeyPart(offset, f"S{carrier.itemsize}", column.descending)
            # Short values are padded with zeros, so that "a" and "a\0" differ in their length only.
            yield KeyPart(self._offset(f"{number}.length"), _LENGTH.str, column.descending)
        elif pa.types.is_decimal(kind):
            words = list(_words(carrier.itemsize))
            yield from (KeyPart(offset + place, word, column.descending) for place, word in reversed(words))
        else:
            text = f"S{carrier.itemsize}" if carrier.kind == "V" else carrier.str
            yield KeyPart(offset, text, column.descending)

    def _put(self, records: np.ndarray, number: int, column: pa.Array) -> None:
        kind, facts = self._types[number], self.facts[number]
        if pa.types.is_null(kind):
            return
        if facts.categories is not None:
            column = facts.categories.codes(column)
        column = _storage(column)
        if column.type != kind:
            column = column.cast(kind)
        missing = None
        if facts.has_nulls:
            missing = column.is_null().to_numpy(zero_copy_only=False)
            records[f"{number}.null"] = missing
        else:
            self._refuse_nulls(column, number)
        if is_text_type(kind):
            self._put_text(records, number, column)
            return
        records[f"{number}"] = _numbers(column, self.dtype[f"{number}"])
        if missing is not None and missing.any():
            records[f"{number}"][missing] = np.zeros((), self.dtype[f"{number}"])
        if number in self._signed:
            values = records[f"{number}"]
            records[f"{number}.minus"] = (values == 0) & np.signbit(values)
            values[values == 0] = 0.0

    def _refuse_nulls(self, column: pa.Array, number: int) -> None:
        name = self.schema.field(number).name
        if column.null_count:
            raise ItemError(
                f"column {name!r} has rows without a value, and the metadata of the file says that it has none: it is "
                "damaged; write it again",
                context={"column": name},
            )

    def _put_text(self, records: np.ndarray, number: int, column: pa.Array) -> None:
        column = pc.fill_null(column.cast(_large(column.type)), b"" if _is_binary(column.type) else "")
        offsets = _numbers(column, np.dtype("<i8"), extra=1)
        data = column.buffers()[2]
        if data is not None and len(records):
            start = self._offset(f"{number}")
            field = start, start + self.dtype[f"{number}"].itemsize
            place_texts(records.view(np.uint8), self.dtype.itemsize, field, offsets, np.frombuffer(data, np.uint8))
        records[f"{number}.length"] = np.diff(offsets)

    def _array(self, records: np.ndarray, number: int) -> pa.Array:
        field, kind, n = self.schema.field(number), self._types[number], len(records)
        if pa.types.is_null(kind):
            return _as_type(pa.nulls(n), field.type)
        missing = records[f"{number}.null"] > 0 if self.facts[number].has_nulls else None
        validity = None
        if missing is not None and missing.any():
            validity = pa.py_buffer(np.packbits(~missing, bitorder="little"))
        categories = self.facts[number].categories
        if categories is not None:
            return categories.column(records[f"{number}"], validity)
        if is_text_type(kind):
            array = self._text(records, number, validity)
        elif pa.types.is_boolean(kind):
            bits = np.packbits(records[f"{number}"] > 0, bitorder="little")
            array = pa.Array.from_buffers(kind, n, [validity, pa.py_buffer(bits)])
        else:
            values = np.ascontiguousarray(records[f"{number}"])
            if number in self._signed:
                values = np.where(records[f"{number}.minus"] > 0, values.dtype.type(-0.0), values)
            array = pa.Array.from_buffers(kind, n, [validity, pa.py_buffer(values.view(np.uint8))])
        return _as_type(array, field.type)

    def _text(self, records: np.ndarray, number: int, validity: Any) -> pa.Array:
        lengths = records[f"{number}.length"].astype(np.int64)
        offsets = np.zeros(len(records) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        padded = _bytes_of(records, self.dtype, f"{number}")
        content = padded[np.arange(padded.shape[1]) < lengths[:, None]]
        return self._text_of(
            number, len(records), [validity, pa.py_buffer(offsets.view(np.uint8)), pa.py_buffer(content)]
        )

    def _text_of(self, number: int, n: int, buffers: list[Any]) -> pa.Array:
        large = pa.Array.from_buffers(_large(self._types[number]), n, buffers)
        return large.cast(self._types[number])


def _make_written_schema(schema: pa.Schema, facts: Sequence[ColumnFacts]) -> pa.Schema:
    fields = [
        field if one.categories is None else field.with_type(one.categories.type)
        for field, one in zip(schema, facts, strict=True)
    ]
    return pa.schema(fields, metadata=schema.metadata)


def _storage(column: pa.Array) -> pa.Array:
    return column.storage if isinstance(column, pa.ExtensionArray) else column


def _as_type(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if isinstance(kind, pa.BaseExtensionType):
        return kind.wrap_array(array)
    return array if array.type == kind else array.cast(kind)


def _bytes_of(records: np.ndarray, dtype: np.dtype[Any], name: str) -> np.ndarray:
    """Return one field of records as bytes: a view of shape (n, width)."""
    assert dtype.fields is not None
    field, offset = dtype.fields[name][:2]
    flat = records.view(np.uint8).reshape(len(records), dtype.itemsize)
    return flat[:, offset : offset + field.itemsize]


def _numbers(column: pa.Array, dtype: np.dtype[Any], extra: int = 0) -> np.ndarray:
    """Return the fixed-width values of an array (or the offsets of text) without a copy where there is one form."""
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    data = column.buffers()[1]
    if data is None:
        return np.zeros(len(column) + extra, dtype)
    return np.frombuffer(data, dtype, len(column) + extra, column.offset * dtype.itemsize)


def _words(width: int) -> Iterator[tuple[int, str]]:
    """Yield offset and kind of the words of a decimal, the least significant first."""
    place = 0
    for kind in _DECIMALS[width]:
        yield place, kind
        place += np.dtype(kind).itemsize


def _carrier(kind: pa.DataType) -> np.dtype[Any]:
    """Return the NumPy type in which values of fixed width are carried."""
    if pa.types.is_boolean(kind) or pa.types.is_null(kind):
        return _FLAG
    if pa.types.is_decimal(kind) or pa.types.is_fixed_size_binary(kind):
        return np.dtype(f"V{kind.byte_width}")
    letter = "i"  # dates, times and durations count from some origin
    if pa.types.is_floating(kind):
        letter = "f"
    elif pa.types.is_unsigned_integer(kind):
        letter = "u"
    return np.dtype(f"<{letter}{kind.bit_width // 8}")


def _is_fixed(kind: pa.DataType) -> bool:
    known = (
        pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_date,
        pa.types.is_time, pa.types.is_timestamp, pa.types.is_duration, pa.types.is_fixed_size_binary,
    )  # fmt: skip
    return any(is_kind(kind) for is_kind in known)


def is_text_type(kind: pa.DataType) -> bool:
    """Tell whether values are text or bytes of any length."""
    return _is_binary(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind) or _is_view(kind)


def _is_view(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string_view(kind) or pa.types.is_binary_view(kind))


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind))


def _large(kind: pa.DataType) -> pa.DataType:
    return pa.large_binary() if _is_binary(kind) else pa.large_string()
