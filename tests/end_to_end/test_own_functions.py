"""Functions of two items that people write: how often they are called, and what they may do to their process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tartan
from tartan.errors import RunFailedError


class Counted(tartan.Application):
    """Counts its calls, in threads."""

    releases_gil = True

    def __init__(self, guilty: int = -1) -> None:
        self.calls: list[None] = []
        self.guilty = guilty

    def compare_pair(self, a: int, b: int) -> float:
        self.calls.append(None)
        if self.guilty in (a, b):
            raise ValueError("guilty")
        return float(abs(a - b))


class CountedTiles(Counted):
    """The same a tile at a time."""

    compare_pair = None  # type: ignore[assignment]

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        self.calls += [None] * (len(left) * len(right))
        return np.add.outer(np.ravel(left), np.ravel(right))


@pytest.mark.parametrize("n", [2, 16, 60, 120])
def test_a_function_is_called_once_a_pair_and_little_more(n: int) -> None:
    app, pairs = Counted(), n * (n - 1) // 2
    run = tartan.allpairs(app, list(range(n)))
    assert run.n_pairs_done == pairs
    both_ways = 2 * min(pairs, 16)
    assert len(app.calls) <= pairs + max(1, pairs // 100) + both_ways


def test_a_failed_pair_does_not_have_the_others_computed_again() -> None:
    app = Counted(guilty=5)
    run = tartan.allpairs(app, list(range(40)), workers=1)
    assert (run.n_pairs_failed, len(run.failures)) == (39, 39)
    assert len(app.calls) <= 780 + 39 + 7 + 2 * 16


def test_little_is_compared_to_learn_the_speed_of_tiles() -> None:
    app = CountedTiles()
    tartan.allpairs(app, list(range(16)), tile=16)
    assert len(app.calls) <= 16 * 16 + 1 + 2 * 16


class Ends(tartan.Application):
    """Writes a byte for each call, and ends its process in all of them, or where one item takes part."""

    def __init__(self, log: str, guilty: int | None = None) -> None:
        self.log = log
        self.guilty = guilty

    def compare_pair(self, a: int, b: int) -> float:
        if self.guilty in (None, a, b):
            with Path(self.log).open("ab") as file:
                file.write(b".")
            os._exit(3)
        return float(a + b)


@pytest.mark.exhaustive
@pytest.mark.sampled(2)
@pytest.mark.parametrize("workers", [1, 2])
def test_a_function_that_always_ends_its_process_stops_the_run(workers: int, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with pytest.raises(RunFailedError, match=r"ended its worker process .* times in a row.*exit status 3"):
        tartan.allpairs(Ends(str(log)), list(range(30)), workers=workers)
    assert log.stat().st_size <= 20  # also those that are tried before the run is given up


@pytest.mark.exhaustive
@pytest.mark.slow
def test_an_item_that_always_ends_the_process_fails_in_its_pairs_only(tmp_path: Path) -> None:
    run = tartan.allpairs(Ends(str(tmp_path / "log"), 0), list(range(5)), workers=2)
    assert [(failure.i, failure.j) for failure in run.failures] == [(0, 1), (0, 2), (0, 3), (0, 4)]
    assert run.n_pairs_done == 6


def _forks(a: int, b: int) -> float:
    if (a, b) == (2, 5):
        os.fork()  # and the copy returns as well
    return float(a + b)


@pytest.mark.slow
def test_a_function_may_fork() -> None:
    run = tartan.allpairs(_forks, list(range(8)), workers=1)
    expected = np.add.outer(np.arange(8.0), np.arange(8.0))
    np.testing.assert_array_equal(np.triu(run.matrix(diagonal=0)), np.triu(expected, 1))


@pytest.mark.slow
def test_a_function_that_does_not_say_what_it_takes_is_tried() -> None:
    """A builtin has no signature that Python can read."""
    run = tartan.allpairs(max, [1.0, 3.0, 2.0], workers=1)
    assert run.matrix()[np.triu_indices(3, 1)].tolist() == [3.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("data", "facts"),
    [
        (np.array([1.0, np.nan, 4.0]), {"type": "float64", "shape": "3", "least": 1.0, "greatest": 4.0, "mean": 2.5}),
        (np.full((2, 2, 2), np.nan), {"type": "float64", "shape": "2 x 2 x 2"}),
        (np.array("text"), {"type": "<U4", "shape": "a number"}),
        ([1, 2, 3], {"type": "list", "length": 3}),
        (7, {"type": "int"}),
        (b"bytes", {}),
    ],
    ids=str,
)
def test_items_of_any_type_are_described(data: Any, facts: dict[str, Any]) -> None:
    found = dict(tartan.Application().describe_item("item", data))
    values = found.pop("values", None)
    assert found == facts
    assert (values is data) == (isinstance(data, np.ndarray) and data.dtype.kind == "f" and data.ndim == 1)
