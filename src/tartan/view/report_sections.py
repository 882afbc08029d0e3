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
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tartan.analytics.trees import note_on_unknown
from tartan.base.format import format_duration, format_long_count, format_number, name_distance
from tartan.base.palette import Scale
from tartan.errors import TartanError
from tartan.store.manifest import leaves
from tartan.view.agreement import Agreement
from tartan.view.overview import Overview
from tartan.view.page import data_uri
from tartan.view.report_drawings import MAX_LEAVES, MAX_NAMED, draw_timeline, histogram_svg, matrix_svg, tree_svg
from tartan.view.scene import ASIDE, group_colours

if TYPE_CHECKING:
    from tartan.analytics import Tree
    from tartan.view.coordinates import Coloured

PICTURE_SIDE: Final = 480
_THUMBNAIL_BYTES: Final = 700_000
_MAX_ROWS: Final = 100
_LONGEST_COMMAND: Final = 4000
_MAX_KEYS: Final = 40
# By judgement: what is read before one searches; the page has the others for its search.
_SHOWN_GROUPS: Final = 20
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
    coloured : Coloured or None
        Colours of the items on the map; default: those of their clusters.
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
    coloured: Coloured | None = None

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
        (
            format_long_count(run.n_pairs_done),
            "pairs, all of them" if run.n_pairs_done == run.n_pairs else f"of {run.n_pairs:,} pairs done",
        ),
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
    return describe_items(run) | {"pairs": _workload(run)}


def describe_items(run: Any) -> dict[str, Any]:
    """Say which items were compared by what, of a run of pairs or of triples."""
    application = run.manifest.application
    named = [leaf.get("patterns") or [_UNNAMED.get(leaf.get("kind", ""), "")] for leaf in leaves(run.manifest.inputs)]
    return {
        "source": application.get("source", application_name(run)),
        "parameters": ", ".join(f"{name} = {value}" for name, value in _parameters(run).items()) or "none",
        "patterns": " and ".join(", ".join(map(str, patterns)) for patterns in named),
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
    order, shape = order_of_rows(run, seen), run.shape if seen.shown is None else (len(seen.shown),) * 2
    shown = [int(order[(cell * len(order)) // rows]) for cell in range(rows)]
    names = [str(run.keys[i]) for i in shown] if rows == shape[0] <= MAX_NAMED else []
    labels = findings.labels
    scale = Scale.of(seen.cells, larger_is_nearer=run.larger_is_nearer, name=name_score(run))
    drawing = matrix_svg(
        seen.cells,
        scale,
        described=_describe(run, seen),
        names=names,
        groups=[labels[i] for i in shown] if labels and run.shape[0] == run.n_items else [],
        colour_of=group_colours(labels) if labels else None,
        joined=seen.joined if rows == run.n_items else None,
    )
    note = _order(seen, findings)
    if (rows, columns) != tuple(shape):
        note += f" Shown are the means of blocks: {rows:,} by {columns:,} cells."
    if run.manifest.reduce is not None:
        note += " The run keeps only a part of the scores; the others are hatched."
    elif run.n_pairs_done < run.n_pairs:
        note += " Hatched: scores that are not there."
    return {"drawing": drawing, "note": note}


def order_of_rows(run: Any, seen: Overview) -> np.ndarray:
    """Return the items of the rows of the matrix as it is drawn, from top to bottom, (m,)."""
    if seen.shown is not None:
        return seen.shown
    return np.arange(run.shape[0]) if seen.order is None else seen.order


def name_score(run: Any) -> str:
    """Return what a score of a run is, with its unit."""
    return str(run.manifest.name_score(run.manifest.analysed_by(None)))


def _order(seen: Overview, findings: Findings) -> str:
    if seen.shown is not None:
        return f"Shown are the {len(seen.shown):,} items that are in groups, group by group, the largest first."
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
        seen.sample,
        seen.n_scores,
        cut=findings.cut,
        cut_said=said,
        larger_is_nearer=run.larger_is_nearer,
        name=name_score(run),
    )
    note = f"{seen.n_scores:,} scores, {_name_kind_of_score(run)}. The scale of counts is logarithmic."
    if len(seen.sample) < seen.n_scores:
        note += f" Drawn from a sample of {len(seen.sample):,} of them."
    return {"drawing": drawing, "note": note}


def _name_kind_of_score(run: Any) -> str:
    manifest = run.manifest
    named = f"output {manifest.analysed_by(None)}, " if len(manifest.outputs) > 1 else ""
    return f"{named}the {'larger' if run.larger_is_nearer else 'smaller'}, the more similar"


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
    if run.manifest.meaning(run.manifest.analysed_by(None)).get("unknown") is None:
        return None
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
        unit=name_distance(run.manifest.meaning(run.manifest.analysed_by(None)).get("distance"), name_score(run)),
        colours=[colour.get(name, "") for name in found.leaf_names],
    )
    note = "Neighbour joining, drawn from the midpoint; the tree itself has no root."
    if unknown := _note_on_far_pairs(run):
        note = f"UPGMA, since {unknown.split(':')[0]}."
    if gone := run.n_items - len(found.leaf_names):
        note += f" Left out, because they or their pairs failed: {gone:,} {'item' if gone == 1 else 'items'}."
    return {"drawing": drawing, "note": note}


def clusters_found(run: Any, findings: Findings) -> dict[str, Any] | None:
    """List the clusters with their members, and how they match the truth; None where there are none.

    Where clusters are left out, the caption and the reason are all there is.
    """
    if findings.clusters is None:
        return (
            {"caption": "The groups", "said": say_left_out(findings.said), "rows": [], "pairs_note": "", "command": ""}
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
    shown = ordered[:_SHOWN_GROUPS]
    if len(ordered) > _SHOWN_GROUPS and ASIDE in members:
        shown = [*shown[:-1], ordered[-1]]
    return {
        "caption": _count_groups(members),
        "said": findings.said,
        "rows": [
            _cluster_row(run, name, inside, findings, budget) | {"colour": colour_of[name]} for name, inside in shown
        ],
        "pairs_note": _pair_counts(findings.match),
        "command": f"tartan cluster {shlex.quote(str(run.path))} -o groups.csv",
    }


def _count_groups(members: Mapping[str, Sequence[int]]) -> str:
    """Say how many groups there are, how many a table shows, and how many items are in none."""
    n_groups, n_alone = len(members.keys() - {ASIDE}), len(members.get(ASIDE, ()))
    said = "No groups" if not n_groups else f"{n_groups:,} {'group' if n_groups == 1 else 'groups'}"
    if n_groups > _SHOWN_GROUPS:
        said += f", the first {_SHOWN_GROUPS} are shown"
    return said + (f"; {n_alone:,} {'item is' if n_alone == 1 else 'items are'} in none" if n_alone else "")


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
    if match is not None and truth is not None and name in match.clusters:
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
            {"source": data_uri(data, "image/jpeg"), "key": run.keys[i], "is_odd": i in odd, "item": i}
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
    times = {stage: format_duration(busy) if busy >= 0.01 else "< 0.01 s" for stage, busy in seconds.items()}
    return [{"name": stage, "time": times[stage], "percent": 100 * seconds[stage] / longest} for stage in order]


def list_failed(run: Any) -> dict[str, Any] | None:
    """List what failed, with reasons; None where nothing did."""
    failures = list(run.failures)
    if not failures:
        return None
    rows = [
        {
            "names": [run.keys[k] for k in (failure.i, failure.j, failure.k) if k is not None],
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
