"""A small run of every kind, and runs whose items have changed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

import tartan

N = 11
POINTS = np.random.default_rng(5).normal(size=(N, 3))
KEYS = [f"item{i:02}" for i in range(N)]


class _Quick(tartan.Application):
    releases_gil = True  # threads, which begin sooner than processes


class Sums(_Quick):
    outputs: ClassVar = {"scores": "float64", "count": "int32"}

    def compare_pair(self, a: Any, b: Any) -> Any:
        if abs(a[0] - POINTS[4, 0]) < 1e-9 and b[0] > 0:
            raise ValueError("it does not like that one")
        return {"scores": float(np.abs(a - b).sum()), "count": int(1000 * np.abs(a - b).max())}


class OneWay(_Quick):
    symmetric = False
    outputs: ClassVar = {"scores": "float32"}

    def compare_pair(self, a: Any, b: Any) -> Any:
        return float((a - 2 * b).sum())


class Itself(_Quick):
    diagonal = True
    outputs: ClassVar = {"wave": "complex64"}

    def compare_pair(self, a: Any, b: Any) -> Any:
        return complex(np.abs(a - b).sum(), a[0] * b[0])


class Directed(_Quick):
    outputs: ClassVar = {"distance": "float32", "part": "float32"}
    directed = ("part",)

    def compare_pair(self, a: Any, b: Any) -> Any:
        return {"distance": float(np.abs(a - b).sum()), "part": float((a - b).sum())}

    def reverse(self, scores: Any) -> Any:
        return {"part": -scores["part"]}


class Triple(_Quick):
    def compare_triple(self, a: Any, b: Any, c: Any) -> float:
        if a[0] == POINTS[1, 0] and c[0] == POINTS[7, 0]:
            raise ValueError("it does not like these")
        return float((a * b * c).sum())


class Lengths(_Quick):
    """Files that hold a number; groups of them hold its sum."""

    outputs: ClassVar = {"scores": "float64"}
    item_suffixes = (".txt",)

    def parse(self, key: str, data: bytes) -> Any:
        return int(data)

    def group(self, key: str, files: Any) -> Any:
        return sum(int(data) for _, data in files)

    def compare_pair(self, a: Any, b: Any) -> float:
        return float(abs(a - b))


def threshold(limit: float) -> dict[str, Any]:
    """Return the rule of a run that keeps small scores."""
    return {"kind": "threshold", "threshold": limit, "largest": False}


def pairs(app: Any, path: Path, **options: Any) -> Any:
    """Compute a run of points."""
    return tartan.allpairs(app, POINTS, out=path, **{"keys": KEYS, "tile": 4, "workers": 1, "quiet": True} | options)


def of_files(path: Path, **options: Any) -> Any:
    """Compute a run of files beside it, one of which is broken."""
    folder = path.parent / "in"
    folder.mkdir()
    for item in range(8):
        file = folder / f"f{item}.txt"
        file.write_text("broken" if item == 5 else str(item * item))
        os.utime(file, (1_700_000_000, 1_700_000_000))
    return tartan.allpairs(Lengths(), str(folder / "*.txt"), out=path, tile=3, workers=1, quiet=True, **options)


def grouped(path: Path) -> Any:
    """Compute a run of folders of files."""
    for item in range(8):
        file = path.parent / "in" / f"group{item % 3}" / f"f{item}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(str(item * item))
    return tartan.allpairs(Lengths(), [f"{path.parent}/in/*"], out=path, group="folders", workers=1, quiet=True)


def live(path: Path, **options: Any) -> Any:
    """Compute a run of files, remove, rename, replace and add."""
    of_files(path, **options)
    new = path.parent / "in" / "new.txt"
    new.write_text("1000")
    tartan.remove(path, ["f1.txt", "f2.txt"])
    tartan.rename(path, "f3.txt", "three")
    tartan.replace(path, "f4.txt", str(new), app=Lengths(), workers=1, quiet=True)
    late = path.parent / "in" / "late.txt"
    late.write_text("2")
    return tartan.add(path, [str(late)], app=Lengths(), workers=1, quiet=True)


def expired(path: Path) -> Any:
    """Compute a run that lived, and erase what is gone."""
    live(path)
    tartan.expire(path, now=True)
    return tartan.rename(path, "three", "drei")


def grown(path: Path, **options: Any) -> Any:
    """Compute a run of files and add to it."""
    of_files(path, **options)
    late = path.parent / "in" / "late.txt"
    late.write_text("3")
    return tartan.add(path, [str(late)], app=Lengths(), workers=1, quiet=True)


def unfinished(path: Path) -> Any:
    """Compute a run and lose one chunk of its ledger."""
    run = pairs(Sums(), path, reduce=threshold(3))
    (path / "status.zarr" / "c" / "0" / "1").unlink()
    (path / "result.parquet").unlink()
    return tartan.open(run.path)


LISTED = np.array([(i, j) for i in range(N) for j in range(i + 1, N) if (i * j + i) % 3 != 1])
TOP = {"kind": "top-k", "k": 2, "largest": False}
KINDS: dict[str, Callable[[Path], Any]] = {
    "matrix": lambda path: pairs(Sums(), path),
    "rows without names": lambda path: pairs(Sums(), path, keys=None),
    "one way": lambda path: pairs(OneWay(), path),
    "with itself": lambda path: pairs(Itself(), path),
    "directed": lambda path: pairs(Directed(), path),
    "list of pairs": lambda path: pairs(Sums(), path, pairs=LISTED),
    "top-k": lambda path: pairs(Sums(), path, reduce=TOP),
    "top-k, one way": lambda path: pairs(OneWay(), path, reduce=TOP | {"largest": True}),
    "threshold": lambda path: pairs(Sums(), path, reduce=threshold(3)),
    "threshold, one way": lambda path: pairs(OneWay(), path, reduce=threshold(-1)),
    "unfinished": unfinished,
    "two sets": lambda path: pairs(Sums(), path, against=POINTS[:4] + 0.5, keys=None),
    "two sets, top-k": lambda path: pairs(Sums(), path, against=POINTS[:4] + 0.5, keys=None, reduce=TOP),
    "files": of_files,
    "groups": grouped,
    "triples": lambda path: tartan.alltuples(Triple(), POINTS, path, keep=tartan.top(2), workers=1, quiet=True),
    "triples beyond": lambda path: tartan.alltuples(Triple(), POINTS, path, keep=tartan.over(1), workers=1, quiet=True),
}
LIVING: dict[str, Callable[[Path], Any]] = {
    "grown": grown,
    "grown top-k": lambda path: grown(path, reduce=TOP),
    "lived": live,
    "lived threshold": lambda path: live(path, reduce=threshold(20)),
    "expired": expired,
}
