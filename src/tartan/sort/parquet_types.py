"""Types of Parquet that Arrow does not keep as they are: refuse them, or read them in a way that does.

INT96 holds days and nanoseconds: Spark and Impala write years from 1 to 9999, of which a timestamp of nanoseconds holds
1677 to 2262 only, and microseconds cut digits off. Arrow says nothing of either.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tartan.base.files import arrow_file
from tartan.errors import ConfigError

DateUnit = Literal["ns", "us"]
# How a type was written, not what it is.
_WAYS = ("is_from_converted_type", "force_set_converted_type")


def refuse_lost_types(path: Path, file: pq.ParquetFile, names: Sequence[str]) -> None:
    """Refuse columns whose type is another one when they are written again, such as intervals.

    Raises
    ------
    ConfigError
    """
    schema = pa.schema([file.schema_arrow.field(name) for name in names])
    written = _logical_types(_make_empty_file(schema))
    for name, kind in _logical_types(file).items():
        if name in written and kind is not None and kind != written[name] and not _is_int96(file, name):
            raise ConfigError(
                f"column {name!r} of {path} is {kind['Type']} in Parquet, which would be lost; leave it out (columns), "
                "or cast it to another type first",
                context={"path": str(path), "column": name},
            )


def parquet_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema that Parquet gives back for columns of Arrow: that of dictionaries of views differs.

    Raises
    ------
    ConfigError
        If another type would come back, such as milliseconds for seconds.
    """
    schema = pa.schema([_without_views(field) for field in schema], metadata=schema.metadata)
    for field, back in zip(schema, _make_empty_file(schema).schema_arrow, strict=True):
        values = field.type.value_type if pa.types.is_dictionary(field.type) else None
        if back.type not in (field.type, values):
            raise ConfigError(
                f"column {field.name!r} is {field.type}, which Parquet holds as {back.type}; cast it to that first, or "
                "leave it out (columns)",
                context={"column": field.name, "type": str(field.type)},
            )
    return schema


def _without_views(field: pa.Field) -> pa.Field:
    if not pa.types.is_dictionary(field.type):
        return field
    plain = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}.get(field.type.value_type)
    if plain is None:
        return field
    return field.with_type(pa.dictionary(field.type.index_type, plain, field.type.ordered))


def _make_empty_file(schema: pa.Schema) -> pq.ParquetFile:
    """Return a Parquet file without rows."""
    buffer = io.BytesIO()
    pq.ParquetWriter(buffer, schema).close()
    return pq.ParquetFile(pa.BufferReader(buffer.getvalue()))


def _logical_types(file: pq.ParquetFile) -> dict[str, dict[str, Any] | None]:
    """Return what the values of each column are; None for nothing but their physical type."""
    found: dict[str, dict[str, Any] | None] = {}
    for number in range(len(file.schema)):
        column = file.schema.column(number)
        kind = {key: value for key, value in json.loads(column.logical_type.to_json()).items() if key not in _WAYS}
        # Signed integers of 32 and 64 bits are what the physical types hold; narrower and unsigned ones say more.
        is_plain = kind["Type"] == "None" or (kind["Type"] == "Int" and kind["bitWidth"] >= 32 and kind["isSigned"])
        found[column.path] = None if is_plain else kind
    return found


def _is_int96(file: pq.ParquetFile, name: str) -> bool:
    return name in int96_columns(file)


def int96_columns(file: pq.ParquetFile) -> list[str]:
    """Return the names of the columns that are INT96."""
    columns = [file.schema.column(number) for number in range(len(file.schema))]
    return [column.path for column in columns if column.physical_type == "INT96"]


def date_unit(paths: Sequence[Path], names: Sequence[str]) -> DateUnit:
    """Return the unit that holds all INT96 dates of some Parquet files; it reads them.

    Parameters
    ----------
    paths : sequence of Path
    names : sequence of str
        Columns that are looked at.

    Raises
    ------
    ConfigError
        If neither nanoseconds nor microseconds hold them all.
    """
    unfit: dict[DateUnit, tuple[Path, str]] = {}
    for path in paths:
        with pq.ParquetFile(arrow_file(path)) as file:
            dates = [name for name in int96_columns(file) if name in names]
        for name in dates:
            for unit in _unfit_units(path, name):
                unfit.setdefault(unit, (path, name))
    if len(unfit) == 2:
        (far, far_name), (fine, fine_name) = unfit["ns"], unfit["us"]
        raise ConfigError(
            f"column {far_name!r} of {far} has INT96 dates outside of 1677 to 2262, and column {fine_name!r} of {fine} "
            "some with nanoseconds; leave one of them out (columns), or write them as timestamps of one unit first",
            context={"path": str(far), "column": far_name},
        )
    return "us" if "ns" in unfit else "ns"


def _unfit_units(path: Path, name: str) -> set[DateUnit]:
    """Return the units that cannot hold an INT96 column: what is out of range wraps around, what is finer is cut."""
    unfit: set[DateUnit] = set()
    seconds, micros, nanos = (_counts(path, name, unit) for unit in ("s", "us", "ns"))
    for second, micro, nano in zip(seconds, micros, nanos, strict=True):
        in_range = micro // 10**6 == second
        if not (in_range & (nano // 1000 == micro)).all():
            unfit.add("ns")
        with np.errstate(over="ignore"):
            if not (in_range & (micro * np.int64(1000) == nano)).all():
                unfit.add("us")
    return unfit


def _counts(path: Path, name: str, unit: str) -> Any:
    """Yield the dates of a column in a unit, without nulls."""
    with pq.ParquetFile(arrow_file(path), coerce_int96_timestamp_unit=unit) as file:
        for batch in file.iter_batches(columns=[name]):
            yield batch.column(0).cast(pa.int64()).drop_null().to_numpy()
