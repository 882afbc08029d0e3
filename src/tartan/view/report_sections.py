"""Gather the contents of a report: each function takes a run and returns the values that the template needs.

Nothing here is HTML: texts are escaped, and shortened where users wrote them, by ``pages/report.html``.
"""

from __future__ import annotations

import io
import shlex
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tartan.base.format import format_duration, format_long_count, format_number
from tartan.store.downsample import DENSE_SIDE, block_means, leaf_order
from tartan.view.agreement import Agreement
from tartan.view.matrix_image import draw_matrix, indexed
from tartan.view.page import data_uri

_PICTURE_SIDE: Final = 480
_THUMBNAIL_BYTES: Final = 700_000
_MAX_ROWS: Final = 100
_MAX_KEYS: Final = 40
_STAGES: Final = ("read", "parse", "upload", "preprocess", "compare", "download", "postprocess", "commit")


@dataclass(frozen=True)
class Findings:
    """Knowledge of the items besides their scores.

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


def compared(run: Any) -> dict[str, Any]:
    """Say which items were compared by what."""
    application, inputs = run.manifest.application, run.manifest.inputs
    patterns = inputs.get("patterns") or [inputs.get("kind", "")]
    return {
        "source": application.get("source", application_name(run)),
        "parameters": ", ".join(f"{name} = {value}" for name, value in _parameters(run).items()) or "none",
        "patterns": ", ".join(map(str, patterns)),
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
    if kind == "rectangle":
        left = int(run.manifest.workload["n_left"])
        return f"{left:,} items against {run.n_items - left:,} others: {run.n_pairs:,}"
    if kind == "candidates":
        return f"a list of {run.n_pairs:,}"
    return f"all: {run.n_pairs:,}"


def matrix(run: Any, clusters: Sequence[Hashable] | None) -> dict[str, str] | None:
    """Draw the matrix, sorted so that its pattern shows; None where a run keeps no matrix."""
    if run.manifest.reduce is not None:
        return None
    order, note = _display_order(run, clusters)
    values = block_means(run, _PICTURE_SIDE, order=order)
    groups = None
    if clusters is not None and order is not None:
        cells = [int(order[(cell * len(order)) // len(values)]) for cell in range(len(values))]
        groups = [str(clusters[i]) for i in cells]
    if len(values) != run.n_items:
        note += f" Shown are the means of blocks: {len(values)} by {len(values)} cells."
    picture = _png(draw_matrix(values, groups=groups))
    return {"picture": picture, "described": _described(run, values), "note": note}


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
    low, high = format_number(float(finite.min())), format_number(float(finite.max()))
    return f"The matrix of scores of {run.n_items} items, from {low} to {high}."


def _png(image: Any) -> str:
    buffer = io.BytesIO()
    indexed(image).save(buffer, format="PNG", optimize=True)
    return data_uri(buffer.getvalue(), "image/png")


def clusters_found(run: Any, findings: Findings) -> dict[str, Any] | None:
    """List the clusters with their members, and how they match the truth; None where no clusters were given."""
    if findings.clusters is None:
        return None
    members: dict[str, list[int]] = {}
    for index, label in enumerate(findings.clusters):
        members.setdefault(str(label), []).append(index)
    budget = _PictureBudget(_THUMBNAIL_BYTES)
    shown = list(members.items())[:_MAX_ROWS]
    return {
        "caption": _counted(len(members), "cluster"),
        "rows": [_cluster_row(run, name, inside, findings, budget) for name, inside in shown],
        "pairs_note": _pair_counts(findings.match),
    }


class _PictureBudget:
    """Bytes that are left for pictures."""

    def __init__(self, n_bytes: int) -> None:
        self._left = n_bytes

    def take(self, data: bytes | None) -> bool:
        if data is None or len(data) > self._left:
            return False
        self._left -= len(data)
        return True


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
    drawn = [i for i in shown if budget.take(findings.thumbnails.get(i))]
    return {
        "name": name,
        "n_items": len(inside),
        "truth": said,
        "names": [run.keys[i] for i in shown],
        "n_more": len(inside) - len(shown),
        "pictures": [
            {"source": data_uri(findings.thumbnails[i], "image/jpeg"), "key": run.keys[i], "is_odd": i in odd}
            for i in drawn
        ],
    }


def _pair_counts(match: Agreement | None) -> str:
    if match is None:
        return ""
    return (
        f"Pairs that belong together: {match.n_same_found:,} of {match.n_same:,} found. "
        f"Pairs that do not: {match.n_different_found:,} of {match.n_different:,} kept apart."
    )


def loads(stats: Mapping[str, Any]) -> str:
    """Compare the loads with the bound."""
    loads, factor, bound = (stats.get(k) for k in ("loads", "load_factor", "load_factor_bound"))
    if not loads or not factor or not bound:
        return ""
    said = (
        f"Items were loaded {int(loads):,} times: R = {format_number(factor)} loads an item. With this cache no "
        f"order of work needs less than R_min = {format_number(bound)}; this run needed "
        f"{float(factor) / float(bound):.2f} times that."
    )
    share = stats.get("system_efficiency")
    if share:
        said += f" System efficiency by the performance model: {100 * float(share):.1f} %."
    return said


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


def failed(run: Any) -> dict[str, Any] | None:
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
    caption = _counted(len(failures), "failed item or pair", "failed items and pairs")
    return {"caption": f"{caption}. Pairs of a failed item have no score.", "rows": rows}


def again(run: Any) -> dict[str, Any]:
    """Give the commands that repeat, inspect and export the run, and the versions that made it."""
    folder = shlex.quote(str(run.path))
    return {
        "commands": [*_run_command(run), f"tartan info {folder} --json", f"tartan export {folder} matrix.npy"],
        "versions": ", ".join(f"{name} {version}" for name, version in run.manifest.versions.items()),
    }


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


def _counted(total: int, one: str, many: str = "") -> str:
    """Say how many there are, and how many of them a table shows."""
    named = one if total == 1 else many or f"{one}s"
    cut = f", the first {_MAX_ROWS} are shown" if total > _MAX_ROWS else ""
    return f"{total:,} {named}{cut}"
