"""What of a run failed or of a matrix is missing, and what is done about it: leave it out and say so, or refuse."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tartan.base.format import name_some, pluralize
from tartan.errors import ConfigError

if TYPE_CHECKING:
    from tartan.analytics.matrix.dissimilarities import Dissimilarities

Index = NDArray[np.int64]
WAYS = ("drop", "error")


@dataclass(frozen=True, eq=False)
class WhatFailed:
    """What of a run failed.

    Attributes
    ----------
    label : str
        Path of the run.
    names : sequence of str
        Of all its items.
    items : int64 array
        Items that failed, in ascending order; no pair of them has a score.
    pairs : int64 array (m, 2)
        Pairs of other items that failed.
    """

    label: str
    names: Sequence[str]
    items: Index
    pairs: Index

    @classmethod
    def of(cls, run: Any) -> WhatFailed:
        """Return what failed in a ``Run`` or a ``RunFolder``."""
        known: Any = getattr(run, "failures", ())
        found = list(known() if callable(known) else known)
        items = np.array(sorted({failure.i for failure in found if failure.kind == "item"}), np.int64)
        pairs = np.array([(failure.i, failure.j) for failure in found if failure.kind == "pair"], np.int64)
        pairs = pairs.reshape(-1, 2)
        return cls(str(run.path), run.keys, items, pairs[~np.isin(pairs, items).any(axis=1)])

    def refuse(self) -> None:
        """Raise ConfigError where an item or a pair failed; the message names them."""
        said = [self._count_items("item", self._name_items(self.items))] if len(self.items) else []
        if len(self.pairs):
            pairs = [f"{self.names[i]} with {self.names[j]}" for i, j in self.pairs.tolist()]
            said.append(self._count_items("pair", pairs))
        if said:
            raise ConfigError(
                f"{self.label}: {'; '.join(said)}. Leave out what failed with `failed='drop'`, or mend it and try "
                f"again with `tartan resume {shlex.quote(self.label)} --retry-failed`"
            )

    def list_left_out(self, *, complete: bool) -> Index:
        """Return the items without which nothing failed, in ascending order.

        Parameters
        ----------
        complete : bool
            Whether all pairs are needed. Else a pair that failed is a missing one, and its items stay.
        """
        return np.union1d(self.items, _fewest_items(self.pairs)) if complete else self.items

    def say(self, left_out: Index) -> str | None:
        """Name the items that are left out; None where there are none."""
        said = [name_left_out("failed item", self._name_items(np.intersect1d(left_out, self.items)))]
        said.append(name_left_out("item of failed pairs", self._name_items(np.setdiff1d(left_out, self.items))))
        return "; ".join(filter(None, said)) or None

    def warn(self, left_out: Index) -> None:
        """Warn of items that are left out although nobody said so."""
        said = self.say(left_out)
        if said is not None:
            text = f"{self.label}: {said}; `failed='drop'` silences this, `failed='error'` refuses such a run"
            warnings.warn(text, RuntimeWarning, stacklevel=2)

    def _name_items(self, items: Index) -> list[str]:
        return [str(self.names[item]) for item in items.tolist()]

    def _count_items(self, what: str, names: Sequence[str]) -> str:
        return f"{pluralize(len(names), what)} failed: {name_some(names)}"


def name_left_out(what: str, names: Sequence[str]) -> str | None:
    """Name items that are left out, in a sentence; None where there are none."""
    if not names:
        return None
    many = what if len(names) == 1 else what.replace("item", "items", 1)
    return f"{len(names):,} {many} {'is' if len(names) == 1 else 'are'} left out: {name_some(names)}"


def require_way(failed: Any) -> None:
    """Refuse what says neither to leave out what failed nor to refuse the run.

    Raises
    ------
    ConfigError
    """
    if failed is not None and failed not in WAYS:
        raise ConfigError(
            f"failed is {failed!r}; it must be 'drop' (leave out what failed) or 'error' (refuse such a run)"
        )


def require_some(label: str, n_items: int, n_left: int) -> None:
    """Refuse a run of which nothing is left.

    Raises
    ------
    ConfigError
    """
    if not n_left:
        raise ConfigError(f"{label}: all {n_items} items failed; there is nothing left without them")


def _fewest_items(pairs: Index) -> Index:
    """Return items of which each pair has one: again and again the item of most pairs, of equal ones the last."""
    items, left = np.unique(pairs), pairs
    found: list[int] = []
    while len(left):
        counts = np.bincount(np.searchsorted(items, left.ravel()), minlength=len(items))
        found.append(int(items[len(items) - 1 - counts[::-1].argmax()]))
        left = left[(left != found[-1]).all(axis=1)]
    return np.array(sorted(found), np.int64)


def without_failed(
    whole: Dissimilarities, found: WhatFailed, way: str | None, *, drops: bool, complete: bool
) -> Dissimilarities:
    """Leave out what failed in a run, or refuse it, as is asked.

    Parameters
    ----------
    whole : Dissimilarities
    found : WhatFailed
    way : {"drop", "error"} or None
    drops : bool
        Whether None means to leave it out, with a warning.
    complete : bool
        As for ``WhatFailed.left_out``.
    """
    if way == "error":
        found.refuse()
    whole.failed = found.items
    left_out = found.list_left_out(complete=complete)
    if not len(left_out) or not (drops or way == "drop"):
        return whole
    chosen = _keep(whole, left_out, found.say(left_out))
    if way is None:
        found.warn(left_out)
    return chosen


def without_missing(whole: Dissimilarities, way: str) -> Dissimilarities:
    """Leave out the fewest items without which no pair of a matrix is missing, or refuse missing pairs.

    Raises
    ------
    ConfigError
        If pairs are missing and the way is "error"; it names the items that would be left out.
    """
    left_out = _fewest_of_missing(whole)
    if not len(left_out):
        return whole
    if whole.names is None:
        whole.names = tuple(map(str, range(whole.n)))
    names = [whole.names[item] for item in left_out.tolist()]
    if way == "error":
        raise ConfigError(
            f"{whole.label} has missing pairs, which `failed='error'` refuses; `failed='drop'` leaves out "
            f"{pluralize(len(names), 'item')}, and no pair is missing: {name_some(names)}"
        )
    return _keep(whole, left_out, name_left_out("item of missing pairs", names))


def _keep(whole: Dissimilarities, left_out: Index, said: str | None) -> Dissimilarities:
    good = np.setdiff1d(np.arange(whole.n), left_out)
    require_some(whole.label, whole.n, len(good))
    chosen = whole.chosen(good)
    chosen.dropped, chosen.input_names, chosen.left_out = left_out, whole.names, said
    return chosen


def _fewest_of_missing(whole: Dissimilarities) -> Index:
    """Return what ``_fewest_items`` does of missing pairs, which may be too many for a list."""
    counts = np.concatenate([_find_missing(whole, start, block).sum(axis=1) for start, block in whole.blocks()])
    found: list[int] = []
    while counts.max(initial=0) > 0:
        item = int(len(counts) - 1 - counts[::-1].argmax())
        counts -= _find_missing(whole, item, whole.block(item, item + 1))[0]
        counts[[*found, item]] = 0
        found.append(item)
    return np.array(sorted(found), np.int64)


def _find_missing(whole: Dissimilarities, start: int, block: NDArray[Any]) -> NDArray[np.bool_]:
    """Say which pairs of some rows are missing; an item and itself are not a pair."""
    missing: NDArray[np.bool_] = block < 0 if block.dtype.kind == "i" else np.isnan(block)
    rows = np.arange(len(block))
    missing[rows, start + rows] = False
    return missing
