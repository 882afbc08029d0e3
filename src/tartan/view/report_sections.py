"""The sections of a report: each takes a run and returns HTML, or nothing when it has nothing to say."""

from __future__ import annotations

import io
import shlex
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tartan.view.agreement import Agreement
from tartan.view.downsample import DENSE_SIDE, block_means, leaf_order
from tartan.view.markup import Html, clipped, data_uri, facts, joined, table, tag, text
from tartan.view.matrix_image import draw_matrix, indexed

__all__ = [
    "Findings",
    "again",
    "amount",
    "application_name",
    "clusters_found",
    "compared",
    "duration",
    "failed",
    "figure",
    "loads",
    "matrix",
    "stages",
]

_PICTURE_SIDE: Final = 480
_THUMBNAIL_BYTES: Final = 700_000
_MAX_ROWS: Final = 100
_MAX_KEYS: Final = 40
_STAGES: Final = ("read", "parse", "upload", "preprocess", "compare", "download", "postprocess", "commit")


@dataclass(frozen=True)
class Findings:
    """What is known of the items besides their scores.

    Attributes
    ----------
    clusters, truth : sequence, length n, or None
        Found cluster and known group of each item.
    match : Agreement or None
        The two compared.
    thumbnails : mapping of int to bytes
        JPEG pictures by index of the item.
    points : array_like (m, L), or None
        Places of the first m items on a map.
    """

    clusters: Sequence[Hashable] | None = None
    truth: Sequence[Hashable] | None = None
    match: Agreement | None = None
    thumbnails: Mapping[int, bytes] = field(default_factory=dict)
    points: ArrayLike | None = None


def compared(run: Any) -> Html:
    """Say which items were compared by what."""
    application, inputs = run.manifest.application, run.manifest.inputs
    chosen = ", ".join(f"{name} = {value}" for name, value in _parameters(run).items()) or "none"
    outputs = ", ".join(f"{k} ({np.dtype(v).name})" for k, v in application["outputs"].items())
    patterns = inputs.get("patterns") or [inputs.get("kind", "")]
    return facts(
        [
            ("Application", tag("code", clipped(application.get("source", application_name(run))))),
            ("Parameters", clipped(chosen, 400)),
            ("Items", clipped(", ".join(map(str, patterns)), 400)),
            ("Pairs", text(_workload(run))),
            ("Result", clipped(outputs, 400)),
            ("Run folder", tag("code", clipped(run.path, 400))),
            ("Started", clipped(run.manifest.created)),
        ]
    )


def _parameters(run: Any) -> dict[str, Any]:
    """Return the parameters that were given a value."""
    given = run.manifest.application.get("parameters") or {}
    return {name: value for name, value in given.items() if value is not None}


def _workload(run: Any) -> str:
    kind = run.manifest.workload.get("kind", "all")
    if kind == "rectangle":
        left = int(run.manifest.workload["n_left"])
        return f"{left:,} items against {run.n_items - left:,} others: {run.n_pairs:,}"
    if kind == "candidates":
        return f"a list of {run.n_pairs:,}"
    return f"all: {run.n_pairs:,}"


def matrix(run: Any, clusters: Sequence[Hashable] | None) -> Html:
    """Draw the matrix, sorted so that its pattern shows."""
    if run.manifest.reduce is not None:
        return tag("p", text("This run keeps only a part of the scores, so there is no matrix to draw."))
    order, said = _display_order(run, clusters)
    values = block_means(run, _PICTURE_SIDE, order=order)
    groups = None
    if clusters is not None and order is not None:
        cells = [int(order[(cell * len(order)) // len(values)]) for cell in range(len(values))]
        groups = [str(clusters[i]) for i in cells]
    shape = f"{len(values)} by {len(values)} cells"
    note = f"{said} {'' if len(values) == run.n_items else f'Shown are the means of blocks: {shape}.'}"
    image = tag("img", src=_png(draw_matrix(values, groups=groups)), alt=_described(run, values))
    return tag("figure", Html(image.removesuffix("</img>")), tag("figcaption", text(note.strip())))


def _display_order(run: Any, clusters: Sequence[Hashable] | None) -> tuple[NDArray[np.intp] | None, str]:
    if run.shape[0] == run.shape[1] == run.n_items:
        if clusters is not None:
            numbers = {label: k for k, label in enumerate(dict.fromkeys(clusters))}
            order = np.argsort([numbers[label] for label in clusters], kind="stable")
            return order, "Rows and columns are sorted by cluster, within it as in the input."
        if run.n_items <= DENSE_SIDE and run.manifest.symmetric:
            matrix = np.asarray(run.matrix(), dtype=np.float64)
            order = leaf_order(matrix, similarity=run.larger_is_nearer)
            return order, "Rows and columns are sorted so that alike items stand together."
    return None, "Rows and columns are in the order of the input."


def _described(run: Any, values: NDArray[np.floating]) -> str:
    finite = values[np.isfinite(values)]
    if finite.size == 0:
        return "The matrix; no score is known."
    low, high = figure(float(finite.min())), figure(float(finite.max()))
    return f"The matrix of scores of {run.n_items} items, from {low} to {high}."


def _png(image: Any) -> str:
    buffer = io.BytesIO()
    indexed(image).save(buffer, format="PNG", optimize=True)
    return data_uri(buffer.getvalue(), "image/png")


def clusters_found(run: Any, findings: Findings) -> Html:
    """List the clusters with their members, and how they match the truth."""
    if findings.clusters is None:
        return Html("")
    members: dict[str, list[int]] = {}
    for index, label in enumerate(findings.clusters):
        members.setdefault(str(label), []).append(index)
    budget = _PictureBudget(_THUMBNAIL_BYTES)
    shown = list(members.items())[:_MAX_ROWS]
    rows = [_cluster_row(run, name, inside, findings, budget) for name, inside in shown]
    heads = [("Cluster", ""), ("Items", "number"), ("Truth", ""), ("Members", "key")]
    if findings.match is None:
        heads.pop(2)
    found = table(_counted(len(members), "cluster"), heads, rows)
    return tag("div", found, _pair_counts(findings.match))


class _PictureBudget:
    """Room that is left for pictures."""

    def __init__(self, n_bytes: int) -> None:
        self._left = n_bytes

    def take(self, data: bytes | None) -> bool:
        if data is None or len(data) > self._left:
            return False
        self._left -= len(data)
        return True


def _cluster_row(run: Any, name: str, inside: list[int], findings: Findings, budget: _PictureBudget) -> list[Html]:
    cells = [clipped(name, 60), text(f"{len(inside):,}")]
    odd: set[int] = set()
    match, truth = findings.match, findings.truth
    if match is not None and truth is not None:
        row = match.clusters.index(name)
        group = match.groups[match.matched[row]] if match.matched[row] >= 0 else None
        odd = {i for i in inside if str(truth[i]) != group}
        present = Counter(str(truth[i]) for i in inside).most_common(8)
        cells.append(clipped(", ".join(f"{count} of {known}" for known, count in present)))
    cells.append(_members(run, inside, odd, findings.thumbnails, budget))
    return cells


def _members(
    run: Any, inside: list[int], odd: set[int], thumbnails: Mapping[int, bytes], budget: _PictureBudget
) -> Html:
    shown = inside[:_MAX_KEYS]
    keys = joined([clipped(run.keys[i], 80) for i in shown], ", ")
    if len(inside) > _MAX_KEYS:
        keys = joined([keys, text(f"and {len(inside) - _MAX_KEYS:,} more")], " ")
    pictures = [_thumbnail(run, i, i in odd, thumbnails[i]) for i in shown if budget.take(thumbnails.get(i))]
    if not pictures:
        return keys
    names = tag("details", tag("summary", text("names")), keys)
    return joined([tag("div", *pictures, class_="thumbs"), names], "")


def _thumbnail(run: Any, index: int, odd: bool, data: bytes) -> Html:
    key = clipped(run.keys[index], 80)
    mark = ' class="odd"' if odd else ""
    note = ", does not belong here" if odd else ""
    return Html(f'<img src="{data_uri(data, "image/jpeg")}" alt="{key}{note}" title="{key}{note}"{mark}>')


def _pair_counts(match: Agreement | None) -> Html:
    if match is None:
        return Html("")
    return tag(
        "p",
        text(
            f"Pairs that belong together: {match.n_same_found:,} of {match.n_same:,} found. "
            f"Pairs that do not: {match.n_different_found:,} of {match.n_different:,} kept apart."
        ),
    )


def loads(stats: Mapping[str, Any]) -> Html:
    """Compare the loads with the bound."""
    loads, factor, bound = (stats.get(k) for k in ("loads", "load_factor", "load_factor_bound"))
    if not loads or not factor or not bound:
        return Html("")
    said = (
        f"Items were loaded {int(loads):,} times: R = {figure(factor)} loads an item. With this cache no "
        f"order of work needs less than R_min = {figure(bound)}; this run needed "
        f"{float(factor) / float(bound):.2f} times that."
    )
    share = stats.get("system_efficiency")
    if share:
        said += f" System efficiency by the performance model: {100 * float(share):.1f} %."
    return tag("p", text(said))


def stages(stats: Mapping[str, Any]) -> Html:
    """Show the busy time of each stage as bars."""
    seconds = {str(k): float(v) for k, v in (stats.get("seconds_per_stage") or {}).items() if v}
    if not seconds:
        return Html("")
    known = [stage for stage in _STAGES if stage in seconds]
    order = known + [stage for stage in seconds if stage not in known]
    longest = max(seconds.values())
    rows = [[clipped(stage, 60), text(duration(seconds[stage])), _bar(seconds[stage] / longest)] for stage in order]
    caption = "Busy time of each stage, summed over its workers. Stages overlap."
    return table(caption, [("Stage", ""), ("Time", "number"), ("", "bars")], rows)


def _bar(share: float) -> Html:
    return Html(f'<span class="bar" style="width:{100 * share:.1f}%" aria-hidden="true"></span>')


def failed(run: Any) -> Html:
    """List what failed, with reasons."""
    failures = list(run.failures)
    if not failures:
        return tag("p", text("Nothing: every item was read and every pair compared."))
    rows = [
        [_who(run, failure), clipped(failure.stage, 60), clipped(failure.reason, 300)]
        for failure in failures[:_MAX_ROWS]
    ]
    caption = _counted(len(failures), "failed item or pair", "failed items and pairs")
    caption += ". Pairs of a failed item have no score."
    return table(caption, [("Item or pair", "key"), ("Stage", ""), ("Reason", "key")], rows, row_heads=False)


def _who(run: Any, failure: Any) -> Html:
    key = clipped(run.keys[failure.i], 80)
    return key if failure.j is None else joined([key, clipped(run.keys[failure.j], 80)], " with ")


def again(run: Any) -> Html:
    """Give the commands that repeat, inspect and export the run."""
    folder = shlex.quote(str(run.path))
    lines = [*_run_command(run), f"tartan info {folder} --json", f"tartan export {folder} matrix.npy"]
    versions = ", ".join(f"{name} {version}" for name, version in run.manifest.versions.items())
    code = tag("pre", tag("code", joined([clipped(line, 600) for line in lines])))
    return joined([code, tag("p", text("Made with "), clipped(versions, 400))]) if versions else code


def _run_command(run: Any) -> list[str]:
    application, inputs = run.manifest.application, run.manifest.inputs
    source = str(application.get("source", ""))
    patterns = inputs.get("patterns")
    if not patterns or source.startswith("module:"):
        return []
    sets = [f"--set {shlex.quote(f'{k}={v}')}" for k, v in _parameters(run).items()]
    words = ["tartan run", shlex.quote(source.removeprefix("builtin:"))]
    words += [shlex.quote(str(p)) for p in patterns]
    return [" ".join([*words, "-o", shlex.quote(str(run.path)), *sets])]


def application_name(run: Any) -> str:
    """Return the name of the application of a run."""
    return str(run.manifest.application.get("name", "an application"))


def figure(value: object) -> str:
    """Write a number with three significant digits."""
    return f"{value:.3g}" if isinstance(value, int | float) else "-"


def amount(value: float) -> str:
    """Write a count for people: 12,345 in full, 12.3 million in short."""
    for size, name in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if value >= size:
            return f"{value / size:.3g} {name}"
    return f"{value:,.0f}"


def duration(value: float) -> str:
    """Write seconds for people."""
    if value >= 120:
        return f"{int(value // 60)} min {int(value % 60)} s"
    return f"{value:.1f} s" if value >= 1 else f"{1000 * value:.0f} ms"


def _counted(total: int, one: str, many: str = "") -> str:
    """Say how many there are, and how many of them a table shows."""
    named = one if total == 1 else many or f"{one}s"
    cut = f", the first {_MAX_ROWS} are shown" if total > _MAX_ROWS else ""
    return f"{total:,} {named}{cut}"
