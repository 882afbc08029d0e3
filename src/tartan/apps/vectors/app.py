"""Distances of vectors: cosine, correlation, Euclidean, Manhattan, Hamming, Jaccard, others of SciPy; inner products.

Items are the rows of one array (a block at a time, never the whole array) or .npy files of one vector each. All
scores are distances, 0 means equal, the smaller the closer; but for inner products, the larger the more alike.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, ClassVar, Protocol

import numpy as np

from tartan import _native
from tartan.application import Application, Meaning
from tartan.apps.vectors import sparse
from tartan.apps.vectors.cuda import KERNELS
from tartan.apps.vectors.metrics import (
    BIT_METRICS,
    BITS,
    BLOCK_ELEMENTS,
    Euclidean,
    InnerProduct,
    Metric,
    UnitProduct,
    listed_kernel,
    prepare_packed,
    row_slices,
    work_dtype,
)
from tartan.apps.vectors.terms import METRICS, minkowski
from tartan.base.entries import are_entries, count_entries
from tartan.base.npy_input import read_npy_header
from tartan.base.products import row_products
from tartan.errors import ConfigError, ItemError

# By judgement: `tartan bench vectors` measures whole runs; those that keep rows widen tiles to 2,048, which is 20 %
# faster.
PRODUCT_SIDE = 512
"""Width from which a matrix product is efficient."""


class Vectors(Application):
    """Compare dense vectors of equal length.

    Parameters
    ----------
    metric : str
        =============  =====================================================================================
        cosine         ``1 - a.b / (|a| |b|)``, 0 to 2 (the distance of scikit-learn and SciPy, no similarity)
        correlation    cosine distance of the rows minus their means
        inner          ``a.b``: no distance but a similarity without a bound, the larger, the more alike
        euclidean      ``|a - b|``
        sqeuclidean    ``|a - b|^2``
        manhattan      sum of ``|a_p - b_p|``
        hamming        fraction of positions with different values
        jaccard        positions set in one but not both / positions set in either; nonzero is set; 0 for two
                       empty sets
        chebyshev      largest ``|a_p - b_p|``
        minkowski      ``(sum |a_p - b_p|^p)^(1/p)`` with the parameter ``p``
        braycurtis     sum of ``|a_p - b_p|`` / sum of ``|a_p + b_p|``
        canberra       sum of ``|a_p - b_p| / (|a_p| + |b_p|)``, where both are 0 of 0
        jensenshannon  root of the Jensen-Shannon divergence (natural logarithm) of rows divided by their sums
        nan_euclidean  ``|a - b|`` over the positions where neither is NaN, times sqrt(width / their number)
        =============  =====================================================================================
    p : float
        Power of minkowski, 1 to infinity.
    dtype : {"float32", "float64"}
        Type of the scores, and of the matrix product.
    bits : {"", "packed", "values"}
        What unsigned integers are to jaccard and hamming. packed: each holds as many positions as it has bits, as of
        ``numpy.packbits``, the last ones of a row may be padding, all 0. values: each is one position. Left out, they
        are values, but jaccard refuses uint8 above 1, which may be either. Booleans are bits in any case.
    precision : {"float32", "tf32", "float16", "bfloat16"}
        What vectors are rounded to before the matrix product of cosine, correlation, euclidean and sqeuclidean, for the
        tensor cores of a GPU; float32 rounds nothing. The CPU rounds alike, and is no faster for it.

    Notes
    -----
    With d the number of positions and u = 2^-24 (float32) or 2^-53 (float64) of the *work* precision, and before the
    rounding to the score's type:

    - cosine, correlation: absolute error at most (d + 8) u, some u in practice, and equal vectors are at exactly 0.
      Items are normalised in float64, so huge values, tiny values and values far from zero are no matter.
    - inner: absolute error at most ``(d + 2) u |a| |b|``, and d times the least number above 0; rows are rounded to the
      precision of the scores first. ``|a|`` may be up to the root of the largest number (1.8e19 in float32).
    - euclidean, sqeuclidean, manhattan take differences, and differences of rounded values can be all wrong: the work
      is done in float32 only where float32 holds every possible item (float32, float16, bool, integers of 8 and 16
      bits), else in float64. Convert to float32 what need not be so exact: it is twice as fast.
    - sqeuclidean: the matrix product ``|a|^2 + |b|^2 - 2 a.b`` cancels for close vectors. Where its result is below
      ``(|a|^2 + |b|^2) / 32``, and always for d <= 32, it is computed from the differences, with a relative error of at
      most 140 u; elsewhere the relative error is at most 36 (d + 4) u, and near sqrt(d) u in practice. The error of
      euclidean is half of that, plus u. (In float32 this holds for d up to 50,000, and for differences of 1e-19 and
      above, whose squares float32 can hold.)
    - manhattan: relative error at most 140 u.
    - hamming, jaccard: exact counts, rounded once to the score.
    - chebyshev: rounded once. canberra, nan_euclidean and minkowski of the powers 3 to 6: relative error 150 u p.
      braycurtis: 280 u. minkowski of other powers and jensenshannon work in float64.

    A pair of which a metric says nothing fails by name: two rows of zeros for braycurtis, two that have no position in
    common for nan_euclidean. SciPy and scikit-learn return NaN for them.

    With a precision below float32, scores are those of rounded vectors, with the errors above. Rounding to the nearest
    adds the following, with v = 2^-11 for tf32 and float16 and 2^-8 for bfloat16. Equal vectors are at distance 0.

    - cosine, correlation: at most 2.01 v, absolute, and for float16 sqrt(d) 2^-24 more.
    - euclidean: at most ``v (|a| + |b|)``, and for float16 sqrt(d) 2^-24 more; sqeuclidean: twice the distance times
      that, and its square. float16 refuses norms above 65504.

    Of a tile most of whose vectors are close together compared with their distance from the origin all differences are
    summed, at half the speed; subtract a common mean first if you can.

    Scores do not depend on how the work is cut: products are summed from the first position to the last by fused
    multiply-adds. Devices, and processors without AVX2 (where BLAS multiplies), may differ in the last digits of all
    that begin as a matrix product.

    Rows of a sparse matrix (CSR) of which one in 16 values or fewer are not 0, and of none more than a quarter, are
    compared by cosine and jaccard without their zeros. What is 0 adds nothing, so a product has the bits of the same
    rows made dense; unit rows may differ in the last digit, as norms are summed from the first value to the last. The
    errors are those above, with d the number of values of a row that are not 0.

    Runs that keep the best pairs or those beyond a threshold rule most pairs of cosine, correlation, inner, euclidean
    and sqeuclidean out by products of 8-bit copies of the rows, whose error has a proven bound, and compute the others:
    the result has the same bits. Rows must have 64 values or more, and for the last two be float32.

    Examples
    --------
    >>> app = Vectors(metric="euclidean")
    >>> block = app.preprocess_block(np.array([[0, 0], [3, 4]], np.float32), np)
    >>> app.compare(block, block, np).tolist()
    [[0.0, 5.0], [5.0, 0.0]]
    """

    name: ClassVar[str | None] = "vectors"
    releases_gil = True
    similarity = False
    ragged = False
    tile_side = 128
    item_suffixes = (".npy",)
    rows = True
    #: ``compare`` writes to ``out`` when the runtime gives it.
    compare_into = True

    def __init__(
        self,
        *,
        metric: str = "cosine",
        dtype: str = "float32",
        precision: str = "float32",
        p: float = 2.0,
        bits: str = "",
    ) -> None:
        if metric not in METRICS:
            raise ConfigError(
                f"metric: {metric!r} is unknown; choose from {', '.join(METRICS)}", context={"metric": metric}
            )
        scores = _score_dtype(dtype)
        self.metric = metric
        self.dtype = scores.name
        self.outputs: Mapping[str, Any] = {"scores": scores}
        self.precision = precision
        self.p = _read_power(metric, p)
        self.bits = _check_bits(bits, metric)
        self._metric = _round_metric(metric, scores, precision, self.p)
        own = type(self).compare is not Vectors.compare or type(self).postprocess is not Application.postprocess
        self.similarity = metric == "inner"
        self.inner_rows = isinstance(self._metric, InnerProduct) and not own
        self.unit_rows = isinstance(self._metric, UnitProduct) and not own  # a subclass may score otherwise
        euclidean = "euclidean" if metric == "minkowski" else metric
        self.norm_rows = euclidean if isinstance(self._metric, Euclidean) and not own else ""
        self.bit_rows = metric if metric in BIT_METRICS and not own else ""
        rounds = precision != PRECISIONS[0]
        self.sparse_rows = metric in ("cosine", "jaccard") and not (rounds or bits == "packed" or own)
        if isinstance(self._metric, UnitProduct | InnerProduct | Euclidean | Rounded):
            self.tile_side = PRODUCT_SIDE

    def parameters(self) -> dict[str, Any]:
        """Return the parameters that influence scores: no precision that rounds nothing, no power of other metrics."""
        found = super().parameters()
        if self.metric != "minkowski":
            del found["p"]
        if self.precision == PRECISIONS[0]:
            del found["precision"]
        if not self.bits:
            del found["bits"]
        return found

    def parse(self, key: str, data: Any) -> np.ndarray:
        """Read one vector: the bytes of a .npy file, or any one-dimensional sequence of numbers.

        Returns
        -------
        ndarray of shape (d,)
            A read-only view of ``data`` where that is possible.

        Raises
        ------
        ItemError
            If the file is not a complete .npy file of one vector of numbers, or the vector cannot be compared
            (``check_block`` says why).
        """
        if isinstance(data, (bytes, bytearray, memoryview)):
            vector = _read_npy(key, data)
        else:
            vector = np.asarray(data)
        problem = None if are_entries(vector) else _type_problem(vector.dtype)
        if problem is None and (vector.ndim != 1 or vector.size == 0):
            problem = f"its shape is {vector.shape}; a vector has one dimension and at least one value"
            if vector.ndim == 2 and vector.size:
                problem += "; of several arrays of rows, run one and `tartan add` the others, or join them first by "
                problem += "numpy.concatenate"
        if problem is None:
            problem = (self.check_block(vector[None, :]) or [None])[0]
        if problem is not None:
            raise ItemError(f"{key}: {problem}", context={"key": key})
        return vector

    def warm_up(self, xp: Any) -> None:
        """Compile the kernels."""
        if KERNELS.runs_on(xp):
            KERNELS.load(xp)

    def check_block(self, items: np.ndarray) -> list[str | None] | None:
        """Say for each of the raw rows (m, d) why it cannot be compared; None when all can.

        One pass over the block, in pieces that stay in the cache; only a suspicious row is looked at closely.

        Raises
        ------
        ConfigError
            If the block is not a two-dimensional array of numbers with at least one column, or of another type than
            ``bits`` says; or if it may be packed bits, and ``bits`` says nothing.
        """
        if are_entries(items):
            return sparse.explain_rows(items, directed=self.metric == "cosine")
        _require_vectors(items)
        self._require_bits(items)
        if items.dtype.kind != "f" and self.metric in ("hamming", "jaccard"):
            return None
        reasons: list[str | None] = [None] * len(items)
        for part in row_slices(len(items), items.shape[1], BLOCK_ELEMENTS):
            for row in np.flatnonzero(self._suspicious(items[part])):
                reasons[part.start + row] = self._reason(items[part.start + row])
        return reasons if any(reasons) else None

    def preprocess(self, item: Any, xp: Any) -> Any:
        """Prepare one vector (d,); see ``preprocess_block``."""
        return self.preprocess_block(item[None, :], xp)[0]

    def preprocess_block(self, items: Any, xp: Any) -> Any:
        """Prepare rows (m, d) of any numeric dtype, or of entries, for ``compare``.

        Returns
        -------
        array of shape (m, d')
            cosine, correlation: unit rows of the score's dtype. euclidean, sqeuclidean: the rows, and for d > 32 their
            squared norms as the last column. With a precision below float32, rounded rows of a multiple of 8 numbers;
            those of bfloat16 as bits (uint16). hamming, jaccard of booleans: packed bits (uint64) and one more word.
            Entries: words, see ``tartan.apps.vectors.sparse``. A row that cannot be compared holds NaN, where the
            dtype has one.
        """
        if are_entries(items):
            return self._metric.prepare(items, xp)
        _require_vectors(items)
        if not items.dtype.isnative:
            items = items.astype(items.dtype.newbyteorder("="))
        if self.bits == "packed" and items.dtype.kind == "u":
            return prepare_packed(items, self.metric, xp)
        return self._metric.prepare(items, xp)

    def compare(self, left: Any, right: Any, xp: Any, out: Any = None) -> Any:
        """Score prepared rows (m, d') against (k, d').

        Parameters
        ----------
        out : array of shape (m, k), optional
            Where the scores are written: of the score's dtype, with contiguous rows, apart from the inputs in memory.

        Returns
        -------
        array of shape (m, k)
            ``out``, or a new array.
        """
        if out is None:
            out = xp.empty((left.shape[0], right.shape[0]), dtype=self.outputs["scores"])
        self._metric.tile(left, right, out, xp)
        return out

    def compare_listed(self, left: Any, right: Any, rows: np.ndarray, columns: np.ndarray) -> np.ndarray | None:
        """Score the pairs ``left[rows[p]]``, ``right[columns[p]]`` of prepared rows; None where no kernel does it."""
        kernel = None if type(self).compare is not Vectors.compare else listed_kernel(self._metric, left)
        if kernel is None:
            return None
        scores = np.empty(len(rows), left.dtype if kernel in ("euclidean", "sqeuclidean") else self.outputs["scores"])
        _native.score_listed(kernel, left, right, (rows, columns), scores)
        return scores.astype(self.outputs["scores"], copy=False)

    def describe_item(self, key: str, data: Any) -> Mapping[str, Any]:
        """Describe one vector; of a sparse one how many values it has."""
        if are_entries(data):
            return {"values that are not 0": int(count_entries(data)), "norm": float(np.linalg.norm(data["value"]))}
        return super().describe_item(key, data)

    def describe_failure(self, item: Any) -> str | None:
        """Say why a prepared row (d',) cannot be compared, or None when it can."""
        values = widen(item, self.precision) if self.precision == "bfloat16" else item
        if values.dtype.kind != "f" or not bool((values != values).any()):
            return None
        what = "inner product" if self.metric == "inner" else f"{self.metric} distance"
        return f"no {what}: the vector holds NaN or inf, is too large, or has no direction"

    def meaning(self, output: str, shape: tuple[int, ...] | None) -> Meaning | None:
        """Return that a metric is a distance as it is; which is near depends on the vectors. Inner products are not."""
        if self.metric == "inner":
            return None
        return Meaning(why=f"the {self.metric} distance is a distance as it is", unit=f"{self.metric} distance")

    def _require_bits(self, items: np.ndarray) -> None:
        """Refuse rows that are not packed bits, or may be some."""
        if self.bits == "packed" and items.dtype.kind not in "ub":
            raise ConfigError(
                f"bits=packed is for rows of uint8 (numpy.packbits) or wider unsigned integers, and these "
                f"are {items.dtype}; leave bits out, or give rows.view('uint8') if their bytes are packed bits",
                context={"bits": self.bits, "dtype": items.dtype.name},
            )
        if self.bits or self.metric != "jaccard" or items.dtype != np.uint8 or not (items > 1).any():
            return
        row = int(np.argmax((items > 1).any(axis=1)))
        value = int(items[row][np.argmax(items[row] > 1)])
        raise ConfigError(
            f"metric=jaccard: a row of uint8 holds {value}, which may be 8 packed bits or one value that is not 0; say "
            "which: --set bits=packed (as of numpy.packbits) or --set bits=values",
            context={"metric": self.metric, "dtype": "uint8", "value": value},
        )

    def _suspicious(self, rows: np.ndarray) -> np.ndarray:
        """Mark the rows that a bound from their extremes cannot clear."""
        with np.errstate(invalid="ignore"):
            low = rows.min(axis=1).astype(np.float64)
            high = rows.max(axis=1).astype(np.float64)
        suspicious = ~(np.isfinite(low) & np.isfinite(high))
        if self.metric == "cosine":
            suspicious |= (low == 0) & (high == 0)
        elif self.metric == "correlation":
            suspicious |= low == high
        elif self.metric == "jensenshannon":
            suspicious |= (low < 0) | (high <= 0)
        limit = self._metric.limit(rows.dtype)
        if limit is not None:
            largest, power = limit
            most = np.maximum(high, -low)
            suspicious |= most > largest / rows.shape[1] ** (1 / power)
            suspicious |= (most > 0) & (most < self._least(rows.dtype, rows.shape[1], power))
        marks: np.ndarray = suspicious
        return marks

    def _reason(self, row: np.ndarray) -> str | None:
        """Look closely at one raw row."""
        missing = self.metric == "nan_euclidean" and row.dtype.kind == "f"
        bad = np.flatnonzero(np.isinf(row) if missing else ~np.isfinite(row))
        if len(bad):
            return f"value {row[bad[0]]} at position {bad[0]}"
        if self.metric == "cosine" and not row.any():
            return "all values are 0: a zero vector has no direction"
        if self.metric == "correlation" and (row == row[0]).all():
            return f"all values are {row[0]}: a constant vector has no correlation"
        if self.metric == "jensenshannon":
            return _why_no_distribution(row)
        if missing:
            row = row[~np.isnan(row)]
            if not len(row):
                return "all values are NaN: there is nothing to compare"
        limit = self._metric.limit(row.dtype)
        if limit is None:
            return None
        norm = _norm(row, limit[1]) if row.any() else 0.0
        least = self._least(row.dtype, len(row), limit[1])
        if norm == 0 or least <= norm <= limit[0]:
            return None
        way_out = "scale the data"
        if self.precision != PRECISIONS[0]:
            way_out += " or set precision=float32"
        elif self.dtype == "float32":
            way_out += " or set dtype=float64"
        if norm < least:
            return f"too small: its norm is {norm:.3g} and distances vanish below {least:.3g}; {way_out}"
        what = "products" if self.metric == "inner" else "distances"
        return f"too large: its norm is {norm:.3g} and {what} overflow above {limit[0]:.3g}; {way_out}"

    def _least(self, rows: np.dtype[Any], n_values: int, power: float) -> float:
        """Return the least p-norm of a row, but for 0, whose powers and distances are normal numbers."""
        if power == math.inf or self.metric == "inner":
            return 0.0
        scores = self.outputs["scores"]
        work = work_dtype(rows, scores) if self.precision == PRECISIONS[0] else np.dtype(np.float32)
        steps = power if self.metric == "sqeuclidean" else 1
        least = max(_tiny(work) * n_values, _tiny(scores) ** (power / steps))
        return float(least ** (1 / power))


def _why_no_distribution(row: np.ndarray) -> str | None:
    negative = np.flatnonzero(row < 0)
    if len(negative):
        return (
            f"value {row[negative[0]]} at position {negative[0]}: Jensen-Shannon compares distributions, whose values "
            "are not negative"
        )
    return None if row.any() else "all values are 0: a row of zeros is not a distribution"


def _read_power(metric: str, p: float) -> float:
    """Return the power of Minkowski distances."""
    context = {"p": str(p)}
    try:
        power = float(p)
    except (TypeError, ValueError):
        power = math.nan
    if not power >= 1:
        raise ConfigError(f"p: {p!r} is not a power of Minkowski distances; give 1 or more, or inf", context=context)
    if power != 2 and metric != "minkowski":
        raise ConfigError(
            f"p={p} is the power of metric=minkowski, and metric is {metric}; leave p out", context=context
        )
    return power


def _check_bits(bits: str, metric: str) -> str:
    """Return how bits lie in integers, of a metric that looks at bits."""
    if bits not in BITS:
        raise ConfigError(
            f"bits: {bits!r} is unknown; choose from {', '.join(filter(None, BITS))}", context={"bits": str(bits)}
        )
    if bits and metric not in BIT_METRICS:
        raise ConfigError(
            f"bits={bits} is for {' and '.join(BIT_METRICS)}, not {metric}; leave bits out, or set metric=jaccard",
            context={"bits": bits, "metric": metric},
        )
    return bits


def _round_metric(metric: str, scores: np.dtype[Any], precision: str, power: float) -> Metric:
    """Return the metric, of rounded vectors where that is wanted."""
    found = minkowski(scores, power) if metric == "minkowski" else METRICS[metric](scores)
    if precision not in PRECISIONS:
        raise ConfigError(
            f"precision: {precision!r} is unknown; choose from {', '.join(PRECISIONS)}",
            context={"precision": str(precision)},
        )
    if precision == PRECISIONS[0]:
        return found
    if not isinstance(found, UnitProduct | Euclidean):
        raise ConfigError(
            f"precision={precision} is for the matrix products of cosine, correlation, euclidean and sqeuclidean, and "
            f"{metric} has none; leave precision out",
            context={"precision": precision, "metric": metric},
        )
    if scores != np.float32:
        raise ConfigError(
            f"precision={precision} rounds more than dtype={scores.name} keeps; leave one of the two out",
            context={"precision": precision, "dtype": scores.name},
        )
    return Rounded(found, precision)


def _score_dtype(dtype: Any) -> np.dtype[Any]:
    try:
        scores: np.dtype[Any] = np.dtype(dtype)
    except TypeError:
        scores = np.dtype(np.void)
    if scores not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise ConfigError(f"dtype: {dtype!r} is not float32 or float64", context={"dtype": str(dtype)})
    return scores


def _type_problem(dtype: np.dtype[Any]) -> str | None:
    if dtype.kind in "biuf" and dtype.itemsize <= 8:
        return None
    return f"its values are {dtype}; vectors hold booleans, integers or real numbers of up to 64 bits"


def _require_vectors(items: Any) -> None:
    if items.ndim != 2 or items.shape[1] == 0:
        raise ConfigError(
            f"the rows of the array have shape {items.shape[1:]}; vectors are the rows of a two-dimensional array with "
            "at least one column: give array.reshape(len(array), -1) if it has values"
        )
    problem = _type_problem(items.dtype)
    if problem is not None:
        raise ConfigError(f"the array cannot be compared: {problem}")


def _tiny(dtype: np.dtype[Any]) -> float:
    """Return the smallest normal number."""
    return float(np.finfo(dtype).tiny)


def _norm(row: np.ndarray, power: float) -> float:
    """Return the p-norm of a finite row without overflow on the way."""
    wide = np.abs(row.astype(np.float64))
    peak = float(wide.max())
    total = float(np.sum((wide / peak) ** power))
    return peak * math.pow(total, 1 / power)


def _read_npy(key: str, data: bytes | bytearray | memoryview) -> np.ndarray:
    """Read a .npy file in memory without copying its values, trusting nothing in it."""
    stream = io.BytesIO(data)
    try:
        shape, _, dtype = read_npy_header(stream)
    except Exception as error:  # NumPy parses the header as Python text: damage shows as errors of many kinds
        if PurePath(key).name.lower().endswith((".fps", ".fps.gz")) or bytes(data[:4]) == b"#FPS":
            raise ItemError(
                f"{key}: fingerprints are read from one FPS file; run one, and `tartan add RUN FILE` adds others",
                context={"key": key},
            ) from None
        kind = foreign_kind(key, bytes(data[:8]))
        if kind is not None:
            raise ItemError(f"{key}: this is a file of {kind}, no .npy file; {WAY_OUT}", context={"key": key}) from None
        raise ItemError(f"{key}: this is not a .npy file: {error}", context={"key": key}) from None
    problem = _type_problem(dtype)
    if problem is not None:
        raise ItemError(f"{key}: {problem}", context={"key": key})
    expected, found = int(np.prod(shape, dtype=object)) * dtype.itemsize, len(data) - stream.tell()
    if expected != found:
        raise ItemError(
            f"{key}: shape {shape} of {dtype} takes {expected} bytes, the file holds {found}; it is truncated or "
            "damaged",
            context={"key": key},
        )
    return np.frombuffer(data, dtype, offset=stream.tell()).reshape(shape)


# Files of rows that are not .npy files: what they are, and how they become one.

WAY_OUT = (
    "convert it once: numpy.save('rows.npy', ROWS), where ROWS is an array of numbers, one row an item, such as "
    "pandas.read_parquet(FILE).to_numpy() or numpy.stack(FRAME['COLUMN'])"
)
_BEGINNINGS = {b"PAR1": "Parquet", b"ARROW1": "Arrow", b"\x89HDF": "HDF5", b"PK\x03\x04": "zip (.npz or PyTorch)"}
_SUFFIXES = {
    ".parquet": "Parquet", ".pq": "Parquet", ".feather": "Arrow", ".arrow": "Arrow", ".csv": "CSV", ".tsv": "TSV",
    ".h5": "HDF5", ".hdf5": "HDF5", ".h5ad": "HDF5", ".pt": "PyTorch", ".pth": "PyTorch", ".npz": "NumPy archives",
    ".safetensors": "safetensors", ".pkl": "pickle",
}  # fmt: skip


def foreign_kind(name: str, beginning: bytes) -> str | None:
    """Return what else than .npy a file is, by its name or how it begins; None where neither tells."""
    named = _SUFFIXES.get(PurePath(name).suffix.lower())
    return named or next((kind for magic, kind in _BEGINNINGS.items() if beginning.startswith(magic)), None)


# Vectors of fewer bits for products on tensor cores: how they are rounded, kept and multiplied.
#
# A vector is rounded to float32 and then to the nearest number of the precision, of two equally near ones to the even
# one. Rounded rows end in zeros up to a multiple of 8 numbers, as tensor cores want them. The CPU and other devices
# widen them to float32, which holds every rounded number; a GPU multiplies them as they are.

PRECISIONS = ("float32", "tf32", "float16", "bfloat16")
"""Precisions of products; the first rounds nothing."""

# By contract: _ALIGNED of base/products.
_ALIGNED = 8
# By format of float16.
_LARGEST_FLOAT16 = 65504.0
_NAN_BITS = {13: np.uint32(0x7FFFE000), 16: np.uint32(0x7FFF0000)}
_DROPPED_BITS = {"tf32": 13, "bfloat16": 16}


class ProductMetric(Protocol):
    """A metric that begins as a matrix product of float32 rows."""

    def limit(self, dtype: np.dtype[Any]) -> tuple[float, float] | None:
        """Say how long a row of ``dtype`` may be: (largest p-norm, p), or None when any will do."""
        ...

    def rows(self, rows: Any, xp: Any) -> Any:
        """Turn (m, d) rows into those that are multiplied, (m, d) float32; NaN for rows that cannot be compared."""
        ...

    def tile(self, left: Any, right: Any, out: Any, xp: Any) -> None:
        """Write the scores of prepared rows to ``out``."""
        ...

    def ready(self, rows: Any, xp: Any) -> Any:
        """Turn float32 rows as ``rows`` returns them into prepared ones."""
        ...

    def finish(self, sides: Callable[[], list[Any]], products: Any, xp: Any) -> None:
        """Turn the products of the float32 rows of two sides into scores in place."""
        ...


@dataclass(frozen=True)
class Rounded:
    """A metric of rounded vectors."""

    metric: ProductMetric
    precision: str

    def limit(self, dtype: np.dtype[Any]) -> tuple[float, float] | None:
        """Say how long a row may be: as of float32, and for float16 no longer than its largest number."""
        found = self.metric.limit(np.dtype(np.float32))
        if found is None or self.precision != "float16":
            return found
        return min(found[0], _LARGEST_FLOAT16), found[1]

    def prepare(self, rows: Any, xp: Any) -> Any:
        """Round rows, (m, d) to (m, d' >= d): uint16 bits of bfloat16, else float16, or float32 of TF32."""
        wide = self.metric.rows(rows, xp)
        m, d = wide.shape
        padded = xp.zeros((m, -(-d // _ALIGNED) * _ALIGNED), dtype=np.float32)
        padded[:, :d] = wide
        return round_rows(padded, self.precision, xp)

    def tile(self, left: Any, right: Any, out: Any, xp: Any) -> None:
        """Write the distances of the rounded vectors to ``out``."""

        def wide() -> list[Any]:
            return [widen(rows, self.precision) for rows in (left, right)]

        if row_products(left, right, left.shape[1], out, xp, precision=self.precision):
            self.metric.finish(wide, out, xp)
        else:
            first, second = (self.metric.ready(rows, xp) for rows in wide())
            self.metric.tile(first, second, out, xp)


def round_rows(rows: Any, precision: str, xp: Any) -> Any:
    """Round float32 numbers, to NaN where they are too large; see ``Rounded.prepare`` for the types."""
    if precision == "float16":
        with np.errstate(over="ignore"):
            found = rows.astype(np.float16)
        return xp.where(xp.isinf(found) & ~xp.isinf(rows), np.float16(np.nan), found)
    dropped = _DROPPED_BITS[precision]
    bits = xp.ascontiguousarray(rows).view(np.uint32)
    even = (bits >> np.uint32(dropped)) & np.uint32(1)
    nearest = bits + (even + np.uint32((1 << (dropped - 1)) - 1))
    nearest = xp.where(rows != rows, _NAN_BITS[dropped], nearest)
    if precision == "bfloat16":
        return (nearest >> np.uint32(16)).astype(np.uint16)
    return (nearest & np.uint32(0xFFFFFFFF << dropped & 0xFFFFFFFF)).view(np.float32)


def widen(rows: Any, precision: str) -> Any:
    """Return rounded numbers as float32."""
    if precision == "bfloat16":
        return (rows.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return rows.astype(np.float32, copy=False)
