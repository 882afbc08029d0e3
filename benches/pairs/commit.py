"""Cost of committing a chunk against a bare write of the same bytes, in one run.

The bare write is what nobody can do without: create a file, write 4 MB, close it. The commit adds the checksum,
the temporary name and its rename, and the status chunk. Both take turns, so that the disk treats them alike.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tartan.core.pairs.ledger import DONE
from tartan.store.folder import RunFolder
from tartan.store.manifest import Manifest

SIDE = 1024  # 4 MiB of float32
ROUNDS = 60
LIMIT = 2.0


def bare_write(path: Path, data: np.ndarray) -> None:
    """Write bytes to a new file."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        os.write(descriptor, memoryview(data).cast("B"))
    finally:
        os.close(descriptor)


def seconds(call: Callable[[], None]) -> float:
    """Return how long a call takes."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def measure(folder: Path, rounds: int = ROUNDS) -> dict[str, float]:
    """Return the median milliseconds of both and their ratio."""
    n_items = (rounds + 2) * SIDE
    application = {"name": "bench", "outputs": {"scores": "float32"}, "symmetric": True, "diagonal": False}
    run = RunFolder.create(
        folder / "run", Manifest(application, {"kind": "all"}, n_items=n_items, grid={"chunk": SIDE})
    )
    scores = np.random.default_rng(0).random((SIDE, SIDE), dtype=np.float32)
    status = np.full((SIDE, SIDE), DONE, np.uint8)
    bare, commit = [], []
    with run.lock():
        for number in range(rounds):
            bare.append(seconds(lambda: bare_write(folder / f"bare-{number}", scores)))  # noqa: B023
            commit.append(seconds(lambda: run.commit(0, number + 1, {"scores": scores}, status)))  # noqa: B023
            if number % 20 == 19:
                run.flush()  # write-back at set moments, not in the middle of either
    bare_ms, commit_ms = (1000 * statistics.median(times) for times in (bare, commit))
    return {"bare_write_ms": bare_ms, "commit_ms": commit_ms, "ratio": commit_ms / bare_ms, "limit": LIMIT}


def main() -> dict[str, float]:
    """Print the measurement and return it."""
    with tempfile.TemporaryDirectory() as folder:
        result = measure(Path(folder))
    print(
        f"commit of a 4 MiB chunk with its status: {result['commit_ms']:.2f} ms, bare write "
        f"{result['bare_write_ms']:.2f} ms, ratio {result['ratio']:.2f} (limit {LIMIT})"
    )
    return result


if __name__ == "__main__":
    main()
