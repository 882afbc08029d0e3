"""align on the command line: how points are matched and weighted, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tartan.view.coordinates import write_coordinates

POINTS = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 1.0], [3.0, 4.0]])
TURNED = POINTS @ np.array([[0.0, 1.0], [-1.0, 0.0]]) * 2 + 5
KEYS = ["a", "b", "c", "d"]


@pytest.fixture
def maps(tmp_path: Path) -> tuple[Path, Path]:
    source = write_coordinates(tmp_path / "one.tsv", POINTS, KEYS)
    order = [3, 1, 0, 2]
    target = write_coordinates(tmp_path / "other.tsv", TURNED[order], [KEYS[place] for place in order])
    return source, target


def test_points_are_matched_by_key_and_one_line_tells_what_was_found(command: Any, maps: tuple[Path, Path]) -> None:
    shown = command("align", *maps)
    assert shown.status == 0
    assert shown.out.startswith("4 points, scale 2, not mirrored, error ")
    assert json.loads(command("align", *maps, "--json").out)["error"] < 1e-6


def test_points_of_no_weight_do_not_count(command: Any, maps: tuple[Path, Path], tmp_path: Path) -> None:
    source, target = maps
    astray = POINTS.copy()
    astray[3] = 100.0
    write_coordinates(source, astray, KEYS)
    weights = tmp_path / "weights.txt"
    weights.write_text("1\n1\n1\n0\n")
    found = json.loads(command("align", source, target, "--weights", weights, "--json").out)
    assert found["scale"] == pytest.approx(2)
    assert found["translation"] == pytest.approx([5, 5])


@pytest.mark.parametrize(
    ("text", "said"), [("1\n2\n", "has 2 numbers for 4 points"), ("one\n", "could not convert"), (None, "No such file")]
)
def test_wrong_weights_are_refused(
    command: Any, maps: tuple[Path, Path], tmp_path: Path, text: str | None, said: str
) -> None:
    weights = tmp_path / "weights.txt"
    if text is not None:
        weights.write_text(text)
    shown = command("align", *maps, "--weights", weights)
    assert (shown.status, shown.out) == (2, "")
    assert said in shown.err


def test_keys_that_stand_for_two_points_are_refused(command: Any, maps: tuple[Path, Path]) -> None:
    source, target = maps
    write_coordinates(target, TURNED, ["a", "b", "b", "d"])
    shown = command("align", source, target)
    assert (shown.status, shown.out) == (2, "")
    assert "two points of B have one key" in shown.err
