"""The pairs that a run keeps instead of the matrix, as distances: its nearest pairs, without the dense matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tartan.analytics.matrix.convert import Transform
from tartan.analytics.matrix.formula import Formula
from tartan.errors import ConfigError

if TYPE_CHECKING:
    from tartan.store.folder import RunFolder

Index = NDArray[np.int64]


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


def kept_pairs(
    run: RunFolder, *, output: str | None = None, similarity: Any = None, transform: Transform | None = None
) -> KeptPairs:
    """Read the pairs that a top-k or threshold run keeps.

    Parameters
    ----------
    run : RunFolder
    output : str, optional
    similarity : str or callable, optional
        How similarities become distances. Default: what the application declares, else "max-s".
    transform : str, float or callable, optional
        Of the distances: a formula of d, an exponent, or a function.

    Raises
    ------
    ConfigError
        If the run compares two sets, or a conversion is no formula.
    """
    manifest, label = run.manifest, str(run.path)
    if manifest.workload["kind"] == "rectangle":
        raise ConfigError(f"{label} compares two sets of items; this needs the pairs within one")
    i, j, scores = _read(run, output)
    order = np.unique(np.minimum(i, j) * manifest.n_items + np.maximum(i, j), return_index=True)[1]
    i, j, scores = np.minimum(i, j)[order], np.maximum(i, j)[order], scores[order]
    said = manifest.meaning(output).get("distance") or ("max-s" if manifest.larger_is_nearer else None)
    formula = said if similarity is None else similarity
    distances = scores if formula is None else _converted(formula, "s", scores, label)
    if transform is not None:
        distances = _converted(transform, "d", distances, label)
    failed = sorted({failure.i for failure in run.failures() if failure.kind == "item" and failure.i is not None})
    return KeptPairs(
        manifest.n_items, i, j, scores, distances, run.keys, label, np.array(failed, np.int64),
        formula if isinstance(formula, str) else None,
    )  # fmt: skip


def _read(run: RunFolder, output: str | None) -> tuple[Index, Index, NDArray[np.float64]]:
    from tartan.store.tables import pair_rows
    from tartan.store.view import output_name, require_real

    name = output_name(run, output)
    require_real(name, run.manifest.outputs[name], "clusters and maps need")
    parts = [(rows["i"], rows["j"], np.asarray(rows[name], np.float64)) for rows, _ in pair_rows(run, [name])]
    if not parts:
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)
    i, j, scores = (np.concatenate(column) for column in zip(*parts, strict=True))
    known = np.isfinite(scores) & (i != j)
    return i[known], j[known], scores[known]


def _converted(formula: Any, variable: str, values: NDArray[np.float64], label: str) -> NDArray[np.float64]:
    """Return a function of the values of kept pairs; max and mean are theirs."""
    if callable(formula):
        found = np.asarray(formula(values), np.float64)
    elif isinstance(formula, str):
        parsed = Formula({"sqrt": "sqrt(d)", "square": "d^2"}.get(formula, formula), variable)
        names = {"max": float(values.max(initial=-np.inf)), "mean": float(values.mean()) if len(values) else np.nan}
        found = parsed(values, **{name: names[name] for name in parsed.names})
    else:
        found = values ** float(formula)
    found = np.where((found < 0) & (found > -1e-5), 0.0, found)
    wrong = np.flatnonzero(~np.isfinite(found) | (found < 0))
    if len(wrong):
        raise ConfigError(
            f"{label}: {formula!r} makes {found[wrong[0]]:.6g} of {values[wrong[0]]:.6g}; a distance is a number, 0 or "
            "more: choose another formula"
        )
    return found
