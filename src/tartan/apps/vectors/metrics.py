"""The metrics of dense vectors: how a block of rows is prepared, and how a tile of prepared rows is scored.

On NumPy arrays a tile is a native kernel; where the machine lacks the vectors of AVX2, products are NumPy's, with a
native last step. On the arrays of a GPU, distances that are not products, and the last step of Euclidean ones, have
CUDA
kernels (``vectors.cu``). On those of
any other namespace it is the same arithmetic in that namespace's own functions, the *portable* form, which runs on
NumPy too and is the oracle of the native one.

What is wrong with a row is not decided here but in ``Vectors.check_block``; rows that hold NaN give NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tartan import _native
from tartan.apps.vectors import sparse
from tartan.apps.vectors.cuda import finish_cosine, finish_euclidean, launch_tile
from tartan.base.entries import are_entries
from tartan.base.products import row_products

# Up to this length, distances from the differences themselves cost no more than the product.
# By judgement. `tartan bench vectors_kernels` measures metrics at several widths.
DIRECT_WIDTH = 32

# Elements of a temporary array: small enough for a cache on the CPU.
# By arithmetic: 1 MiB of float32, a second cache. `tartan bench vectors_kernels`.
BLOCK_ELEMENTS = 1 << 18
# The same on a GPU, where a block must be large to be fast.
# By judgement: 64 MiB, milliseconds of a GPU's memory. No benchmark: no GPU measured yet.
PORTABLE_ELEMENTS = 1 << 24


class Metric(Protocol):
    """One metric at one precision of scores."""

    def prepare(self, rows: Any, xp: Any) -> Any:
        """Turn (m, d) rows into the (m, d') block that ``tile`` takes."""
        ...

    def tile(self, left: Any, right: Any, out: Any, xp: Any) -> None:
        """Write the scores of (m, d') against (k, d') rows to ``out`` (m, k)."""
        ...

    def limit(self, dtype: np.dtype[Any]) -> tuple[float, float] | None:
        """Say how long a row of ``dtype`` may be: (largest p-norm, p), or None when any will do."""
        ...


@dataclass(frozen=True)
class UnitProduct:
    """Cosine distance, and correlation distance, which is the cosine distance of centred rows."""

    scores: np.dtype[Any]
    centred: bool

    def limit(self, dtype: np.dtype[Any]) -> None:
        return None

    def prepare(self, rows: Any, xp: Any) -> Any:
        if are_entries(rows):
            return sparse.prepare_unit(rows, self.scores)
        m, d = rows.shape
        block = xp.empty((m, d), dtype=self.scores)
        for part in row_slices(m, d, _block_elements(rows)):
            block[part] = self._unit(rows[part], xp)
        return block

    rows = prepare

    def ready(self, rows: Any, xp: Any) -> Any:
        """Return unit rows as they are."""
        return rows

    def finish(self, sides: Callable[[], list[Any]], products: Any, xp: Any) -> None:
        """Turn products of unit rows, rounded or not, into distances in place."""
        left, right = sides()
        _finish_cosine(left, right, products, xp)

    def _unit(self, rows: Any, xp: Any) -> Any:
        wide = rows.astype(np.float64)
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            if rows.dtype == np.float64:  # squares of all other types stay inside the range of float64
                _, exponent = xp.frexp(xp.max(xp.abs(wide), axis=1))
                wide = xp.ldexp(wide, -exponent[:, None])
            if self.centred:
                constant = xp.min(wide, axis=1) == xp.max(wide, axis=1)
                wide -= xp.mean(wide, axis=1)[:, None]
                wide[constant] = np.nan
            wide /= xp.sqrt(xp.sum(wide * wide, axis=1))[:, None]
        return wide

    def tile(self, left: Any, right: Any, out: Any, xp: Any) -> None:
        if left.dtype.kind == "u":
            sparse.tile(_native.sparse_cosine_tile, left, right, out, xp)
            return
        if on_host(out) and _native.HAS_PRODUCTS:
            _native.cosine_tile(left, right, out)
            return
        with np.errstate(invalid="ignore"):
            xp.matmul(left, right.T, out=out)
        if on_host(out):
            _native.finish_cosine(left, right, out)
        else:
            _finish_cosine(left, right, out, xp)


def _finish_cosine(left: Any, right: Any, products: Any, xp: Any) -> None:
    """Turn inner products of unit rows into distances in place, exactly 0 of equal rows; see crates/tartan-kernels."""
    wide = left.astype(np.float64)
    near = xp.abs(1 - xp.sum(wide * wide, axis=1)) + (left.shape[1] + 8) * float(np.finfo(products.dtype).eps)
    if finish_cosine(left, right, near, products, xp):
        return
    xp.subtract(1, products, out=products)
    xp.maximum(products, 0, out=products)
    xp.minimum(products, 2, out=products)
    rows, columns = xp.nonzero(products <= near[:, None])
    step = max(1, PORTABLE_ELEMENTS // left.shape[1])
    for start in range(0, len(rows), step):
        i, j = rows[start : start + step], columns[start : start + step]
        products[i, j] = xp.where(xp.all(left[i] == right[j], axis=1), 0, products[i, j])


@dataclass(frozen=True)
class InnerProduct:
    """Inner product of rows, in the precision of the scores: the larger, the more alike."""

    scores: np.dtype[Any]

    def limit(self, dtype: np.dtype[Any]) -> tuple[float, float]:
        """Hold |a.b| <= |a| |b|, and all sums on the way, inside the range of the scores."""
        return float(np.sqrt(float(np.finfo(self.scores).max)) * (1 - 1e-6)), 2

    def prepare(self, rows: Any, xp: Any) -> Any:
        block = xp.empty(rows.shape, dtype=self.scores)
        for part in row_slices(len(rows), rows.shape[1], _block_elements(rows)):
            with np.errstate(invalid="ignore", over="ignore"):
                fits = _compute_squared_norms(rows[part], xp) <= self.limit(rows.dtype)[0] ** 2
                block[part] = xp.where(fits[:, None], rows[part].astype(self.scores), self.scores.type(np.nan))
        return block

    def tile(self, left: Any, right: Any, out: Any, xp: Any) -> None:
        if on_host(out) and _native.HAS_PRODUCTS:
            _native.inner_tile(left, right, out)
            return
        with np.errstate(invalid="ignore"):
            xp.matmul(left, right.T, out=out)


@dataclass(frozen=True)
class Euclidean:
    """Squared Euclidean distance, or its root."""

    scores: np.dtype[Any]
    root: bool

    def limit(self, dtype: np.dtype[Any]) -> tuple[float, float]:
        """Hold |a - b|^2 <= 4 max(|a|^2, |b|^2) inside the ranges of the work and of the scores."""
        work = float(np.finfo(work_dtype(dtype, self.scores)).max)
        result = float(np.finfo(self.scores).max)
        largest = min(np.sqrt(work) / 2, result / 2 if self.root else np.sqrt(result) / 2)
        return float(largest) * (1 - 1e-6), 2

    def prepare(self, rows: Any, xp: Any) -> Any:
        work = work_dtype(rows.dtype, self.scores)
        m, d = rows.shape
        if d <= DIRECT_WIDTH:
            return mark(rows.astype(work, copy=False), xp)
        block = xp.empty((m, d + 1), dtype=work)
        for part in row_slices(m, d, _block_elements(rows)):
            block[part, :d] = rows[part]
            wide = block[part, :d].astype(np.float64)
            with np.errstate(invalid="ignore", over="ignore"):
                norms = xp.sum(wide * wide, axis=1)
                fits = norms <= self.limit(rows.dtype)[0] ** 2
            block[part, d] = xp.where(fits, norms, np.nan)
        return block

    def rows(self, rows: Any, xp: Any) -> Any:
        """Return rows as float32, NaN in those that are too long for it."""
        norms = _compute_squared_norms(rows, xp)
        fits = norms <= self.limit(np.dtype(np.float32))[0] ** 2
        with np.errstate(over="ignore"):
            return xp.where(fits[:, None], rows.astype(np.float32), np.float32(np.nan))

    def ready(self, rows: Any, xp: Any) -> Any:
        """Append the squared norms to rows as ``rows`` returns them, rounded or not."""
        if rows.shape[1] <= DIRECT_WIDTH:
            return rows
        return xp.concat([rows, _compute_squared_norms(rows, xp)[:, None].astype(rows.dtype)], axis=1)

    def finish(self, sides: Callable[[], list[Any]], products: Any, xp: Any) -> None:
        """Turn products of rows without norms into distances in place."""
        left, right = ((rows, _compute_squared_norms(rows, xp).astype(rows.dtype)) for rows in sides())
        if not finish_euclidean(left[0], right[0], (left[1], right[1]), self.root, products, xp):
            _finish_euclidean(left, right, self.root, products, xp)

    def tile(self, left: Any, right: Any, out: Any, xp: Any) -> None:
        if left.shape[1] <= DIRECT_WIDTH:
            self._direct(left, right, out, xp)
        elif left.dtype == out.dtype:
            self._product(left, right, out, xp)
        else:
            m, k = out.shape
            for part in row_slices(m, k, _block_elements(out)):
                products = xp.empty((part.stop - part.start, k), dtype=left.dtype)
                self._product(left[part], right, products, xp)
                out[part] = products

    def _direct(self, left: Any, right: Any, out: Any, xp: Any) -> None:
        if on_host(out):
            _native.euclidean_tile(left, right, self.root, out)
            return
        broadcast(left, right, out, lambda a, b: xp.sum((a - b) ** 2, axis=2), xp)
        if self.root:
            xp.sqrt(out, out=out)

    def _product(self, left: Any, right: Any, out: Any, xp: Any) -> None:
        if on_host(out) and _native.HAS_PRODUCTS:
            _native.product_tile(left, right, out)
        elif not row_products(left, right, left.shape[1] - 1, out, xp):
            with np.errstate(invalid="ignore", over="ignore"):
                xp.matmul(left[:, :-1], right[:, :-1].T, out=out)
        if on_host(out):
            _native.finish_euclidean(left, right, self.root, out)
        elif not finish_euclidean(left, right, None, self.root, out, xp):
            first, second = ((rows[:, :-1], rows[:, -1]) for rows in (left, right))
            _finish_euclidean(first, second, self.root, out, xp)


def _compute_squared_norms(rows: Any, xp: Any) -> Any:
    """Return the squared norms of rows (m, d), float64."""
    m, d = rows.shape
    norms = xp.empty(m, dtype=np.float64)
    for part in row_slices(m, d, _block_elements(rows)):
        wide = rows[part].astype(np.float64)
        with np.errstate(invalid="ignore", over="ignore"):
            norms[part] = xp.sum(wide * wide, axis=1)
    return norms


def _finish_euclidean(left: tuple[Any, Any], right: tuple[Any, Any], root: bool, products: Any, xp: Any) -> None:
    """Turn inner products of rows, given with their squared norms, into (squared) distances in place.

    What has cancelled is computed anew.
    """
    (left_rows, left_norms), (right_rows, right_norms) = left, right
    sums = left_norms[:, None] + right_norms[None, :]
    products *= -2
    products += sums
    rows, columns = xp.nonzero(products < _native.REFINE_BELOW * sums)
    step = max(1, PORTABLE_ELEMENTS // left_rows.shape[1])
    for start in range(0, len(rows), step):
        i, j = rows[start : start + step], columns[start : start + step]
        difference = left_rows[i] - right_rows[j]
        products[i, j] = xp.sum(difference * difference, axis=1)
    if root:
        xp.sqrt(products, out=products)


@dataclass(frozen=True)
class Manhattan:
    """Sum of absolute differences."""

    scores: np.dtype[Any]

    def limit(self, dtype: np.dtype[Any]) -> tuple[float, float]:
        work = np.finfo(work_dtype(dtype, self.scores)).max
        return min(float(work), float(np.finfo(self.scores).max)) / 2 * (1 - 1e-6), 1

    def prepare(self, rows: Any, xp: Any) -> Any:
        return mark(rows.astype(work_dtype(rows.dtype, self.scores), copy=False), xp)

    def tile(self, left: Any, right: Any, out: Any, xp: Any) -> None:
        if on_host(out):
            _native.manhattan_tile(left, right, out)
        elif not launch_tile("manhattan", left, right, out, xp):
            broadcast(left, right, out, lambda a, b: xp.sum(xp.abs(a - b), axis=2), xp)


@dataclass(frozen=True)
class Hamming:
    """Fraction of positions that differ: packed bits of booleans (uint64), else bit patterns (int8 to int64)."""

    scores: np.dtype[Any]

    def limit(self, dtype: np.dtype[Any]) -> None:
        return None

    def prepare(self, rows: Any, xp: Any) -> Any:
        if rows.dtype == np.bool_:
            return _pack(rows, xp.full(rows.shape[0], rows.shape[1], dtype=np.uint64), xp)
        if rows.dtype.kind == "f":
            rows = rows + rows.dtype.type(0)  # -0 becomes 0: equal values then have equal bits
        return xp.ascontiguousarray(rows).view(np.dtype(f"i{rows.dtype.itemsize}"))

    def tile(self, left: Any, right: Any, out: Any, xp: Any) -> None:
        packed = left.dtype == np.uint64
        if on_host(out):
            (_native.hamming_bits_tile if packed else _native.hamming_tile)(left, right, out)
        elif launch_tile("hamming_bits" if packed else "hamming", left, right, out, xp, n_behind=int(packed)):
            return
        elif packed:
            lengths = left[:, -1:].astype(np.float64)
            broadcast(left[:, :-1], right[:, :-1], out, lambda a, b: _count_ones(a ^ b, xp), xp)
            out /= lengths
        else:
            broadcast(left, right, out, lambda a, b: xp.mean(a != b, axis=2), xp)


@dataclass(frozen=True)
class Jaccard:
    """Share of the positions that are set in one of two sets but not in both; 0 for two empty sets."""

    scores: np.dtype[Any]

    def limit(self, dtype: np.dtype[Any]) -> None:
        return None

    def prepare(self, rows: Any, xp: Any) -> Any:
        if are_entries(rows):
            return sparse.prepare_set(rows)
        members = rows if rows.dtype == np.bool_ else rows != 0
        return _pack(members, xp.sum(members, axis=1, dtype=np.uint64), xp)

    def tile(self, left: Any, right: Any, out: Any, xp: Any) -> None:
        if left.dtype == np.uint32:
            sparse.tile(_native.sparse_jaccard_tile, left, right, out, xp)
            return
        if on_host(out):
            _native.jaccard_bits_tile(left, right, out)
            return
        if launch_tile("jaccard_bits", left, right, out, xp, n_behind=1):
            return
        broadcast(left[:, :-1], right[:, :-1], out, lambda a, b: _count_ones(a & b, xp), xp)
        either = (left[:, -1:] + right[:, -1][None, :]).astype(np.float64) - out
        out[...] = (either - out) / xp.maximum(either, 1)


METRICS: dict[str, Callable[[np.dtype[Any]], Metric]] = {
    "cosine": lambda scores: UnitProduct(scores, centred=False),
    "inner": InnerProduct,
    "correlation": lambda scores: UnitProduct(scores, centred=True),
    "euclidean": lambda scores: Euclidean(scores, root=True),
    "sqeuclidean": lambda scores: Euclidean(scores, root=False),
    "manhattan": Manhattan,
    "hamming": Hamming,
    "jaccard": Jaccard,
}


BIT_METRICS = ("jaccard", "hamming")
"""Metrics of sets and symbols, which packed bits are for."""

BITS = ("", "packed", "values")
"""What unsigned integers are to these; the first says nothing."""


def listed_kernel(metric: object, left: np.ndarray) -> str | None:
    """Return the native kernel that scores single pairs of prepared rows as ``tile`` does; None if none does."""
    if isinstance(metric, UnitProduct) and left.dtype.kind == "u":
        return "sparse cosine"
    if isinstance(metric, Jaccard) and left.dtype == np.uint32:
        return "sparse jaccard"
    if isinstance(metric, UnitProduct):
        return "cosine" if _native.HAS_PRODUCTS else None
    if isinstance(metric, InnerProduct):
        return "inner" if _native.HAS_PRODUCTS else None
    if isinstance(metric, Euclidean):
        name = "euclidean" if metric.root else "sqeuclidean"
        if left.shape[1] <= DIRECT_WIDTH:
            return f"direct {name}"
        return name if _native.HAS_PRODUCTS else None
    if isinstance(metric, Hamming):
        return "hamming bits" if left.dtype == np.uint64 else "hamming"
    return {Manhattan: "manhattan", Jaccard: "jaccard bits"}.get(type(metric))


def work_dtype(items: np.dtype[Any], scores: np.dtype[Any]) -> np.dtype[Any]:
    """Return the precision in which differences are taken: float32 only where it holds every item exactly."""
    return np.promote_types(np.result_type(items, np.float32), scores)


def row_slices(n_rows: int, width: int, elements: int) -> Iterator[slice]:
    """Cut n_rows rows of ``width`` into slices of about ``elements`` elements, at least one row each."""
    step = max(1, elements // max(1, width))
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))


def on_host(array: Any) -> bool:
    """Whether an array is NumPy's."""
    return isinstance(array, np.ndarray)


def _block_elements(array: Any) -> int:
    return BLOCK_ELEMENTS if on_host(array) else PORTABLE_ELEMENTS


def mark(rows: Any, xp: Any) -> Any:
    """Return the rows, a copy with NaN in place of those that hold inf or span more than the type can."""
    with np.errstate(invalid="ignore", over="ignore"):
        bad = ~xp.isfinite(xp.max(rows, axis=1) - xp.min(rows, axis=1))
    if not on_host(rows):  # a GPU does not stop for the question whether there are any
        rows = xp.where(bad[:, None], rows.dtype.type(np.nan), rows)
    elif bad.any():
        rows = rows.copy()
        rows[bad] = np.nan
    return xp.ascontiguousarray(rows)


def _pack(bits: Any, last: Any, xp: Any) -> Any:
    """Pack (m, d) booleans to (m, words) uint64, zeros after the end, and append ``last`` (m,) as a word."""
    m, d = bits.shape
    words = -(-d // 64)
    padded = xp.zeros((m, words * 64), dtype=np.bool_)
    padded[:, :d] = bits
    packed = xp.empty((m, words + 1), dtype=np.uint64)
    packed[:, :words] = xp.packbits(padded.reshape(-1), bitorder="little").view(np.uint64).reshape(m, words)
    packed[:, words] = last
    return packed


def prepare_packed(rows: Any, metric: str, xp: Any) -> Any:
    """Prepare unsigned integers (m, d), of which each bit is a position, as ``Hamming`` and ``Jaccard`` do booleans.

    Returns
    -------
    uint64 array of shape (m, words + 1)
        The bits, zeros after the end, and a last word: the number of positions for hamming, of ones for jaccard.
    """
    m, d = rows.shape
    n_bytes = d * rows.dtype.itemsize
    words = -(-n_bytes // 8)
    if n_bytes == words * 8:
        found = xp.empty((m, words + 1), dtype=np.uint64)
        found[:, :words] = xp.ascontiguousarray(rows).view(np.uint64)
    else:
        padded = xp.zeros((m, words * 8), dtype=np.uint8)
        padded[:, :n_bytes] = xp.ascontiguousarray(rows).view(np.uint8).reshape(m, n_bytes)
        found = xp.empty((m, words + 1), dtype=np.uint64)
        found[:, :words] = padded.view(np.uint64)
    if metric == "hamming":
        found[:, words] = n_bytes * 8
    else:
        found[:, words] = _count_ones(found[:, None, :words], xp)[:, 0].astype(np.uint64)
    return found


def _count_ones(words: Any, xp: Any) -> Any:
    """Count the ones of (.., .., words) uint64 over the last axis, as float64."""
    if hasattr(xp, "bitwise_count"):
        return xp.sum(xp.bitwise_count(words), axis=2, dtype=np.float64)
    return xp.sum(ones_by_halving(words), axis=2, dtype=np.float64)


def ones_by_halving(words: Any) -> Any:
    """Count the ones of each uint64: sums of neighbouring 1, 2 and 4 bit fields, then of the bytes."""
    u = np.uint64
    pairs = words - ((words >> u(1)) & u(0x5555555555555555))
    fours = (pairs & u(0x3333333333333333)) + ((pairs >> u(2)) & u(0x3333333333333333))
    bytewise = (fours + (fours >> u(4))) & u(0x0F0F0F0F0F0F0F0F)
    for shift in (8, 16, 32):
        bytewise = bytewise + (bytewise >> u(shift))
    return bytewise & u(0xFF)


def broadcast(left: Any, right: Any, out: Any, score: Callable[[Any, Any], Any], xp: Any) -> None:
    """Fill ``out`` by blocks with ``score((m', 1, d), (1, k', d))``, in temporaries of bounded size."""
    m, k, d = left.shape[0], right.shape[0], left.shape[1]
    for columns in row_slices(k, d, PORTABLE_ELEMENTS):
        for rows in row_slices(m, d * (columns.stop - columns.start), PORTABLE_ELEMENTS):
            out[rows, columns] = score(left[rows, None, :], right[None, columns, :])
