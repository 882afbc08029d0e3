"""Tables of Arrow as rows: a column of lists beside a column of names, or a column for each position.

What programs write (each was tried): pandas and Hugging Face datasets ``list<element: float>``, often in
one row group and of doubles; polars and LanceDB ``fixed_size_list``; DuckDB a list for its arrays, too; DuckDB's and
pandas' text may be ``large_string`` or ``string_view``. pandas writes an index of texts as ``__index_level_0__``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from tartan.base.format import name_some, show_value
from tartan.errors import ConfigError
from tartan.sources.rows.unpacked import KEY_NAMES, OTHER_KEYS, PackedRows, require_names

# By judgement: 4 MB of float32, in the third cache and far above what a call costs.
_BATCH_VALUES = 1 << 20
_NUMBERED = re.compile(r"(.*?)(\d+)")


class TabularFile(Protocol):
    """A table in a file of some format."""

    path: str
    n_rows: int

    @property
    def schema(self) -> Any:
        """The names and types of its columns, a ``pyarrow.Schema``."""
        ...

    def batches(self, columns: Sequence[str], n_rows: int) -> Iterator[Any]:
        """Yield record batches of at most so many rows, from the first row on."""
        ...

    def place(self, row: int) -> str:
        """Say where a row is, such as "row 17 (row group 3)"."""
        ...


class TableRows(PackedRows):
    """Rows of a table, as ``RowFile`` has it.

    Parameters
    ----------
    table : TabularFile
    part : str, optional
        Column of lists; default: the only one, else all columns of numbers that name no row.

    Raises
    ------
    ConfigError
        If there is no such column, or which one is meant cannot be told.
    """

    def __init__(self, table: TabularFile, part: str | None = None) -> None:
        self._table = table
        self.path, self.part = table.path, part
        self._columns = _choose_columns(table, part)
        kinds = [_value_type(table.schema.field(name).type) for name in self._columns]
        self._names = NameColumns(table, self._columns)
        self._listed = _is_list(table.schema.field(self._columns[0]).type)
        self.dtype = np.dtype(np.result_type(*(_numpy_type(kind) for kind in kinds)))
        self.stored = self.dtype
        self.shape = (table.n_rows, self._width())

    def describe(self) -> str:
        """Say what the rows are."""
        what = f"column {self._columns[0]!r}" if self._listed else f"columns {name_some(self._columns)}"
        return f"{what}, {self.dtype}"

    def blocks(self) -> Iterator[np.ndarray]:
        """Yield all rows in blocks."""
        first = 0
        for batch in _batches(self._table, self._columns, max(1, _BATCH_VALUES // max(1, self.shape[1]))):
            yield self._lists(batch.column(0), first) if self._listed else self._wide(batch, first)
            first += batch.num_rows

    def key_column(self, wanted: str | None) -> str | None:
        """Return the column that names the rows."""
        return self._names.key_column(wanted)

    @property
    def offered_names(self) -> Sequence[str]:
        """Columns of texts or whole numbers beside the rows, which ``key_column`` takes when one is named."""
        return self._names.offered

    def can_name(self, column: str) -> bool:
        """Whether there is a column of this name that can name rows."""
        return self._names.can_name(column)

    def read_keys(self, column: str) -> list[str]:
        """Return the names of all rows."""
        return self._names.read_keys(column)

    def _width(self) -> int:
        """Return the width of the rows, of lists of any length that of the first."""
        import pyarrow as pa

        if not self._listed:
            return len(self._columns)
        kind = _storage(self._table.schema.field(self._columns[0]).type)
        if pa.types.is_fixed_size_list(kind):
            return int(kind.list_size)
        for batch in _batches(self._table, self._columns, 1):
            if batch.num_rows:
                values = _unwrap(batch.column(0))
                if values.null_count:
                    raise _wrong(
                        self._table, f"{self._table.place(0)} of column {self._columns[0]!r} is null", self._leave_out()
                    )
                if not len(values.flatten()):
                    what = f"{self._table.place(0)} of column {self._columns[0]!r} has no values"
                    raise _wrong(self._table, what, "give lists of at least one number")
                return len(values.flatten())
        raise ConfigError(
            f"{self.path} has no rows; give a file with some", code="no-input", context={"input": self.path}
        )

    def _leave_out(self) -> str:
        name = self._columns[0]
        ways = f"frame[frame[{name!r}].notna()] of pandas or WHERE {name} IS NOT NULL of DuckDB"
        return f"leave such rows out, as {ways} does"

    def _lists(self, column: Any, first: int) -> np.ndarray:
        import pyarrow as pa

        values, name, width = _unwrap(column), self._columns[0], self.shape[1]
        if values.null_count:
            row = first + int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0])
            raise _wrong(self._table, f"{self._table.place(row)} of column {name!r} is null", self._leave_out())
        if not pa.types.is_fixed_size_list(values.type):
            lengths = values.value_lengths().to_numpy()
            other = np.flatnonzero(lengths != width)
            if len(other):
                row = first + int(other[0])
                raise _wrong(
                    self._table,
                    f"{self._table.place(row)} of column {name!r} has {lengths[other[0]]} values, and the first row "
                    f"{width}",
                    "rows to compare have one length: leave others out, or compute them again",
                )
        numbers = values.flatten()
        if numbers.null_count:
            at = int(np.flatnonzero(numbers.is_null().to_numpy(zero_copy_only=False))[0])
            where = f"{self._table.place(first + at // width)} of column {name!r} has a null at position {at % width}"
            raise _wrong(self._table, where, "fill it, or leave the row out; a NaN fails its row alone")
        return _to_numpy(numbers).reshape(-1, width)

    def _wide(self, batch: Any, first: int) -> np.ndarray:
        block = np.empty((batch.num_rows, len(self._columns)), self.dtype)
        for position, name in enumerate(self._columns):
            column = batch.column(name)
            if column.null_count:
                row = first + int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
                raise _wrong(
                    self._table,
                    f"{self._table.place(row)} has a null in column {name!r}",
                    "fill it, or leave the row out; a NaN fails its row alone",
                )
            block[:, position] = _to_numpy(column)
        return block


class NameColumns:
    """The columns of a table that can name its rows.

    Parameters
    ----------
    table : TabularFile
    but : sequence of str
        Columns that name none.
    """

    def __init__(self, table: TabularFile, but: Sequence[str] = ()) -> None:
        self._table = table
        self.columns = [name for name in table.schema.names if _can_name(table.schema.field(name).type)]
        self.offered = [name for name in self.columns if name not in but]

    def can_name(self, column: str) -> bool:
        """Whether there is a column of this name that can name rows."""
        return column in self.columns

    def key_column(self, wanted: str | None) -> str | None:
        """Return the column that names the rows."""
        if wanted is not None:
            if wanted in self.columns:
                return wanted
            raise ConfigError(
                f"{self._table.path} has no column {wanted!r} of texts or whole numbers; it has {_some(self.columns)}",
                context={"input": self._table.path, "option": "--keys"},
            )
        found = (name for key in KEY_NAMES for name in self.offered if name.lower() == key)
        return next(found, None)

    def only_column(self) -> str:
        """Return the one column that can name rows.

        Raises
        ------
        ConfigError
            If there are more, or none.
        """
        if len(self.columns) == 1:
            return str(self.columns[0])
        way_out = f"name one: --keys {self._table.path}:COLUMN" if self.columns else "give one name a line"
        raise ConfigError(
            f"--keys {self._table.path}: {len(self.columns)} columns may be names, {_some(self.columns)}; {way_out}",
            context={"option": "--keys"},
        )

    def read_keys(self, column: str) -> list[str]:
        """Return the names of all rows."""
        import pyarrow as pa

        found: list[str] = []
        for batch in _batches(self._table, [column], _BATCH_VALUES):
            values = batch.column(0)
            if values.null_count:
                at = len(found) + int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0])
                raise _wrong(self._table, f"{self._table.place(at)} has no {column!r}", OTHER_KEYS)
            if pa.types.is_dictionary(values.type):
                values = values.dictionary_decode()
            if pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type):
                values = values.cast(pa.large_string())
            found += [str(value) for value in values.to_pylist()]
        return require_names(self._table.path, column, found, self._table.place)


def _wrong(table: TabularFile, what: str, way_out: str) -> ConfigError:
    return ConfigError(f"{table.path}: {what}; {way_out}", context={"input": table.path})


def _batches(table: TabularFile, columns: Sequence[str], n_rows: int) -> Iterator[Any]:
    import pyarrow as pa

    seen = 0
    try:
        for batch in table.batches(columns, n_rows):
            yield batch
            seen += batch.num_rows
    except (pa.ArrowException, OSError) as error:
        # Arrow counts from the beginning of what it decodes, and does not read lists of a fixed size that are null.
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise _wrong(table, f"behind row {seen} it cannot be read ({reason})", _CHECK) from error


_CHECK = "rows to compare are whole lists of one length, without nulls: leave others out"


def _choose_columns(table: TabularFile, part: str | None) -> list[str]:
    """Return the column of lists, or all columns that are positions."""
    schema, context = table.schema, {"input": table.path}
    lists = [name for name in schema.names if _is_list(schema.field(name).type)]
    if part is not None:
        if part in lists:
            return [part]
        raise ConfigError(
            f"{table.path} has no column {part!r} of lists of numbers; it has {_some(lists or schema.names)}",
            context=context,
        )
    if len(lists) > 1:
        raise ConfigError(
            f"{table.path} has {len(lists)} columns of lists of numbers, {_some(lists)}; name one of them: "
            f"{table.path}:{lists[0]}",
            context=context,
        )
    if lists:
        return lists
    wide = [name for name in schema.names if _numpy_type(schema.field(name).type) is not None]
    wide = [name for name in wide if name.lower() not in KEY_NAMES]
    if not wide:
        kinds = [f"{name} ({schema.field(name).type})" for name in schema.names]
        raise ConfigError(
            f"{table.path} has no column of lists of numbers, and none of numbers; it has {_some(kinds)}",
            context=context,
        )
    return sorted(_without_others(wide), key=_by_numbers)


def _by_numbers(name: str) -> tuple[Any, ...]:
    """Order columns by their names, the same in all files that are compared, in whatever order they lie."""
    pieces = re.split(r"(\d+)", name)
    return tuple(int(piece) if at % 2 else piece for at, piece in enumerate(pieces)), name


def _without_others(names: list[str]) -> list[str]:
    """Leave out columns such as a label beside columns that are numbered: ``dim_0``, ``dim_1``, ..."""
    groups: dict[str, list[str]] = {}
    for name in names:
        match = _NUMBERED.fullmatch(name)
        groups.setdefault(match.group(1) if match else f"\0{name}", []).append(name)
    largest = max(groups.values(), key=len)
    return largest if len(largest) > 1 else names


def _storage(kind: Any) -> Any:
    """Return the type in which an extension type, such as a tensor of fixed shape, is stored."""
    import pyarrow as pa

    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def _unwrap(column: Any) -> Any:
    import pyarrow as pa

    return column.storage if isinstance(column, pa.ExtensionArray) else column


def _value_type(kind: Any) -> Any:
    kind = _storage(kind)
    return kind.value_type if hasattr(kind, "value_type") else kind


def _is_list(kind: Any) -> bool:
    import pyarrow as pa

    kind = _storage(kind)
    of_some_form = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return of_some_form and _numpy_type(kind.value_type) is not None


def _numpy_type(kind: Any) -> np.dtype[Any] | None:
    """Return the dtype of numbers of Arrow, None of what are none."""
    import pyarrow as pa

    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        return None
    found: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
    return found


def _can_name(kind: Any) -> bool:
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    texts = ("string", "large_string", "string_view", "binary", "large_binary")
    return bool(str(kind) in texts or pa.types.is_integer(kind))


def _to_numpy(numbers: Any) -> np.ndarray:
    return np.asarray(numbers.to_numpy(zero_copy_only=False))


def _some(names: Sequence[str]) -> str:
    return name_some([show_value(name) for name in names]) or "no column"
