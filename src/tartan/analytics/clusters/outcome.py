"""What clustering found: labels, how, why so many, and what to know of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class NumberCurve:
    """The criterion by which a number of clusters was chosen, for each number that was tried.

    Attributes
    ----------
    numbers : int64 array (m,)
        2, 3, ...
    silhouettes : float64 array (m,)
        Mean silhouette of the items in that many clusters, measured from ``level``.
    by_chance : float64 array (m,)
        The same of random points in one group, the mean of twenty sets.
    margin : float
        The most by which one of these sets is above that mean, at any number.
    highest : float
        The highest mean silhouette of these sets, at any number.
    level : float
        What was taken off all dissimilarities first; the same for every number.
    n_items : int
        Items that were looked at: all, or a sample.
    apart : tuple of int
        Numbers of clusters that stand apart, of all items: no distance within one is above half of the smallest between
        two, of squares of distances above a quarter. They count before silhouettes do.
    are_squares : bool
        Whether the dissimilarities grow as squares of distances do.
    """

    numbers: NDArray[np.int64]
    silhouettes: NDArray[np.float64]
    by_chance: NDArray[np.float64]
    margin: float
    highest: float
    level: float
    n_items: int
    apart: tuple[int, ...] = ()
    are_squares: bool = False

    @property
    def best(self) -> int:
        """The number whose silhouette is most above chance, as a share of the most it could be; 1 if none was tried."""
        return int(self.numbers[self._place()]) if len(self.numbers) else 1

    @property
    def chosen(self) -> int:
        """The number of clusters that stand apart; of several that which silhouettes prefer, else the finest.

        Where there are none the best number, if it is farther above chance than random points ever are, or higher,
        else 1.
        """
        if self.apart:
            values = dict(zip(self.numbers.tolist(), self._shares().tolist()))
            return max(self.apart, key=lambda k: (values.get(k, -math.inf), k))
        return self.by_silhouettes

    @property
    def by_silhouettes(self) -> int:
        """The number by silhouettes alone."""
        if not len(self.numbers):
            return 1
        at = self._place()
        farther = self.silhouettes[at] - self.by_chance[at] > self.margin
        return self.best if farther or self.silhouettes[at] > self.highest else 1

    def _place(self) -> int:
        return int(self._shares().argmax())

    def _shares(self) -> NDArray[np.float64]:
        """Return (s - c) / (1 - c) of each number: 1 for perfect clusters, 0 for those of chance."""
        shares: NDArray[np.float64] = (self.silhouettes - self.by_chance) / (1.0 - self.by_chance)
        return shares

    def reason(self) -> str:
        """Return one sentence that says why this number."""
        if self.apart and self.chosen != self.by_silhouettes:
            certain = ", so that their number is certain" if len(self.apart) == 1 else ""
            share = "a quarter" if self.are_squares else "half"
            return (
                f"{self.chosen:,} clusters stand apart{certain}: no distance within one is above {share} of the "
                "smallest between two"
            )
        if not len(self.numbers):
            few = "there are too few items" if self.n_items < 3 else "all items are equal"
            return f"{few}: nothing tells clusters apart"
        at = self._place()
        tried = f"{self.numbers[0]} to {self.numbers[-1]}" if len(self.numbers) > 1 else str(self.numbers[0])
        found, chance = self.silhouettes[at], self.by_chance[at]
        most = min(chance + self.margin, self.highest)
        if self.by_silhouettes > 1:
            return (
                f"of the numbers {tried}, {self.by_silhouettes} fits best (mean silhouette {found:.2f}; random points "
                f"without groups reach {chance:.2f} on average, {most:.2f} at most)"
            )
        return (
            f"no number from {tried} fits better than chance: the best, {self.best}, has a mean silhouette of "
            f"{found:.2f}, and random points without groups reach up to {most:.2f}; a number that is given divides the "
            "items all the same"
        )

    def notes(self, n_items: int) -> tuple[str, ...]:
        """Return what to know of the number, of so many items, a sentence each."""
        found = []
        if len(self.apart) > 1:
            others = " and ".join(f"{k:,}" for k in self.apart if k != self.chosen)
            found.append(
                f"groups of groups: {others} clusters stand apart as well as these {self.chosen:,}; give a number to "
                "choose"
            )
        if self.n_items < n_items and not self.apart:
            found.append(
                f"the number was found from {self.n_items:,} of the {n_items:,} items: groups with few of these are "
                "missed, and a number or a cut of your own looks at all"
            )
        return tuple(found)


@dataclass(frozen=True, eq=False)
class Clustering:
    """Clusters of items.

    Attributes
    ----------
    labels : int64 array (n,)
        Cluster of each item, from 0; -1 for an item in none: noise, failed, or left out.
    method : str
        "pwc", a linkage, "greedy", "hdbscan", "components" or "leiden".
    reason : str
        Why there are so many clusters, in one sentence.
    found_by : str
        What found the labels: the method, or for "pwc" what ``DAPWC.method_`` says.
    notes : tuple of str
        What to know of the result, a sentence each.
    threshold : float or None
        The distance at which a linkage was cut, or up to which kept pairs count.
    cut : float or None
        The score that was asked for, or that the application declares, where one decided.
    curve : NumberCurve or None
        How the number was chosen, where it was.
    representatives : int64 array (n_clusters,) or None
        The item that stands for each cluster; of kept pairs, unless others are chosen, the one that is alike to most of
        the others in it. Those of "greedy" are what it is about.
    distances : float64 array (n,) or None
        Of "greedy": from each item to the representative of its cluster, NaN for an item in none.
    conversion : str or None
        The formula by which similarities became distances.
    """

    labels: NDArray[np.int64]
    method: str
    reason: str
    found_by: str = ""
    notes: tuple[str, ...] = ()
    threshold: float | None = None
    cut: float | None = None
    curve: NumberCurve | None = field(default=None, repr=False)
    representatives: NDArray[np.int64] | None = field(default=None, repr=False)
    distances: NDArray[np.float64] | None = field(default=None, repr=False)
    conversion: str | None = None

    @property
    def n_clusters(self) -> int:
        """Number of clusters."""
        return len(np.unique(self.labels[self.labels >= 0]))
