"""The reader of the specification against Tartan, on every kind of run folder, and on those of earlier versions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import tartan

from .plain import READER, refuse_other_answers

pytestmark = pytest.mark.slow
N = 11
POINTS = np.random.default_rng(5).normal(size=(N, 3))
KEYS = [f"item{i:02}" for i in range(N)]


class Sums(tartan.Application):
    outputs: ClassVar = {"scores": "float64", "count": "int32"}

    def compare_pair(self, a: Any, b: Any) -> Any:
        if abs(a[0] - POINTS[4, 0]) < 1e-9 and b[0] > 0:
            raise ValueError("it does not like that one")
        return {"scores": float(np.abs(a - b).sum()), "count": int(1000 * np.abs(a - b).max())}


class OneWay(tartan.Application):
    symmetric = False
    outputs: ClassVar = {"scores": "float32"}

    def compare_pair(self, a: Any, b: Any) -> Any:
        return float((a - 2 * b).sum())


class Itself(tartan.Application):
    diagonal = True
    outputs: ClassVar = {"wave": "complex64"}

    def compare_pair(self, a: Any, b: Any) -> Any:
        return complex(np.abs(a - b).sum(), a[0] * b[0])


class Directed(tartan.Application):
    outputs: ClassVar = {"distance": "float32", "part": "float32"}
    directed = ("part",)

    def compare_pair(self, a: Any, b: Any) -> Any:
        return {"distance": float(np.abs(a - b).sum()), "part": float((a - b).sum())}

    def reverse(self, scores: Any) -> Any:
        return {"part": -scores["part"]}


class Triple(tartan.Application):
    def compare_triple(self, a: Any, b: Any, c: Any) -> float:
        if a[0] == POINTS[1, 0] and c[0] == POINTS[7, 0]:
            raise ValueError("it does not like these")
        return float((a * b * c).sum())


def threshold(limit: float) -> dict[str, Any]:
    return {"kind": "threshold", "threshold": limit, "largest": False}


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
    "two sets": lambda path: pairs(Sums(), path, against=POINTS[:4] + 0.5, keys=None),
    "two sets, top-k": lambda path: pairs(Sums(), path, against=POINTS[:4] + 0.5, keys=None, reduce=TOP),
    "triples": lambda path: tartan.alltuples(Triple(), POINTS, path, keep=tartan.top(2), workers=1, quiet=True),
    "triples beyond": lambda path: tartan.alltuples(Triple(), POINTS, path, keep=tartan.over(1), workers=1, quiet=True),
}


def pairs(app: Any, path: Path, **options: Any) -> Any:
    return tartan.allpairs(app, POINTS, out=path, **{"keys": KEYS, "tile": 4, "workers": 1, "quiet": True} | options)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_run_is_read_alike(kind: str, tmp_path: Path) -> None:
    run = KINDS[kind](tmp_path / "run")
    refuse_other_answers(run, READER.PlainRun(run.path))
    if run.manifest.reduce is not None:  # the parts alone say what the merged result says
        merged = READER.PlainRun(run.path).pairs()
        (run.path / "result.parquet").unlink()
        assert READER.PlainRun(run.path).pairs() == merged
