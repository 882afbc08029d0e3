"""What entries a manifest has and of which types: a run folder may come from anywhere.

Entries that are not listed are let through: they change nothing that is read here.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import msgspec
import numpy as np
from msgspec import Meta

MOST_ITEMS = {2: 10**8, 3: 2 * 10**6}
"""By how many are compared at a time: scores are counted in 64 bits, and each item takes some bytes of every reader."""

# By contract: LARGEST_REDUCED_CHUNK of core/pairs/sizing, which this floor checks and does not choose.
_LARGEST_CHUNK = 4096  # that is chosen where there are fewer items

_NUMBERS = re.compile(r"[<>=|]?[fiubc]\d+|(float|u?int|complex)\d+|bool")
_Count = Annotated[int, Meta(ge=1, le=2**40)]
_Size = Annotated[int, Meta(ge=0, le=2**40)]
_Positive = Annotated[float, Meta(gt=0)]
_NotNegative = Annotated[float, Meta(ge=0)]
# Name in the group, and path.
_Members = Annotated[list[tuple[str, str]], Meta(min_length=1)]


class _Item(TypedDict):
    dtype: str
    shape: list[_Size]


class _ManifestGroups(TypedDict):
    correlation: str
    squared: bool
    deviation: _Positive
    spread: _Positive
    common: _NotNegative
    scatter: _NotNegative
    share: _NotNegative
    false_alarm: Annotated[float, Meta(gt=0, lt=0.5)]
    closely: NotRequired[bool]
    why: str


class _ManifestMeaning(TypedDict, total=False):
    distance: str | None
    why: str
    cut: float | None
    cut_why: str
    together: str
    apart: str
    linkage: str
    tree: bool
    groups: _ManifestGroups | None
    unknown: float | None
    unit: str


class _ManifestApplication(TypedDict):
    name: str
    outputs: Annotated[dict[str, str], Meta(min_length=1)]
    kind: NotRequired[str]
    source: NotRequired[str]
    source_hash: NotRequired[str | None]
    parameters: NotRequired[dict[str, Any]]
    symmetric: NotRequired[bool]
    directed: NotRequired[list[str]]
    analysed: NotRequired[str]
    diagonal: NotRequired[bool]
    releases_gil: NotRequired[bool]
    similarity: NotRequired[bool | None]
    ragged: NotRequired[bool | None]
    item: NotRequired[_Item | None]
    meaning: NotRequired[dict[str, _ManifestMeaning] | None]
    notes: NotRequired[list[str]]


class _ManifestWorkload(TypedDict):
    kind: Literal["all", "rectangle", "candidates", "triples"]
    n_left: NotRequired[_Size]
    file: NotRequired[str]
    scores: NotRequired[Literal["list"]]


class _ManifestReduce(TypedDict):
    kind: Literal["top-k", "threshold"]
    largest: NotRequired[bool]
    output: NotRequired[str | None]
    k: NotRequired[_Count]
    threshold: NotRequired[float]


class _ManifestInputs(TypedDict):
    kind: NotRequired[str]
    patterns: NotRequired[list[str]]
    left_out: NotRequired[dict[str, dict[str, _Size]]]
    path: NotRequired[str]
    parts: NotRequired[list[_ManifestInputs]]
    grouping: NotRequired[str]
    groups: NotRequired[dict[str, _Members]]
    size_bytes: NotRequired[int]
    mtime_ns: NotRequired[int]
    shape: NotRequired[list[_Size]]
    dtype: NotRequired[str]
    rows: NotRequired[list[tuple[_Size, _Size]]]


class _ManifestGrid(TypedDict):
    chunk: _Count
    panel: _Size
    strip: _Count
    span: _Count


class _ManifestBody(TypedDict):
    application: _ManifestApplication
    workload: _ManifestWorkload
    n_items: _Count
    grid: _ManifestGrid
    generations: list[_Size]
    reduce: _ManifestReduce | None
    inputs: _ManifestInputs
    options: dict[str, Any]
    versions: dict[str, Any]
    created: str
    format: Annotated[int, Meta(ge=1)]


def problem_of(body: dict[str, Any]) -> str | None:
    """Return what is wrong with the entries of a manifest, or None."""
    try:
        msgspec.convert(body, _ManifestBody)
    except msgspec.ValidationError as error:
        return str(error)
    return _find_missing(body) or _contradiction(body)


def _find_missing(body: dict[str, Any]) -> str | None:
    """Return which entry is missing that others ask for, or has no meaning."""
    for name, text in body["application"]["outputs"].items():
        if not _is_number_dtype(text):
            return f"output {name!r} has no dtype of numbers: {text!r}"
    needed = {"top-k": "k", "threshold": "threshold", "rectangle": "n_left", "candidates": "file"}
    for part in (body["workload"], body["reduce"] or {}):
        if (entry := needed.get(part.get("kind", ""))) is not None and entry not in part:
            return f"{part['kind']} needs {entry!r}"
    if body["workload"]["kind"] == "triples" and body["reduce"] is None:
        return "a run of triples needs an entry 'reduce'"
    return None


def _is_number_dtype(text: str) -> bool:
    """Whether NumPy knows a dtype; what it has not been asked for cannot warn or run."""
    try:
        return _NUMBERS.fullmatch(text) is not None and np.dtype(text).kind in "fiubc"
    except TypeError:
        return False


def _contradiction(body: dict[str, Any]) -> str | None:
    n_items, generations = body["n_items"], body["generations"]
    if not generations or generations != sorted(generations) or generations[-1] != n_items:
        return f"{n_items} items do not follow from the generations {generations[:9]}"
    if n_items > (most := MOST_ITEMS[3 if body["workload"]["kind"] == "triples" else 2]):
        return f"{n_items:,} items are more than the {most:,} that a run can have"
    if (side := body["grid"]["chunk"]) > max(_LARGEST_CHUNK, 2 * n_items):
        return f"chunks of {side:,} items a side are too large for {n_items:,} items"
    if body["workload"].get("n_left", 0) > n_items:
        return "the first set has more items than there are"
    analysed = body["application"].get("analysed")
    if analysed is not None and analysed not in body["application"]["outputs"]:
        return f"there is no output {analysed!r} to analyse"
    output = (body["reduce"] or {}).get("output")
    if output is not None and output not in body["application"]["outputs"]:
        return f"there is no output {output!r} to reduce by"
    return None
