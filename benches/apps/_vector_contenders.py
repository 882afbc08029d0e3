"""What takes part in ``vectors.py``, each in a process of its own: peers, bounds, and Tartan itself.

    python _vector_contenders.py NAME ITEMS OUT NUMBER

prints one JSON object. NUMBER is k, a threshold, or 0. Contenders that are compared with start-up included are timed by
the parent; ``seconds`` is what a bound takes alone, after imports and reading.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

BLOCK = 2500
SPARSE_BLOCK = 500
WRITE_BYTES = 16 << 20
LISTED_STEP = 1 << 16


def half_product(items: Path, _out: Path, _number: float) -> dict[str, float]:
    """Multiply every block of unit vectors with itself and those behind it; nothing is done with the products."""
    x = _unit(np.load(items))
    place = np.empty((BLOCK, BLOCK), np.float32)
    np.matmul(x[:BLOCK], x[:BLOCK].T, out=place[: len(x), : len(x)])  # threads start, memory is touched
    start = time.perf_counter()
    for i in range(0, len(x), BLOCK):
        left = x[i : i + BLOCK]
        for j in range(i, len(x), BLOCK):
            right = x[j : j + BLOCK]
            np.matmul(left, right.T, out=place[: len(left), : len(right)])
    return {"seconds": time.perf_counter() - start}


def bare_write(items: Path, out: Path, _number: float) -> dict[str, float]:
    """Write as many bytes as the upper triangle of the matrix takes, and force them to the disk."""
    n = len(np.load(items, mmap_mode="r"))
    piece = np.random.default_rng(0).integers(0, 255, WRITE_BYTES, np.uint8)
    start = time.perf_counter()
    with out.open("wb", buffering=0) as file:
        for _ in range(-(-n * (n - 1) * 2 // WRITE_BYTES)):
            file.write(piece)
        os.fsync(file.fileno())
    return {"seconds": time.perf_counter() - start}


def faiss_flat(items: Path, out: Path, number: float) -> dict[str, float]:
    """Search the k nearest of every item with FAISS, exactly: ``IndexFlatIP`` over unit vectors."""
    import faiss

    x = np.load(items)
    faiss.normalize_L2(x)
    start = time.perf_counter()
    index = faiss.IndexFlatIP(x.shape[1])
    index.add(x)
    scores, indices = index.search(x, int(number) + 1)  # every item finds itself too
    np.savez(out, scores=scores, indices=indices)
    return {"seconds": time.perf_counter() - start}


def scikit_learn(items: Path, out: Path, _number: float) -> dict[str, float]:
    """Write the whole square of distances to a memory map, since it has no other way."""
    from sklearn.metrics import pairwise_distances_chunked

    x = np.load(items, mmap_mode="r")
    start = time.perf_counter()
    result = np.lib.format.open_memmap(out, mode="w+", dtype=np.float32, shape=(len(x), len(x)))
    row = 0
    for block in pairwise_distances_chunked(x, metric="cosine"):
        result[row : row + len(block)] = block
        row += len(block)
    result.flush()
    return {"seconds": time.perf_counter() - start}


def scipy_sparse(items: Path, _out: Path, _number: float) -> dict[str, float]:
    """Multiply blocks of sparse unit rows with themselves and those behind them, a thread a core; drop the products."""
    from concurrent.futures import ThreadPoolExecutor

    from scipy.sparse import diags_array, load_npz
    from scipy.sparse.linalg import norm

    x = load_npz(items)
    x = (diags_array(1 / norm(x, axis=1), dtype=x.dtype) @ x).tocsr()
    start = time.perf_counter()
    turned = x.T.tocsc()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda i: (x[i : i + SPARSE_BLOCK] @ turned[:, i:]).nnz, range(0, x.shape[0], SPARSE_BLOCK)))
    return {"seconds": time.perf_counter() - start}


def tartan_top(items: Path, out: Path, number: float) -> dict[str, float]:
    """Run ``tartan run vectors ITEMS -o OUT --top-k K``."""
    return _tartan(items, out, "--top-k", str(int(number)))


def tartan_below(items: Path, out: Path, number: float) -> dict[str, float]:
    """Run ``tartan run vectors ITEMS -o OUT --threshold T``."""
    return _tartan(items, out, "--threshold", repr(number))


def tartan_dense(items: Path, out: Path, _number: float) -> dict[str, float]:
    """Run ``tartan run vectors ITEMS -o OUT``."""
    return _tartan(items, out)


def numpy_listed(items: Path, out: Path, number: float) -> dict[str, float]:
    """Score listed pairs with NumPy: unit vectors, two fancy indexes, one einsum; and write the scores."""
    x, pairs = np.load(items), np.load(listed_file(items, number))
    start = time.perf_counter()
    unit, scores = _unit(x), np.empty(len(pairs), np.float32)
    for first in range(0, len(pairs), LISTED_STEP):
        i, j = pairs[first : first + LISTED_STEP].T
        scores[first : first + LISTED_STEP] = 1 - np.einsum("ij,ij->i", unit[i], unit[j])
    with out.open("wb") as file:
        np.save(file, scores)
    return {"seconds": time.perf_counter() - start}


def tartan_listed(items: Path, out: Path, number: float) -> dict[str, float]:
    """Run ``tartan run vectors ITEMS --pairs FILE -o OUT``; return what its execution took."""
    import tartan

    _tartan(items, out, "--pairs", str(listed_file(items, number)))
    return {"seconds": tartan.open(out).folder.stats["wall_seconds"]}


def listed_file(items: Path, number: float) -> Path:
    """Return a file of so many random pairs of items, beside these."""
    path = items.with_name(f"{items.stem}-pairs-{int(number)}.npy")
    if not path.exists():
        n = len(np.load(items, mmap_mode="r"))
        np.save(path, np.random.default_rng(1).integers(0, n, (int(number), 2)))
    return path


def tartan_neighbors(_items: Path, out: Path, number: float) -> dict[str, float]:
    """Time ``neighbors(k)`` of a finished run, and add up what it returns."""
    import tartan

    run = tartan.open(out)
    start = time.perf_counter()
    indices, scores = run.neighbors(int(number))
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "sum": float(scores.sum(dtype=np.float64)), "first": int(indices[0, 0])}


def _tartan(items: Path, out: Path, *options: str) -> dict[str, float]:
    from tartan.cli.main import main

    start = time.perf_counter()
    status = main(["run", "vectors", str(items), "-o", str(out), "--quiet", *options])
    if status:
        raise SystemExit(status)
    return {"seconds": time.perf_counter() - start}


def _unit(x: np.ndarray) -> np.ndarray:
    unit: np.ndarray = x / np.linalg.norm(x, axis=1, keepdims=True)
    return unit


CONTENDERS: dict[str, Callable[[Path, Path, float], dict[str, float]]] = {
    call.__name__: call
    for call in (
        half_product, bare_write, faiss_flat, scikit_learn, tartan_top, tartan_below, tartan_dense, tartan_neighbors,
        numpy_listed, tartan_listed, scipy_sparse,
    )
}  # fmt: skip


if __name__ == "__main__":
    _name, _items, _out, _number = sys.argv[1:]
    print(json.dumps(CONTENDERS[_name](Path(_items), Path(_out), float(_number))))
