"""Whole runs of vectors, from a .npy file to a result on disk, against their peers and their bounds.

All contenders of a part take turns, each in a process of its own, with all cores. Runs of Tartan and FAISS are timed
from the start of the process to its end; bounds (the bare half product in blocks of 2,500, the bare write) without
start-up. Best of ``rounds``. Memory is measured in a run of its own, as PSS over all processes less the file.

Words: ``parts=top,large,memory,dense,threshold,near,listed,screen,sparse,metrics rounds=3 scale=1``. ``scale=0.1``
takes a tenth of the items. FAISS (``faiss-cpu``) is left out where it is absent. Which kernel the BLAS of the half
product runs is printed; it is the best that the processor has where ``OPENBLAS_CORETYPE`` and
``OPENBLAS_L2_SIZE`` are not set.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_info

from benches.shared._measure import in_process, load_average, options_of, print_table, with_peak_memory
from tartan import _native
from tartan.apps.vectors import Vectors
from tartan.errors import ConfigError

CONTENDERS = str(Path(__file__).with_name("_vector_contenders.py"))
SHARE_KEPT = 1e-5
K = 10
MEMORY_BAR_BYTES = 300e6
PEAK_OF = "tartan_top"


@dataclass(frozen=True)
class Setting:
    """What all parts share."""

    folder: Path
    rounds: int
    scale: float

    def items(self, n: int, d: int) -> tuple[Path, int]:
        """Return a file of random float32 vectors, and how many there are."""
        n = max(64, round(n * self.scale))
        path = self.folder / f"items-{n}-{d}.npy"
        if not path.exists():
            np.save(path, np.random.default_rng(0).standard_normal((n, d), dtype=np.float32))
        return path, n


@dataclass(frozen=True)
class Taken:
    """Seconds of one contender: of its process from start to end, and what it says itself."""

    process: list[float]
    own: list[float]


def take_turns(setting: Setting, names: Sequence[str], items: Path, number: float) -> dict[str, Taken]:
    """Let contenders take turns, in the opposite order every other round."""
    found = {name: Taken([], []) for name in names}
    for turn in range(setting.rounds):
        for name in names[:: -1 if turn % 2 else 1]:
            out = setting.folder / f"{name}.out"
            _remove(out)
            os.sync()  # nobody pays for what the other one left to be written
            start = time.perf_counter()
            result = in_process(CONTENDERS, name, items, out, number)
            found[name].process.append(time.perf_counter() - start)
            found[name].own.append(result["seconds"])
    return found


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _verdict(ours: float, bound: float, most: float) -> list[object]:
    return [ours, bound, ours / bound, f"<= {most}"]


def top(setting: Setting) -> dict[str, Any]:
    """Keep the ten nearest of each of 50,000 x 384; then read them."""
    items, n = setting.items(50_000, 384)
    _print_blas()
    peer = ["faiss_flat"] if importlib.util.find_spec("faiss") else []
    times = take_turns(setting, ["tartan_top", "half_product", *peer], items, K)
    ours, bound = min(times["tartan_top"].process), min(times["half_product"].own)
    rows: list[list[object]] = [["to the half product (s)", *_verdict(ours, bound, 0.95)]]
    screened = _screened(setting.folder / "tartan_top.out")
    result: dict[str, Any] = {"screened": screened, "ours": ours, "half_product": bound, "all": _lists(times)}
    if peer:
        theirs = min(times["faiss_flat"].process)
        result["faiss"] = theirs
        rows.append(["FAISS flat (s); times faster", ours, theirs, theirs / ours, ">= 1.2"])
        _compare_with_faiss(setting.folder / "tartan_top.out", setting.folder / "faiss_flat.out.npz")
    reading = in_process(CONTENDERS, "tartan_neighbors", items, setting.folder / "tartan_top.out", K)["seconds"]
    result["neighbors"] = reading
    rows.append(["neighbors(10) (s)", reading, "", "", "< 0.3"])
    print_table(f"top-{K}, {n:,} x 384", rows, ("", "Tartan", "other", "ratio", "bar"))
    return result


def large(setting: Setting) -> dict[str, Any]:
    """Keep the ten nearest of each of 200,000 x 384."""
    items, n = setting.items(200_000, 384)
    _print_blas()
    times = take_turns(setting, ["tartan_top", "half_product"], items, K)
    ours, bound = min(times["tartan_top"].process), min(times["half_product"].own)
    rows: list[list[object]] = [["to the half product (s)", *_verdict(ours, bound, 0.6)]]
    print_table(f"top-{K}, {n:,} x 384", rows, ("", "Tartan", "other", "ratio", "bar"))
    screened = _screened(setting.folder / "tartan_top.out")
    return {"ours": ours, "half_product": bound, "screened": screened, "all": _lists(times)}


def _print_blas() -> None:
    names = {pool.get("architecture") for pool in threadpool_info() if pool["user_api"] == "blas"}
    print(f"BLAS runs its kernels for {', '.join(map(str, names))}")


def _screened(run: Path) -> Any:
    import tartan

    found = tartan.open(run).stats.get("screened")
    print(f"screened: {found}")
    return found


HARD = ("gaussian", "clusters", "equal", "huge", "rank 1", "far")


def screen(setting: Setting) -> dict[str, Any]:
    """Choose the ten nearest on one core with and without a screen, of easy and of hard rows, and of few values."""
    n, result, rows = max(64, round(8000 * setting.scale)), {}, []
    for metric in ("cosine", "euclidean"):
        for kind, d in [*((kind, 384) for kind in HARD), ("gaussian", 64), ("gaussian", 128), ("gaussian", 1024)]:
            prepared = Vectors(metric=metric).preprocess_block(_hard_rows(kind, n, d), np)
            times: dict[bool, list[float]] = {True: [], False: []}
            for _ in range(setting.rounds):
                for with_screen in times:
                    times[with_screen].append(_choose(prepared, d, metric, with_screen))
            ours, whole = min(times[True]), min(times[False])
            rows.append([f"{metric}, {kind}, {d}", ours, whole, ours / whole, "<= 1.1"])
            result[f"{metric} {kind} {d}"] = {"screened": ours, "unscreened": whole}
    print_table(f"top-{K} of {n:,}, one core", rows, ("", "screened", "unscreened", "ratio", "bar"))
    return result


def _hard_rows(kind: str, n: int, d: int) -> np.ndarray:
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((n, d), dtype=np.float32)
    if kind == "clusters":
        centres = rng.standard_normal((max(1, n // 100), d), dtype=np.float32)
        rows = centres[rng.integers(len(centres), size=n)] + np.float32(0.7) * rows
    elif kind == "equal":
        rows[:] = rows[0]
    elif kind == "huge":
        rows[np.arange(n), rng.integers(d, size=n)] = 1e4
    elif kind == "rank 1":
        rows = rows[:, :1] * rows[:1]
    elif kind == "far":
        rows += 100
    return rows


def _choose(rows: np.ndarray, width: int, metric: str, with_screen: bool) -> float:
    """Return the seconds of this thread."""
    n, side = len(rows), 1024
    found = _native.RunningBest(0, n, K, True)
    use = _native.Screen(n, width, 1 << 30) if with_screen else None
    start = time.thread_time()
    for top in range(0, n, side):
        for left in range(top, n, side):
            a, b = rows[top : top + side], rows[left : left + side]
            codes = np.triu(np.ones((len(a), len(b)), np.uint8), 1) if left == top else None
            found.choose_rows(a, b, codes, (top, left), False, found, metric=metric, screen=use)
    return time.thread_time() - start


def _compare_with_faiss(run: Path, found: Path) -> None:
    """Refuse to report times of results that differ."""
    import tartan

    scores = tartan.open(run).neighbors(K)[1]
    theirs = np.load(found)
    _, n = theirs["indices"].shape
    others = theirs["indices"] != np.arange(len(theirs["indices"]))[:, None]
    kept = others & (np.cumsum(others, axis=1) < n)
    worst = np.abs((1 - theirs["scores"][kept]).reshape(scores.shape) - scores).max()
    if worst > 1e-5:
        raise ValueError(f"the two do not agree: distances differ by {worst}")


def memory(setting: Setting) -> dict[str, Any]:
    """Keep the ten nearest of each of 200,000 x 128: memory beside the input."""
    items, n = setting.items(200_000, 128)
    out = setting.folder / "memory.out"
    _remove(out)
    result, peak = with_peak_memory(CONTENDERS, PEAK_OF, items, out, K)
    beside = peak - items.stat().st_size
    reading = in_process(CONTENDERS, "tartan_neighbors", items, out, K)["seconds"]
    rows = [["peak PSS beside the input (MB)", beside / 1e6, "", "", f"<= {MEMORY_BAR_BYTES / 1e6:.0f}"]]
    rows += [["seconds", result["seconds"], "", "", ""], ["neighbors(10) (s)", reading, "", "", "< 0.3"]]
    print_table(f"top-{K}, {n:,} x 128", rows, ("", "Tartan", "other", "ratio", "bar"))
    return {"beside_bytes": beside, "seconds": result["seconds"], "neighbors": reading}


def dense(setting: Setting) -> dict[str, Any]:
    """Write all distances of 24,000 x 512."""
    items, n = setting.items(24_000, 512)
    names = ["tartan_dense", "half_product", "bare_write", "scikit_learn"]
    times = take_turns(setting, names, items, 0)
    ours, product = min(times["tartan_dense"].process), min(times["half_product"].own)
    written, peer = min(times["bare_write"].own), min(times["scikit_learn"].process)
    rows: list[list[object]] = [
        ["to the larger of the two bounds (s)", *_verdict(ours, max(product, written), 1.5)],
        ["half product (s)", "", product, "", ""],
        ["bare write (s)", "", written, "", ""],
        ["scikit-learn to a memory map (s); times faster", ours, peer, peer / ours, ""],
    ]
    print_table(f"all distances, {n:,} x 512", rows, ("", "Tartan", "other", "ratio", "bar"))
    return {"ours": ours, "half_product": product, "bare_write": written, "scikit_learn": peer, "all": _lists(times)}


def threshold(setting: Setting) -> dict[str, Any]:
    """Keep the nearest 0.001 % of the pairs of 100,000 x 384."""
    items, n = setting.items(100_000, 384)
    limit = _limit(np.load(items, mmap_mode="r"))
    times = take_turns(setting, ["tartan_below", "half_product"], items, limit)
    ours, bound = min(times["tartan_below"].process), min(times["half_product"].own)
    import tartan

    kept = tartan.open(setting.folder / "tartan_below.out").pairs().read_all().num_rows
    share = kept / (n * (n - 1) / 2)
    rows: list[list[object]] = [["to the half product (s)", *_verdict(ours, bound, 1.2)]]
    print_table(f"threshold, {share:.4%} kept, {n:,} x 384", rows, ("", "Tartan", "other", "ratio", "bar"))
    return {"ours": ours, "half_product": bound, "kept": kept, "share": share, "all": _lists(times)}


def near(setting: Setting) -> dict[str, Any]:
    """Find near duplicates at a cosine of 0.9 among 100,000 x 384, whose spectrum is that of embeddings."""
    items = setting.folder / "near.npy"
    n = max(64, round(100_000 * setting.scale))
    rng = np.random.default_rng(0)
    axes = np.linalg.qr(rng.standard_normal((384, 384)))[0].astype(np.float32)
    # As of LSA of proteins' 3-mers: one axis that all rows share, then a slow fall over a decade.
    fall = np.concatenate([[6.0], np.geomspace(1.6, 0.4, 383)]).astype(np.float32)
    rows = rng.standard_normal((n, 384), dtype=np.float32) * fall * rng.gamma(2.0, 0.5, (n, 384)).astype(np.float32)
    copies = rng.choice(n, n // 100, replace=False)
    rows[copies] = rows[rng.integers(n, size=len(copies))] + 0.2 * rng.standard_normal((len(copies), 384))
    np.save(items, rows @ axes)
    times = take_turns(setting, ["tartan_below", "half_product"], items, 0.1)
    ours, bound = min(times["tartan_below"].process), min(times["half_product"].own)
    screened = _screened(setting.folder / "tartan_below.out")
    verdict: list[list[object]] = [["to the half product (s)", *_verdict(ours, bound, 0.6)]]
    print_table(f"cosine of 0.9, {n:,} x 384", verdict, ("", "Tartan", "other", "ratio", "bar"))
    return {"ours": ours, "half_product": bound, "screened": screened, "all": _lists(times)}


def listed(setting: Setting) -> dict[str, Any]:
    """Score 20 million random pairs of 200,000 x 64."""
    items, n = setting.items(200_000, 64)
    n_pairs = max(1000, round(20_000_000 * setting.scale))
    times = take_turns(setting, ["tartan_listed", "numpy_listed"], items, n_pairs)
    ours, theirs = (min(times[name].own) for name in ("tartan_listed", "numpy_listed"))
    rate = n_pairs / ours / 1e6
    rows: list[list[object]] = [
        ["to NumPy, scores to a file (s)", *_verdict(ours, theirs, 1.0)],
        ["million pairs a second", rate, n_pairs / theirs / 1e6, "", ">= 5"],
    ]
    print_table(f"{n_pairs:,} pairs of {n:,} x 64", rows, ("", "Tartan", "other", "ratio", "bar"))
    return {"ours": ours, "numpy": theirs, "million_pairs_a_second": rate, "all": _lists(times)}


def sparse(setting: Setting) -> dict[str, Any]:
    """Keep the ten nearest of each of 20,000 texts of 60 to 200 of 50,000 words, and those of them within 0.6."""
    n = max(64, round(20_000 * setting.scale))
    items, result, rows = setting.folder / f"texts-{n}.npz", {}, []
    filled = _write_texts(items, n)
    for name, number in (("tartan_top", K), ("tartan_below", 0.6)):
        times = take_turns(setting, [name, "scipy_sparse"], items, number)
        ours, bound = min(times[name].process), min(times["scipy_sparse"].own)
        rows.append([f"{name}, whole command; product of SciPy alone (s)", *_verdict(ours, bound, 1.0)])
        result[name] = {"ours": ours, "scipy": bound, "all": _lists(times)}
    print_table(f"{n:,} texts, {filled:.0f} words each", rows, ("", "Tartan", "other", "ratio", "bar"))
    return result | {"words": filled}


def _write_texts(path: Path, n: int, n_words: int = 50_000) -> float:
    """Write rows of weights of words, as many of each word as Zipf says; return how many words a row has."""
    from scipy.sparse import csr_array, save_npz

    rng = np.random.default_rng(0)
    chance = 1 / np.arange(1, n_words + 1)
    lengths = rng.integers(80, 320, n)  # of which 60 to 200 differ
    words = rng.permutation(n_words)[rng.choice(n_words, lengths.sum(), p=chance / chance.sum())]
    counts = csr_array((np.ones(len(words), np.float32), (np.repeat(np.arange(n), lengths), words)), (n, n_words))
    counts.sum_duplicates()
    texts_with = np.bincount(counts.indices, minlength=n_words)
    counts.data = ((1 + np.log(counts.data)) * np.log(1 + n / texts_with[counts.indices])).astype(np.float32)
    save_npz(path, counts)
    return counts.nnz / n


def _limit(x: np.ndarray) -> float:
    """Return the distance below which about the wanted share of pairs lies, from a sample of them."""
    sample = np.array(x[:: max(1, len(x) // 4000)][:4000], np.float64)
    sample /= np.linalg.norm(sample, axis=1, keepdims=True)
    distances = 1 - (sample @ sample.T)[np.triu_indices(len(sample), 1)]
    return float(np.quantile(distances, SHARE_KEPT))


def metrics(_setting: Setting) -> dict[str, Any]:
    """Compare the tile of every metric with SciPy and scikit-learn, on one core."""
    from benches.apps import vectors_kernels

    return vectors_kernels.main()


PARTS = {call.__name__: call for call in (top, large, memory, dense, threshold, near, listed, screen, sparse, metrics)}


def _lists(times: Mapping[str, Taken]) -> dict[str, Any]:
    medians = {name: statistics.median(taken.process) for name, taken in times.items()}
    return {"process": {name: taken.process for name, taken in times.items()}, "median_process": medians}


def main(words: list[str]) -> dict[str, Any]:
    """Measure, print a table a part, return the numbers."""
    options = options_of(words, parts=",".join(PARTS), rounds=3, scale=1.0)
    chosen = options.parts.split(",")
    unknown = [name for name in chosen if name not in PARTS]
    if unknown:
        raise ConfigError(f"parts={options.parts}: there is no part {unknown[0]!r}, only {', '.join(PARTS)}")
    with tempfile.TemporaryDirectory(dir=".", prefix=".bench-") as name:
        setting = Setting(Path(name).resolve(), options.rounds, options.scale)
        return {part: PARTS[part](setting) for part in chosen} | {"load": load_average()}


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
