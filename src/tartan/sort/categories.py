"""The categories of a dictionary column: one dictionary for all files, and numbers that sort as the values do.

Files and row groups may have dictionaries of their own. They are joined in the order in which they come, with
categories that no row has; those of an ordered column must agree in their order.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tartan.base.format import format_bytes
from tartan.errors import ConfigError


class Categories:
    """The categories of a column.

    Add all dictionaries first; then rows are numbered.

    Parameters
    ----------
    name : str
        Of the column.
    kind : pyarrow.DictionaryType
    most_bytes : int
        Memory that the categories may take.
    """

    def __init__(self, name: str, kind: pa.DictionaryType, most_bytes: int) -> None:
        self._name, self._kind, self._most_bytes = name, kind, most_bytes
        self._values: pa.Array = _hashable(pa.array([], kind.value_type))
        self._last: pa.Array | None = None
        self._numbered: tuple[pa.Array, pa.Array] | None = None

    def write(self) -> bytes:
        """Return the categories as an Arrow stream."""
        sink = pa.BufferOutputStream()
        batch = pa.RecordBatch.from_arrays([self._values], names=["values"])
        with pa.ipc.new_stream(sink, batch.schema) as stream:
            stream.write_batch(batch)
        return bytes(sink.getvalue())

    @classmethod
    def read(cls, name: str, kind: pa.DictionaryType, text: bytes) -> Categories:
        """Return what was written, of a column of this name and type; nothing can be added."""
        found = cls(name, kind, 0)
        found._values = pa.ipc.open_stream(pa.py_buffer(text)).read_next_batch().column(0)
        return found

    @property
    def type(self) -> pa.DataType:
        """Type of the column that is written: with wider indices if those of the source are too narrow."""
        index = self._kind.index_type
        fits = len(self._values) - 1 <= np.iinfo(index.to_pandas_dtype()).max
        return pa.dictionary(index if fits else pa.int32(), self._kind.value_type, self._kind.ordered)

    @property
    def can_be_compared(self) -> bool:
        """Whether the numbers of rows sort as the column does: floats have zeros and NaN of two signs."""
        return not pa.types.is_floating(self._kind.value_type)

    def add(self, column: pa.DictionaryArray, path: str) -> None:
        """Add the dictionary of a batch.

        Raises
        ------
        ConfigError
            If categories that have an order come in another, or they take too much memory.
        """
        if self._last is not None and column.dictionary.equals(self._last):
            return
        self._last = column.dictionary
        new = _hashable(column.dictionary).drop_null()
        if self._kind.ordered:
            self._values = self._longer(new, path)
        else:
            self._values = pc.unique(pa.concat_arrays([self._values, new]))
        if self._values.nbytes > self._most_bytes:
            raise ConfigError(
                f"the categories of column {self._name!r} take more than {format_bytes(self._most_bytes)}, a quarter "
                "of the memory; give more memory, or leave the column out (columns)",
                code="memory",
                context={"column": self._name, "option": "memory"},
            )

    def _longer(self, new: pa.Array, path: str) -> pa.Array:
        """Return the categories that have the others in their order."""
        for longer, shorter in ((self._values, new), (new, self._values)):
            places = pc.index_in(shorter, value_set=longer)
            if not places.null_count and (np.diff(places.to_numpy()) > 0).all():
                return longer
        known, other = (str(values.slice(0, 10).to_pylist()) for values in (self._values, new))
        raise ConfigError(
            f"column {self._name!r} has ordered categories, which are {other} in {path} and {known} before; give them "
            "one order in all files and row groups",
            context={"column": self._name, "path": path},
        )

    def codes(self, column: pa.DictionaryArray) -> pa.Array:
        """Return a number for each row, uint32: larger ones come later; null where there is no value."""
        if self._numbered is None or not column.dictionary.equals(self._numbered[0]):
            places = pc.index_in(_hashable(column.dictionary), value_set=self._values)
            self._numbered = column.dictionary, pa.array(self._ranks).take(places.cast(pa.uint32()))
        return self._numbered[1].take(column.indices)

    def column(self, codes: np.ndarray, validity: Any) -> pa.Array:
        """Return numbers as the column that they came from."""
        index = self.type.index_type
        places = self._places[codes] if len(self._places) else codes
        buffers = [validity, pa.py_buffer(places.astype(index.to_pandas_dtype()))]
        indices = pa.Array.from_buffers(index, len(codes), buffers)
        return pa.DictionaryArray.from_arrays(indices, self._written, ordered=self._kind.ordered)

    @cached_property
    def _places(self) -> np.ndarray:
        """Place in the dictionary of each number: in the order of the dictionary, or else of the values."""
        if self._kind.ordered or not self.can_be_compared:
            return np.arange(len(self._values), dtype=np.uint32)
        order: np.ndarray = pc.array_sort_indices(_sortable(self._values)).to_numpy().astype(np.uint32)
        return order

    @cached_property
    def _ranks(self) -> np.ndarray:
        ranks = np.empty(len(self._places), np.uint32)
        ranks[self._places] = np.arange(len(ranks), dtype=np.uint32)
        return ranks

    @cached_property
    def _written(self) -> pa.Array:
        kind = self._kind.value_type
        return self._values.view(kind) if pa.types.is_floating(kind) else self._values.cast(kind)


def _hashable(values: pa.Array) -> pa.Array:
    """Return values in a type in which Arrow finds them, and tells apart what differs."""
    kind = values.type
    if pa.types.is_floating(kind):
        return values.view({2: pa.uint16(), 4: pa.uint32(), 8: pa.uint64()}[kind.byte_width])
    if pa.types.is_string_view(kind) or pa.types.is_string(kind):
        return values.cast(pa.large_string())
    return values.cast(pa.large_binary()) if pa.types.is_binary_view(kind) or pa.types.is_binary(kind) else values


def _sortable(values: pa.Array) -> pa.Array:
    return values.cast(pa.uint8()) if pa.types.is_boolean(values.type) else values
