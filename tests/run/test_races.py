"""Two processes that create one run folder: the slower one finds the run of the faster one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tartan
from tartan.base.lock import FolderLock
from tartan.errors import ConfigError, StoreError

ITEMS = [1.0, 2.0, 4.0]


class Overtaken(tartan.Application):
    """Does something else, once, when its first item is looked at: the folder is not created then."""

    releases_gil = True

    def __init__(self, meanwhile: Callable[[], Any] = lambda: None) -> None:
        self._meanwhile = [meanwhile]

    def parameters(self) -> dict[str, Any]:
        return {}

    def parse(self, key: str, data: Any) -> np.ndarray:
        while self._meanwhile:
            self._meanwhile.pop()()
        return np.array([data])

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        return xp.abs(left - right.T)


def test_the_same_run_of_a_faster_process_is_the_result(tmp_path: Path) -> None:
    app = Overtaken(lambda: tartan.allpairs(Overtaken(), ITEMS, tmp_path / "run", workers=1))
    run = tartan.allpairs(app, ITEMS, tmp_path / "run", workers=1)
    assert run.condensed().tolist() == [1.0, 3.0, 2.0]
    assert run.stats["executions"] == 1


def test_another_run_of_a_faster_process_is_refused_with_what_differs(tmp_path: Path) -> None:
    app = Overtaken(lambda: tartan.allpairs(Overtaken(), [*ITEMS, 9.0], tmp_path / "run", workers=1))
    with pytest.raises((ConfigError, StoreError), match="number of items: the run has 4, now there are 3"):
        tartan.allpairs(app, ITEMS, tmp_path / "run", workers=1)


def test_a_faster_process_that_still_creates_the_run_is_named(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    lock = FolderLock(tmp_path / "run")
    with pytest.raises(StoreError, match="is in use by process") as caught:
        tartan.allpairs(Overtaken(lock.__enter__), ITEMS, tmp_path / "run", workers=1)
    lock.__exit__(None, None, None)
    assert caught.value.code == "locked"
