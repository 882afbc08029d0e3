"""Tanimoto of packed fingerprints: pairs within a threshold and the nearest, against all pairs and other programs.

All contenders run in this process, on all cores, taking turns; the order turns round. What computes all pairs gets
fewer rows, and all are told in pairs a second. Rows are drawn with the densities of Morgan fingerprints (a mean of some
40 of 2,048 bits, skewed, families of molecules), or come from ``file=FILE``, packed rows in a .npy file; FPSim2, which
makes its own, takes part where ``smiles=FILE`` has their molecules.

- ``threshold``: ``tartan.allpairs`` from the array to the result on disk, Tanimoto of 0.7 and above;
- ``unscreened``: the same where every pair is scored;
- ``top``: the ten nearest of each row;
- ``tile``: the kernel that scores all pairs of a tile, alone;
- numkong, SimSIMD, RDKit and FPSim2, where they are installed: distances of all pairs, in memory (FPSim2: pairs within
  the threshold, from a file that it has sorted).
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

import tartan
from benches.shared._measure import cores, not_held, options_of, print_table
from tartan import _native
from tartan.apps.vectors import Vectors
from tartan.apps.vectors.metrics import prepare_packed
from tartan.store.keeper import Keeper

BITS = 2048
TILE = 2048
NEAR = 0.3
LEAST_OVER_UNSCREENED = 2.5
LEAST_OVER_PEERS = 1.0


def make_fingerprints(n: int, seed: int = 1) -> np.ndarray:
    """Return packed rows (n, 256): families of ten around a molecule, 5 to 110 bits each, some bits in most of them."""
    rng = np.random.default_rng(seed)
    often = 1 / (np.arange(BITS) + 6.0)
    often *= 45 / often.sum()
    often = np.minimum(often, 0.8)[rng.permutation(BITS)]
    rows = np.empty((n, BITS // 8), np.uint8)
    for start in range(0, n, 10):
        core = rng.random(BITS) < often * rng.lognormal(0, 0.4)
        family = np.broadcast_to(core, (min(10, n - start), BITS))
        changed = rng.random(family.shape) < rng.uniform(0.02, 0.4)
        drawn = rng.random(family.shape) < often
        rows[start : start + len(family)] = np.packbits(np.where(changed, drawn, family), axis=1)
    return rows[rng.permutation(n)]


@dataclass
class Contender:
    """One that takes turns: what it does, how many pairs that are, and its times."""

    call: Callable[[], object]
    n_pairs: float
    times: list[float]

    @property
    def rate(self) -> float:
        """Million pairs a second, at best."""
        return self.n_pairs / min(self.times) / 1e6


def run_pairs(rows: np.ndarray, rule: dict[str, Any], folder: Path, *, screened: bool) -> Any:
    """Run all pairs of packed rows to a result on disk; where not ``screened``, score every pair."""
    whole = Keeper.__init__
    app = Vectors(metric="jaccard", bits="packed")
    out = Path(tempfile.mkdtemp(dir=folder)) / "run"
    if screened:
        return tartan.allpairs(app, rows, out, reduce=rule, workers=cores(), quiet=True)
    Keeper.__init__ = lambda *args, **named: whole(*args, **named, trust=None)  # type: ignore[method-assign]
    try:
        return tartan.allpairs(app, rows, out, reduce=rule, workers=cores(), quiet=True)
    finally:
        Keeper.__init__ = whole  # type: ignore[method-assign]


def score_tiles(rows: np.ndarray) -> None:
    """Score all pairs of rows (both ways) by the kernel of tiles, on all cores."""
    prepared = prepare_packed(rows, "jaccard", np)
    starts = range(0, len(rows), TILE)

    def band(start: int) -> None:
        left = prepared[start : start + TILE]
        for other in starts:
            right = prepared[other : other + TILE]
            _native.jaccard_bits_tile(left, right, np.empty((len(left), len(right)), np.float32))

    with ThreadPoolExecutor(cores()) as pool:
        list(pool.map(band, starts))


def find_peers(rows: np.ndarray, folder: Path, smiles: str) -> dict[str, tuple[Callable[[], object], float]]:
    """Return the calls of other programs that are installed here, and how many pairs each scores."""
    n = len(rows)
    found: dict[str, tuple[Callable[[], object], float]] = {}
    try:
        import numkong
    except ImportError:
        pass
    else:
        packed = numkong.hammings_pack(rows, dtype="uint1")
        cuts = [int(at) for at in np.linspace(0, n, cores() + 1)]

        def score_packed() -> None:
            # Each thread has rows and memory of its own.
            with ThreadPoolExecutor(cores()) as pool:
                parts = [rows[a:b] for a, b in pairwise(cuts)]
                list(pool.map(lambda part: numkong.jaccards_packed(part, packed), parts))

        found["numkong, packed"] = score_packed, n * n
    try:
        import simsimd
    except ImportError:
        pass
    else:
        call = partial(simsimd.cdist, rows, rows, "jaccard", dtype="bin8", out_dtype="f32", threads=cores())
        found["SimSIMD, cdist"] = call, n * n
    try:
        from rdkit import DataStructs
    except ImportError:
        return found
    vectors = [DataStructs.CreateFromFPSText(row.tobytes().hex()) for row in rows]
    few = vectors[: max(1, n // 10)]

    def score_bulk() -> None:
        for one in few:
            DataStructs.BulkTanimotoSimilarity(one, vectors)

    found["RDKit, bulk, one core"] = score_bulk, len(few) * n
    try:
        from FPSim2 import FPSim2Engine
        from FPSim2.io import create_db_file
    except ImportError:
        return found
    if smiles:  # FPSim2 makes its fingerprints itself
        lines = Path(smiles).read_text().split("\n")[:n]
        molecules = [[line.split()[0], at] for at, line in enumerate(lines) if line]
        name = str(folder / "fpsim2.h5")
        create_db_file(molecules, name, "smiles", "Morgan", {"radius": 2, "fpSize": BITS})
        engine = FPSim2Engine(name)
        near = partial(engine.symmetric_distance_matrix, 1 - NEAR, "tanimoto", cores())
        found["FPSim2, symmetric, at 0.7"] = near, len(molecules) * (len(molecules) - 1) / 2
    return found


def main(words: list[str]) -> dict[str, Any]:
    """Measure, print a table, return the numbers; say what missed its bar."""
    options = options_of(words, n=100_000, peers=16_000, rounds=3, file="", smiles="")
    rows = np.load(options.file) if options.file else make_fingerprints(options.n)
    rows, few = rows[: options.n], rows[: min(options.peers, len(rows))]
    n, m = len(rows), len(few)
    near: dict[str, Any] = {"kind": "threshold", "threshold": NEAR}
    with tempfile.TemporaryDirectory(dir=".", prefix=".bench-") as name:
        folder = Path(name).resolve()
        calls: dict[str, tuple[Callable[[], object], float]] = {
            "threshold": (lambda: run_pairs(rows, near, folder, screened=True), n * (n - 1) / 2),
            "unscreened": (lambda: run_pairs(few, near, folder, screened=False), m * (m - 1) / 2),
            "top": (lambda: run_pairs(rows, {"kind": "top-k", "k": 10}, folder, screened=True), n * (n - 1) / 2),
            "tile": (lambda: score_tiles(few), m * m),
            **find_peers(few, folder, options.smiles),
        }
        contenders = {which: Contender(call, n_pairs, []) for which, (call, n_pairs) in calls.items()}
        check_alike(few, near, folder)
        screened = calls["threshold"][0]().stats["screened"]  # type: ignore[attr-defined]
        for number in range(options.rounds):
            for contender in list(contenders.values())[:: -1 if number % 2 else 1]:
                start = time.perf_counter()
                contender.call()
                contender.times.append(time.perf_counter() - start)
    rates = {which: contender.rate for which, contender in contenders.items()}
    peers = {which: rate for which, rate in rates.items() if which not in ("threshold", "unscreened", "top", "tile")}
    ones = np.bitwise_count(rows).sum(axis=1, dtype=np.int64)
    table = [[which, rate, rates["threshold"] / rate] for which, rate in rates.items()]
    title = (
        f"{n:,} x {rows.shape[1] * 8} bits, {ones.mean():.0f} set on average; kernel {_native.BitScreen.levels()[-1]}"
    )
    print_table(title, table, ["", "million pairs/s", "threshold to it"])
    print(f"  of the pairs within a threshold: {screened}")
    failed = []
    if rates["threshold"] < LEAST_OVER_UNSCREENED * rates["unscreened"]:
        failed.append(f"threshold: {rates['threshold'] / rates['unscreened']:.2f} x unscreened")
    failed += [f"threshold: below {which}" for which, rate in peers.items() if rates["threshold"] < rate]
    not_held(failed)
    return {"rates": rates, "screened": screened, "failed": failed}


def check_alike(rows: np.ndarray, rule: dict[str, Any], folder: Path) -> None:
    """Refuse to time what gives other pairs, or another bit."""
    order = [("i", "ascending"), ("j", "ascending")]
    runs = [run_pairs(rows, rule, folder, screened=how) for how in (True, False)]
    tables = [run.pairs().read_all().sort_by(order) for run in runs]
    assert tables[0].equals(tables[1]), "screened and unscreened pairs differ"


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
