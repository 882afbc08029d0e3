"""One HTML page about a case: which known camera took which photo, and what each decision rests on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tartan.base.files import whole_file
from tartan.view.page import render

# By judgement: a look; scores of known comparisons span five decades.
_LEFT, _RIGHT = 150, 680
_HIGHEST = 1e6
# By judgement: what is stacked above one another; more dots tell no more.
_DOT, _MOST_DOTS = 4, 14
# By format: 8-byte numbers hold smaller ones with fewer digits, or as 0.
_LEAST = 1e-300


def write_cameras_report(path: str | Path, about: Mapping[str, Any]) -> Path:
    """Write the page; the same findings give the same bytes.

    Parameters
    ----------
    path : path
    about : mapping
        What ``tartan forensics cameras --json`` prints.
    """
    said = about["calibration"]
    judged = [entry for entry in about["photos"] if "failed" not in entry]
    strips = [
        ("other cameras", _dots(said["foreign"])),
        ("own camera, half", _dots(said["same"])),
        ("questioned, best", _dots([entry["pce"] for entry in judged])),
    ]
    limit = said["llr_limit"]
    page = render(
        "cameras.html",
        title="Which of these cameras took these photos?",
        about=about,
        said=said,
        say_ratio=lambda llr: f"{'at least ' if llr >= limit else 'at most ' if llr <= -limit else ''}{llr:.1f}",
        chance=format_chance,
        n_named=sum(entry["camera"] is not None for entry in judged),
        strips=strips,
        cut_at=_place(said["cut"]),
        ticks=[(_place(10.0**power), f"{10**power:,}") for power in range(7)],
    )
    target = Path(path)
    with whole_file(target) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return target


def format_chance(chance: float) -> str:
    """Write a chance; one that is too small for a number is below the least, not zero."""
    return f"{chance:.1g}" if chance >= _LEAST else f"< {_LEAST:g}"


def _place(pce: float) -> float:
    """Return where a PCE lies on the axis: by its logarithm from 1 on."""
    share = math.log10(min(max(pce, 1.0), _HIGHEST)) / math.log10(_HIGHEST)
    return round(_LEFT + share * (_RIGHT - _LEFT), 1)


def _dots(values: Sequence[float]) -> list[tuple[float, int]]:
    """Return places along and above the axis of one dot for each value, stacked where several fall together."""
    stacks: dict[int, int] = {}
    dots = []
    for value in values:
        column = round(_place(value) / _DOT)
        height = stacks[column] = stacks.get(column, -1) + 1
        if height < _MOST_DOTS:
            dots.append((float(column * _DOT), height * _DOT))
    return dots
