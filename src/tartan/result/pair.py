"""What a run knows of two items: their scores, and how near each is to the other among all neighbours."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tartan.core.pairs.ledger import DONE, FAILED_ITEM, FAILED_PAIR, Failure
from tartan.errors import ConfigError
from tartan.store.folder import RunFolder
from tartan.store.manifest import Manifest
from tartan.store.row import ItemRow, item_row, pair_scores

STATES = {DONE: "done", FAILED_ITEM: "an item failed", FAILED_PAIR: "failed"}


@dataclass(frozen=True)
class NeighbourRank:
    """Place of one item among the neighbours of another.

    Attributes
    ----------
    rank : int or None
        1 for the nearest; equal scores share a rank. None where the run keeps no score of the two for this item.
    of : int
        Number of neighbours whose score is known.
    """

    rank: int | None
    of: int


@dataclass(frozen=True)
class Pair:
    """Two items of a run.

    Attributes
    ----------
    a, b : int
    state : str
        "done", "failed", "an item failed", "not computed", or "not kept" where a reduced run kept no score.
    scores : dict
        The score of each output.
    b_for_a, a_for_b : NeighbourRank or None
        Rank of b among the neighbours of a, and of a among those of b; by the first output, or the one by which a
        top-k run chose. None where that is complex: such scores have no order.
    reasons : tuple of str
        Why the pair or its items failed.
    """

    a: int
    b: int
    state: str
    scores: dict[str, Any]
    b_for_a: NeighbourRank | None
    a_for_b: NeighbourRank | None
    reasons: tuple[str, ...] = ()


def say_decision(manifest: Manifest, scores: Mapping[str, Any]) -> str:
    """Say on which side of the application's cut a pair is, and what that means; "" where no cut is declared.

    Parameters
    ----------
    manifest : Manifest
    scores : mapping
        The scores of the pair by output.
    """
    output = manifest.analysed_by(None)
    said = manifest.meaning(output)
    cut, score = said.get("cut"), scores.get(output)
    if cut is None or not isinstance(score, numbers.Real) or math.isnan(score):
        return ""
    larger = manifest.larger_is_nearer
    reached = score >= cut if larger else score <= cut
    what = said.get("together") or "they belong together"
    if not reached:
        what = said.get("apart") or "they do not belong together"
    where = "above" if score > cut else "below" if score < cut else "equal to"
    why = f" ({said['cut_why']})" if said.get("cut_why") else ""
    name = manifest.application.get("name")
    return f"{what}, by the cut that {name} declares: a score of {score:.4g} is {where} {cut:.4g}{why}"


def inspect_pair(folder: RunFolder, a: int, b: int) -> Pair:
    """Read what a run knows of two items.

    Raises
    ------
    ConfigError
        If the run compares triples, or they are one item, or both are of the same side of a run of two sets, or the run
        has directed scores of the other order only.
    CorruptResultError
        If the chunk with their score is damaged.
    """
    _require_pair(folder, a, b)
    _require_direction(folder, a, b)
    # A run of two sets has no scores (b, a) if a is of the first.
    first, second = (min(a, b), max(a, b)) if folder.manifest.workload["kind"] == "rectangle" else (a, b)
    code, scores = pair_scores(folder, first, second)
    state = STATES.get(code, "not computed")
    if code == DONE and not scores:
        state = "not kept"
    if next(iter(folder.manifest.outputs.values())).kind == "c":  # no run that is reduced has such outputs
        return Pair(a, b, state, scores, None, None, _reasons(folder.failures(), a, b))
    b_for_a, a_for_b = _rank(item_row(folder, a), b), _rank(item_row(folder, b), a)
    return Pair(a, b, state, scores, b_for_a, a_for_b, _reasons(folder.failures(), a, b))


def _require_pair(folder: RunFolder, a: int, b: int) -> None:
    _ = folder.pairs  # refuses a run of triples
    if a == b:
        raise ConfigError(f"{folder.keys[a]} is one item; name two")
    if folder.manifest.workload["kind"] == "rectangle" and (a < folder.manifest.shape[0]) == (
        b < folder.manifest.shape[0]
    ):
        raise ConfigError(
            f"{folder.keys[a]} and {folder.keys[b]} are on one side of a run that compares two sets; name one of each"
        )


def _require_direction(folder: RunFolder, a: int, b: int) -> None:
    """Refuse to show motions of one set onto the other as if they were those back."""
    manifest = folder.manifest
    if manifest.workload["kind"] == "rectangle" and a > b and manifest.application.get("directed"):
        raise ConfigError(
            f"this run has the scores of {folder.keys[b]} with {folder.keys[a]}, in this direction only; name them in "
            "this order"
        )


def _rank(row: ItemRow, item: int) -> NeighbourRank:
    return NeighbourRank(row.rank_of(item), len(row.others))


def _reasons(failures: list[Failure], a: int, b: int) -> tuple[str, ...]:
    ends = {a, b}
    return tuple(
        failure.reason
        for failure in failures
        if (failure.j is None and failure.i in ends) or {failure.i, failure.j} == ends
    )
