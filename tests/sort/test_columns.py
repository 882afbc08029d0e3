"""Rows as records and back, and their order against Arrow's own."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tartan.errors import ConfigError
from tartan.sort.categories import Categories
from tartan.sort.columns import ColumnFacts, ColumnKey, RowForm, storage_type

N = 60


def column(kind: pa.DataType, seed: int = 0) -> pa.Array:
    """Return values of a type, a fifth of them nulls, many equal."""
    rng = np.random.default_rng(seed)
    number = rng.integers(-40, 40, N)
    values: list[Any]
    if pa.types.is_dictionary(kind):
        return column(kind.value_type, seed).dictionary_encode().cast(kind)
    if pa.types.is_boolean(kind):
        values = [bool(v > 0) for v in number]
    elif pa.types.is_unsigned_integer(kind):
        values = [int(abs(v)) for v in number]
    elif pa.types.is_floating(kind):
        values = [float(v) / 2 for v in number]
    elif pa.types.is_decimal(kind):
        values = [decimal.Decimal(int(v) * 10**3 + 7) / 1000 for v in number]
    elif pa.types.is_fixed_size_binary(kind):
        values = [int(abs(v)).to_bytes(kind.byte_width, "big") for v in number]
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        values = ["é" * int(abs(v) % 4) + "a\0b"[: int(abs(v) % 3)] for v in number]
    elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        values = [bytes([255, 0, 7])[: int(abs(v) % 4)] for v in number]
    elif pa.types.is_date(kind):
        values = [datetime.date(2000, 1, 1) + datetime.timedelta(int(v)) for v in number]
    else:
        values = number.tolist()
    masked = [None if drop else value for value, drop in zip(values, rng.random(N) < 0.2, strict=True)]
    if pa.types.is_temporal(kind) and not pa.types.is_date(kind):
        base = pa.int64() if kind.bit_width == 64 else pa.int32()
        return pa.array([None if v is None else abs(v) for v in masked], base).cast(kind)
    return pa.array(masked, kind)


KINDS = [
    pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(), pa.float16(),
    pa.float32(), pa.float64(), pa.bool_(), pa.date32(), pa.date64(), pa.time32("s"), pa.time64("us"),
    pa.timestamp("us", "UTC"), pa.duration("ms"), pa.decimal128(12, 3), pa.decimal256(50, 3), pa.binary(5),
    pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.string_view(),
    pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.int32(), pa.int64()),
]  # fmt: skip


def facts_of(array: pa.Array) -> ColumnFacts:
    plain = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
    texts = [value for value in plain.to_pylist() if isinstance(value, str | bytes)]
    lengths = [len(text.encode() if isinstance(text, str) else text) for text in texts]
    categories = None
    if pa.types.is_dictionary(array.type):
        categories = Categories("c", array.type, 1 << 20)
        categories.add(array, "here")
    return ColumnFacts(array.null_count > 0, max(lengths, default=0), categories)


def form_of(batch: pa.RecordBatch) -> RowForm:
    return RowForm(batch.schema, [facts_of(array) for array in batch.columns])


def order_of(form: RowForm, records: np.ndarray, key: list[ColumnKey]) -> list[int]:
    """Sort records as the engine does, slowly."""

    rows = list(range(len(records)))
    for part in reversed(form.key(key)):
        raw = [record.tobytes()[part.offset : part.end] for record in records]
        values = raw if part.kind[0] == "S" else [np.frombuffer(one, part.kind)[0] for one in raw]
        rows.sort(key=values.__getitem__, reverse=part.descending)
    return rows


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_what_goes_in_comes_out(kind: pa.DataType) -> None:
    batch = pa.record_batch({"a": column(kind), "b": column(pa.int32(), 1), "c": column(kind, 2).slice(0)})
    form = form_of(batch)
    for part in (batch, batch.slice(7), batch.slice(3, 0), batch.slice(55)):
        again = form.batch(form.records(part))
        again.validate(full=True)
        assert again.to_pylist() == part.to_pylist()
        assert again.schema == batch.schema


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("nulls_first", [False, True])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if not pa.types.is_dictionary(kind)], ids=str)
def test_the_order_is_that_of_the_values(kind: pa.DataType, nulls_first: bool, descending: bool) -> None:
    batch = pa.record_batch({"a": column(kind)})
    form = form_of(batch)
    values = batch.column(0).to_pylist()
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        values = [None if value is None else value.encode() for value in values]
    found = [values[row] for row in order_of(form, form.records(batch), [ColumnKey("a", descending, nulls_first)])]
    there = sorted((value for value in values if value is not None), reverse=descending)
    nulls = [None] * values.count(None)
    assert found == (nulls + there if nulls_first else there + nulls)


def test_one_column_of_numbers_is_its_own_record() -> None:
    values = np.arange(10, dtype=np.int64)
    batch = pa.record_batch({"a": pa.array(values)})
    form = RowForm(batch.schema, [ColumnFacts()])
    records = form.records(batch.slice(3))
    assert form.is_one_number
    assert np.shares_memory(records, values)
    assert form.key([ColumnKey("a")])[0].kind == "<i8"
    assert form.batch(records).to_pydict() == {"a": list(range(3, 10))}


@pytest.mark.parametrize(
    "kind",
    [pa.list_(pa.int8()), pa.struct([("x", pa.int8())]), pa.map_(pa.string(), pa.int8()), pa.month_day_nano_interval()],
)
def test_nested_columns_are_refused_by_name(kind: pa.DataType) -> None:
    with pytest.raises(ConfigError, match="column 'deep'"):
        storage_type(pa.field("deep", kind))


def test_keys_that_are_no_columns() -> None:
    form = RowForm(pa.schema([("a", pa.int64()), ("b", pa.string())]), [ColumnFacts(), ColumnFacts()])
    with pytest.raises(ConfigError, match=r"no column 'c'; there are a, b"):
        form.key([ColumnKey("c")])
    with pytest.raises(ConfigError, match="'a' is named twice"):
        form.key([ColumnKey("a"), ColumnKey("b"), ColumnKey("a")])
