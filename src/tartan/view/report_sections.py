"""Gather the contents of a report: each function takes a run and returns the values that the template needs.

Nothing here is HTML: texts are escaped, and shortened where users wrote them, by ``pages/report.html``.
"""

from __future__ import annotations

import contextlib
import datetime
import math
import shlex
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tartan.analytics.trees import note_on_unknown
from tartan.base.format import format_count, format_duration, format_long_count, format_number
from tartan.base.palette import colours, value_limits
from tartan.errors import TartanError
from tartan.store.manifest import leaves
from tartan.view.agreement import Agreement
from tartan.view.groups import ASIDE
from tartan.view.matrix_image import index_colours, matrix_pixels, stretches
from tartan.view.overview import Overview
from tartan.view.page import clip_text, data_uri, png_uri, render, show_on_one_line
from tartan.view.scene import group_colours
from tartan.view.tree_image import branches
from tartan.view.tree_parts import lines_of

if TYPE_CHECKING:
    from tartan.analytics import Tree

PICTURE_SIDE: Final = 480
_THUMBNAIL_BYTES: Final = 700_000
_MAX_ROWS: Final = 100
_LONGEST_COMMAND: Final = 4000
_MAX_KEYS: Final = 40
_MAX_PICTURES: Final = 16
_MOST_MISSES: Final = 12
_UNNAMED: Final = {"array": "an array in memory", "sequence": "objects of a program"}
_STAGES: Final = ("read", "parse", "upload", "preprocess", "compare", "download", "postprocess", "commit")


def no_facts(item: int) -> Mapping[str, str]:
    """Return nothing: no facts are known."""
    return {}


def no_picture(item: int) -> bytes | None:
    """Return None: there are no pictures."""
    return None


@dataclass(frozen=True)
class Findings:
    """Knowledge of the items besides their scores.

    Attributes
    ----------
    clusters, truth : sequence, length n, or None
        Found cluster and known group of each item.
    match : Agreement or None
        The two compared.
    picture_of : callable
        Returns a small JPEG picture of an item by its number, or None.
    points : array_like (m, L), or None
        Places of the first m items on a map.
    said : str
        How the clusters were found, or why they are left out.
    cut : float or None
        The score at which items begin to belong together.
    cut_said : str
        Where that comes from.
    facts_of : callable
        Returns what is known of an item by its number, as texts by name.
    made : float64 array (n, 2), or None
        A map that was made for this page; default: it is made where it is drawn.
    """

    clusters: Sequence[Hashable] | None = None
    truth: Sequence[Hashable] | None = None
    match: Agreement | None = None
    picture_of: Callable[[int], bytes | None] = no_picture
    points: ArrayLike | None = None
    said: str = ""
    cut: float | None = None
    cut_said: str = ""
    facts_of: Callable[[int], Mapping[str, str]] = no_facts
    made: NDArray[np.float64] | None = None

    @property
    def labels(self) -> list[str]:
        """Names of the clusters, item by item; empty where there are none."""
        return [] if self.clusters is None else [str(label) for label in self.clusters]


def cards(run: Any) -> list[tuple[str, str]]:
    """Return the figures at the top: a value and what it counts."""
    stats = run.stats
    wall = float(stats.get("wall_seconds") or 0.0)
    factor, bound = (format_number(stats.get(name)) for name in ("load_factor", "load_factor_bound"))
    return [
        (format_long_count(run.n_items), "items"),
        (format_long_count(run.n_pairs_done), f"of {run.n_pairs:,} pairs done"),
        (format_duration(wall), "from start to end"),
        (format_long_count(run.n_pairs_done / wall) if wall > 0 else "-", "pairs a second"),
        (factor, f"loads an item; the bound is {bound}"),
        (format_long_count(len(run.failures)), "failures"),
    ]


def say_unfinished(run: Any) -> str:
    """Say how much of a run is missing; "" where nothing is."""
    left = run.n_pairs_left
    if not left:
        return ""
    return f"This run is not finished: {left:,} of {run.n_pairs:,} pairs are missing in all that this page shows."


def verdict(match: Agreement | None) -> dict[str, Any] | None:
    """Say how many items are in the right cluster, where that is known."""
    if match is None:
        return None
    wrong = match.n_items - match.n_right
    verb = "is" if wrong == 1 else "are"
    said = f"{match.n_right} of {match.n_items} items are in the right cluster, {wrong} {verb} not."
    if match.perfect:
        said = f"All {match.n_items} items are in the right cluster."
    return {"text": said, "is_good": match.perfect}


def describe_compared(run: Any) -> dict[str, Any]:
    """Say which items were compared by what."""
    application = run.manifest.application
    named = [leaf.get("patterns") or [_UNNAMED.get(leaf.get("kind", ""), "")] for leaf in leaves(run.manifest.inputs)]
    return {
        "source": application.get("source", application_name(run)),
        "parameters": ", ".join(f"{name} = {value}" for name, value in _parameters(run).items()) or "none",
        "patterns": " and ".join(", ".join(map(str, patterns)) for patterns in named),
        "pairs": _workload(run),
        "result": ", ".join(f"{name} ({np.dtype(dtype).name})" for name, dtype in application["outputs"].items()),
        "folder": run.path,
        "started": run.manifest.created,
    }


def _parameters(run: Any) -> dict[str, Any]:
    """Return the parameters that were given a value."""
    given = run.manifest.application.get("parameters") or {}
    return {name: value for name, value in given.items() if value is not None}


def _workload(run: Any) -> str:
    kind = run.manifest.workload.get("kind", "all")
    pairs = f"{run.n_pairs:,} {'pair' if run.n_pairs == 1 else 'pairs'}"
    if kind == "rectangle":
        left = int(run.manifest.workload["n_left"])
        return f"All {pairs} of {left:,} items with {run.n_items - left:,} others"
    if kind == "candidates":
        return f"A list of {pairs} of {run.n_items:,} items"
    return f"All {pairs} of {run.n_items:,} items"


def matrix(run: Any, findings: Findings, seen: Overview) -> dict[str, str]:
    """Draw the matrix, sorted so that its pattern shows."""
    rows, columns = seen.cells.shape
    order = np.arange(run.shape[0]) if seen.order is None else seen.order
    shown = [int(order[(cell * len(order)) // rows]) for cell in range(rows)]
    names = [str(run.keys[i]) for i in shown] if rows == run.shape[0] <= MAX_NAMED else []
    labels = findings.labels
    drawing = matrix_svg(
        seen.cells,
        described=_describe(run, seen),
        names=names,
        groups=[labels[i] for i in shown] if labels and run.shape[0] == run.n_items else [],
        colour_of=group_colours(labels) if labels else None,
        joined=seen.joined if rows == run.n_items else None,
    )
    note = _order(seen, findings)
    if (rows, columns) != tuple(run.shape):
        note += f" Shown are the means of blocks: {rows:,} by {columns:,} cells."
    if run.manifest.reduce is not None:
        note += " The run keeps only a part of the scores; the others are hatched."
    elif run.n_pairs_done < run.n_pairs:
        note += " Hatched: scores that are not there."
    return {"drawing": drawing, "note": note}


def _order(seen: Overview, findings: Findings) -> str:
    if seen.joined is not None:
        strip = " The strip beside it shows the groups." if findings.clusters is not None else ""
        return (
            f"Rows and columns are in the order of their average-link tree, so that alike items stand together.{strip}"
        )
    if seen.order is not None and findings.clusters is None:
        return "Rows and columns are ordered by a tree of some items; each other item stands with its nearest of these."
    if seen.order is not None:
        return "Rows and columns are sorted by cluster, within it as in the input."
    return "Rows and columns are in the order of the input."


def _describe(run: Any, seen: Overview) -> str:
    if not seen.n_scores:
        return "The matrix; no score is known."
    low, high = (format_number(limit) for limit in seen.limits)
    return f"The matrix of scores of {run.n_items} items, from {low} to {high}."


def histogram(run: Any, findings: Findings, seen: Overview) -> dict[str, str] | None:
    """Draw how the scores are spread, with the cut; None where there is no score."""
    if not len(seen.sample):
        return None
    said = f"{findings.cut_said} {format_number(findings.cut)}".strip() if findings.cut is not None else ""
    drawing = histogram_svg(
        seen.sample, seen.n_scores, cut=findings.cut, cut_said=said, larger_is_nearer=run.larger_is_nearer
    )
    note = f"{seen.n_scores:,} scores, {_name_kind_of_score(run)}. The scale of counts is logarithmic."
    if len(seen.sample) < seen.n_scores:
        note += f" Drawn from a sample of {len(seen.sample):,} of them."
    return {"drawing": drawing, "note": note}


def _name_kind_of_score(run: Any) -> str:
    manifest = run.manifest
    similarity, output = manifest.application.get("similarity"), manifest.analysed_by(None)
    named = f"output {output}" if similarity is None or output != next(iter(manifest.outputs)) else ""
    means = "" if similarity is None else f"the {'larger' if similarity else 'smaller'}, the more similar"
    return ", ".join(filter(None, (named, means)))


def nearest_pairs(run: Any, seen: Overview) -> dict[str, Any] | None:
    """List the most alike pairs; None where no score is known."""
    if not seen.nearest:
        return None
    rows = [
        {"rank": rank, "names": [run.keys[i], run.keys[j]], "score": format_number(score, 4)}
        for rank, (i, j, score) in enumerate(seen.nearest, 1)
    ]
    title = "The nearest pair" if len(rows) == 1 else f"The {len(rows)} nearest pairs"
    return {"title": title, "caption": f"Of {seen.n_scores:,} pairs; {_name_kind_of_score(run)}", "rows": rows}


def say_left_out(reason: object) -> str:
    """Say why a part of a page is not there."""
    return f"Left out: {reason}"


def tree_of(run: Any) -> Tree | None:
    """Return the tree of a run of an application whose answer is one; None of others, and where pairs are missing."""
    manifest, output = run.manifest, run.manifest.analysed_by(None)
    is_tree = manifest.meaning(output).get("tree") and manifest.symmetric_in(output)
    if not is_tree or not 3 <= run.n_items <= MAX_LEAVES:
        return None
    if run.manifest.reduce is not None or run.n_pairs_left:
        return None
    found: Tree = run.tree("upgma" if _note_on_far_pairs(run) else "nj", failed="drop")
    return found


def _note_on_far_pairs(run: Any) -> str | None:
    return note_on_unknown(run.dissimilarities(failed="drop"))


def tree(run: Any, findings: Findings) -> dict[str, str] | None:
    """Draw the tree of a run, or say why not; None where it has none."""
    try:
        found = tree_of(run)
    except TartanError as error:
        return {"drawing": "", "note": say_left_out(error)}
    if found is None:
        return None
    labels = findings.labels
    by_group = group_colours(labels) if labels else {}
    colour = dict(zip(map(str, run.folder.keys), (by_group[label] for label in labels))) if labels else {}
    called = dict(zip(map(str, run.folder.keys), map(str, run.keys)))
    drawing = tree_svg(
        replace(found, names=tuple(called.get(name, name) for name in found.names)),
        described=f"The tree of {len(found.leaf_names)} items.",
        colours=[colour.get(name, "currentColor") for name in found.leaf_names],
    )
    note = "Neighbour joining, drawn from the midpoint; the tree itself has no root."
    if unknown := _note_on_far_pairs(run):
        note = f"UPGMA, since {unknown.split(':')[0]}."
    if gone := run.n_items - len(found.leaf_names):
        note += f" {gone:,} {'item is' if gone == 1 else 'items are'} left out, because of what failed."
    return {"drawing": drawing, "note": note}


def clusters_found(run: Any, findings: Findings) -> dict[str, Any] | None:
    """List the clusters with their members, and how they match the truth; None where there are none.

    Where clusters are left out, the caption and the reason are all there is.
    """
    if findings.clusters is None:
        return (
            {"caption": "The groups", "said": say_left_out(findings.said), "rows": [], "pairs_note": ""}
            if findings.said
            else None
        )
    members: dict[str, list[int]] = {}
    for index, label in enumerate(findings.clusters):
        members.setdefault(str(label), []).append(index)
    colour_of = group_colours(findings.labels)
    budget = _PictureBudget(_THUMBNAIL_BYTES, findings.picture_of)
    # The largest first; what is in no group is none, and comes last.
    ordered = sorted(members.items(), key=lambda group: (group[0] == ASIDE, -len(group[1])))
    shown = ordered[:_MAX_ROWS]
    return {
        "caption": _format_count(len(members.keys() - {ASIDE}), "group"),
        "said": findings.said,
        "rows": [
            _cluster_row(run, name, inside, findings, budget) | {"colour": colour_of[name]} for name, inside in shown
        ],
        "pairs_note": _pair_counts(findings.match),
    }


class _PictureBudget:
    """Bytes that are left for pictures; making one may take long, so it ends where items turn out to have none."""

    def __init__(self, n_bytes: int, picture_of: Callable[[int], bytes | None]) -> None:
        self._left = n_bytes
        self._misses = _MOST_MISSES
        self._picture_of = picture_of

    def pictures(self, items: Sequence[int]) -> dict[int, bytes]:
        """Return the pictures of items, as far as they go."""
        found: dict[int, bytes] = {}
        for item in items:
            if self._left <= 0 or self._misses <= 0:
                break
            data = self._picture_of(item)
            if data is None:
                self._misses -= 1
            elif len(data) <= self._left:
                self._left -= len(data)
                found[item] = data
            else:
                self._left = 0
        return found


def _cluster_row(run: Any, name: str, inside: list[int], findings: Findings, budget: _PictureBudget) -> dict[str, Any]:
    odd: set[int] = set()
    said, match, truth = "", findings.match, findings.truth
    if match is not None and truth is not None:
        row = match.clusters.index(name)
        group = match.groups[match.matched[row]] if match.matched[row] >= 0 else None
        odd = {i for i in inside if str(truth[i]) != group}
        present = Counter(str(truth[i]) for i in inside).most_common(8)
        said = ", ".join(f"{count} of {known}" for known, count in present)
    shown = inside[:_MAX_KEYS]
    drawn = budget.pictures(shown[:_MAX_PICTURES])
    return {
        "name": name,
        "n_items": len(inside),
        "truth": said,
        "names": [run.keys[i] for i in shown],
        "n_more": len(inside) - len(shown),
        "pictures": [
            {"source": data_uri(data, "image/jpeg"), "key": run.keys[i], "is_odd": i in odd}
            for i, data in drawn.items()
        ],
    }


def _pair_counts(match: Agreement | None) -> str:
    if match is None:
        return ""
    return (
        f"Pairs that belong together: {match.n_same_found:,} of {match.n_same:,} found. "
        f"Pairs that do not: {match.n_different_found:,} of {match.n_different:,} kept apart."
    )


def loads(stats: Mapping[str, Any]) -> dict[str, Any] | None:
    """Compare the loads with the bound; None where they are not known."""
    loads, factor, bound = (stats.get(k) for k in ("loads", "load_factor", "load_factor_bound"))
    if not loads or not factor or not bound:
        return None
    said = (
        f"Items were loaded {int(loads):,} times: R = {format_number(factor)} loads an item. With this cache no "
        f"order of work needs less than R_min = {format_number(bound)}; this run needed "
        f"{float(factor) / float(bound):.2f} times that."
    )
    share = stats.get("system_efficiency")
    if share:
        said += f" System efficiency by the performance model: {100 * float(share):.1f} %."
    least = math.ceil(float(bound) / float(factor) * int(loads) - 1e-9)
    bars = [("loads made", int(loads)), ("least possible", least)]
    longest = max(count for _, count in bars)
    return {
        "said": said,
        "bars": [{"name": name, "count": f"{count:,}", "percent": 100 * count / longest} for name, count in bars],
    }


def draw_timeline_of(run: Any) -> str | None:
    """Draw when the pairs were committed; None where there is too little to draw."""
    started = None
    with contextlib.suppress(ValueError, TypeError):
        started = datetime.datetime.fromisoformat(str(run.manifest.created)).timestamp()
    return draw_timeline(run.folder.commit_times(), started, run.n_pairs, run.stats.get("rank_work"))


def stages(stats: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the busy time of each stage, with its percentage of the longest."""
    seconds = {str(k): float(v) for k, v in (stats.get("seconds_per_stage") or {}).items() if v}
    known = [stage for stage in _STAGES if stage in seconds]
    order = known + [stage for stage in seconds if stage not in known]
    longest = max(seconds.values(), default=1.0)
    return [
        {"name": stage, "time": format_duration(seconds[stage]), "percent": 100 * seconds[stage] / longest}
        for stage in order
    ]


def list_failed(run: Any) -> dict[str, Any] | None:
    """List what failed, with reasons; None where nothing did."""
    failures = list(run.failures)
    if not failures:
        return None
    rows = [
        {
            "names": [run.keys[k] for k in (failure.i, failure.j) if k is not None],
            "stage": failure.stage,
            "reason": failure.reason,
        }
        for failure in failures[:_MAX_ROWS]
    ]
    caption = _format_count(len(failures), "failed item or pair", "failed items and pairs")
    return {"caption": f"{caption}. Pairs of a failed item have no score.", "rows": rows}


def again(run: Any) -> dict[str, Any]:
    """Give the commands that repeat, inspect and export the run, and the versions that made it.

    A command is whole or left out: cut, or with other characters, it would be another one to the shell of a reader.
    """
    folder = shlex.quote(str(run.path))
    return {
        "commands": [
            line
            for line in (_run_command(run), f"tartan info {folder} --json", f"tartan export {folder} matrix.npy")
            if line is not None and line.isprintable() and len(line) <= _LONGEST_COMMAND
        ],
        "versions": ", ".join(f"{name} {version}" for name, version in run.manifest.versions.items()),
    }


def _run_command(run: Any) -> str | None:
    """Return the command that makes the run; None where words cannot say it."""
    manifest = run.manifest
    source, patterns = str(manifest.application.get("source", "")), manifest.inputs.get("patterns")
    named = [source.removeprefix("builtin:"), *map(str, patterns or [])]
    version = run.folder.version
    if version is not None and version.number > 1:
        return None
    said = bool(patterns) and manifest.workload["kind"] == "all" and "output" not in (manifest.reduce or {})
    if not said or source.startswith("module:") or any(word.startswith("-") for word in (*named, str(run.path))):
        return None
    sets = [word for name, value in _parameters(run).items() for word in ("--set", f"{name}={value}")]
    return shlex.join(["tartan", "run", *named, "-o", str(run.path), *sets, *_describe_kept(manifest.reduce)])


def _describe_kept(rule: Any) -> list[str]:
    """Return the options of a run that keeps less than the matrix."""
    if rule is None:
        return []
    limit = ["--top-k", str(rule["k"])] if rule["kind"] == "top-k" else [f"--threshold={rule['threshold']}"]
    return [*limit, "--largest" if rule["largest"] else "--smallest"]


def application_name(run: Any) -> str:
    """Return the name of the application of a run."""
    return str(run.manifest.application.get("name", "an application"))


def _format_count(total: int, one: str, many: str = "") -> str:
    """Say how many there are, and how many of them a table shows."""
    named = one if total == 1 else many or f"{one}s"
    cut = f", the first {_MAX_ROWS} are shown" if total > _MAX_ROWS else ""
    return f"{total:,} {named}{cut}"


# Draw a tree as SVG for a page: the root at the left, one line a leaf, branches in proportion to their lengths.

MAX_LEAVES: Final = 300
_WIDE: Final = 440
_LINE: Final = 18
_NAME: Final = 44


def tree_svg(tree: Tree, *, described: str, colours: Sequence[str] = ()) -> str:
    """Return a drawing of a tree of at most 300 leaves; an unrooted one is drawn from its midpoint.

    Parameters
    ----------
    tree : Tree
    described : str
        What a reader who does not see it is told.
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
         of_leaf.get(shown.names[leaf], "currentColor"))
        for leaf in shown.leaves
    ]  # fmt: skip
    scale = 10.0 ** math.floor(math.log10(deepest / 3))
    return render(
        "tree.svg",
        described=described,
        size=(_WIDE + 400, 12 + _LINE * len(shown.leaves) + 30),
        lines="".join(lines),
        names=names,
        scale=(round(6 + _WIDE * scale / deepest, 1), format_number(scale)),
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


# Draw a matrix as SVG for a page: with its tree, the groups and names of its rows, and a bar of colours.
#
# Text and lines take the colour of the page. The pixels are one embedded PNG; large matrices come averaged in cells.

MAX_NAMED: Final = 70
_MAX_TREE: Final = 600
_SIDE: Final = 600
_TREE: Final = 90
_STRIP: Final = 12
_MATRIX_NAME: Final = 30  # characters
_CHARACTER: Final = 0.56  # width over height of a letter, nearly
_TICKS: Final = 3


def matrix_svg(
    values: NDArray[np.float64],
    *,
    described: str,
    names: Sequence[str] = (),
    groups: Sequence[str] = (),
    colour_of: Mapping[str, str] | None = None,
    joined: NDArray[np.float64] | None = None,
) -> str:
    """Return a drawing of a matrix.

    Parameters
    ----------
    values : ndarray of float64, shape (rows, columns)
        In the order drawn; NaN where nothing is known.
    described : str
        What a reader who does not see it is told.
    names : sequence of str, length rows, optional
        Beside the rows; left out of more than 70.
    groups : sequence of str, length rows, optional
        A strip beside the rows shows them in colours.
    colour_of : mapping of str to str, optional
        Colours of the groups; default: by their order in the drawing.
    joined : ndarray of float64, shape (rows - 1, 4), optional
        The tree whose leaves, from left to right, are the rows; left out of more than 600.
    """
    rows, columns = values.shape
    height = _SIDE * min(1.0, rows / columns) if rows != columns else _SIDE
    width = _SIDE * min(1.0, columns / rows)
    shown = joined if joined is not None and rows == len(joined) + 1 <= _MAX_TREE else None
    left = (_TREE if shown is not None else 0) + (_STRIP + 4 if groups else 0)
    step = height / rows
    size = min(13.0, 0.92 * step)
    labels = [show_on_one_line(name, _MATRIX_NAME) for name in names] if 0 < len(names) <= MAX_NAMED else []
    aside = max((len(label) for label in labels), default=0) * _CHARACTER * size + 12
    limits = value_limits(values)
    return render(
        "matrix.svg",
        described=described,
        size=(round(max(left + width + aside, left + 260)), round(height + 52)),
        left=left,
        width=round(width, 2),
        height=round(height, 2),
        picture=_pixels(values, limits),
        bar=_bar(),
        ticks=[(round(left + 240 * k / (_TICKS - 1), 1), _tick(limits, k)) for k in range(_TICKS)],
        labels=[(round((row + 0.5) * step, 2), label) for row, label in enumerate(labels)],
        font=round(size, 2),
        strip=_strip(groups, step, colour_of or group_colours(groups)),
        strip_left=left - _STRIP - 4,
        tree="" if shown is None else _tree(shown, step),
    )


def _tick(limits: tuple[float, float], k: int) -> str:
    return format_number(limits[0] + (limits[1] - limits[0]) * k / (_TICKS - 1))


def _pixels(values: NDArray[np.float64], limits: tuple[float, float]) -> str:
    from PIL import Image

    return png_uri(index_colours(Image.fromarray(matrix_pixels(values, limits, "viridis", target=_SIDE))))


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


def _tree(joined: NDArray[np.float64], step: float) -> str:
    """Return the lines of a tree whose leaves lie at the right, in the order of its own drawing."""
    highest = float(joined[:, 2].max(initial=0.0)) or 1.0  # all at 0: the items are all the same
    return branches(
        joined, lambda height: _TREE - (_TREE - 6) * (max(height, 0.0) / highest), lambda place: (place + 0.5) * step
    )
