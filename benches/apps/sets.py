"""What sets share, against sparse matrices and pair by pair; near-duplicate texts against datasketch; in one run.

- ``tile``: shared counts of 2,048 with 2,048 sets of 5,000 hashes (families of ten share 30 %) on all cores, against a
  product of sparse matrices (SciPy, one core, which is all it uses), with and without the time in which hashes become
  its columns, and against ``numpy.intersect1d`` of some pairs;
- ``common``: the same with 200 hashes that all sets hold and 2,000 that one in ten holds: over the time of ``tile``;
- ``texts``: near-duplicates among texts of 50 to 2,000 words that begin with the same boilerplate, by shingles of five
  words and a Jaccard index of 0.8 and more, against MinHash and LSH of datasketch with exact verification: what each
  finds of the pairs that all sets of Python give, and the time.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

import tartan
from benches.shared._measure import options_of
from tartan.apps.sets import Sets

SIDE = 2048
SIZE = 5000
ROUNDS = 3
LEAST = 0.8


def best_seconds(call: Callable[[], object], rounds: int = ROUNDS) -> float:
    """Return the shortest time of a call."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def make_sets(n: int, rng: np.random.Generator, *, common: bool) -> list[np.ndarray]:
    """Return sets in families of ten."""
    everywhere = rng.integers(0, 2**64, 200, np.uint64)
    widespread = rng.integers(0, 2**64, 2000, np.uint64)
    found = []
    for number in range(n):
        if number % 10 == 0:
            core = rng.integers(0, 2**64, SIZE * 3 // 10, np.uint64)
        parts = [core, rng.integers(0, 2**64, SIZE - core.size, np.uint64)]
        if common:
            parts += [everywhere, widespread[rng.random(2000) < 0.1]]
        found.append(np.unique(np.concatenate(parts)))
    return found


def measure_tile(n_pairs: int) -> dict[str, float]:
    rng = np.random.default_rng(1)
    sets = make_sets(2 * SIDE, rng, common=False)
    left, right = sets[:SIDE], sets[SIDE - 5 : -5]
    found = tartan.shared_counts(left, right)
    ours = best_seconds(lambda: tartan.shared_counts(left, right))
    start = time.perf_counter()
    hashes, columns = np.unique(np.concatenate([*left, *right]), return_inverse=True)
    starts = np.cumsum([0, *map(len, (*left, *right))])
    ones = np.ones(columns.size, np.int32)
    whole = scipy.sparse.csr_array((ones, columns.astype(np.int32), starts), shape=(2 * SIDE, hashes.size))
    a, b = whole[:SIDE], whole[SIDE:].T.tocsr()
    ready = time.perf_counter() - start
    product = best_seconds(lambda: a @ b)
    assert (found == (a @ b).toarray()).all()
    merge = best_seconds(lambda: [np.intersect1d(left[at], right[at], True) for at in range(n_pairs)]) / n_pairs
    widespread = make_sets(2 * SIDE, rng, common=True)
    common = best_seconds(lambda: tartan.shared_counts(widespread[:SIDE], widespread[SIDE:]))
    return {
        "million_pairs_a_second": SIDE**2 / ours / 1e6,
        "times_sparse_matrices": (ready + product) / ours,
        "times_their_product_alone": product / ours,
        "times_intersect1d": merge * SIDE**2 / ours,
        "common_hashes_over_none": common / ours,
    }


def make_texts(n: int) -> list[str]:
    """Return texts; a fifth of them are edited copies of others."""
    rng = np.random.default_rng(3)
    words = np.array([f"word{number}" for number in range(50_000)])
    weights = 1 / np.arange(1, len(words) + 1)
    bounds = np.cumsum(weights / weights.sum())
    boilerplate = list(words[rng.integers(0, len(words), 30)])
    texts: list[list[str]] = []
    for number in range(n):
        if number % 5 == 4:
            text = list(texts[int(rng.integers(number))])
            for _ in range(int(rng.integers(0, 1 + len(text) // 60))):
                text[int(rng.integers(len(text)))] = str(words[rng.integers(len(words))])
        else:
            drawn = np.searchsorted(bounds, rng.random(int(np.exp(rng.uniform(np.log(50), np.log(2000))))))
            text = [*boilerplate, *words[np.minimum(drawn, len(words) - 1)]]
        texts.append(text)
    return [" ".join(text) for text in texts]


def shingles(text: str) -> set[str]:
    words = text.split()
    return {" ".join(words[at : at + 5]) for at in range(max(1, len(words) - 4))}


def find_all(texts: list[str]) -> set[tuple[int, int]]:
    """Return the pairs by sets of Python: of those that share a shingle that few have."""
    sets = [shingles(text) for text in texts]
    holders: dict[str, list[int]] = {}
    for number, one in enumerate(sets):
        for shingle in one:
            holders.setdefault(shingle, []).append(number)
    # Texts of 50 words and more with a Jaccard index of 0.8 share more than the 26 shingles that all have.
    near = {(i, j) for few in holders.values() if len(few) < 200 for i in few for j in few if i < j}
    return {(i, j) for i, j in near if len(sets[i] & sets[j]) >= LEAST * len(sets[i] | sets[j])}


def measure_texts(n: int, folder: Path) -> dict[str, float]:
    texts = make_texts(n)
    wanted = find_all(texts)
    start = time.perf_counter()
    run = tartan.allpairs(Sets(shingle="5w"), dict(enumerate(texts)), folder / "r.tartan", reduce=tartan.over(LEAST))
    ours = time.perf_counter() - start
    table = run.pairs().read_all()
    found = set(zip(table["i"].to_pylist(), table["j"].to_pylist(), strict=True))
    numbers = {
        "texts": n, "near_duplicates": len(wanted), "texts_a_second": n / ours,
        "recall": len(found & wanted) / len(wanted), "precision": len(found & wanted) / len(found),
    }  # fmt: skip
    try:
        from datasketch import MinHash, MinHashLSH
    except ImportError:
        return numbers
    start = time.perf_counter()
    sets = [shingles(text) for text in texts]
    lsh = MinHashLSH(threshold=LEAST, num_perm=128)
    theirs = set()
    for number, one in enumerate(sets):
        sketch = MinHash(num_perm=128)
        sketch.update_batch([shingle.encode() for shingle in one])
        for other in lsh.query(sketch):
            if len(one & sets[other]) >= LEAST * len(one | sets[other]):
                theirs.add((other, number))
        lsh.insert(number, sketch)
    peer = time.perf_counter() - start
    return numbers | {"times_datasketch": peer / ours, "recall_of_datasketch": len(theirs & wanted) / len(wanted)}


def main(arguments: Sequence[str] = ()) -> dict[str, Any]:
    """Measure, print a table, return the numbers."""
    options = options_of(arguments, texts=20_000, merged=200)
    results: dict[str, Any] = {"tile": measure_tile(options.merged)}
    with tempfile.TemporaryDirectory() as scratch:
        results["texts"] = measure_texts(options.texts, Path(scratch))
    for name, numbers in results.items():
        print(f"{name}:")
        for key, value in numbers.items():
            print(f"  {key:32}{value:14.4g}")
    return results


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
