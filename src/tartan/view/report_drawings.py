"""Draw the figures of a report as SVG: its tree, how the scores are spread, when pairs were committed, its matrix.

Text and lines take the colour of the page; pixels of a matrix are one embedded PNG.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from tartan.base.format import format_count, format_duration, format_number, round_marks
from tartan.base.palette import Scale, colours
from tartan.view.matrix_image import index_colours, matrix_pixels, stretches
from tartan.view.page import clip_text, png_uri, render, show_on_one_line
from tartan.view.scene import group_colours
from tartan.view.tree_image import branches, tree_ends
from tartan.view.tree_parts import lines_of

if TYPE_CHECKING:
    from tartan.analytics import Tree

# Draw a tree as SVG for a page: the root at the left, one line a leaf, branches in proportion to their lengths.

MAX_LEAVES: Final = 300
_WIDE: Final = 440
_LINE: Final = 18
_NAME: Final = 44


def tree_svg(tree: Tree, *, described: str, unit: str, colours: Sequence[str] = ()) -> str:
    """Return a drawing of a tree of at most 300 leaves; an unrooted one is drawn from its midpoint.

    Parameters
    ----------
    tree : Tree
    described : str
        What a reader who does not see it is told.
    unit : str
        What the length of a branch is; beside the bar.
    colours : sequence of str, optional
        Colour of each leaf, in the order of ``tree.leaf_names``.
    """
    of_leaf = dict(zip(tree.leaf_names, colours))
    shown = tree if tree.rooted else tree.rooted_at_midpoint()
    lengths = np.maximum(np.nan_to_num(np.asarray(shown.lengths, np.float64)), 0.0)
    across, down = np.zeros(shown.n_nodes), 12 + _LINE * lines_of(shown)
    for node in shown.order[1:]:
        across[node] = across[int(shown.parents[node])] + lengths[node]
    deepest = float(across.max()) or 1.0
    across = 6 + _WIDE * across / deepest
    lines = []
    for node in reversed(shown.order):
        below = shown.children[node]
        if below:
            lines.append(f"M{across[node]:.1f} {down[below[0]]:.1f}V{down[below[-1]]:.1f}")
            lines += [f"M{across[node]:.1f} {down[child]:.1f}H{across[child]:.1f}" for child in below]
    names = [
        (round(across[leaf] + 6, 1), round(down[leaf], 1), clip_text(shown.names[leaf], _NAME),
         of_leaf.get(shown.names[leaf], ""))
        for leaf in shown.leaves
    ]  # fmt: skip
    scale = 10.0 ** math.floor(math.log10(deepest / 3))
    return render(
        "tree.svg",
        described=described,
        size=(_WIDE + 400, 12 + _LINE * len(shown.leaves) + 30),
        lines="".join(lines),
        names=names,
        scale=(round(6 + _WIDE * scale / deepest, 1), f"{format_number(scale)} ({unit})"),
    )


# Draw the small charts of a report as SVG: how the scores are spread, and when pairs were committed.

_LEFT, _RIGHT, _TOP, _FOOT = 48.0, 710.0, 30.0, 180.0
_BINS: Final = 60
_MOST_RANKS: Final = 32
_PAUSE: Final = 0.2  # of the whole time


def histogram_svg(
    sample: NDArray[np.float64],
    n_scores: int,
    *,
    cut: float | None = None,
    cut_said: str = "",
    larger_is_nearer: bool = False,
    name: str = "score",
    ends: tuple[str, str] | None = None,
) -> str:
    """Return the histogram of scores, on a logarithmic scale of counts, with a cut drawn in.

    Parameters
    ----------
    sample : ndarray of float64
        At least one finite score; counts are scaled up to ``n_scores``.
    n_scores : int
    cut : float, optional
        Score at which items begin to belong together.
    cut_said : str
        Text beside it.
    larger_is_nearer : bool
        On which side of the cut they do.
    name : str
        What a score is, with its unit.
    ends : (str, str), optional
        What small and large scores are; default: similar or different.
    """
    low, high = _range(sample, cut)
    counts, edges = np.histogram(sample, bins=_BINS, range=(low, high))
    numbers = counts * (n_scores / max(1, len(sample)))
    top = math.log10(max(1.0, float(numbers.max()))) + 0.05
    width = (_RIGHT - _LEFT) / _BINS
    bars = []
    for k in np.flatnonzero(counts).tolist():
        tall = (_FOOT - _TOP) * (math.log10(max(1.0, float(numbers[k]))) + 0.05) / (top or 1.0)
        middle = (edges[k] + edges[k + 1]) / 2
        near = cut is not None and (middle >= cut) == larger_is_nearer
        said = f"{format_number(float(edges[k]))} to {format_number(float(edges[k + 1]))}: {round(numbers[k]):,} pairs"
        bars.append((round(_LEFT + k * width, 2), round(_FOOT - tall, 2), round(tall, 2), near, said))
    decades = range(int(top) + 1)
    return render(
        "histogram.svg",
        described=f"Histogram of {n_scores:,} scores from {format_number(low)} to {format_number(high)}.",
        bars=bars,
        width=round(width - 1, 2),
        ticks=[
            (round(_LEFT + (_RIGHT - _LEFT) * k / 4, 1), format_number(low + (high - low) * k / 4)) for k in range(5)
        ],
        counts=[(round(_FOOT - (_FOOT - _TOP) * (d + 0.05) / top, 1), format_count(10**d)) for d in decades],
        cut=None if cut is None else _cut(cut, low, high, cut_said),
        name=name,
        ends=ends or (("different", "similar") if larger_is_nearer else ("similar", "different")),
    )


def _range(sample: NDArray[np.float64], cut: float | None) -> tuple[float, float]:
    low, high = float(sample.min()), float(sample.max())
    if cut is not None and math.isfinite(cut):
        low, high = min(low, cut), max(high, cut)
    if high <= low:
        margin = 0.5 * max(abs(low), 1e-9)
        return low - margin, high + margin
    return low, high


def _cut(cut: float, low: float, high: float, said: str) -> dict[str, Any]:
    x = round(_LEFT + (_RIGHT - _LEFT) * (cut - low) / (high - low), 1)
    rightward = x < (_LEFT + _RIGHT) / 2
    return {"x": x, "aside": 6 if rightward else -6, "anchor": "start" if rightward else "end", "text": said}


def draw_timeline(
    commits: Sequence[tuple[float, int]],
    started: float | None,
    n_pairs: int,
    rank_work: Mapping[str, Any] | None = None,
) -> str | None:
    """Return how the number of pairs grew; None where there is too little to draw.

    Parameters
    ----------
    commits : sequence of (float, int)
        When chunks were committed, in seconds since 1970, and the pairs in them.
    started : float or None
        When the run was created.
    n_pairs : int
        Pairs of the whole run.
    rank_work : mapping, optional
        What each rank of the last execution did, as in the statistics of a run; at most ``_MOST_RANKS`` are drawn.
    """
    ordered = sorted(commits)
    if len(ordered) < 3:
        return None
    times = np.array([time for time, _ in ordered])
    begin = times[0] if started is None or started > times[0] else started
    span = times[-1] - begin
    if span <= 0:
        return None
    done = np.cumsum([count for _, count in ordered]) / max(1, n_pairs)
    x = _LEFT + (_RIGHT - _LEFT) * (times - begin) / span
    y = 150.0 - 140.0 * np.minimum(1.0, done)
    rows = [] if rank_work is None else _rank_rows(rank_work, float(begin), float(span))
    kept = np.unique(np.linspace(0, len(x) - 1, min(len(x), 400)).astype(int))
    line = f"M{_LEFT} 150" + "".join(f"H{x[k]:.1f}V{y[k]:.1f}" for k in kept.tolist())
    ends = np.concatenate([[_LEFT], x])
    pauses = [(round(a, 1), round(b - a, 1)) for a, b in pairwise(ends) if b - a > _PAUSE * (_RIGHT - _LEFT)]
    return render(
        "timeline.svg",
        described=f"{done[-1]:.0%} of the pairs within {format_duration(span)}.",
        line=line,
        pauses=pauses if len(ordered) > 12 else [],
        ticks=[(round(_LEFT + (_RIGHT - _LEFT) * k / 4, 1), format_duration(span * k / 4)) for k in range(5)],
        top=format_count(n_pairs),
        rows=rows,
        height=180 + 14 * len(rows),
    )


def _rank_rows(rank_work: Mapping[str, Any], begin: float, span: float) -> list[dict[str, Any]]:
    """Return a strip for each rank: (x, width, opacity) of every part of the time in which it ended pairs."""
    found = rank_work.get("pairs") or {}
    seconds, first = float(rank_work.get("seconds", 0)), float(rank_work.get("begun", 0))
    most = max((max(parts, default=0) for parts in found.values()), default=0)
    if not most or not seconds:
        return []
    scale = (_RIGHT - _LEFT) / span
    rows: list[dict[str, Any]] = []
    for name in sorted(found, key=_by_number)[:_MOST_RANKS]:
        cells = []
        for part, count in enumerate(found[name]):
            left = min(max(_LEFT + (first + part * seconds - begin) * scale, _LEFT), _RIGHT)
            right = min(max(left + seconds * scale, _LEFT), _RIGHT)
            if count and right > left:
                cells.append((round(left, 1), round(right - left, 1), round(0.15 + 0.85 * count / most, 2)))
        rows.append({"name": name, "cells": cells, "y": 180 + 14 * len(rows), "pairs": format_count(sum(found[name]))})
    return rows


def _by_number(name: str) -> tuple[int, str]:
    digits = "".join(filter(str.isdigit, name))
    return (int(digits) if digits else -1, name)


# Draw a matrix as SVG for a page: with its tree and an axis of that, the groups and names of its rows, and a bar of
# colours. Large matrices come averaged in cells.

MAX_NAMED: Final = 70
_MAX_TREE: Final = 600
_SIDE: Final = 600
_TREE: Final = 90
_STRIP: Final = 12
_MATRIX_NAME: Final = 30  # characters
_CHARACTER: Final = 0.56  # width over height of a letter, nearly
_WIDE_LETTER: Final = 0.66  # of a wide font: a drawing as wide as its names clips none
_AXIS_SIZE: Final = 11  # pixels of height of the texts of the axis of a tree; see matrix.svg
_TICKS: Final = 2
_BAR: Final = 240
_FOOT_OF_MATRIX: Final = 56


def matrix_svg(
    values: NDArray[np.float64],
    scale: Scale,
    *,
    described: str,
    names: Sequence[str] = (),
    groups: Sequence[str] = (),
    colour_of: Mapping[str, str] | None = None,
    joined: NDArray[np.float64] | None = None,
    ends: tuple[str, str] = ("different", "similar"),
) -> str:
    """Return a drawing of a matrix.

    Parameters
    ----------
    values : ndarray of float64, shape (rows, columns)
        In the order drawn; NaN where nothing is known.
    scale : Scale
        Colours of the scores.
    described : str
        What a reader who does not see it is told.
    names : sequence of str, length rows, optional
        Beside the rows; left out of more than 70.
    groups : sequence of str, length rows, optional
        A strip beside the rows shows them in colours.
    colour_of : mapping of str to str, optional
        Colours of the groups; default: by their order in the drawing.
    joined : ndarray of float64, shape (rows - 1, 4), optional
        The tree whose leaves, from top to bottom, are the rows, with scores as heights; left out of more than 600.
    ends : (str, str)
        What the first and the last colour mean.
    """
    rows, columns = values.shape
    height = _SIDE * min(1.0, rows / columns) if rows != columns else _SIDE
    width = _SIDE * min(1.0, columns / rows)
    shown = joined if joined is not None and rows == len(joined) + 1 <= _MAX_TREE else None
    left = (_TREE if shown is not None else 0) + (_STRIP + 4 if groups else 0)
    step = height / rows
    size = min(13.0, 0.92 * step)
    labels = [show_on_one_line(name, _MATRIX_NAME) for name in names] if 0 < len(names) <= MAX_NAMED else []
    aside = max((len(label) for label in labels), default=0) * _WIDE_LETTER * size + 12
    return render(
        "matrix.svg",
        described=described,
        size=(round(max(left + width + aside, left + 260)), round(height + _FOOT_OF_MATRIX)),
        left=left,
        width=round(width, 2),
        height=round(height, 2),
        picture=_pixels(values, scale),
        bar=_bar(),
        bar_top=round(height + 24, 2),
        scale_name=scale.name,
        ends=ends,
        ticks=[(round(left + _BAR * share, 1), format_number(score)) for share, score in scale.marks(_TICKS)],
        labels=[(round((row + 0.5) * step, 2), label) for row, label in enumerate(labels)],
        font=round(size, 2),
        strip=_strip(groups, step, colour_of or group_colours(groups)),
        strip_left=left - _STRIP - 4,
        tree=None if shown is None else _tree(shown, step, scale),
    )


def _pixels(values: NDArray[np.float64], scale: Scale) -> str:
    from PIL import Image

    return png_uri(index_colours(Image.fromarray(matrix_pixels(values, scale, target=_SIDE))))


def _bar() -> str:
    from PIL import Image

    return png_uri(index_colours(Image.fromarray(colours(np.linspace(0, 1, 240))[None, :, :])))


def _strip(groups: Sequence[str], step: float, colour_of: Mapping[str, str]) -> list[tuple[float, float, str, str]]:
    """Return (top, height, colour, name) of every stretch of one group."""
    return [
        (
            round(first * step, 2),
            round((after - first) * step, 2),
            colour_of[name],
            show_on_one_line(name, _MATRIX_NAME),
        )
        for name, first, after in stretches(groups)
    ]


def _tree(joined: NDArray[np.float64], step: float, scale: Scale) -> dict[str, Any]:
    """Return the lines of a tree whose leaves lie at the right, in the order of its own drawing, and its axis."""
    far, near = tree_ends(joined[:, 2], larger_is_nearer=scale.near > scale.far)

    def across(height: float) -> float:
        return 4 + (_TREE - 10) * (height - far) / (near - far)

    # The lines of a tree begin where a leaf is near itself.
    lines = branches(joined, across, lambda place: (place + 0.5) * step, leaf=near)
    letters = (_TREE - 10) / (_AXIS_SIZE * _CHARACTER)
    ticks = [(round(across(at), 1), text) for at, text in round_marks(far, near, 3, letters)]
    return {"lines": lines, "ticks": ticks, "ends": (4, _TREE - 6)}
