"""Metrics that are sums, or the largest, of a term a position, as SciPy and scikit-learn define them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tartan import _native
from tartan.apps.vectors import metrics
from tartan.apps.vectors.metrics import Euclidean, Manhattan, Metric, broadcast, mark, on_host, work_dtype

# By judgement: as ``limit`` of the other metrics, above what sums may round up to.
_BELOW = 1 - 1e-6


def _largest(items: np.dtype[Any], scores: np.dtype[Any]) -> float:
    """Return the largest number of which twice is one in the work and in the scores."""
    return float(min(np.finfo(work_dtype(items, scores)).max, np.finfo(scores).max)) / 2 * _BELOW


@dataclass(frozen=True)
class Chebyshev:
    """Largest absolute difference."""

    scores: np.dtype[Any]

    def limit(self, dtype: np.dtype[Any]) -> tuple[float, float]:
        return _largest(dtype, self.scores), math.inf

    def prepare(self, rows: Any, xp: Any) -> Any:
        return mark(rows.astype(work_dtype(rows.dtype, self.scores), copy=False), xp)

    def tile(self, left: Any, right: Any, out: Any, xp: Any) -> None:
        if on_host(out):
            _native.chebyshev_tile(left, right, out)
        else:
            broadcast(left, right, out, lambda a, b: xp.max(xp.abs(a - b), axis=2), xp)


@dataclass(frozen=True)
class Canberra:
    """Sum of ``|a - b| / (|a| + |b|)``, in which 0 / 0 is 0."""

    scores: np.dtype[Any]

    def limit(self, dtype: np.dtype[Any]) -> tuple[float, float]:
        return float(np.finfo(work_dtype(dtype, self.scores)).max) / 2 * _BELOW, math.inf

    def prepare(self, rows: Any, xp: Any) -> Any:
        return mark(rows.astype(work_dtype(rows.dtype, self.scores), copy=False), xp)

    def tile(self, left: Any, right: Any, out: Any, xp: Any) -> None:
        if on_host(out):
            _native.canberra_tile(left, right, out)
            return

        def score(a: Any, b: Any) -> Any:
            sizes = xp.abs(a) + xp.abs(b)
            return xp.sum(xp.abs(a - b) / xp.where(sizes == 0, sizes.dtype.type(1), sizes), axis=2)

        broadcast(left, right, out, score, xp)


@dataclass(frozen=True)
class BrayCurtis:
    """Sum of ``|a - b|`` over that of ``|a + b|``; 0 / 0 is NaN, and such a pair fails, as in SciPy."""

    scores: np.dtype[Any]

    def limit(self, dtype: np.dtype[Any]) -> tuple[float, float]:
        return float(np.finfo(work_dtype(dtype, self.scores)).max) / 2 * _BELOW, 1

    def prepare(self, rows: Any, xp: Any) -> Any:
        return mark(rows.astype(work_dtype(rows.dtype, self.scores), copy=False), xp)

    def tile(self, left: Any, right: Any, out: Any, xp: Any) -> None:
        if on_host(out):
            _native.bray_curtis_tile(left, right, out)
            return

        def score(a: Any, b: Any) -> Any:
            return xp.sum(xp.abs(a - b), axis=2) / xp.sum(xp.abs(a + b), axis=2)

        broadcast(left, right, out, score, xp)


@dataclass(frozen=True)
class JensenShannon:
    """Root of the Jensen-Shannon divergence of rows divided by their sums, with the natural logarithm."""

    scores: np.dtype[Any]

    def limit(self, dtype: np.dtype[Any]) -> None:
        return None

    def prepare(self, rows: Any, xp: Any) -> Any:
        """Return distributions, float64; NaN in rows that are none."""
        wide = rows.astype(np.float64)
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            wide /= xp.max(wide, axis=1)[:, None]  # sums of the largest numbers would be infinite
            wide /= xp.sum(wide, axis=1)[:, None]
            good = xp.isfinite(xp.sum(wide, axis=1)) & (xp.min(wide, axis=1) >= 0)
        return xp.ascontiguousarray(xp.where(good[:, None], wide, np.float64(np.nan)))

    def tile(self, left: Any, right: Any, out: Any, xp: Any) -> None:
        if on_host(out):
            _native.jensen_shannon_tile(left, right, out)
            return

        def score(p: Any, q: Any) -> Any:
            sums = p + q
            t = (p - q) / xp.where(sums == 0, 1.0, sums)
            ends = xp.where(xp.abs(t) == 1, 0.0, 1.0)  # where one of the two logarithms is that of 0
            u, v = xp.where(t == -1, 1.0, 1 + t), xp.where(t == 1, 1.0, 1 - t)
            far = xp.where(ends == 0, 2 * math.log(2), u * xp.log(u) + v * xp.log(v))
            near = sum(t ** (2 * k) / (k * (2 * k - 1)) for k in range(1, _SERIES + 1))
            return xp.sqrt(xp.sum(sums / 4 * xp.where(xp.abs(t) < _NEAR, near, far), axis=2))

        broadcast(left, right, out, score, xp)


# By contract: NEAR and TERMS of crates/tartan-kernels/src/dense/terms.rs; where the logarithms cancel, the series has
# the digits.
_NEAR, _SERIES = 0.25, 12


@dataclass(frozen=True)
class Minkowski:
    """``(sum |a - b|^p)^(1/p)``."""

    scores: np.dtype[Any]
    power: float

    def _work(self, items: np.dtype[Any]) -> np.dtype[Any]:
        # Powers of which the kernel makes products; others are computed in float64 anyway.
        return work_dtype(items, self.scores) if self.power in (3, 4, 5, 6) else np.dtype(np.float64)

    def limit(self, dtype: np.dtype[Any]) -> tuple[float, float]:
        """Hold the sum of powers inside the range of the work, and the distance inside that of the scores."""
        work = float(np.finfo(self._work(dtype)).max) ** (1 / self.power)
        return min(work, float(np.finfo(self.scores).max)) / 2 * _BELOW, self.power

    def prepare(self, rows: Any, xp: Any) -> Any:
        return mark(rows.astype(self._work(rows.dtype), copy=False), xp)

    def tile(self, left: Any, right: Any, out: Any, xp: Any) -> None:
        if on_host(out):
            _native.minkowski_tile(left, right, self.power, out)
            return
        broadcast(left, right, out, lambda a, b: xp.sum(xp.abs(a - b) ** self.power, axis=2) ** (1 / self.power), xp)


@dataclass(frozen=True)
class NanEuclidean:
    """Euclidean distance over the positions that both rows have, times the root of width / their number.

    As ``sklearn.metrics.pairwise.nan_euclidean_distances``; NaN, and such a pair fails, where they share no position.
    """

    scores: np.dtype[Any]

    def limit(self, dtype: np.dtype[Any]) -> tuple[float, float]:
        return Euclidean(self.scores, root=True).limit(dtype)

    def prepare(self, rows: Any, xp: Any) -> Any:
        """Return rows in which what is missing is infinite; NaN in those that have nothing, or hold infinity."""
        wide = rows.astype(work_dtype(rows.dtype, self.scores))
        if wide.dtype.kind == "f":
            missing = wide != wide
            bad = xp.all(missing, axis=1) | xp.any(xp.isinf(wide), axis=1)
            wide = xp.where(missing, wide.dtype.type(np.inf), wide)
            wide = xp.where(bad[:, None], wide.dtype.type(np.nan), wide)
        return xp.ascontiguousarray(wide)

    def tile(self, left: Any, right: Any, out: Any, xp: Any) -> None:
        if on_host(out):
            _native.nan_euclidean_tile(left, right, out)
            return
        width = left.shape[1]

        def score(a: Any, b: Any) -> Any:
            known = xp.isfinite(a) & xp.isfinite(b)
            differences = xp.where(known, a - b, a.dtype.type(0))
            counts = xp.sum(known, axis=2)
            squares = xp.sum(differences * differences, axis=2)
            return xp.sqrt(xp.where(counts == 0, np.nan, squares / xp.maximum(counts, 1) * width))

        broadcast(left, right, out, score, xp)


def minkowski(scores: np.dtype[Any], power: float) -> Metric:
    """Return the metric of a power from 1 to infinity: of 1, 2 and infinity under other names."""
    if power == 1:
        return Manhattan(scores)
    if power == 2:
        return Euclidean(scores, root=True)
    return Chebyshev(scores) if power == math.inf else Minkowski(scores, power)


METRICS: dict[str, Callable[[np.dtype[Any]], Metric]] = metrics.METRICS | {
    "chebyshev": Chebyshev,
    "braycurtis": BrayCurtis,
    "canberra": Canberra,
    "jensenshannon": JensenShannon,
    "minkowski": lambda scores: minkowski(scores, 2.0),
    "nan_euclidean": NanEuclidean,
}
"""All metrics, each at a precision of scores; the power of Minkowski is a parameter of its own."""
