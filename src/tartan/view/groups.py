"""The groups of a run that its report and its page show: one place asks for them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tartan.errors import TartanError
from tartan.view.scene import ASIDE

MOST_ITEMS: Final = 2000  # of a whole matrix: a page does not wait for more


@dataclass(frozen=True, eq=False)
class Groups:
    """Groups of the items of a run.

    Attributes
    ----------
    labels : sequence, length n, or None
        Group of each item, ``ASIDE`` for those that are alone; None where they are left out.
    said : str
        How they were found, or why they are left out.
    cut : float or None
        The score at which items begin to belong together, where the application names one.
    cut_said : str
        What it is, in a few words.
    """

    labels: Sequence[Hashable] | None
    said: str = ""
    cut: float | None = None
    cut_said: str = ""


def groups_of(run: Any) -> Groups | None:
    """Return the groups that ``tartan cluster RUN`` finds, or why a page leaves them out; None where there are none.

    Runs in progress and of two sets have none, nor have those whose items are all one group.
    """
    if run.n_pairs_left or run.n_items < 3 or run.manifest.workload["kind"] == "rectangle":
        return None
    if run.manifest.reduce is None and run.n_items > MOST_ITEMS:
        return Groups(None, f"a page looks for groups of up to {MOST_ITEMS:,} items; `tartan cluster` finds them")
    from tartan.analytics import cluster

    try:
        found = cluster(run, failed="drop")
    except TartanError as error:
        return Groups(None, str(error))
    meaning = run.manifest.meaning(run.manifest.analysed_by(None))
    cut = meaning.get("cut")
    if found.n_clusters < 2 and cut is None:
        return None
    said = " ".join(_sentence(text) for text in (found.reason, *found.notes) if text)
    return Groups(
        name_groups(found.labels),
        said,
        cut,
        "" if cut is None else "alike from" if run.larger_is_nearer else "alike up to",
    )


def name_groups(labels: Any) -> list[str]:
    """Name groups of two items and more by their sizes, the largest first; all other items are in none."""
    numbers, counts = np.unique(labels[labels >= 0], return_counts=True)
    numbers, counts = numbers[counts > 1], counts[counts > 1]
    order = np.lexsort((numbers, -counts))
    names = {int(numbers[k]): f"group {place}" for place, k in enumerate(order.tolist(), 1)}
    return [names.get(int(label), ASIDE) for label in labels]


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".") + "."
