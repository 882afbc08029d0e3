"""Neighbour joining against scikit-bio, its definition, and at 10,000 leaves; linkages against SciPy; in one run.

- 200 leaves: whether the tree is that of the plain method, all pairs in every step (``O(n^3)``, NumPy).
- ``LEAVES`` leaves (default 5,000; another number as the argument): wall time of ours and of ``skbio.tree.nj`` on the
  same matrix, in turn, and the Robinson-Foulds distance of the two trees. Bar: 3 times faster.
- 10,000 leaves, in a process of its own: time, and the peak of its memory over the bytes of the matrix. Bar: 1.5.
- Linkages of 3,000 and 6,000 points: processor time of ours and of SciPy's on the same condensed distances, in turn,
  and whether the hierarchies are equal.

Two kinds of distances for neighbour joining: those of a random tree with 5 % of noise, and those of points without any
tree in them.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benches.shared._measure import alternate, options_of, print_table, seconds_of, with_peak_memory
from tartan.analytics import Tree, linkage, neighbor_joining, read_newick

LEAVES = 5000
MANY = 10_000
FEW = 200
KINDS = ("tree", "points")
LINKED = (3000, 6000)
METHODS = ("complete", "average", "weighted")
ROUNDS = 5


def distances(kind: str, n: int, dtype: str = "float64") -> np.ndarray:
    """Return a matrix of distances; made in place, so that nothing but the matrix is in memory."""
    rng = np.random.default_rng(1)
    D = np.zeros((n, n), dtype)
    if kind == "points":
        points = rng.standard_gamma(0.5, (n, 12)).astype(dtype)
        for i in range(n):
            D[i] = np.abs(points - points[i]).sum(axis=1)
        return D
    for i in range(1, n):  # each leaf hangs on the tip of an earlier one
        tip = int(rng.integers(i))
        D[i, :i] = D[:i, i] = D[tip, :i] + 0.1 + rng.random()
        D[i, tip] = D[tip, i] = D[i, tip]
    for i in range(1, n):
        D[i, :i] *= 1 + 0.05 * rng.standard_normal(i)
        D[:i, i] = D[i, :i]
    return D


def reference(D: np.ndarray) -> Tree:
    """Join neighbours by the definition: all pairs in every step."""
    n = len(D)
    d = np.zeros((2 * n - 2, 2 * n - 2))
    d[:n, :n] = D
    nodes, parents = list(range(n)), [-1] * (2 * n - 2)
    for new in range(n, 2 * n - 3):
        part = d[np.ix_(nodes, nodes)]
        sums = part.sum(axis=0)
        q = (len(nodes) - 2) * part - sums[:, None] - sums[None, :]
        np.fill_diagonal(q, np.inf)
        a, b = (nodes[at] for at in divmod(int(q.argmin()), len(nodes)))
        parents[a] = parents[b] = new
        d[new, :] = d[:, new] = (d[a] + d[b] - d[a, b]) / 2
        d[new, new] = 0
        nodes = [node for node in nodes if node not in (a, b)] + [new]
    for node in nodes:
        parents[node] = 2 * n - 3
    return Tree(np.array(parents), np.zeros(2 * n - 2), tuple(map(str, range(n))) + ("",) * (n - 2), rooted=False)


def against_definition() -> dict[str, float]:
    """Return the Robinson-Foulds distances to the trees of the definition."""
    return {kind: neighbor_joining(D).robinson_foulds(reference(D)) for kind in KINDS for D in [distances(kind, FEW)]}


def against_peer(kind: str, n: int) -> dict[str, float]:
    """Return the times of both on one matrix, and how far the trees are apart."""
    from skbio import DistanceMatrix
    from skbio.tree import nj

    D = distances(kind, n)
    trees: dict[str, Any] = {}

    def ours() -> None:
        trees["ours"] = neighbor_joining(D)

    given = DistanceMatrix(D, list(map(str, range(n))))

    def peer() -> None:
        trees["peer"] = nj(given)

    mine, theirs = seconds_of(ours), seconds_of(peer)
    apart = trees["ours"].robinson_foulds(read_newick(str(trees["peer"])), normalized=True)
    return {
        "leaves": n,
        "seconds": mine,
        "scikit_bio_seconds": theirs,
        "times": theirs / mine,
        "robinson_foulds": apart,
    }


def processor_seconds_of(call: Callable[[], object]) -> float:
    """Return the processor time of a call, all threads together."""
    start = time.process_time()
    call()
    return time.process_time() - start


def linked(method: str, n: int) -> dict[str, float | bool]:
    """Return the best times of both linkages, and whether the hierarchies are equal."""
    from scipy.cluster import hierarchy
    from scipy.spatial.distance import pdist

    pairs = pdist(np.random.default_rng(1).normal(size=(n, 5)))
    turns = alternate(
        lambda: processor_seconds_of(lambda: linkage(pairs, method)),
        lambda: processor_seconds_of(lambda: hierarchy.linkage(pairs, method)),
        ROUNDS,
    )
    equal = np.array_equal(linkage(pairs, method), hierarchy.linkage(pairs, method))
    return {
        "items": n,
        "seconds": min(turns.ours),
        "scipy_seconds": min(turns.peer),
        "times": turns.median_ratio,
        "equal": equal,
    }


def alone(kind: str, n: int) -> dict[str, float]:
    """Join in place; return the time."""
    D = distances(kind, n)
    return {"leaves": n, "matrix_bytes": D.nbytes, "seconds": seconds_of(lambda: neighbor_joining(D, overwrite=True))}


def main(arguments: Sequence[str] = ()) -> dict[str, Any]:
    """Measure, print tables, return the numbers."""
    n = options_of(arguments, n=LEAVES).n
    results: dict[str, Any] = {"against_definition": against_definition()}
    print(f"{FEW} leaves: splits that differ from the definition's: {results['against_definition']}")
    try:
        results["against_scikit_bio"] = {kind: against_peer(kind, n) for kind in KINDS}
    except ImportError as error:
        results["against_scikit_bio"] = {"skipped": f"{error}; pip install 'scikit-bio>=0.7'"}
        print(f"scikit-bio: skipped: {results['against_scikit_bio']['skipped']}")
    else:
        rows = [[kind, *numbers.values()] for kind, numbers in results["against_scikit_bio"].items()]
        print_table("neighbour joining", rows, ["distances", "leaves", "s", "scikit-bio s", "times", "RF share"])
    results["alone"] = {}
    for kind in KINDS:
        numbers, peak = with_peak_memory(__file__, kind, MANY)
        results["alone"][kind] = numbers | {"peak_over_matrix": peak / numbers["matrix_bytes"]}
    rows = [[kind, *numbers.values()] for kind, numbers in results["alone"].items()]
    print_table(f"{MANY} leaves, in place", rows, ["distances", "leaves", "bytes", "s", "peak / matrix"])
    results["linkage"] = {method: {str(n): linked(method, n) for n in LINKED} for method in METHODS}
    rows = [[method, *numbers.values()] for method, sizes in results["linkage"].items() for numbers in sizes.values()]
    print_table("linkage", rows, ["method", "items", "s", "SciPy s", "times", "equal"])
    return results


if __name__ == "__main__":
    print(json.dumps(alone(sys.argv[1], int(sys.argv[2]))))
