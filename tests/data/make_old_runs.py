"""Write old_runs.tar.xz: run folders of the version that runs this script, with their inputs.

Usage: ``python make_old_runs.py FOLDER``, where FOLDER is empty. Inputs are named relative to it. Times of change
are whole seconds, which archives keep.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
BEGUN = 1_700_000_000
SUMS = "sums.py:Sums"


def write_inputs(folder: Path) -> None:
    """Write items of three bytes each, rows, and a list of pairs."""
    rng = np.random.default_rng(5)
    for name, count in (("old", 14), ("new", 3), ("other", 5)):
        (folder / name).mkdir()
        for index in range(count):
            (folder / name / f"{name}{index:02d}.bin").write_bytes(bytes(rng.integers(0, 100, 3).tolist()))
    np.save(folder / "rows.npy", rng.integers(0, 50, (16, 3)).astype(np.float32))
    np.save(folder / "more.npy", rng.integers(0, 50, (4, 3)).astype(np.float32))
    (folder / "pairs.csv").write_text("i,j\n0,3\n3,5\n2,13\n7,8\n")
    (folder / "sums.py").write_bytes((HERE / "sums.py").read_bytes())
    for path in folder.rglob("*"):
        if path.is_file():
            os.utime(path, (BEGUN, BEGUN))


def tartan(folder: Path, *words: str, die_at: float | None = None) -> None:
    """Run one command in the folder."""
    environment = dict(os.environ) | ({} if die_at is None else {"DIE_AT": str(die_at)})
    done = subprocess.run([sys.executable, "-m", "tartan", *words, "--quiet"], cwd=folder, env=environment, check=False)
    assert done.returncode == (0 if die_at is None else -9), words


def main(folder: Path) -> None:
    """Make the runs and pack them."""
    write_inputs(folder)
    few = ["--workers", "1", "--tile", "4"]
    tartan(folder, "run", "vectors", "rows.npy", "-o", "vectors", "--set", "metric=euclidean", *few)
    tartan(folder, "run", SUMS, "old/*.bin", "-o", "file", *few)
    tartan(folder, "run", SUMS, "old/*.bin", "-o", "top-k", "--top-k", "3", *few)
    tartan(folder, "run", SUMS, "old/*.bin", "-o", "threshold", "--threshold", "250", *few)
    tartan(folder, "run", SUMS, "old/*.bin", "--against", "other/*.bin", "-o", "rectangle", *few)
    tartan(folder, "run", SUMS, "old/*.bin", "--pairs", "pairs.csv", "-o", "candidates", *few)
    tartan(folder, "run", "sums.py:Distances", "old/*.bin", "-o", "map", *few)
    tartan(folder, "embed", "map", "--dim", "1", "--method", "smacof", "-o", "picture")
    items = [sum(path.read_bytes()) for path in sorted((folder / "old").iterdir())]
    # Among the last tiles: chunks before it are committed.
    tartan(folder, "run", SUMS, "old/*.bin", "-o", "unfinished", *few, die_at=items[9] + items[13])
    for picture in folder.glob("picture.*"):
        picture.unlink()
    with tarfile.open(HERE / "old_runs.tar.xz", "w:xz") as archive:
        archive.add(folder, ".", filter=lambda info: None if "__pycache__" in info.name else info)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
