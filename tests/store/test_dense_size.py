"""The size of a dense result is known before it is computed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tartan
from tartan.errors import DiskFullError
from tartan.store.dense import plain_bytes, refuse_too_large

ITEMS = [float(i * 7 % 5) for i in range(22)]


class Apart(tartan.Application):
    releases_gil = True

    def __init__(self, **given: Any) -> None:
        vars(self).update(given)

    def parameters(self) -> dict[str, Any]:
        return {}

    def parse(self, key: str, data: Any) -> np.ndarray:
        return np.array([data])

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        one = xp.abs(left - right.T)
        return one if len(self.outputs) == 1 else {"a": one, "b": one, "n": one.astype(np.int16)}


@pytest.mark.parametrize("n_left", [0, 4, 8, 13])
@pytest.mark.parametrize("given", [{}, {"symmetric": False}, {"outputs": {"a": "f8", "b": "c8", "n": "i2"}}])
def test_the_size_is_that_of_the_files(tmp_path: Path, n_left: int, given: dict[str, Any]) -> None:
    ways = {"against": ITEMS[n_left:]} if n_left else {}
    run = tartan.allpairs(Apart(**given), ITEMS[:n_left] or ITEMS, tmp_path / "run", tile=4, workers=1, **ways)
    names = [name for name, dtype in run.manifest.outputs.items() if dtype.kind in "fc"]
    files = [path for name in names for path in (tmp_path / "run" / f"{name}.zarr/c").rglob("*") if path.is_file()]
    assert plain_bytes(run.manifest, run.n_items) == sum(path.stat().st_size - 4 for path in files)


@pytest.mark.parametrize("ways", [{"reduce": {"kind": "top-k", "k": 2}}, {"pairs": [(0, 1)]}])
def test_of_runs_that_keep_less_nothing_is_known(tmp_path: Path, ways: dict[str, Any]) -> None:
    run = tartan.allpairs(Apart(), ITEMS, tmp_path / "run", workers=1, **ways)
    assert plain_bytes(run.manifest, 10**9) == 0


def test_what_does_not_fit_is_refused_with_the_ways_out(tmp_path: Path) -> None:
    refuse_too_large(tmp_path, 10**9, 10**9)
    with pytest.raises(DiskFullError, match=r"takes 2 TB, and 1 GB are free .*--top-k, --threshold"):
        refuse_too_large(tmp_path, 2 * 10**12, 10**9)


@pytest.mark.slow
def test_a_run_that_cannot_fit_is_not_started(tmp_path: Path) -> None:
    rows = np.lib.stride_tricks.as_strided(np.ones(4, np.float32), (40_000_000, 4), (0, 4))
    from tartan.apps.vectors.app import Vectors

    with pytest.raises(DiskFullError, match="are free on the file system"):
        tartan.allpairs(Vectors(), rows, tmp_path / "run")
    assert not (tmp_path / "run" / "manifest.json").exists()
