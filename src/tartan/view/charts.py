"""Draw the small charts of a report as SVG: how the scores are spread, and when pairs were committed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tartan.base.format import format_count, format_duration, format_number
from tartan.view.page import render

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


def timeline_svg(
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
