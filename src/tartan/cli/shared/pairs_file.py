"""Lists of candidate pairs in files: CSV, TSV, Parquet or .npy, as indices or as keys.

A table has two columns: ``i`` and ``j`` (indices from 0) or ``key_i`` and ``key_j``, or any two first columns,
which are indices where they hold whole numbers only and keys otherwise. Where keys are other whole numbers than the
places of their items, only the names of columns say which of the two is meant.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tartan.base.files import arrow_file
from tartan.base.format import format_bytes
from tartan.base.machine import memory
from tartan.base.npy_input import open_npy
from tartan.base.text_table import cell_of
from tartan.errors import ConfigError

_INDEX_NAMES = ("i", "j")
_KEY_NAMES = ("key_i", "key_j")
# By arithmetic: two int64 three times.
_PAIR_BYTES = 48  # as it is read, as whole numbers, and beside each other
_TEXTS = ("string", "large_string")
# By judgement: a header line has tens of bytes; a bound against strangers' files.
_MOST_HEADER = 1 << 20


def read_pairs(path: Path, keys: Sequence[str], *, by_place: bool = True) -> np.ndarray:
    """Read a list of pairs.

    Parameters
    ----------
    path : Path
        The suffix chooses the format: .npy, .parquet, .csv, .tsv or .txt (tab or comma).
    keys : sequence of str, length n
        Keys of the items, in order.
    by_place : bool
        Whether items may be named by their places; not where some of what was given is left out.

    Returns
    -------
    array (m, 2), int64
        Indices of the items.

    Raises
    ------
    ConfigError
        If the file cannot be read, is empty, or names an item that there is not.
    """
    try:
        path.stat()  # Arrow's own complaint about a missing file does not say that it is missing
        if path.suffix.lower() == ".npy":
            _refuse_places(path, by_place)
            pairs = _read_npy(path)
        else:
            pairs = _read_table(path, keys, by_place)
    except OSError as error:
        raise _wrong(path, error.strerror or str(error)) from error
    if len(pairs) == 0:
        raise _wrong(path, "it holds no pairs")
    outside = (pairs < 0) | (pairs >= len(keys))
    if outside.any():
        row, column = np.argwhere(outside)[0]
        raise _wrong(path, f"pair {row} names item {pairs[row, column]}; there are {len(keys)}, counted from 0")
    return pairs


def _refuse_places(path: Path, by_place: bool) -> None:
    if not by_place:
        raise _wrong(
            path,
            "it counts items, and --exclude leaves some out, so that numbers may be places before or after that; name "
            "items, in columns key_i and key_j (rows are called by their numbers)",
        )


def _wrong(path: Path, what: str) -> ConfigError:
    return ConfigError(f"--pairs {path}: {what}", context={"option": "--pairs", "path": str(path)})


def _read_npy(path: Path) -> np.ndarray:
    try:
        pairs = open_npy(path)
    except ValueError as error:
        raise _wrong(path, f"it is not an array ({error})") from error
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu":
        raise _wrong(path, f"it holds {pairs.dtype} of shape {pairs.shape}; whole numbers (m, 2) are needed")
    return np.asarray(pairs, np.int64)


def _read_table(path: Path, keys: Sequence[str], by_place: bool) -> np.ndarray:
    import pyarrow as pa

    try:
        parquet = path.suffix.lower() in (".parquet", ".pq")
        table = _parquet(path) if parquet else _read_separated(path)
    except pa.ArrowInvalid as error:
        raise _wrong(path, f"it cannot be read ({str(error).splitlines()[0]})") from error
    names = set(table.column_names)
    chosen = next((pair for pair in (_INDEX_NAMES, _KEY_NAMES) if names.issuperset(pair)), None)
    columns = [table[name] for name in chosen or table.column_names[:2]]
    if len(columns) < 2:
        raise _wrong(path, f"it has one column, {table.column_names}; two are needed")
    if chosen != _KEY_NAMES and all(_holds_numbers(column) for column in columns):
        if chosen is None and (key := _other_number(keys)) is not None:
            raise _wrong(
                path,
                f"its numbers may be places of items or names, such as {key!r}; call the columns i and j (places, from "
                "0), or key_i and key_j (names)",
            )
        _refuse_places(path, by_place)
        return np.column_stack([_numbers(column) for column in columns])
    if chosen == _INDEX_NAMES:
        raise _wrong(path, "its columns i and j must hold whole numbers")
    headless = chosen is None and not parquet
    return np.column_stack([_indices(column, keys, path, headless=headless) for column in columns])


def _other_number(keys: Sequence[str]) -> str | None:
    """Return a key that is not the place of its item, where all are whole numbers; else None."""
    other = next((key for at, key in enumerate(keys) if key != str(at)), None)
    return other if other is not None and all(key.isdecimal() for key in keys) else None


def _parquet(path: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    # A text that is repeated is read once: the file need not hold as many as the table does.
    with arrow_file(path) as file:
        parquet = pq.ParquetFile(file)
        columns = _choose_columns(parquet.schema_arrow.names)
        _refuse_large(path, parquet.metadata, 0)
        types = {name: str(parquet.schema_arrow.field(name).type) for name in columns}
        texts = [name for name, kind in types.items() if kind.removeprefix("dictionary<values=").startswith(_TEXTS)]
    with arrow_file(path) as file:
        table = pq.read_table(file, columns=columns, read_dictionary=texts)
        _refuse_large(path, parquet.metadata, sum(_plain_bytes(table[name]) for name in texts))
    return table.cast(pa.schema([(name, "string" if name in texts else table[name].type) for name in columns]))


def _choose_columns(names: Sequence[str]) -> list[str]:
    """Return the columns that have our names, else the first two."""
    known = next((pair for pair in (_INDEX_NAMES, _KEY_NAMES) if set(names).issuperset(pair)), None)
    return list(known or names[:2])


def _plain_bytes(column: Any) -> int:
    """Return what a dictionary of texts takes as texts."""
    import pyarrow.compute as pc

    lengths = (pc.binary_length(chunk.dictionary).cast("int64").take(chunk.indices) for chunk in column.chunks)
    return sum(pc.sum(some).as_py() or 0 for some in lengths)


def _refuse_large(path: Path, about: Any, n_bytes: int) -> None:
    """Refuse a table that takes more than half of the memory with so many bytes of text."""
    unpacked = sum(about.row_group(number).total_byte_size for number in range(about.num_row_groups))
    needed, room = unpacked + about.num_rows * _PAIR_BYTES + 2 * n_bytes, memory().total_bytes // 2
    if needed > room:
        raise _wrong(
            path,
            f"its {about.num_rows:,} rows take {format_bytes(needed)} of memory, and {format_bytes(room)} may be used; "
            "divide the pairs into several runs",
        )


def _read_separated(path: Path) -> Any:
    """Read a text table with every value as text; the first line is a header only if it has our names."""
    from pyarrow import csv

    with path.open(encoding="utf-8-sig", errors="replace") as file:  # spreadsheets begin with a byte order mark
        first = file.readline(_MOST_HEADER)
    if len(first) == _MOST_HEADER:
        raise _wrong(path, f"its first line has {_MOST_HEADER:,} characters and more; two columns are needed")
    delimiter = "\t" if "\t" in first else ","
    names = [name.strip().strip('"') for name in first.rstrip("\r\n").split(delimiter)]
    headed = set(names).issuperset(_INDEX_NAMES) or set(names).issuperset(_KEY_NAMES)
    names = names if headed else [f"column {index}" for index in range(len(names))]
    with arrow_file(path) as file:
        return csv.read_csv(
            file,
            read_options=csv.ReadOptions(column_names=names, skip_rows=int(headed)),
            parse_options=csv.ParseOptions(delimiter=delimiter),
            convert_options=csv.ConvertOptions(column_types=dict.fromkeys(names, "string"), strings_can_be_null=False),
        )


def _holds_numbers(column: Any) -> bool:
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_integer(column.type) or len(column) == 0:
        return True
    if not pa.types.is_string(column.type):
        return False
    return bool(pc.all(pc.match_substring_regex(column, r"^\s*-?\d{1,18}\s*$")).as_py())


def _numbers(column: Any) -> np.ndarray:
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = pa.types.is_string(column.type)
    return np.asarray((pc.utf8_trim_whitespace(column) if texts else column).cast(pa.int64()).to_numpy())


def _indices(column: Any, keys: Sequence[str], path: Path, *, headless: bool) -> np.ndarray:
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = column.cast(pa.string())
    found = pc.index_in(texts, value_set=pa.array(list(keys), pa.string()))
    if found.null_count:
        written = pa.array([cell_of(key) for key in keys], pa.string())
        found = pc.coalesce(found, pc.index_in(texts, value_set=written))
    if found.null_count:
        missing = texts.filter(pc.is_null(found))[0].as_py()
        way_out = "; a header names the columns key_i and key_j, or i and j of places from 0"
        said = way_out if headless and found.is_null()[0].as_py() else ""
        raise _wrong(path, f"there is no item {missing!r}; keys look like {keys[0]!r}{said}")
    return np.asarray(found.to_numpy(), np.int64)
