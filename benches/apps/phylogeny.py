"""Composition vectors against gzip, a merge join and a sparse matrix product, and neighbour joining, in one run.

All on one core and by processor time, so that other work on the machine matters little:

- reading FASTA and counting strings, against the command ``gzip -dc`` on the same files (bar: 3 times its time);
- a tile of distances, against a merge join of each pair (``scipy.sparse`` rows multiplied in C++) and
  against one sparse matrix product of the whole tile. Both peers get finished vectors with every -1 in them;
- neighbour joining of 2,000 leaves, against scikit-bio where it is installed.

Input: ``folder=`` (FASTA, gzip), else the bacteria of ``../shared/data/proteomes``, else simulated proteomes.
"""

from __future__ import annotations

import os

os.environ.setdefault("RAYON_NUM_THREADS", "1")

import resource
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from benches.shared._measure import options_of
from tartan.analytics import neighbor_joining
from tartan.apps.phylogeny.app import Phylogeny
from tartan.apps.phylogeny.simulate import simulate

SIDE = 64
ROUNDS = 5
PEER_PAIRS = 4
LEAVES = 2000


def seconds(call: Callable[[], object], rounds: int = ROUNDS) -> float:
    """Return the shortest processor time of a call."""
    times = []
    for _ in range(rounds):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return min(times)


def gzip_seconds(paths: Sequence[Path]) -> float:
    """Return the shortest processor time of ``gzip -dc``."""

    def used() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    times = []
    for _ in range(ROUNDS):
        start = used()
        subprocess.run(["gzip", "-dc", *map(str, paths)], stdout=subprocess.DEVNULL, check=True)
        times.append(used() - start)
    return min(times)


def expanded(item: tuple[np.ndarray, ...], k: int) -> scipy.sparse.csr_array:
    """Return a vector with all its -1 as a sparse row; strings are numbered by middle, left and right letter."""
    middles, masks, codes, values, numbers = item
    letters = (masks[:, :, None] >> np.arange(20, dtype=np.uint32) & 1).astype(bool)
    present = letters[:, 0, :, None] & letters[:, 1, None, :]
    row, left, right = np.nonzero(present)
    columns = middles[row].astype(np.int64) * 400 + left * 20 + right
    data = np.full(columns.size, -1.0)
    entries = np.repeat(middles.astype(np.int64), masks[:, 0] >> 20) * 400 + (codes >> 5) * 20 + (codes & 31)
    data[np.searchsorted(columns, entries)] = values
    return scipy.sparse.csr_array(
        (data / numbers[0], columns.astype(np.int32), [0, columns.size]), shape=(1, 20**k), copy=False
    )


def tile(items: list[Any], k: int) -> dict[str, float]:
    """Return pairs a second on one core of the three, and the ratios."""
    half = len(items) // 2
    left, right = items[:half], items[half:]
    wide_left, wide_right = (left * SIDE)[:SIDE], (right * SIDE)[:SIDE]
    app = Phylogeny(k=k)
    ours = seconds(lambda: app.compare(wide_left, wide_right, np), 3) / SIDE**2
    a, b = ([expanded(item, k) for item in side[:PEER_PAIRS]] for side in (left, right))
    merge = seconds(lambda: [x.multiply(y).sum() for x, y in zip(a, b)], 2) / len(a)
    rows, columns = scipy.sparse.vstack(a, format="csr"), scipy.sparse.vstack(b, format="csr").T.tocsr()
    product = seconds(lambda: rows @ columns, 2) / (len(a) * len(b))
    exact = (1 - (rows @ columns).toarray()) / 2
    error = np.abs(app.compare(left[:PEER_PAIRS], right[:PEER_PAIRS], np) - exact).max()
    return {
        "pairs_per_s": 1 / ours,
        "merge_join_pairs_per_s": 1 / merge,
        "sparse_product_pairs_per_s": 1 / product,
        "times_merge_join": merge / ours,
        "times_sparse_product": product / ours,
        "largest_difference": float(error),
        "bytes_an_item": float(np.mean([sum(array.nbytes for array in item) for item in items])),
        "bytes_of_positions_and_values": float(np.mean([item[4][1] * 12 for item in items])),
    }


def extraction(paths: Sequence[Path], k: int) -> tuple[dict[str, float], list[Any]]:
    """Return seconds for all files against gzip, and the vectors."""
    app = Phylogeny(k=k)
    data = [path.read_bytes() for path in paths]
    ours = seconds(lambda: [app.parse(path.name, content) for path, content in zip(paths, data)])
    peer = gzip_seconds(paths)
    items = [app.parse(path.name, content) for path, content in zip(paths, data)]
    return {"seconds": ours, "gzip_seconds": peer, "times_gzip": ours / peer}, items


def joining() -> dict[str, float]:
    """Return seconds of neighbour joining, and of scikit-bio where it is installed."""
    points = np.random.default_rng(1).standard_gamma(0.5, (LEAVES, 12))
    D = np.abs(points[:, None, :] - points[None, :, :]).sum(axis=2)
    ours = seconds(lambda: neighbor_joining(D), 3)
    try:
        from skbio import DistanceMatrix
        from skbio.tree import nj
    except ImportError:
        return {"leaves": LEAVES, "seconds": ours}
    peer = seconds(lambda: nj(DistanceMatrix(D)), 1)
    return {"leaves": LEAVES, "seconds": ours, "scikit_bio_seconds": peer, "times_scikit_bio": peer / ours}


def inputs(folder: str | None, scratch: Path) -> list[Path]:
    """Return the proteomes to measure with."""
    real = Path(__file__).resolve().parents[3] / "shared" / "data" / "proteomes"
    chosen = Path(folder) if folder else real
    if not folder and not real.is_dir():
        simulate(scratch, 8, 1, n_proteins=3000)
        chosen = scratch
    return sorted(chosen.glob("*.gz"))


def main(arguments: Sequence[str] = ()) -> dict[str, Any]:
    """Measure, print a table, return the numbers."""
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        paths = inputs(options_of(arguments, folder="").folder, Path(scratch))
        for k in (5, 6):
            found, items = extraction(paths, k)
            results[f"extraction_k{k}"] = found
            results[f"tile_k{k}"] = tile(items, k)
    results["neighbour_joining"] = joining()
    for name, numbers in results.items():
        print(f"{name}:")
        for key, value in numbers.items():
            print(f"  {key:32}{value:14.4g}")
    return results


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
