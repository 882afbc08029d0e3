"""The pairs that a run keeps instead of the matrix, as distances: its nearest pairs, without the dense matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tartan.analytics.matrix.convert import Function, Transform
from tartan.analytics.matrix.failed import WhatFailed, name_left_out, require_way
from tartan.analytics.matrix.formula import Formula
from tartan.base.bounds import bound_rounding, compute_spacing, round_bound
from tartan.errors import ConfigError

if TYPE_CHECKING:
    from tartan.store.folder import RunFolder

Index = NDArray[np.int64]
Values = NDArray[np.float64]
_DOUBLE = np.dtype(np.float64)


@dataclass(frozen=True, eq=False)
class KeptPairs:
    """Pairs of items and their distances; all other pairs are farther, or not known.

    Attributes
    ----------
    n : int
        Number of items.
    i, j : int64 arrays (m,)
        Items of each pair, i < j, each pair once.
    scores, distances : float64 arrays (m,)
    names : sequence of str
    label : str
        What the input is called in messages.
    failed : int64 array
        Items that failed: no pair of them is known.
    conversion : str or None
        The formula by which similarities became distances.
    dtype : dtype
        Of the scores as they are stored.
    made_by : callable or None
        The function of scores that made the distances, where one did.
    falling : bool
        Whether large scores are near.
    k : int or None
        Of a top-k run: how many pairs each item keeps.
    limit : float or None
        Of a threshold run: the score up to which all pairs are kept.
    """

    n: int
    i: Index
    j: Index
    scores: NDArray[np.float64]
    distances: NDArray[np.float64]
    names: Sequence[str]
    label: str
    failed: Index
    conversion: str | None = None
    dtype: np.dtype[Any] = _DOUBLE
    made_by: Function | None = None
    falling: bool = False
    k: int | None = None
    limit: float | None = None

    @property
    def farthest(self) -> float | None:
        """The largest distance that the limit stands for, by the rule of ``matrix/bound.py``."""
        if self.limit is None or self.made_by is None:
            return self.limit
        score = np.array([round_bound(self.limit, self.dtype)])
        return float(bound_rounding(self.made_by, score, compute_spacing(score, self.dtype))[1][0])

    @property
    def left_out(self) -> str | None:
        """The names of the failed items, in a sentence."""
        return name_left_out("failed item", [self.names[item] for item in self.failed])

    def graph(self, values: NDArray[np.float64]) -> Any:
        """Return a symmetric sparse matrix (n, n) of one value a pair."""
        from scipy.sparse import csr_array

        ends = np.concatenate([self.i, self.j]), np.concatenate([self.j, self.i])
        return csr_array((np.concatenate([values, values]), ends), shape=(self.n, self.n))

    def chosen(self, which: NDArray[np.bool_]) -> KeptPairs:
        """Return some of the pairs."""
        return replace(
            self, i=self.i[which], j=self.j[which], scores=self.scores[which], distances=self.distances[which]
        )

    def within(self, bound: float) -> KeptPairs:
        """Return the pairs whose distance is the bound or less, by the rule of ``matrix/bound.py``."""
        least = self.distances
        if self.made_by is not None:
            least = np.fmin(
                least, bound_rounding(self.made_by, self.scores, compute_spacing(self.scores, self.dtype))[0]
            )
        return self.chosen(least <= (bound if self.made_by is not None else round_bound(bound, self.dtype)))

    def as_near_as(self, cut: float) -> KeptPairs:
        """Return the pairs whose score is the cut, or nearer."""
        bound = round_bound(cut, self.dtype)
        return self.chosen(self.scores >= bound if self.falling else self.scores <= bound)


def read_kept_pairs(
    run: RunFolder,
    *,
    output: str | None = None,
    distance: Any = None,
    transform: Transform | None = None,
    failed: str | None = None,
) -> KeptPairs:
    """Read the pairs that a top-k or threshold run keeps.

    Parameters
    ----------
    run : RunFolder
    output : str, optional
        Default: the one that decides which pairs are kept.
    distance : str or callable, optional
        How similarities become distances. Default: what the application declares, else "max-s".
    transform : str, float or callable, optional
        Of the distances: a formula of d, an exponent, or a function.
    failed : {"drop", "error"}, optional
        What failed is not a pair (default), or the run is refused.

    Raises
    ------
    ConfigError
        If the run compares two sets, a conversion is not a formula, or items or pairs failed and "error" is asked for.
    """
    manifest, label = run.manifest, str(run.path)
    if manifest.workload["kind"] == "rectangle":
        raise ConfigError(f"{label} compares two sets of items; this needs the pairs within one")
    gone, output = _look_at_failed(run, failed), manifest.analysed_by(output)
    i, j, scores, dtype = _read(run, output)
    order = np.unique(np.minimum(i, j) * manifest.n_items + np.maximum(i, j), return_index=True)[1]
    i, j, scores = np.minimum(i, j)[order], np.maximum(i, j)[order], scores[order]
    said = manifest.meaning(output).get("distance") or ("max-s" if manifest.larger_is_nearer else None)
    formula = said if distance is None else distance
    falling = manifest.larger_is_nearer or distance is not None
    rule = manifest.reduce or {}
    decides = output == (rule.get("output") or next(iter(manifest.outputs)))
    plain = KeptPairs(
        manifest.n_items, i, j, scores, scores, run.keys, label, gone.items, dtype=dtype, falling=falling,
        k=rule.get("k") if decides else None, limit=rule.get("threshold") if decides else None,
    )  # fmt: skip
    return replace(with_distances(plain, formula, transform), falling=falling)


def with_distances(pairs: KeptPairs, formula: Any, transform: Transform | None) -> KeptPairs:
    """Return pairs with the distances that a formula makes of their scores, and a transform of these.

    Raises
    ------
    ConfigError
        If one is no formula, or makes a distance below 0 or none.
    """
    distances, made_by = pairs.scores, None
    for given, variable in ((formula, "s"), (transform, "d")):
        if given is not None:
            function = _function(given, variable, distances)
            distances, made_by = _convert(given, function, distances, pairs.label), _after(made_by, function)
    conversion = formula if isinstance(formula, str) else None
    falling = formula is not None
    return replace(pairs, distances=distances, conversion=conversion, made_by=made_by, falling=falling)


def _look_at_failed(run: RunFolder, asked: str | None) -> WhatFailed:
    """Return what failed; refused or warned of as is asked."""
    require_way(asked)
    found = WhatFailed.of(run)
    if asked == "error":
        found.refuse()
    if asked is None:
        found.warn(found.items)
    return found


def _after(first: Function | None, then: Function) -> Function:
    return then if first is None else lambda values: then(first(values))


def _read(run: RunFolder, output: str | None) -> tuple[Index, Index, Values, np.dtype[Any]]:
    from tartan.store.tables import pair_rows
    from tartan.store.view import output_name, require_real

    name = output_name(run, output)
    require_real(name, run.manifest.outputs[name], "clusters and maps need")
    parts = [(rows["i"], rows["j"], np.asarray(rows[name], np.float64)) for rows, _ in pair_rows(run, [name])]
    dtype = run.manifest.outputs[name]
    if not parts:
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0), dtype
    i, j, scores = (np.concatenate(column) for column in zip(*parts, strict=True))
    known = np.isfinite(scores) & (i != j)
    return i[known], j[known], scores[known], dtype


def _function(formula: Any, variable: str, values: Values) -> Function:
    """Return the function of the values of kept pairs that a formula means; max and mean are theirs."""
    if callable(formula):
        return lambda given: _without_rounding(np.asarray(formula(given), np.float64))
    if not isinstance(formula, str):
        return lambda given: given ** float(formula)
    parsed = Formula({"sqrt": "sqrt(d)", "square": "d^2"}.get(formula, formula), variable)
    names = {"max": float(values.max(initial=-np.inf)), "mean": float(values.mean()) if len(values) else np.nan}
    bound = {name: names[name] for name in parsed.names}
    return lambda given: _without_rounding(parsed(given, **bound))


def _without_rounding(values: Values) -> Values:
    return np.where((values < 0) & (values > -1e-5), 0.0, values)


def _convert(formula: Any, function: Function, values: Values, label: str) -> Values:
    found = function(values)
    wrong = np.flatnonzero(~np.isfinite(found) | (found < 0))
    if len(wrong):
        raise ConfigError(
            f"{label}: {formula!r} makes {found[wrong[0]]:.6g} of {values[wrong[0]]:.6g}; a distance is a number, 0 or "
            "more: choose another formula"
        )
    return found
