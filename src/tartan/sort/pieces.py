"""Rows of any length as records: the key, and a piece of what the row holds.

A row is cut into pieces that all have its key. The sort keeps records with equal keys in their order, so the pieces
of a row come out one after the other. A row takes the room of its own length. A long text in a key is compared by its
beginning, and, where that does not tell, by its rank among the long texts, which stay in memory: there are few.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tartan._native import cut_rows, join_pieces
from tartan.errors import ConfigError
from tartan.sort.columns import ColumnFacts, ColumnKey, RowForm
from tartan.sort.engine import MAX_RECORD_BYTES
from tartan.sort.keys import KeyPart

# By format: the number of bytes of a piece, with a bit that says whether a row begins (rows.rs).
_MARK_BYTES = 2
# By format: the highest bit of the mark.
_FIRST = 0x8000
# By arithmetic: the engine keeps the order of records in 8 bytes each (plan.Shape), besides the records.
_ORDER_BYTES = 8
# By judgement: from a few bytes for words to a quarter of the widest record; half as much again a step, so that the
# best one is missed by little. No benchmark.
_PIECES = tuple(sorted({2**power + half * 2 ** (power - 1) for power in range(3, 14) for half in (0, 1)}))
# By judgement: rows that are cut at once, within the room that Python has in a sort. No benchmark.
CUT_BYTES = 4 << 20
# By judgement: keys below this take their whole width in every record; names and addresses are below. No benchmark.
LONG_TEXT_BYTES = 256
# By judgement: the least beginning that is compared, of the length of a name. No benchmark.
_LEAST_BOUND = 32
# By judgement: how many longer texts may make it so short: so few that they cost nothing beside the rows. No benchmark.
_MANY_TEXTS = 10_000
# By arithmetic: half of the widest record, so that at least half of each holds what rows hold.
_MOST_KEY_BYTES = MAX_RECORD_BYTES // 2
# By arithmetic: lengths up to here are counted in an array of half a MB, longer ones are few.
_COUNTED = 1 << 16
# By arithmetic: an object of bytes in a set, and its place in a dictionary, take some 150 bytes besides its content.
_OBJECT_BYTES = 150


class LengthCount:
    """How many rows have which length."""

    def __init__(self) -> None:
        self._short = np.zeros(_COUNTED, np.int64)
        self._long: Counter[int] = Counter()
        self.longest = 0

    def add(self, lengths: np.ndarray) -> None:
        """Count lengths in bytes, shape (n,)."""
        self.longest = max(self.longest, int(lengths.max(initial=0)))
        long = lengths >= _COUNTED
        if long.any():
            self._long.update(lengths[long].tolist())
            lengths = lengths[~long]
        self._short += np.bincount(lengths, minlength=_COUNTED)

    def choose_piece(self, key_bytes: int, extra_bytes: int = 0) -> tuple[int, int]:
        """Return the size of pieces that takes the least room, and the number of pieces.

        Parameters
        ----------
        key_bytes : int
            Of each record.
        extra_bytes : int
            That every row has besides its length.
        """
        lengths = np.concatenate([np.flatnonzero(self._short), np.fromiter(self._long, np.int64, len(self._long))])
        counts = np.concatenate([
            self._short[self._short > 0], np.fromiter(self._long.values(), np.int64, len(self._long))
        ])  # fmt: skip
        most = MAX_RECORD_BYTES - key_bytes - _MARK_BYTES
        longest = max(1, self.longest + extra_bytes)
        sizes = [size for size in (*_PIECES, longest) if size <= min(most, longest, _PIECES[-1])] or [
            min(most, longest)
        ]

        def count(size: int) -> int:
            return count_pieces(lengths + extra_bytes, counts, size)

        best = min(sizes, key=lambda size: count(size) * (key_bytes + _MARK_BYTES + size + _ORDER_BYTES))
        return best, count(best)


def count_pieces(lengths: np.ndarray, counts: np.ndarray, size: int) -> int:
    """Return the pieces of rows of which so many have each length."""
    return int((counts * np.maximum(1, -(-lengths // size))).sum())


class LongTexts:
    """The long texts of a column of the key, and the width that is compared in every record.

    Parameters
    ----------
    most_bytes : int
        Memory that they may take; above it longer beginnings are compared, and fewer texts are long.

    Attributes
    ----------
    longest : int
        Bytes of the longest text.
    """

    def __init__(self, most_bytes: int) -> None:
        self.longest = 0
        self._most_bytes, self._bound = most_bytes, _LEAST_BOUND
        self._texts: set[bytes] = set()
        self._held_bytes = 0
        self._ranks: dict[bytes, int] = {}

    def add(self, column: pa.Array) -> None:
        """Look at texts as large_binary."""
        lengths = pc.binary_length(column)
        self.longest = max(self.longest, int(pc.max(lengths).as_py() or 0))
        if self.longest <= self._bound:
            return
        for value in column.filter(pc.fill_null(pc.greater(lengths, self._bound), False)).to_pylist():
            if len(value) > self._bound and value not in self._texts:
                self._texts.add(value)
                self._held_bytes += len(value) + _OBJECT_BYTES
                if self._is_too_much:
                    self._raise_bound()

    @property
    def _is_too_much(self) -> bool:
        many = self._bound < LONG_TEXT_BYTES and len(self._texts) > _MANY_TEXTS
        return many or self._held_bytes > self._most_bytes

    def _raise_bound(self) -> None:
        while self._is_too_much:
            self._bound *= 2
            self._texts = {value for value in self._texts if len(value) > self._bound}
            self._held_bytes = sum(len(value) + _OBJECT_BYTES for value in self._texts)

    @property
    def width(self) -> int:
        """Bytes of each text that records hold."""
        return min(self.longest, self._bound)

    def write(self) -> tuple[int, int, tuple[bytes, ...]]:
        """Return the longest text, the bound above which texts are long, and these."""
        return self.longest, self._bound, tuple(sorted(self._texts))

    @classmethod
    def read(cls, longest: int, bound: int, texts: Iterable[bytes]) -> LongTexts:
        """Return what was written."""
        found = cls(0)
        found.longest, found._bound, found._texts = longest, bound, set(texts)
        return found

    def rank(self) -> None:
        """Order the long texts, once all were looked at."""
        self._ranks = {value: rank for rank, value in enumerate(sorted(self._texts))}

    def ranks_of(self, column: pa.Array) -> np.ndarray:
        """Return what tells texts with the same beginning apart: the length, or, of long ones, a larger rank; (n,)."""
        lengths = pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False)
        found: np.ndarray = lengths.astype(np.uint32)
        for row in np.flatnonzero(lengths > self.width).tolist():
            found[row] = self.width + 1 + self._ranks[column[row].as_py()]
        return found


class Content(Protocol):
    """What rows hold, as bytes and back."""

    def pack(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the rows of a batch as large_binary."""

    def unpack(self, data: np.ndarray, offsets: np.ndarray) -> Any:
        """Return rows as the writer takes them."""


class LineContent:
    """Rows that are lines of text already, in one column."""

    def __init__(self, column: str) -> None:
        self.column = column

    def pack(self, batch: pa.RecordBatch) -> pa.Array:
        return batch.column(self.column)

    def unpack(self, data: np.ndarray, offsets: np.ndarray) -> Any:
        return data.data


class ColumnContent:
    """Rows of columns: what has a width, with the lengths of texts, and the texts behind it.

    Parameters
    ----------
    schema : pyarrow.Schema
        The first columns of each batch.
    facts : sequence of ColumnFacts
    """

    def __init__(self, schema: pa.Schema, facts: Sequence[ColumnFacts]) -> None:
        self._form = _FormWithoutTexts(schema, facts)
        self.schema, self.schema_of_sources, self.facts = self._form.schema, schema, list(facts)
        self._n = len(schema)

    @property
    def fixed_bytes(self) -> int:
        """Bytes of every row besides its texts."""
        return int(self._form.dtype.itemsize)

    def pack(self, batch: pa.RecordBatch) -> pa.Array:
        part = pa.RecordBatch.from_arrays(batch.columns[: self._n], names=[str(place) for place in range(self._n)])
        fixed = self._form.records(part)
        kind = pa.binary(self.fixed_bytes)
        first = pa.Array.from_buffers(
            kind, len(fixed), [None, pa.py_buffer(np.ascontiguousarray(fixed).view(np.uint8))]
        )
        texts = [as_bytes(part.column(place)) for place in self._form.text_places]
        if not texts:
            return first.cast(pa.binary()).cast(pa.large_binary())
        texts = [pc.fill_null(text, b"") for text in texts]
        first = first.cast(pa.binary()).cast(pa.large_binary())
        return pc.binary_join_element_wise(first, *texts, pa.scalar(b"", pa.large_binary()))

    def unpack(self, data: np.ndarray, offsets: np.ndarray) -> pa.RecordBatch:
        width = self.fixed_bytes
        fixed = np.ascontiguousarray(data[offsets[:-1, None] + np.arange(width)]).view(self._form.dtype)[:, 0]
        return self._form.batch_of(fixed, data, offsets[:-1] + width)


class _FormWithoutTexts(RowForm):
    """A record in which texts have a length only."""

    def __init__(self, schema: pa.Schema, facts: Sequence[ColumnFacts]) -> None:
        self.text_places: list[int] = []
        self._contents: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        super().__init__(schema, facts)

    @property
    def is_one_number(self) -> bool:
        return False

    def _fields(self, number: int) -> Iterator[tuple[str, np.dtype[Any]]]:
        for name, kind in super()._fields(number):
            if name == f"{number}" and self._is_text(number):
                self.text_places.append(number)
            else:
                yield name, kind

    def _put_text(self, records: np.ndarray, number: int, column: pa.Array) -> None:
        lengths = pc.fill_null(pc.binary_length(as_bytes(column)), 0)
        records[f"{number}.length"] = lengths.to_numpy(zero_copy_only=False)

    def batch_of(self, records: np.ndarray, data: np.ndarray, starts: np.ndarray) -> pa.RecordBatch:
        """Return records as a batch; the texts of each row stand in ``data`` from its start on."""
        for number in self.text_places:
            lengths = records[f"{number}.length"].astype(np.int64)
            offsets = np.zeros(len(records) + 1, np.int64)
            np.cumsum(lengths, out=offsets[1:])
            self._contents[number] = offsets, gather(data, starts, lengths)
            starts = starts + lengths
        return self.batch(records)

    def _text(self, records: np.ndarray, number: int, validity: Any) -> pa.Array:
        offsets, content = self._contents.pop(number)
        return self._text_of(number, len(records), [validity, pa.py_buffer(offsets), pa.py_buffer(content)])


def gather(data: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return slices of bytes one after the other."""
    ends = np.cumsum(lengths)
    steps = np.ones(int(ends[-1]) if len(ends) else 0, np.int64)
    some = lengths > 0
    if not some.any():
        return np.zeros(0, np.uint8)
    first = (ends - lengths)[some]
    begins = starts[some]
    steps[first[0]] = begins[0]
    steps[first[1:]] = begins[1:] - (begins[:-1] + lengths[some][:-1] - 1)
    found: np.ndarray = data[np.cumsum(steps, out=steps)]
    return found


def as_bytes(column: pa.Array) -> pa.Array:
    """Return texts as large_binary."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if pa.types.is_string_view(column.type):
        column = column.cast(pa.large_string())
    return column if pa.types.is_large_binary(column.type) else column.cast(pa.large_binary())


class PieceForm:
    """The records of rows that are cut into pieces.

    Parameters
    ----------
    schema : pyarrow.Schema
        Of the columns that are compared, called by names of their own.
    facts : sequence of ColumnFacts
    content : Content
        What is carried.
    long_texts : sequence of LongTexts or None
        One for each column that is compared; None for those without texts.
    piece_bytes : int
    keep_signs : bool
        Whether -0.0 comes before 0.0.

    Attributes
    ----------
    dtype : numpy.dtype
    content, long_texts, piece_bytes, keep_signs
        As given; so are ``facts``, and ``schema_of_keys``.
    """

    is_row = False
    """Whether a record is a row."""
    block_bytes = CUT_BYTES
    """Of records that are made at a time."""

    def __init__(
        self,
        schema: pa.Schema,
        facts: Sequence[ColumnFacts],
        content: Content,
        long_texts: Sequence[LongTexts | None],
        piece_bytes: int,
        *,
        keep_signs: bool,
    ) -> None:
        self.content = content
        self.schema_of_keys, self.facts = schema, list(facts)
        self._names = schema.names
        self._keys = make_key_form(schema, facts, long_texts)
        self.long_texts = long_texts
        for texts in long_texts:
            if texts is not None:
                texts.rank()  # here, as threads make records
        self.keep_signs = keep_signs
        self.piece_bytes = piece_bytes
        self.dtype = np.dtype([
            ("key", f"V{self._keys.dtype.itemsize}"), ("mark", "<u2"), ("piece", f"V{piece_bytes}")
        ])  # fmt: skip
        self._rest = np.zeros(0, np.uint8)

    @property
    def _cut_bytes(self) -> int:
        return min(CUT_BYTES, self.block_bytes)

    @property
    def schema(self) -> pa.Schema:
        """Of what is written; of lines that of the key."""
        return getattr(self.content, "schema", self._keys.schema)

    def count_records(self, lengths: np.ndarray, counts: np.ndarray) -> int:
        """Return the records of rows of which so many have each length, without what has a width."""
        extra_bytes = self.content.fixed_bytes if isinstance(self.content, ColumnContent) else 0
        return count_pieces(lengths + extra_bytes, counts, self.piece_bytes)

    def key(self, columns: Sequence[ColumnKey]) -> list[KeyPart]:
        """Return the parts of a record that are compared, most significant first."""
        return self._keys.key(columns)

    def blocks(self, batch: pa.RecordBatch) -> Iterator[np.ndarray]:
        """Yield the records of the rows of a batch: its first columns are carried, its last ones compared."""
        if not batch.num_rows:
            return
        content = self.content.pack(batch)
        offsets = np.frombuffer(content.buffers()[1], np.int64, len(content) + 1, 8 * content.offset)
        data = content.buffers()[2]
        data = np.frombuffer(data if data is not None else b"", np.uint8)
        keys = batch.select(list(range(batch.num_columns - len(self._names), batch.num_columns)))
        start = 0
        while start < len(content):
            stop = int(np.searchsorted(offsets, offsets[start] + self._cut_bytes))
            stop = min(max(stop, start + 1), len(content), start + 1 + self._cut_bytes // self.dtype.itemsize)
            key = self._key_records(keys.slice(start, stop - start))
            flat = key.view(np.uint8).reshape(-1)
            records = cut_rows(flat, offsets[start : stop + 1], data, key.itemsize, self.piece_bytes)
            yield records.view(self.dtype)
            start = stop

    def _key_records(self, batch: pa.RecordBatch) -> np.ndarray:
        columns = list(batch.columns)
        for place, texts in enumerate(self.long_texts):
            if texts is not None:
                columns[place] = pc.binary_slice(as_bytes(columns[place]).cast(pa.binary()), 0, texts.width)
        records = self._keys.records(pa.RecordBatch.from_arrays(columns, schema=self._key_schema))
        if self._keys.is_one_number:
            records = records.copy()
        for place, texts in enumerate(self.long_texts):
            if texts is not None:
                records[f"{place}.length"] = texts.ranks_of(as_bytes(batch.column(place)))
            elif records.dtype[f"{place}"].kind == "f" and not self.keep_signs:
                values = records[f"{place}"]
                values[values == 0] = 0.0
        return np.ascontiguousarray(records)

    @property
    def _key_schema(self) -> pa.Schema:
        return pa.schema([
            field if texts is None else field.with_type(pa.binary())
            for field, texts in zip(self._keys.schema_of_sources, self.long_texts, strict=True)
        ])  # fmt: skip

    def rows(self, records: np.ndarray) -> Iterator[Any]:
        """Yield what the writer takes of sorted records; the last row is kept until it is whole."""
        data, starts = join_pieces(records.view(np.uint8), self.dtype["key"].itemsize, self.piece_bytes)
        if isinstance(self.content, LineContent):
            if len(data):
                yield data.data
            return
        if len(self._rest):
            starts, data = starts + len(self._rest), np.concatenate([self._rest, data])
            starts = np.concatenate([[0], starts])
        last = int(starts[-1]) if len(starts) else 0
        self._rest = data[last:].copy()
        if len(starts) > 1:
            yield self.content.unpack(data, starts)

    def finish(self) -> Iterator[Any]:
        """Yield the last row."""
        if len(self._rest):
            yield self.content.unpack(self._rest, np.array([0, len(self._rest)]))
            self._rest = np.zeros(0, np.uint8)

    def begins_row(self, records: np.ndarray) -> np.ndarray:
        """Tell which records begin a row, (n,)."""
        found: np.ndarray = records["mark"] >= _FIRST
        return found


def make_key_form(schema: pa.Schema, facts: Sequence[ColumnFacts], long_texts: Sequence[LongTexts | None]) -> RowForm:
    """Return the form of the columns that are compared, with room for the beginnings of texts."""
    if not len(schema):
        raise ConfigError("name the columns to sort by with `key=`", context={"option": "key"})
    kinds = [
        field if texts is None else field.with_type(pa.binary())
        for field, texts in zip(schema, long_texts, strict=True)
    ]
    widths = [
        one if texts is None else replace(one, longest=texts.width)
        for one, texts in zip(facts, long_texts, strict=True)
    ]
    form = RowForm(pa.schema(kinds), widths)
    if form.dtype.itemsize > _MOST_KEY_BYTES:
        raise ConfigError(
            f"the texts of the key are compared by {form.dtype.itemsize:,} bytes, of which {_MOST_KEY_BYTES:,} are the "
            "most: too many of them are longer than that for the memory; give more `memory=`, or a key with less text",
            code="memory",
            context={"option": "memory", "key_bytes": form.dtype.itemsize},
        )
    return form
