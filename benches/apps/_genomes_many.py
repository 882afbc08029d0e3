"""Tens of thousands of sketches to the pairs above an ANI, killed on the way, resumed, compared with a whole run."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

import tartan
from benches.shared import _memory
from tartan.apps.genomes.signatures import max_hash, write_signatures

FAMILY = 10
SMALLEST, LARGEST = 50, 10**6
#: Of a sketch at most so much is what occurs everywhere, and in a tenth of all: with more of it every two of them
#: would be above an ANI of 0.9, at which one hash of 26 is shared.
COMMON_SHARE, WIDESPREAD_SHARE = 1 / 50, 1 / 80
K, SCALED = 31, 1000
ANI = 0.9
N_COMMON, N_WIDESPREAD, N_EQUAL = 200, 2000, 500


def draw_families(n: int, seed: int = 7) -> Iterator[list[np.ndarray]]:
    """Yield sketches in families; the last ones are equal.

    Most have 200 to 18,000 hashes, of a thousand families two have 10^5 to 10^6. Two of a family share what an ANI of
    0.92 to 0.995 leaves.
    """
    rng = np.random.default_rng(seed)

    def fresh(size: int) -> np.ndarray:
        return rng.integers(0, max_hash(SCALED), size, np.uint64)

    common, widespread = fresh(N_COMMON), fresh(N_WIDESPREAD)
    n_equal = min(N_EQUAL, n // 10)
    for number in range((n - n_equal) // FAMILY):
        sizes = {0: LARGEST, 1: 10 ** rng.uniform(5, 6), 2: SMALLEST}
        size = int(sizes.get(number % 1000, np.clip(rng.lognormal(np.log(1800), 1), SMALLEST, 10**5)))
        kept = rng.uniform(0.92, 0.995) ** (K / 2)
        ancestor, members = fresh(size), []
        for _ in range(FAMILY):
            own = ancestor[rng.random(size) < kept]
            parts = [
                own,
                fresh(size - own.size),
                common[: int(size * COMMON_SHARE)],
                rng.choice(widespread, min(N_WIDESPREAD // 10, int(size * WIDESPREAD_SHARE)), replace=False),
            ]
            members.append(np.unique(np.concatenate(parts)))
        yield members
    yield [np.unique(fresh(2000))] * n_equal


def write_items(folder: Path, n: int) -> dict[str, float]:
    """Write a signature for each; return what they hold."""
    folder.mkdir(parents=True)
    number, n_hashes, sizes = 0, 0, [LARGEST, 0]
    for family in draw_families(n):
        for sketch in family:
            path = folder / f"g{number:06}.sig"
            path.write_bytes(write_signatures([(path.stem, sketch)], K, SCALED))
            number, n_hashes = number + 1, n_hashes + sketch.size
            sizes = [min(sizes[0], sketch.size), max(sizes[1], sketch.size)]
    return {"items": number, "hashes": n_hashes, "fewest": sizes[0], "most": sizes[1]}


def run(folder: Path, out: Path, *, kill_after: Sequence[float] = (), host_cache: str = "2GB") -> dict[str, float]:
    """Run to the end, killed after so many seconds each; return seconds, and the most memory of all its processes."""
    words = [sys.executable, "-m", "tartan", "run", "genomes", str(folder), "-o", str(out), "--threshold", str(ANI),
             "--keep-all", "--host-cache", host_cache, "--quiet"]  # fmt: skip
    seconds, peak, before = 0.0, 0, resource.getrusage(resource.RUSAGE_CHILDREN)
    for after in (*kill_after, None):
        start = time.monotonic()
        process = subprocess.Popen(words, start_new_session=True)
        watch = subprocess.Popen(
            [sys.executable, _memory.__file__, str(process.pid)], stdout=subprocess.PIPE, text=True
        )
        try:
            process.wait(after)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        seconds += time.monotonic() - start
        peak = max(peak, int(watch.communicate()[0]))
        if process.returncode == 0:
            break
    if process.returncode != 0:
        raise SystemExit(f"a run of sketches ended with status {process.returncode}")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    processors = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": seconds, "processor_seconds": processors, "gigabytes": peak / 1e9}


def pairs_of(out: Path) -> np.ndarray:
    """Return i, j and the bits of ANI of all pairs that are kept, in the order of i, then j."""
    found = tartan.open(out).pairs("ani").read_all()
    ani = found["score"].to_numpy().astype(np.float32).view(np.int32)
    table = np.stack([found[name].to_numpy() for name in ("i", "j")] + [ani])
    return table[:, np.lexsort(table[1::-1])]


def measure_many(folder: Path, n: int) -> dict[str, float]:
    """Measure a whole run, and one that is killed a quarter and a half of the time of the first after its start."""
    items, whole, killed = folder / "items", folder / "whole.tartan", folder / "killed.tartan"
    found = write_items(items, n) | run(items, whole)
    again = run(items, killed, kill_after=[found["seconds"] / 4, found["seconds"] / 2])
    expected = pairs_of(whole)
    same = np.array_equal(expected, pairs_of(killed))
    return found | {"pairs": expected.shape[1], "killed_gigabytes": again["gigabytes"], "killed_identical": float(same)}
