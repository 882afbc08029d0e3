"""A few pairs are compared both ways before one way stands for both."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import tartan
from tartan.errors import ConfigError

ROWS = np.random.default_rng(1).dirichlet(np.ones(5), 30)
NOT = "is not symmetric"


class Divergence(tartan.Application):
    releases_gil = True

    def compare_pair(self, a: Any, b: Any) -> Any:
        return float(np.sum(a * np.log(a / b)))


class Tiles(tartan.Application):
    """The same a tile at a time."""

    releases_gil = True

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        a, b = left[:, None, :], right[None, :, :]
        return xp.sum(a * xp.log(a / b), axis=2)


@pytest.mark.parametrize("app", [Divergence, Tiles])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"device": "sim"},
        {"reduce": {"kind": "top-k", "k": 3}},
        {"pairs": np.array([[3, 9], [4, 1], [5, 5]])},
        {"keys": [f"row {k}" for k in range(30)]},
    ],
    ids=["all", "device", "top-k", "pairs", "keys"],
)
def test_an_asymmetric_application_is_refused_and_nothing_is_made(app: Any, options: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"{app.__name__} {NOT}.*symmetric = False in {app.__name__}"):
        tartan.allpairs(app(), ROWS, tmp_path / "run", workers=1, **options)
    assert not (tmp_path / "run" / "manifest.json").exists()


@pytest.mark.parametrize("app", [Divergence, Tiles])
def test_the_way_out_keeps_both_ways(app: Any) -> None:
    class Both(app):
        symmetric = False

    scores = tartan.allpairs(Both(), ROWS, workers=1).matrix()
    expected = np.sum(ROWS[:, None] * np.log(ROWS[:, None] / ROWS[None]), axis=2)
    np.testing.assert_allclose(scores[~np.eye(30, dtype=bool)], expected[~np.eye(30, dtype=bool)], rtol=1e-5)


@pytest.mark.slow
def test_the_way_out_of_a_function_can_be_copied(tmp_path: Path) -> None:
    def extra(a: Any, b: Any) -> float:
        return float(np.maximum(a - b, 0).max())

    with pytest.raises(ConfigError, match=r"FUNCTION|extra") as caught:
        tartan.allpairs(extra, ROWS, tmp_path / "run", workers=1)
    scope: dict[str, Any] = {"tartan": tartan, "extra": extra}
    exec(str(caught.value).split("`")[1], scope)
    matrix = tartan.allpairs(scope["Both"](), ROWS, tmp_path / "run", workers=1).matrix()
    assert matrix[2, 5] == np.float32(extra(ROWS[2], ROWS[5]))
    assert matrix[5, 2] == np.float32(extra(ROWS[5], ROWS[2]))


def test_what_is_not_mirrored_is_not_tried(tmp_path: Path) -> None:
    assert tartan.allpairs(Divergence(), ROWS[:9], against=ROWS[9:], workers=1).n_pairs_done == 9 * 21


class Several(tartan.Application):
    """Two outputs, one of which has a direction."""

    releases_gil = True
    outputs: ClassVar[dict[str, Any]] = {"far": np.float32, "shift": np.float64}
    far_too = False

    def compare_pair(self, a: Any, b: Any) -> dict[str, float]:
        shift = float(a[0] - b[0])
        return {"far": shift if self.far_too else abs(shift), "shift": shift}

    def reverse(self, scores: Any) -> Any:
        return {"shift": -scores["shift"]}


def test_each_output_counts_but_those_with_a_direction() -> None:
    app = Several()
    with pytest.raises(ConfigError, match=rf"{NOT}: shift of \(0, "):
        tartan.allpairs(app, ROWS, workers=1)
    app.directed = ("shift",)
    assert tartan.allpairs(app, ROWS, workers=1).finished
    app.far_too = True
    with pytest.raises(ConfigError, match=rf"{NOT}: far of "):
        tartan.allpairs(app, ROWS, workers=1)


def test_scores_are_compared_as_they_are_finished() -> None:
    class Finished(Divergence):
        def compare_pair(self, a: Any, b: Any) -> Any:
            return a[0] - b[0]

        def postprocess(self, scores: np.ndarray) -> np.ndarray:
            return np.abs(scores)

    assert tartan.allpairs(Finished(), ROWS, workers=1).finished


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int32, np.complex64])
def test_rounding_is_no_difference(dtype: Any) -> None:
    class Rounded(tartan.Application):
        releases_gil = True
        outputs: ClassVar[dict[str, Any]] = {"scores": dtype}

        def compare_pair(self, a: Any, b: Any) -> Any:
            return 100 * np.float32(1 + a[0] * b[0]) * (1 + 3e-7 * (a[0] < b[0]))

    assert tartan.allpairs(Rounded(), ROWS, workers=1).finished


class Fails(Divergence):
    """One item has no score one way, another cannot be parsed."""

    def parse(self, key: str, data: Any) -> Any:
        if key == "29":
            raise ValueError("bad item")
        return np.append(data, float(key))

    def compare_pair(self, a: Any, b: Any) -> Any:
        if a[-1] == 0:
            raise ValueError("not this way round")
        return np.nan if b[-1] == 0 else float(np.abs(a - b).sum())


def test_what_fails_is_left_to_the_run() -> None:
    run = tartan.allpairs(Fails(), list(ROWS), workers=1)
    assert (run.n_pairs_done, run.n_pairs_failed) == (28 * 27 // 2, 28 + 29)


def _ends_its_process(a: Any, b: Any) -> float:
    if b == 0:
        os._exit(3)  # only the other way round, which the run never asks for
    return float(a + b)


@pytest.mark.exhaustive
def test_a_process_that_ends_meanwhile_does_not_end_the_run() -> None:
    assert tartan.allpairs(_ends_its_process, list(range(30)), workers=1).n_pairs_done == 435


def test_runs_that_are_resumed_or_grow_are_not_tried_again(tmp_path: Path) -> None:
    class Counts(tartan.Application):
        releases_gil = True

        def __init__(self) -> None:
            self.seen: list[tuple[float, float]] = []

        def parameters(self) -> dict[str, Any]:
            return {}

        def compare_pair(self, a: Any, b: Any) -> float:
            self.seen.append((float(a[0]), float(b[0])))
            return abs(float(a[0] - b[0]))

    app, rows = Counts(), np.arange(30.0)[:, None]
    path = tartan.allpairs(app, rows[:20], tmp_path / "run", workers=1).path
    assert len([pair for pair in app.seen if pair[0] > pair[1]]) == 16
    app.seen.clear()
    tartan.allpairs(app, rows[:20], path, workers=1)
    run = tartan.add(path, rows[20:], app=app, previous=rows[:20], workers=1)
    assert run.finished
    assert not [pair for pair in app.seen if pair[0] > pair[1]]


class OfProcesses(Divergence):
    releases_gil = False


@pytest.mark.slow
def test_a_run_without_a_limit_of_time_is_tried_too() -> None:
    with pytest.raises(ConfigError, match=NOT):
        tartan.allpairs(OfProcesses(), ROWS, workers=1, tile_timeout=0)


@pytest.mark.slow
def test_inf_one_way_is_a_difference() -> None:
    def blows_up(a: Any, b: Any) -> float:
        return float("inf") if a[0] < b[0] else 1.0

    with pytest.raises(ConfigError, match=rf"{NOT}.* (inf|1), .* (inf|1), "):
        tartan.allpairs(blows_up, ROWS, workers=1)


def test_built_in_applications_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    from tartan.apps.vectors.app import Vectors
    from tartan.run import session

    monkeypatch.setattr(session, "score_both_ways", None)
    assert tartan.allpairs(Vectors(), ROWS, workers=1).finished
