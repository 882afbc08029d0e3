"""Are the clusters right? Groups of known items at any contrast, photos of known cameras, distances of proteomes.

- synthetic: groups that differ by ``gap`` from 1, with noise of gap / 30: 4 groups of 6, 8 of 40, 20 of 5 to 200;
  plain, with a duplicate pair, with three copies of an item, with one item at 1 from all others. Right is an adjusted
  Rand index of 1; *number* counts where the number is found without being told; *cost* where the cost is not above that
  of the truth; *annealing* where the local search at the end found nothing better.
- photos: 24 photos of four cameras (``../shared/data/photos``), clustered with k = 4, by the application's cut, and
  into a number that is found.
- proteomes: distances of 8 bacteria, 2 to 7 clusters: the cost against the least of four linkages and 100 random
  starts, each followed by the same local search.

Words: ``seeds=20``.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import adjusted_rand_score

import tartan
from _measure import options_of, print_table
from tartan.analytics import DAPWC, Monitor, as_dissimilarities, cluster, linkage
from tartan.analytics.clusters.cut import cut
from tartan.analytics.clusters.number import number_of_clusters
from tartan.analytics.clusters.search import cost_of, filled, improved

CHECKOUT = Path(__file__).resolve().parents[1]
DATA = CHECKOUT.parent / "shared" / "data"
SHAPES = {
    "4 x 6": [6] * 4,
    "8 x 40": [40] * 8,
    "20 x 5 to 200": np.linspace(5, 200, 20).astype(int).tolist(),
}
GAPS = {"": (0.005, 0.02, 0.05, 0.1, 0.2, 0.8)} | dict.fromkeys(("duplicate", "copies", "single"), (0.02, 0.1, 0.8))
QUIET = Monitor()


def main(arguments: Sequence[str] = ()) -> dict[str, Any]:
    """Print three tables and return their figures."""
    seeds = options_of(arguments, seeds=20).seeds
    results: dict[str, Any] = {"synthetic": [list(row) for row in synthetic(seeds)]}
    print_table("Groups found", results["synthetic"], ("", "gap", "right", "number", "cost", "annealing", "of"))
    if not DATA.is_dir():
        print(f"no real input: there is no folder {DATA}", file=sys.stderr)
        return results
    results["photos"] = photos()
    print_table("Photos of four cameras", [row.values() for row in results["photos"]], list(results["photos"][0]))
    results["proteomes"] = [list(row) for row in proteomes()]
    print_table("Cost above the least found", results["proteomes"], ("k-mers", "clusters", "above", "method"))
    return results


def synthetic(seeds: int) -> Iterator[tuple[Any, ...]]:
    """Yield a row for each shape, oddity and gap."""
    sys.path.append(str(CHECKOUT / "tests" / "analytics" / "clusters"))
    from low_contrast import groups

    for shape, sizes in SHAPES.items():
        for oddity, gaps in GAPS.items():
            for gap in gaps:
                right = known = cheap = alone = 0
                for seed in range(seeds if shape != "20 x 5 to 200" else max(1, seeds // 5)):
                    D, truth = groups(gap, sizes, seed, oddity)
                    found = DAPWC(int(truth.max()) + 1, random_state=seed).fit(D)
                    values = measured(D, found.level_)
                    right += adjusted_rand_score(truth, found.labels_) == 1.0
                    known += number_of_clusters(as_dissimilarities(D)).chosen == truth.max() + 1
                    cheap += cost_of(values, found.labels_) <= cost_of(values, truth) * (1 + 1e-9) + 1e-12
                    alone += found.method_ == "annealing"
                yield f"{shape} {oddity}".strip(), gap, right, known, cheap, alone, seed + 1


def photos() -> list[dict[str, Any]]:
    """Compare all photos and cluster them: told the number, by the application's cut, into a number that is found."""
    with tempfile.TemporaryDirectory() as folder:
        run = tartan.allpairs(_forensics(), str(DATA / "photos" / "nikon"), Path(folder) / "run.tartan")
        truth = ["_".join(key.split("_")[:3]) for key in run.keys]
        ways: dict[str, dict[str, Any]] = {"k = 4": {"n_clusters": 4}, "by the cut": {}, "found": {"method": "pwc"}}
        found = {name: cluster(run, **options) for name, options in ways.items()}
    return [
        {
            "": name,
            "adjusted Rand": float(adjusted_rand_score(truth, one.labels)),
            "clusters": one.n_clusters,
            "method": one.found_by,
        }
        for name, one in found.items()
    ]


def _forensics() -> Any:
    from tartan.apps.forensics import Forensics

    return Forensics()


def proteomes() -> Iterator[tuple[Any, ...]]:
    """Yield a row for each matrix and number of clusters."""
    for k_mers in (5, 6):
        lines = (DATA / "proteomes" / f"cv_bact8_k{k_mers}.tsv").read_text().splitlines()
        D = np.array([line.split("\t")[2:] for line in lines if not line.startswith("#")], float)
        for k in range(2, 8):
            found = DAPWC(k, random_state=0).fit(D)
            values = measured(D, found.level_)
            least = min(cost_of(values, improved(values, begin, k, QUIET)) for begin in begins(values, k))
            yield k_mers, k, cost_of(values, found.labels_) - least, found.method_


def begins(values: np.ndarray, k: int) -> Iterator[np.ndarray]:
    """Yield labels of linkages and of chance."""
    n = len(values)
    for method in ("single", "complete", "average", "weighted"):
        yield cut(linkage(values, method), n, k)
    generator = np.random.default_rng(1)
    for _ in range(100):
        yield filled(values, generator.integers(0, k, n), k, QUIET)


def measured(D: np.ndarray, level: float) -> np.ndarray:
    """Return a matrix measured from a level."""
    values = np.maximum(D - level, 0.0)
    np.fill_diagonal(values, 0.0)
    return values
