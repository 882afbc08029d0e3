"""What sets share, against sparse matrices and pair by pair; near-duplicate texts against datasketch; in one run.

- ``tile``: shared counts of 2,048 with 2,048 sets of 5,000 hashes (families of ten share 30 %) on all cores, against a
  product of sparse matrices (SciPy, one core, which is all it uses), with and without the time in which hashes become
  its columns, and against ``numpy.intersect1d`` of some pairs;
- ``common``: the same with 200 hashes that all sets hold and 2,000 that one in ten holds: over the time of ``tile``;
- ``texts``: near-duplicates among texts of 5 words to 1 MB that begin with the same boilerplate of 30 words, a fifth of
  them edited copies of others, by shingles of five words and a Jaccard index of 0.8 and more, against MinHash and LSH
  of datasketch with exact verification: what each finds of the pairs that the numbers of the words give, and the time.
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
N_WORDS = 50_000


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


def make_texts(n: int) -> list[np.ndarray]:
    """Return texts as numbers of words; a fifth of them are edited copies of others."""
    rng = np.random.default_rng(3)
    weights = 1 / np.arange(1, N_WORDS + 1)
    bounds = np.cumsum(weights / weights.sum())
    boilerplate = rng.integers(0, N_WORDS, 30)
    texts: list[np.ndarray] = []
    for number in range(n):
        if number % 5 == 4:
            text = texts[int(rng.integers(number))].copy()
            places = rng.integers(0, len(text), int(rng.integers(0, 1 + len(text) // 60)))
            text[places] = rng.integers(0, N_WORDS, len(places))
        else:
            # Most as long as messages and articles, one in a thousand as books: 1 MB has some 130,000 words.
            low, high = (2_000, 130_000) if number % 1000 == 500 else (5, 1_000)
            length = int(np.exp(rng.uniform(np.log(low), np.log(high))))
            length = low if number < 10 else high if number == 500 else length
            drawn = np.searchsorted(bounds, rng.random(length))
            text = np.concatenate([boilerplate, np.minimum(drawn, N_WORDS - 1)])
        texts.append(text)
    return texts


def hash_words(texts: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the shingles of texts as sums of numbers of their words, which two of them share by a chance of 1e-5."""
    codes = np.random.default_rng(4).integers(0, 2**64, (5, N_WORDS), np.uint64)
    return [np.unique(sum(codes[at][text[at : len(text) - 4 + at]] for at in range(5))) for text in texts]


def find_all(texts: Sequence[np.ndarray]) -> set[tuple[int, int]]:
    """Return all pairs with a Jaccard index of ``LEAST`` and more.

    Of 20,000 texts each of these shares a shingle that few hold: of the shortest ones the boilerplate alone gives an
    index of 0.72. Of 100,000, some short ones share the boilerplate and frequent words behind it: these are missing.
    """
    sets = hash_words(texts)
    holders = np.repeat(np.arange(len(sets), dtype=np.int64), [*map(len, sets)])
    hashes = np.concatenate(sets)
    order = np.argsort(hashes, kind="stable")
    hashes, holders = hashes[order], holders[order]
    near = set[tuple[int, int]]()
    ends = np.flatnonzero(np.diff(hashes)) + 1
    for few in np.split(holders, ends):
        if 1 < len(few) < 200:
            some = few.tolist()
            near.update((i, j) for at, i in enumerate(some) for j in some[at + 1 :])
    return {(i, j) for i, j in near if is_near(sets[i], sets[j])}


def is_near(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two sets have a Jaccard index of ``LEAST`` and more."""
    shared = len(np.intersect1d(one, other, assume_unique=True))
    return shared >= LEAST * (len(one) + len(other) - shared)


def measure_texts(n: int, folder: Path) -> dict[str, float]:
    numbers_of_words = make_texts(n)
    wanted = find_all(numbers_of_words)
    words = [f"word{number}" for number in range(N_WORDS)]
    texts = [" ".join([words[number] for number in text]) for text in numbers_of_words]
    start = time.perf_counter()
    run = tartan.allpairs(Sets(shingle="5w"), dict(enumerate(texts)), folder / "r.tartan", reduce=tartan.over(LEAST))
    ours = time.perf_counter() - start
    table = run.pairs().read_all()
    found = set(zip(table["i"].to_pylist(), table["j"].to_pylist(), strict=True))
    sets = hash_words(numbers_of_words)
    numbers = {
        "texts": n, "mb": sum(map(len, texts)) / 1e6, "longest_mb": max(map(len, texts)) / 1e6,
        "near_duplicates": len(wanted), "texts_a_second": n / ours,
        "recall": len(found & wanted) / len(wanted), "found_beside": len(found - wanted),
        "precision": sum(is_near(sets[i], sets[j]) for i, j in found) / len(found),
    }  # fmt: skip
    try:
        from datasketch import MinHash, MinHashLSH
    except ImportError:
        return numbers
    start = time.perf_counter()
    lsh = MinHashLSH(threshold=LEAST, num_perm=128)
    theirs = set[tuple[int, int]]()
    for number, text in enumerate(texts):
        parts = text.split()
        sketch = MinHash(num_perm=128)
        sketch.update_batch([" ".join(parts[at : at + 5]).encode() for at in range(len(parts) - 4)])
        theirs.update((other, number) for other in lsh.query(sketch))
        lsh.insert(number, sketch)
    # What is verified are its candidates, with the sets that are there: their making is not counted.
    theirs = {(i, j) for i, j in theirs if is_near(sets[i], sets[j])}
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
