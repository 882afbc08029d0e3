"""For each row of one table the nearest rows of another: computed by tiles, written as a stream.

Rows of the left lie in memory block by block; the rows of the right stream past each block, in tiles. What is nearest
is chosen while scores are in the cache, after the screen of the vectors application where it has one, so that results
have the bits of scores that are all computed. Everything is checked before the first result is asked for.
"""

from __future__ import annotations

import itertools
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from tartan import _native
from tartan.apps.vectors import Vectors
from tartan.base.bounds import round_bound
from tartan.base.checks import FINITE, check_one_of, number, whole
from tartan.base.format import format_bytes
from tartan.base.machine import held_bytes, peak_bytes, usable_cores
from tartan.base.machine import memory as free_memory
from tartan.base.row_screen import RowScreen
from tartan.core.memory import KEYED_BYTES, MemoryNeed, need_of_join
from tartan.errors import ConfigError
from tartan.join.blocks import SHARED_ROWS, MeetingRows, blocks_of_all, blocks_of_keys, number_keys
from tartan.join.spilled import CarriedColumns, SpilledTable, spill
from tartan.join.streams import TableGiven, find_vectors, look_at, number_type, require_column
from tartan.options import parse_bytes

if TYPE_CHECKING:
    import pyarrow as pa

Index = NDArray[np.int64]
Given = TypeVar("Given")
Found = TypeVar("Found")

#: Of a call that says nothing. By convention of `tartan neighbors`.
DEFAULT_K = 10
# Measured: what the process holds when it has imported NumPy, PyArrow and Tartan. `tartan bench nearest_join` measures
# the peak of the process.
_LIBRARY_BYTES = 170 << 20
# By judgement: below, tiles are so small that calls cost more than products. No benchmark.
_LEAST_BYTES = 32 << 20
# By arithmetic: 8-bit copies of such a tile are 512 KB, in the second cache.
TILE_VALUES = 1 << 19
# By format: tiles begin where panels of the screen do.
_PANEL = 64
# By judgement: fewer rows do not pay for the 8-bit copies of those that they meet. No benchmark.
_SCREENED_ROWS = 512
# By judgement: rows of the left whose scores are written out where nothing chooses while they are computed.
_WRITTEN_ROWS = 512
# By judgement: a batch of results; and rows of it, where they are short. No benchmark.
_BATCH_BYTES, BATCH_ROWS = 8 << 20, 1 << 16
# By format: two indices and a score of 8 bytes, and the same while they are sorted.
PAIR_BYTES = 2 * (8 + 8 + 8)
# By arithmetic: two indices and a score as they are found, joined, their order, sorted, with ranks, and joined again.
LISTED_BYTES = 3 * 20 + 24 + 2 * 28
# By arithmetic: the native code counts items in 32 bits.
_MOST_ROWS = 2**32 - 2**10


def nearest_join(
    left: Any,
    right: Any,
    on: str | tuple[str, str] | None = None,
    *,
    k: int | None = None,
    within: float | None = None,
    by: str | Sequence[str] | None = None,
    how: str = "inner",
    metric: str = "cosine",
    memory: str | int | None = None,
    suffix: str = "_right",
    folder: str | Path | None = None,
    screened: bool = True,
) -> pa.RecordBatchReader:
    """Join each row of a table with the rows of another whose vectors are nearest: exact, larger than memory.

    Parameters
    ----------
    left, right : tables
        Anything with ``__arrow_c_stream__`` (relations of DuckDB, frames of Polars and pandas, tables and readers of
        PyArrow), or paths of Parquet or Arrow files. Each is read once, to its end, before this returns.
    on : str or (str, str), optional
        The column of vectors: lists or fixed-size lists of numbers, of one width; two names where those differ.
        Default: the only such column.
    k : int, optional
        Most rows of the right for each row of the left. Default: 10, and no limit where ``within`` is given.
    within : float, optional
        Only rows up to this distance, what is equal to it included.
    by : str or sequence of str, optional
        Columns of both tables: only rows with equal values meet. Null is equal to nothing.
    how : {"inner", "left"}
        Rows of the left that have no match are left out, or kept with nulls.
    metric : str
        As for ``tartan.apps.vectors.Vectors``.
    memory : str or int, optional
        Most memory of the process, such as "500MB", with its libraries, and beside what others hold in it. Default:
        half of what is free.
    suffix : str
        Behind the names of columns of the right that the left has, too.
    folder : path, optional
        Where both tables lie meanwhile; default: that of the system for temporary files.
    screened : bool
        Rule pairs out by products of 8-bit copies, with a proven bound; the result is the same.

    Returns
    -------
    pyarrow.RecordBatchReader
        Computed while it is read, and read once. The columns of the left but its vectors, those of the right but its
        vectors and keys, ``rank`` (int64, from 1, nearest first; equal distances in the order of the right) and
        ``distance``. A table of vectors alone has a column ``row`` in their place, numbers from 0. Rows are in the
        order of the left; with ``by`` key by key, in the order of their first rows on the left.

    Raises
    ------
    ConfigError
        If a column is missing, names collide, a vector is null, of another width, or cannot be compared (NaN, infinite,
        without a direction), or an option does not fit; it names the table and the row.
    DiskFullError, StoreError
        If tables cannot be kept on disk.

    Notes
    -----
    All pairs are computed: n_left n_right products, by as many threads as there are cores. On disk lie 4 bytes (8 of
    float64 where the metric wants it) for each number of both tables, and their other columns.

    Examples
    --------
    >>> import pyarrow as pa
    >>> words = pa.table({"word": ["cat", "dog", "car"], "embedding": [[1.0, 0.1], [0.9, 0.3], [0.0, 1.0]]})
    >>> nearest_join(words, words, k=2).read_all().select(["word", "word_right", "rank"]).to_pylist()[1]
    {'word': 'cat', 'word_right': 'dog', 'rank': 2}
    """
    return prepare_join(
        left, right, on, k=k, within=within, by=by, how=how, metric=metric, memory=memory, suffix=suffix,
        folder=folder, screened=screened,
    ).reader  # fmt: skip


class PreparedJoin(NamedTuple):
    """A join of which no pair is computed yet.

    Attributes
    ----------
    need : MemoryNeed
        What the process will hold at most while the result is read.
    reader : pyarrow.RecordBatchReader
        The result.
    """

    need: MemoryNeed
    reader: pa.RecordBatchReader


def prepare_join(
    left: Any,
    right: Any,
    on: str | tuple[str, str] | None = None,
    *,
    k: int | None = None,
    within: float | None = None,
    by: str | Sequence[str] | None = None,
    how: str = "inner",
    metric: str = "cosine",
    memory: str | int | None = None,
    suffix: str = "_right",
    folder: str | Path | None = None,
    screened: bool = True,
) -> PreparedJoin:
    """Read two tables to their ends, and return what is needed to join them; see :func:`nearest_join`."""
    import pyarrow as pa

    keys = [by] if isinstance(by, str) else list(by or ())
    wanted = _JoinWanted.of(k, within, how, metric, memory, suffix, screened=screened)
    names = (on, on) if on is None or isinstance(on, str) else tuple(on)
    if len(names) != 2:
        raise ConfigError(f"on is {on!r}; give the column of vectors, or two, that of the left and that of the right")
    tables = [look_at(left, "left")]
    tables += tables if right is left else [look_at(right, "right")]
    sides = [
        _JoinSide(side, table, find_vectors(table.schema, name, side))
        for side, table, name in zip(("left", "right"), tables, names, strict=True)
    ]
    schema_of = _JoinColumns.of(sides, keys, wanted)
    kinds = [number_type(side.given.schema.field(side.on).type) for side in sides]
    dtype = np.result_type(*(kind for kind in kinds if kind is not None))
    place, width = Path(tempfile.gettempdir() if folder is None else folder), None
    spilled: list[SpilledTable] = []
    for side in sides[:1] if right is left else sides:
        prepare = _preparer(wanted.app, dtype, side.name)
        table, width = spill(side.given.open(), side.on, prepare, side.name, width=width, folder=place)
        spilled.append(table)
    first, second = spilled[0], spilled[-1]
    if max(first.n, second.n) >= _MOST_ROWS:
        raise ConfigError(f"{max(first.n, second.n):,} rows; a table has less than {_MOST_ROWS:,}: join parts of it")
    join = _JoinWork(wanted, first, second, keys)
    columns = schema_of.with_types(first.carried, second.carried)
    return PreparedJoin(join.need(), pa.RecordBatchReader.from_batches(columns.schema, columns.batches(join)))


class _JoinSide(NamedTuple):
    """A table as it was given."""

    name: str
    given: TableGiven
    on: str


@dataclass(frozen=True)
class _JoinWanted:
    """What is asked for."""

    app: Vectors
    k: int | None
    bound: float | None
    keeps_all: bool
    suffix: str
    total_bytes: int
    screened: bool

    @property
    def bytes_(self) -> int:
        """What is left of it for rows and pairs."""
        return self.total_bytes - _LIBRARY_BYTES

    @classmethod
    def of(
        cls,
        k: int | None,
        within: float | None,
        how: str,
        metric: str,
        memory: str | int | None,
        suffix: str,
        *,
        screened: bool,
    ) -> _JoinWanted:
        app = Vectors(metric=metric)
        most = None if k is None and within is not None else whole("k", DEFAULT_K if k is None else k, 1)
        bound = None if within is None else round_bound(number("within", within, FINITE), app.outputs["scores"])
        check_one_of("how", how, ("inner", "left"))
        total = free_memory().available_bytes // 2 if memory is None else parse_bytes(memory, option="memory")
        if total < _LIBRARY_BYTES + _LEAST_BYTES:
            raise ConfigError(
                f"memory is {format_bytes(total)}; NumPy, PyArrow and tiles of rows take "
                f"{format_bytes(_LIBRARY_BYTES + _LEAST_BYTES)}: give as much or more"
            )
        return cls(app, most, bound, how == "left", suffix, total, screened)


def _preparer(app: Vectors, dtype: np.dtype[Any], side: str) -> Callable[[np.ndarray, int], np.ndarray]:
    def prepare(rows: np.ndarray, first: int) -> np.ndarray:
        rows = rows.astype(dtype, copy=False)
        reasons = app.check_block(rows)
        if reasons is not None:
            at = next(at for at, reason in enumerate(reasons) if reason)
            raise ConfigError(f"{side}, row {first + at}: {reasons[at]}; leave such rows out first")
        found: np.ndarray = app.preprocess_block(rows, np)
        return found

    return prepare


@dataclass(frozen=True)
class _JoinColumns:
    """The columns of the result."""

    own: list[str]
    others: dict[str, str]  # name in the right: name in the result
    measure: str
    schema: pa.Schema | None = None

    @classmethod
    def of(cls, sides: Sequence[_JoinSide], keys: Sequence[str], wanted: _JoinWanted) -> _JoinColumns:
        """Name them, before anything is read.

        Raises
        ------
        ConfigError
            If a key is missing or is the column of vectors, or two columns would have one name.
        """
        left, right = sides
        for side, key in itertools.product(sides, keys):
            require_column(side.given.schema, key, f"{side.name} (by)")
            if key == side.on:
                raise ConfigError(f"by: {key!r} is the column of vectors; give a column of keys")
        own = [name for name in left.given.schema.names if name != left.on] or ["row"]
        others = [name for name in right.given.schema.names if name != right.on] or ["row"]
        measure = "score" if wanted.app.similarity else "distance"
        renamed = {name: name + wanted.suffix if name in own else name for name in others if name not in keys}
        found = [*own, *renamed.values(), "rank", measure]
        twice = next((name for name in found if found.count(name) > 1), None)
        if twice is not None:
            raise ConfigError(f"the result would have two columns {twice!r}; rename one, or give another suffix")
        return cls(own, renamed, measure)

    def with_types(self, left: CarriedColumns, right: CarriedColumns) -> _JoinColumns:
        """Return the columns with their types."""
        import pyarrow as pa

        fields = [left.schema.field(name) for name in self.own]
        fields += [pa.field(new, right.schema.field(name).type) for name, new in self.others.items()]
        measure = pa.field(self.measure, pa.float32())
        return _JoinColumns(
            self.own, self.others, self.measure, pa.schema([*fields, pa.field("rank", pa.int64()), measure])
        )

    def batches(self, join: _JoinWork) -> Iterator[pa.RecordBatch]:
        """Yield the result."""
        import pyarrow as pa

        assert self.schema is not None
        for found in join.pieces():
            left, right = join.left.carried.take(found.left), join.right.carried.take(found.right)
            unknown = found.right < 0
            arrays = [left.column(name) for name in self.own]
            arrays += [right.column(name) for name in self.others]
            arrays += [pa.chunked_array([pa.array(found.ranks, mask=unknown)])]
            arrays += [pa.chunked_array([pa.array(found.scores.astype(np.float32), mask=unknown)])]
            table = pa.Table.from_arrays(arrays, names=self.schema.names).cast(self.schema)
            yield from table.combine_chunks().to_batches()


class _JoinPiece(NamedTuple):
    """Some pairs: rows of the left and right, -1 for none, ranks and scores."""

    left: Index
    right: Index
    ranks: Index
    scores: np.ndarray


class _NearestPairs(NamedTuple):
    """Pairs of a block, sorted by row of the block and rank: rows of the block, rows of the right, scores."""

    rows: Index
    others: Index
    scores: np.ndarray


class _TooManyError(Exception):
    """A block has more pairs than memory is for them."""


class _JoinWork:
    """The work of one join."""

    def __init__(self, wanted: _JoinWanted, left: SpilledTable, right: SpilledTable, keys: Sequence[str]) -> None:
        self.left, self.right = left, right
        self._wanted, self._app = wanted, wanted.app
        self._largest = wanted.app.similarity
        self._k = None if wanted.k is None else min(wanted.k, max(1, right.n))
        self._threads = usable_cores()
        vectors = left.vectors
        row_bytes = max(1, vectors.width * vectors.dtype.itemsize)
        rows = max(_PANEL, TILE_VALUES // max(1, vectors.width) // _PANEL * _PANEL)
        columns = ([side.carried.column(key) for key in keys] for side in (left, right))
        self._numbers = number_keys(*columns) if keys else None
        self._key_bytes = KEYED_BYTES * (left.n + right.n) if keys else 0
        room = max(_LEAST_BYTES, wanted.bytes_ - self._key_bytes)
        # Half for rows of the left and what is best of them, a quarter for tiles of the right, a quarter for results.
        tiles = room // 4 // (2 * self._threads)
        self._tile_rows = max(_PANEL, min(rows, tiles // (2 * row_bytes)) // _PANEL * _PANEL)
        self._most_pairs = max(1, room // 4 // (PAIR_BYTES if self._k is not None else LISTED_BYTES))
        each = row_bytes + vectors.width + 64 + 2 * 12 * (self._k or 1)
        self._height = max(1, min(room // 2 // each, self._most_pairs // (self._k or 1)))
        if self._k is None:
            # All pairs of the tiles that are computed at a time may be near.
            cells = max(_PANEL, self._most_pairs // self._threads)
            self._height = min(self._height, max(1, cells // min(self._tile_rows, _SCREENED_ROWS)))
            self._tile_rows = min(self._tile_rows, max(_PANEL, cells // self._height // _PANEL * _PANEL))
        short = left.carried.row_bytes() + right.carried.row_bytes() + 32
        self._piece_rows = max(1, min(BATCH_ROWS, _BATCH_BYTES // short))

    def need(self) -> MemoryNeed:
        """Return what the process will hold at most, from now on."""
        n = min(self._height, self.left.n)
        if self._numbers is not None:
            # Many small blocks at a time, or one of a large key.
            largest = int(np.bincount(self._numbers[0] + 1, minlength=1).max())
            n = min(n, max(largest, 4 * self._threads * SHARED_ROWS))
        vectors, tile_rows = self.left.vectors, min(self._tile_rows, self.right.n)
        value_bytes = vectors.width * (vectors.dtype.itemsize + 1)  # with 8-bit copies
        carried = self.left.carried, self.right.carried
        return need_of_join(
            held_bytes(),
            peak_bytes(),
            n * (value_bytes + 64) + self._threads * tile_rows * value_bytes,
            self._pair_bytes(n),
            self._piece_rows * sum(one.row_bytes() for one in carried),
            sum(one.taking_bytes() for one in carried),
            self._key_bytes,
            memory_bytes=max(self._wanted.total_bytes, _LIBRARY_BYTES + _LEAST_BYTES + self._key_bytes),
        )

    def _pair_bytes(self, n: int) -> int:
        """Return the bytes of what is near to so many rows of the left, at most."""
        if self._k is not None:
            return (PAIR_BYTES + 2 * 12) * n * self._k
        return LISTED_BYTES * min(self._most_pairs, n * self.right.n)

    def pieces(self) -> Iterator[_JoinPiece]:
        """Yield the result, in its order."""
        with ThreadPoolExecutor(self._threads, thread_name_prefix="tartan-join") as pool:
            waiting: list[_JoinPiece] = []
            for block, pairs in self._solve_all(pool):
                waiting.append(self._ranked(block, pairs))
                if sum(len(piece.left) for piece in waiting) >= self._piece_rows:
                    yield from self._cut(waiting)
                    waiting = []
            if waiting:
                yield from self._cut(waiting)

    def _cut(self, pieces: list[_JoinPiece]) -> Iterator[_JoinPiece]:
        whole_ = _JoinPiece(*(np.concatenate(column) for column in zip(*pieces, strict=True)))
        for start in range(0, len(whole_.left), self._piece_rows):
            yield _JoinPiece(*(column[start : start + self._piece_rows] for column in whole_))

    def _blocks(self) -> Iterator[MeetingRows]:
        if self._numbers is None:
            return blocks_of_all(self.left.n, self.right.n, self._height)
        left, right = self._numbers
        return blocks_of_keys(left, right, self._height, keeps_all=self._wanted.keeps_all)

    def _solve_all(self, pool: ThreadPoolExecutor) -> Iterator[tuple[MeetingRows, _NearestPairs]]:
        """Solve blocks in order: small ones side by side, of large ones the tiles."""
        for is_small, blocks in itertools.groupby(self._blocks(), key=lambda block: self._is_small(block)):
            if is_small:
                yield from _map_in_order(
                    pool, lambda block: (block, self._solve_small(block)), blocks, 4 * self._threads
                )
            else:
                for block in blocks:
                    yield from self._solve_large(block, pool)

    def _is_small(self, block: MeetingRows) -> bool:
        return len(block.left) <= _SCREENED_ROWS and len(block.right) <= self._tile_rows

    def _solve_small(self, block: MeetingRows) -> _NearestPairs:
        found = _TileChooser(self, block, screened=False)
        if len(block.right):
            found.offer(0, self.right.vectors.take(block.right))
        return found.pairs()

    def _solve_large(self, block: MeetingRows, pool: ThreadPoolExecutor) -> Iterator[tuple[MeetingRows, _NearestPairs]]:
        found = _TileChooser(self, block, screened=self._wanted.screened and len(block.left) >= _SCREENED_ROWS)

        def offer(start: int) -> None:
            found.offer(start, self.right.vectors.take(block.right[start : start + self._tile_rows]))

        try:
            for _ in _map_in_order(pool, offer, range(0, len(block.right), self._tile_rows), 2 * self._threads):
                if self._k is None and found.n_pairs > self._most_pairs and len(block.left) > 1:
                    raise _TooManyError
        except _TooManyError:
            del found
            for half in block.halves():
                yield from self._solve_large(half, pool)
        else:
            yield block, found.pairs()

    def _ranked(self, block: MeetingRows, pairs: _NearestPairs) -> _JoinPiece:
        """Return pairs with ranks and the numbers of their rows, and rows without a match where these are kept."""
        n = len(block.left)
        counts = np.bincount(pairs.rows, minlength=n)
        ranks = np.arange(len(pairs.rows)) - np.repeat(np.cumsum(counts) - counts, counts) + 1
        rows, others, scores = pairs
        if self._wanted.keeps_all:
            alone = np.flatnonzero(counts == 0)
            order = np.argsort(np.concatenate([rows, alone]), kind="stable")
            rows = np.concatenate([rows, alone])[order]
            others = np.concatenate([others, np.full(len(alone), -1)])[order]
            ranks = np.concatenate([ranks, np.zeros(len(alone), np.int64)])[order]
            scores = np.concatenate([scores, np.zeros(len(alone), scores.dtype)])[order]
        numbers = rows + block.left.start if isinstance(block.left, range) else block.left[rows]
        return _JoinPiece(numbers, others, ranks, scores)


class _TileChooser:
    """What is near to the rows of a block, of tiles that come from any thread."""

    def __init__(self, join: _JoinWork, block: MeetingRows, *, screened: bool) -> None:
        self._block, self._app, self._largest = block, join._app, join._largest
        self._left = join.left.vectors.take(block.left)
        self._bound, n = join._wanted.bound, len(block.left)
        # Numbers of columns begin behind those of rows, so that copies of rows are kept and those of columns are not.
        self._base = -(-n // _PANEL) * _PANEL
        scores = np.dtype(self._app.outputs["scores"])
        self._limit = self._bound if self._bound is not None else 0.0
        k = None if join._k is None else max(1, min(join._k, len(block.right)))
        self._best = None if k is None else _native.RunningBest(0, n, k, scores == np.float32)
        self._by_rows = _native.HAS_PRODUCTS and self._left.dtype == scores
        width = self._left.shape[1]
        # Rows of few values do not end in their squared norms, see ``Application.norm_rows``.
        normed = bool(self._app.norm_rows) and scores == np.float32 and width > _native.LEAST_SCREENED
        self._by_rows &= self._app.unit_rows or self._app.inner_rows or normed
        self._metric = self._app.norm_rows or ("inner" if self._app.inner_rows else "cosine")
        takes = screened and self._by_rows and width > _native.LEAST_SCREENED
        most, limit = 2 * self._left.nbytes + (1 << 20), None if self._best is not None else self._limit
        self._screen = RowScreen(n, most, limit=limit, largest=self._largest) if takes else None
        self._listed: list[tuple[Index, Index, np.ndarray]] = []
        self.n_pairs = 0

    def offer(self, start: int, right: np.ndarray) -> None:
        """Look at a tile of the right, which begins at a place of the block."""
        codes = self._codes(start, len(right))
        if self._by_rows and self._offer_rows(start, right, codes):
            return
        for first in range(0, len(self._left), _WRITTEN_ROWS):
            part = self._left[first : first + _WRITTEN_ROWS]
            marks = None if codes is None else codes[first : first + _WRITTEN_ROWS]
            scores = self._app.compare(part, right, np)
            corner = first, self._base + start
            if self._best is not None:
                self._best.choose(scores, marks, corner, self._largest)
            else:
                rows, columns = _native.scores_beyond(scores, marks, corner, self._largest, self._limit)
                self._list(rows + first, columns + start, scores[rows, columns])

    def _offer_rows(self, start: int, right: np.ndarray, codes: np.ndarray | None) -> bool:
        corner = 0, self._base + start
        screen = self._screen.of_tile(corner, self._left, right, self._metric) if self._screen else None
        if self._best is not None:
            return self._best.choose_rows(
                self._left, right, codes, corner, self._largest, metric=self._metric, screen=screen
            )
        found = _native.rows_beyond(
            self._left, right, codes, corner, self._largest, self._limit, metric=self._metric, screen=screen
        )
        if found is None:
            return False
        (rows, columns), scores = found
        self._list(rows, columns + start, scores)
        return True

    def _codes(self, start: int, n_columns: int) -> np.ndarray | None:
        if self._block.left_keys is None or self._block.right_keys is None:
            return None
        keys = self._block.right_keys[start : start + n_columns]
        return np.equal.outer(self._block.left_keys, keys).astype(np.uint8)

    def _list(self, rows: Index, columns: Index, scores: np.ndarray) -> None:
        if len(rows):
            self._listed.append((rows, columns, scores))
            self.n_pairs += len(rows)

    def pairs(self) -> _NearestPairs:
        """Return what is near, of all tiles."""
        if self._best is not None:
            (rows, columns), found = self._best.pairs((0, len(self._left)), (0, 2**32 - 2), self._largest)
            scores, columns = np.asarray(found), columns - self._base
            if self._bound is not None:
                near = scores >= self._bound if self._largest else scores <= self._bound
                rows, columns, scores = rows[near], columns[near], scores[near]
        else:
            none = np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32)
            rows, columns, scores = (np.concatenate(column) for column in zip(none, *self._listed, strict=True))
            order = np.lexsort((columns, -scores if self._largest else scores, rows))
            rows, columns, scores = rows[order], columns[order], scores[order]
        met = self._block.right
        return _NearestPairs(rows, columns + met.start if isinstance(met, range) else met[columns], scores)


def _map_in_order(
    pool: ThreadPoolExecutor, function: Callable[[Given], Found], given: Iterable[Given], most: int
) -> Iterator[Found]:
    """Yield results in order, with at most so many calls at a time."""
    waiting: deque[Future[Found]] = deque()
    try:
        for one in given:
            waiting.append(pool.submit(function, one))
            if len(waiting) >= most:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()
