"""Compare goes wrong in every way there is: the guilty pair is named, everybody else is right, the run can go on."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from whole_program import APPLICATIONS, Command, Numbers

import tartan
from tartan.errors import RunFailedError
from tartan.testing import faults


def distances(n: int, *guilty: tuple[int, int]) -> np.ndarray:
    values = np.arange(n, dtype=np.float64)
    matrix = np.abs(values[:, None] - values[None, :])
    np.fill_diagonal(matrix, np.nan)
    for i, j in guilty:
        matrix[i, j] = matrix[j, i] = np.nan
    return matrix


def in_threads(application: type[tartan.Application]) -> type[tartan.Application]:
    """Return a class that runs in threads, because it says so."""
    return type(application.__name__, (application,), {"releases_gil": True})


def check_one_guilty(run: tartan.Run, reason: str) -> None:
    np.testing.assert_array_equal(run.matrix(), distances(12, (3, 7)))
    assert [(f.i, f.j, f.stage) for f in run.failures] == [(3, 7, "compare")]
    assert run.failures[0].reason.startswith("3, 7: ")
    assert reason in run.failures[0].reason
    assert (run.n_pairs_done, run.n_pairs_failed) == (65, 1)


FAULTS = [
    (faults.RaisesOn, "injected failure"),
    (faults.NaNOn, "returned NaN"),
    (faults.WrongShape, "returned shape"),
]


@pytest.mark.parametrize(("fault", "reason"), FAULTS)
@pytest.mark.parametrize("device", ["cpu", "sim"])
@pytest.mark.parametrize("cache", ["4items", "12items"])
def test_a_guilty_pair_fails_alone_in_threads(fault: Any, reason: str, device: str, cache: str) -> None:
    app = in_threads(fault)(("3", "7"))
    items = [float(i) for i in range(12)]
    check_one_guilty(tartan.allpairs(app, items, device=device, host_cache=cache, workers=2, tile=5), reason)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        FAULTS[0],
        *(pytest.param(*fault, marks=pytest.mark.exhaustive) for fault in FAULTS[1:]),  # found in the same place
        (faults.SegfaultOn, "killed by SIGSEGV"),
    ],
)
def test_a_guilty_pair_fails_alone_in_processes(fault: Any, reason: str) -> None:
    items = [float(i) for i in range(12)]
    check_one_guilty(tartan.allpairs(fault(("3", "7")), items, workers=2, tile=6), reason)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_as_many_pairs_crash_as_are_tried_beside_them() -> None:
    """What is tried to learn whether any pair survives says nothing of how many pairs of the chunk are done."""

    class Crashes(tartan.Application):
        def compare_pair(self, a: Any, b: Any) -> float:
            if b - a == 105 and a < 4:
                os._exit(3)
            return float(a + b)

    run = tartan.allpairs(Crashes(), list(range(16)), against=list(range(100, 116)), workers=2, tile=16)
    assert [(f.i, f.j) for f in run.failures] == [(i, 21 + i) for i in range(4)]
    assert (run.n_pairs_done, run.n_pairs_failed) == (252, 4)


@pytest.mark.slow
def test_a_crash_that_does_not_repeat_fails_nothing(tmp_path: Path) -> None:
    app = faults.SegfaultOn(("3", "7"), once=str(tmp_path / "once"))
    run = tartan.allpairs(app, [float(i) for i in range(12)], workers=1)
    np.testing.assert_array_equal(run.matrix(), distances(12))
    assert not run.failures


@pytest.mark.parametrize("device", ["cpu", "sim"])
def test_a_thread_that_never_returns_stops_the_run(tmp_path: Path, device: str) -> None:
    app = in_threads(faults.HangsOn)(("3", "7"), seconds=30.0)
    with pytest.raises(RunFailedError, match=r"--tile-timeout.*cannot be stopped"):
        tartan.allpairs(app, [float(i) for i in range(12)], tmp_path / "run", tile=3, tile_timeout=0.1, device=device)
    assert tartan.open(tmp_path / "run").n_pairs == 66


class CountedTypo(tartan.Application):
    """Has a misspelt name in compare, and counts how often it was called."""

    releases_gil = True

    def __init__(self) -> None:
        self.calls: list[tuple[int, int]] = []

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        self.calls.append((len(left), len(right)))
        return lefft - right.T  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize("device", ["cpu", "sim"])
def test_a_typo_stops_a_large_run_after_few_calls(device: str) -> None:
    app = CountedTypo()
    with pytest.raises(
        RunFailedError, match=r"first \d+ pairs that were compared all failed.*NameError: name 'lefft'"
    ) as caught:
        tartan.allpairs(app, np.ones((2000, 1)), workers=2, device=device)
    assert "lefft - right.T" in caught.value.context["traceback"]
    assert len(app.calls) < 2000


@pytest.mark.slow
def test_a_typo_on_the_command_line(command: Command, numbers: Numbers, tmp_path: Path) -> None:
    """It stops with the first traceback; the corrected file starts over, since no pair was computed."""
    folder, file = numbers(8), tmp_path / "mine.py"
    text = APPLICATIONS.read_text()
    file.write_text(text)
    words = ("run", f"{file}:Typo", folder, "-o", tmp_path / "run", "--workers", 1)
    first = command(*words)
    assert first.status == 1
    assert "NameError: name 'lefft' is not defined" in first.err
    assert "Traceback (most recent call last)" in first.err
    assert command(*words).status == 1  # the same again: it can be resumed
    file.write_text(text.replace("class Typo(faults.TypoCompare)", "class Typo(faults.Distances)"))
    corrected = command(*words)
    assert corrected.status == 0  # nothing was computed: the run starts over


def test_max_failures(command: Command, numbers: Numbers, tmp_path: Path) -> None:
    words = ("run", f"{APPLICATIONS}:RaisesInThreads", numbers(8), "-o", tmp_path / "run", "--set", "keys=003.txt")
    stopped = command(*words, "--max-failures", 3)
    assert stopped.status == 1
    first = re.search(r"more than --max-failures 3; first: (\d{3}).txt, (\d{3}).txt: InjectedError", stopped.err)
    assert first is not None  # which of them comes first is up to the threads
    assert "003" in first.groups()
    assert command(*words).status == 3  # resumed without the limit
    assert tartan.open(tmp_path / "run").n_pairs_failed == 7


def test_on_error_raise(command: Command, numbers: Numbers, tmp_path: Path) -> None:
    words = ("run", f"{APPLICATIONS}:RaisesInThreads", numbers(8), "-o", tmp_path / "run")
    words = (*words, "--set", "keys=003.txt,005.txt")
    stopped = command(*words, "--on-error", "raise")
    assert stopped.status == 1
    assert "first: 003.txt, 005.txt: InjectedError" in stopped.err
    assert "run it again to resume" in stopped.err
    finished = command(*words, "--on-error", "skip", "--json")
    assert finished.status == 3
    assert '"n_failed_pairs": 1' in finished.out


@pytest.mark.slow
@pytest.mark.parametrize("symmetric", [True, False])
def test_a_great_many_failed_pairs_are_counted_not_listed(symmetric: bool) -> None:
    class Holes(tartan.Application):
        releases_gil = True

        def compare(self, left: Any, right: Any, xp: Any) -> Any:
            return np.where((left + right.T) % 2 == 1, np.nan, left + right.T)

    Holes.symmetric = symmetric
    run = tartan.allpairs(Holes(), np.arange(400.0)[:, None], tile=100)
    odd = 200 * 200
    assert run.n_pairs_failed == odd * (1 if symmetric else 2)
    assert run.n_pairs_done == run.n_pairs - run.n_pairs_failed
    assert 10 * 100 <= len(run.failures) < 12_000
