"""Are the clusters right? Groups of known items at any contrast, photos of known cameras, distances of proteomes.

- synthetic: groups that differ by ``gap`` from 1, with noise of gap / 30: 4 groups of 6, 8 of 40, 20 of 5 to 200;
  plain, with a duplicate pair, with three copies of an item, with one item at 1 from all others. Right is an adjusted
  Rand index of 1; *number* counts where the number is found without being told; *cost* where the cost is not above that
  of the truth; *annealing* where the local search at the end found nothing better.
- photos: 24 photos of four cameras (``../shared/data/photos``), clustered with k = 4, by the application's cut, and
  into a number that is found.
- proteomes: distances of 8 bacteria, 2 to 7 clusters: the cost against the least of five linkages and 100 random
  starts, each followed by the same local search.
- time: 4,000 items of high contrast, against another version of Tartan, in turns; only where ``before`` names its
  interpreter.

Words: ``seeds=20 parts=photos,proteomes,time,4x6,8x40,20x5-200 before=PYTHON rounds=5``.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.cluster.hierarchy import linkage as scipy_linkage
from scipy.spatial.distance import squareform
from sklearn.metrics import adjusted_rand_score

import tartan
from benches.shared._measure import alternate, options_of, print_table
from tartan.analytics import DAPWC, Monitor, as_dissimilarities, cluster, linkage
from tartan.analytics.clusters.cut import cut
from tartan.analytics.clusters.number import number_of_clusters
from tartan.analytics.clusters.search import Grouping, Measured, cost_of, fill_empty, improve
from tartan.analytics.trees.hierarchy import LINKAGES
from tartan.errors import ConfigError

CHECKOUT = Path(__file__).resolve().parents[2]
DATA = CHECKOUT.parent / "shared" / "data"
SHAPES = {
    "4x6": [6] * 4,
    "8x40": [40] * 8,
    "20x5-200": np.linspace(5, 200, 20).astype(int).tolist(),
}
GAPS = {"": (0.005, 0.02, 0.05, 0.1, 0.2, 0.8)} | dict.fromkeys(("duplicate", "copies", "single"), (0.02, 0.1, 0.8))
PARTS = ("photos", "proteomes", "time", *SHAPES)
PROGRESS_SECONDS = 10
QUIET = Monitor()

Row = tuple[Any, ...]


def main(arguments: Sequence[str] = ()) -> dict[str, Any]:
    """Print the tables and return their figures."""
    words = options_of(arguments, seeds=20, parts=",".join(PARTS), before="", rounds=5)
    parts = words.parts.split(",")
    if unknown := set(parts) - set(PARTS):
        raise ConfigError(f"parts={','.join(sorted(unknown))}: there are {', '.join(PARTS)}")
    if not DATA.is_dir():
        print(f"no real input: there is no folder {DATA}", file=sys.stderr)
    real = DATA.is_dir()
    tables: dict[str, tuple[str, Row, Callable[[], Iterable[Row]]]] = {}
    if real and "photos" in parts:
        tables["photos"] = ("Photos of four cameras", ("", "adjusted Rand", "clusters", "method"), photos)
    if real and "proteomes" in parts:
        tables["proteomes"] = ("Cost above the least found", ("k-mers", "clusters", "above", "method"), proteomes)
    if words.before and "time" in parts:
        head = ("4,000 items", "before, s", "now, s", "now / before")
        tables["time"] = ("Time of high contrast", head, lambda: times(words.before, words.rounds))
    if shapes := [name for name in SHAPES if name in parts]:
        head = ("", "gap", "right", "number", "cost", "annealing", "of")
        tables["synthetic"] = ("Groups found", head, lambda: synthetic(shapes, words.seeds))
    results: dict[str, Any] = {}
    for name, (title, head, rows) in tables.items():
        results[name] = [list(row) for row in said(name, rows())]
        print_table(title, results[name], head)
    return results


def said(name: str, rows: Iterable[Row]) -> Iterator[Row]:
    """Print each row to stderr as it comes."""
    for row in rows:
        print(f"{name}:", *row, file=sys.stderr, flush=True)
        yield row


def synthetic(shapes: Iterable[str], seeds: int) -> Iterator[Row]:
    """Yield a row for each shape, oddity and gap."""
    sys.path.append(str(CHECKOUT / "tests" / "analytics" / "clusters"))
    from low_contrast import groups

    for shape in shapes:
        for oddity, gaps in GAPS.items():
            for gap in gaps:
                counts, spoke = np.zeros(4, int), time.monotonic()
                for seed in range(seeds):
                    counts += answers(*groups(gap, SHAPES[shape], seed, oddity), seed)
                    if time.monotonic() - spoke > PROGRESS_SECONDS:
                        spoke = time.monotonic()
                        print(f"  {shape} {oddity} {gap}: {seed + 1} of {seeds} seeds", file=sys.stderr, flush=True)
                yield f"{shape} {oddity}".strip(), gap, *counts.tolist(), seeds


def answers(D: np.ndarray, truth: np.ndarray, seed: int) -> tuple[bool, bool, bool, bool]:
    """Return whether labels and number are right, the cost is no higher than the truth's, and annealing was enough."""
    found = DAPWC(int(truth.max()) + 1, random_state=seed).fit(D)
    values = Measured(D, level=found.level_)
    return (
        adjusted_rand_score(truth, found.labels_) == 1.0,
        number_of_clusters(as_dissimilarities(D)).chosen == truth.max() + 1,
        cost_of(values, found.labels_) <= cost_of(values, truth) * (1 + 1e-9) + 1e-12,
        found.method_ == "annealing",
    )


def times(before: str, rounds: int) -> Iterator[Row]:
    """Yield a row for each kind of matrix: medians of alternating fits of two versions."""
    for kind in ("blobs", "groups"):
        found = alternate(partial(_seconds, sys.executable, kind), partial(_seconds, before, kind), rounds)
        then, now = statistics.median(found.peer), statistics.median(found.ours)
        yield kind, then, now, now / then


def _seconds(python: str, kind: str) -> float:
    file = str(Path(__file__).with_name("_contrast.py"))
    own = python == sys.executable
    environment = {name: value for name, value in os.environ.items() if own or name != "PYTHONPATH"}
    done = subprocess.run([python, file, kind], check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return float(json.loads(done.stdout)["seconds"])


def photos() -> Iterator[Row]:
    """Compare all photos and cluster them: told the number, by the application's cut, into a number that is found."""
    ways: dict[str, dict[str, Any]] = {"k = 4": {"n_clusters": 4}, "by the cut": {}, "found": {"method": "pwc"}}
    with tempfile.TemporaryDirectory() as folder:
        run = tartan.allpairs(_forensics(), str(DATA / "photos" / "nikon"), Path(folder) / "run.tartan")
        truth = ["_".join(key.split("_")[:3]) for key in run.keys]
        for name, options in ways.items():
            found = cluster(run, **options)
            yield name, float(adjusted_rand_score(truth, found.labels)), found.n_clusters, found.found_by


def _forensics() -> Any:
    from tartan.apps.forensics import Forensics

    return Forensics()


def proteomes() -> Iterator[Row]:
    """Yield a row for each matrix and number of clusters."""
    for k_mers in (5, 6):
        lines = (DATA / "proteomes" / f"cv_bact8_k{k_mers}.tsv").read_text().splitlines()
        D = np.array([line.split("\t")[2:] for line in lines if not line.startswith("#")], float)
        for k in range(2, 8):
            found = DAPWC(k, random_state=0).fit(D)
            values = Measured(D, level=found.level_)
            least = min(improve(Grouping(values, begin, k), QUIET).cost for begin in begins(values, k))
            yield k_mers, k, cost_of(values, found.labels_) - least, found.method_


def begins(values: Measured, k: int) -> Iterator[np.ndarray]:
    """Yield labels of linkages and of chance."""
    n = values.n
    matrix = values.among(np.arange(n)).stored
    for method in LINKAGES:
        yield cut(linkage(matrix, method), n, k)
    yield cut(scipy_linkage(squareform(matrix), "ward"), n, k)
    generator = np.random.default_rng(1)
    for _ in range(100):
        yield fill_empty(values, generator.integers(0, k, n), k, QUIET)
