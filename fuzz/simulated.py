"""Difficult input of every simulator, compared with its truth and with plain arithmetic."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import math
import random
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.cluster import hierarchy
from scipy.spatial.distance import cdist, squareform

import tartan
from tartan.analytics import clusters_at, linkage
from tartan.apps.forensics.app import Forensics
from tartan.apps.lcms.clustering import cluster_peaks
from tartan.apps.lcms.files import read_peaks
from tartan.apps.microscopy.app import Microscopy
from tartan.apps.phylogeny.app import Phylogeny
from tartan.apps.vectors.app import Vectors
from tartan.apps.vectors.metrics import METRICS
from tartan.base.notices import RunNotice
from tartan.cli.main import main

#: Commands that read a run, what fails in it left out.
_COMMANDS = (
    "info {run}", "report {run} -o {run}.html", "embed {run} -o {run}-map", "cluster {run} -o {run}-found.tsv",
    "cluster {run} --method average -k 2 -o {run}-two.tsv", "cluster {run} --method hdbscan -o {run}-dense.tsv",
    "outliers {run} -o {run}-far.tsv", "neighbors {run} -k 3 -o {run}-near.tsv", "tree {run} -o {run}.nwk",
    "export {run} {run}.csv", "export {run} {run}.parquet", "export {run} {run}.npy",
)  # fmt: skip
_CITYBLOCK = {"manhattan": "cityblock"}


def attack(rng: random.Random, folder: Path) -> None:
    """Simulate for every application and check what it makes of it."""
    for check in (vectors, proteomes, particles, photos, peaks):
        seed, n = rng.randrange(10**6), rng.randrange(8, 40)
        try:
            check(rng, folder / check.__name__, n, seed)
        except Exception as error:
            error.add_note(f"{check.__name__} of {n} items, seed {seed}")
            raise


def simulated(app: str, folder: Path, n: int, seed: int, **options: Any) -> dict[str, Any]:
    """Write difficult input; return its truth."""
    simulate: Callable[..., Path] = importlib.import_module(f"tartan.apps.{app}.simulate").simulate
    truth: dict[str, Any] = json.loads(simulate(folder, n, seed, hard=True, **options).read_text())
    return truth


def computed(app: Any, items: Any, folder: Path, bad: Sequence[int], **options: Any) -> tartan.Run:
    """Compare all pairs; what failed are the items that the truth names."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RunNotice)  # of the copies
        run = tartan.allpairs(app, items, folder / "run.tartan", workers=1, quiet=True, **options)
    assert sorted({failure.i for failure in run.failures}) == sorted(bad)
    left_out = len(bad) * run.n_items - len(bad) * (len(bad) + 1) // 2
    assert run.n_pairs_left == 0
    assert run.n_pairs_failed == left_out
    return run


def read(rng: random.Random, run: tartan.Run) -> None:
    """Give a run to two commands: each does its work."""
    for line in rng.sample(_COMMANDS, 2):
        words = [word.format(run=run.path) for word in line.split()]
        out, err = (io.TextIOWrapper(io.BytesIO()) for _ in range(2))
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            status = main(words)
        assert status == 0, (line, status, err.seek(0), err.read())
        assert words[-2] != "-o" or line.endswith("-map") or Path(words[-1]).exists()


def vectors(rng: random.Random, folder: Path, n: int, seed: int) -> None:
    """Compare scores, the nearest, pairs within a bound and groups with SciPy's, copies with their originals."""
    metric, d = rng.choice(list(METRICS)), rng.choice([1, 2, 7, 31, 40, 130])
    dtype = rng.choice(["float32", "float64"])
    d += (d == 1) * (metric == "correlation")  # of one number all are constant
    truth = simulated("vectors", folder, n, seed, metric=metric, d=d, clusters=rng.randrange(1, 6))
    rows, bad = np.load(folder / "vectors.npy"), [int(row) for row in truth["bad"]]
    app = Vectors(metric=metric, dtype=dtype)
    if metric == "correlation":  # the more of few numbers tie, the sooner all of a row are equal
        bad += [row for row in range(3, n) if rows[row].min() == rows[row].max()]
    if metric == "cosine":
        bad += [row for row in range(3, n) if not rows[row].any()]
    if len(bad) > n - 2:
        return
    run = computed(app, folder / "vectors.npy", folder, bad)
    good = np.setdiff1d(np.arange(n), bad)
    found = run.matrix(diagonal=0.0)[np.ix_(good, good)]
    wide = rows[good] if rows.dtype == bool else rows[good].astype(float)
    expected = cdist(wide, wide, _CITYBLOCK.get(metric, metric))
    np.fill_diagonal(expected, 0.0)
    unit = float(np.finfo(dtype).eps) * (d + 8)
    absolute = 2 * unit if metric in ("cosine", "correlation") else 0.0
    np.testing.assert_allclose(found, expected, rtol=36 * unit, atol=absolute)
    _check_copies(run.matrix(), {int(copy): one for copy, one in truth["duplicates"].items()}, bad)
    _check_groups(found.astype(float))
    _check_kept(rng, app, folder, found, good)
    read(rng, run)


def _check_copies(scores: np.ndarray, copies: dict[int, int], bad: Sequence[int]) -> None:
    """Find copies at exactly 0 from their originals."""
    for copy, original in copies.items():
        assert scores[copy, original] == 0 or {copy, original} & set(bad)


def _check_groups(D: np.ndarray) -> None:
    """Cut hierarchies at heights of their own joins."""
    for method in ("single", "complete", "average"):
        joins = hierarchy.linkage(squareform(D), method)
        if method != "single":
            np.testing.assert_array_equal(linkage(D, method), joins)
        for height in joins[:: max(1, len(joins) // 3), 2]:
            labels = clusters_at(D, float(height), method)
            expected = hierarchy.fcluster(joins, height, "distance")
            assert len(set(zip(labels.tolist(), expected.tolist(), strict=True))) == labels.max() + 1 == expected.max()


def _check_kept(rng: random.Random, app: Any, folder: Path, D: np.ndarray, good: np.ndarray) -> None:
    """Keep pairs up to a score of the matrix, and the nearest: the same as in the whole matrix."""
    upper = np.triu_indices(len(D), 1)
    bound = float(rng.choice(D[upper].tolist()))
    kept = {"kind": "threshold", "threshold": bound}
    run = tartan.allpairs(app, folder / "vectors.npy", folder / "kept.tartan", workers=1, quiet=True, reduce=kept)
    table = run.pairs().read_all()
    found = set(zip(table["i"].to_pylist(), table["j"].to_pylist(), strict=True))
    within = D[upper] <= bound
    assert found == {(int(good[i]), int(good[j])) for i, j in zip(upper[0][within], upper[1][within], strict=True)}
    k = rng.randrange(1, len(D))
    best = {"kind": "top-k", "k": k}
    run = tartan.allpairs(app, folder / "vectors.npy", folder / "best.tartan", workers=1, quiet=True, reduce=best)
    others = D + np.diag(np.full(len(D), np.inf))
    np.testing.assert_array_equal(run.neighbors(k)[1][good], np.sort(others, axis=1)[:, :k])


def proteomes(rng: random.Random, folder: Path, n: int, seed: int) -> None:
    """Compare copies with their originals, and a run with one to which the last files were added."""
    truth = simulated("phylogeny", folder, n, seed, n_proteins=rng.randrange(30, 60))
    app, names = Phylogeny(k=rng.choice([3, 4])), sorted(path.name for path in folder.glob("*.gz"))
    bad = [names.index(name) for name in truth["bad"]]
    run = computed(app, folder, folder, bad)
    scores = run.matrix(diagonal=0.0)
    assert len(names) == n
    copies = {names.index(copy): names.index(one) for copy, one in truth["duplicates"].items()}
    for copy, original in copies.items():
        assert scores[copy, original] == 0
        np.testing.assert_allclose(np.delete(scores[copy], copy), np.delete(scores[original], copy), atol=1e-9)
    tree = run.tree("nj", failed="drop")
    assert set(tree.leaf_names) == set(run.keys) - {run.keys[i] for i in bad}
    read(rng, run)
    first = rng.randrange(len(bad) + 2, n)
    paths = [str(folder / name) for name in names]
    tartan.allpairs(app, paths[:first], folder / "part.tartan", workers=1, quiet=True)
    added = tartan.add(folder / "part.tartan", paths[first:], quiet=True)
    np.testing.assert_array_equal(added.matrix(diagonal=0.0), scores)


def particles(rng: random.Random, folder: Path, n: int, seed: int) -> None:
    """Compare motions with their truth in its unit: nearly all angles, and those of copies."""
    n = min(n, 12)
    truth = simulated("microscopy", folder, n, seed)
    run = computed(Microscopy(), folder / "particles.json", folder, [int(one) for one in truth["bad"]])
    read(rng, run)
    theta, x, y = (run.matrix(name) for name in ("theta", "tx", "ty"))
    angles = np.array([one["angle"] for one in truth["particles"]])
    off = np.abs((theta - np.subtract.outer(angles, angles) + math.pi) % (2 * math.pi) - math.pi)
    known = off[np.triu_indices(n, 1)]
    assert np.mean(known[~np.isnan(known)] < 0.1) > 0.6
    for copy, original in ((int(copy), one) for copy, one in truth["duplicates"].items()):
        assert abs(theta[original, copy]) < 1e-3
        assert math.hypot(x[original, copy], y[original, copy]) < 1e-3 * truth["unit"]


def photos(rng: random.Random, folder: Path, n: int, seed: int) -> None:
    """Find copies, and photos of one camera nearer than those of others on average, those that were turned left out."""
    side = rng.choice([96, 128])
    truth = simulated("forensics", folder, n, seed, cameras=2, size=side)
    names = sorted(path.name for path in folder.glob("*.jpg"))
    run = computed(Forensics(crop=side), folder, folder, [names.index(name) for name in truth["bad"]])
    read(rng, run)
    scores = run.matrix()
    for copy, original in truth["duplicates"].items():
        assert scores[names.index(copy), names.index(original)] > 0.999
    shown = [name for name in truth["cameras"] if name not in truth["turned"] and name not in truth["duplicates"]]
    at = [names.index(name) for name in shown]
    owners = np.array([truth["cameras"][name] for name in shown])
    i, j = np.triu_indices(len(at), 1)
    same, values = owners[i] == owners[j], scores[np.ix_(at, at)][i, j]
    assert same.sum() < 3 or (~same).sum() < 3 or values[same].mean() > values[~same].mean()


def peaks(rng: random.Random, folder: Path, n: int, seed: int) -> None:
    """Read what the table holds; copies are in the cluster of their original."""
    n *= 10
    truth = simulated("lcms", folder, n, seed, others=rng.randrange(20))
    found = read_peaks(folder / "peaks.txt", 2)
    assert len(found.points) == len(truth["labels"]) == n
    labels = cluster_peaks(found, sigma=(truth["sigma_mz"], truth["sigma_rt"])).labels
    for copy, original in truth["duplicates"].items():
        np.testing.assert_array_equal(found.points[int(copy)], found.points[original])
        assert labels[int(copy)] == labels[original]
