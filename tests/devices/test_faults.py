"""The applications that fail on command fail there, and nowhere else."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import array_api_compat.numpy as xp
import cloudpickle
import numpy as np
import pytest

from tartan.application import as_application, output_dtypes
from tartan.errors import DeviceMemoryError
from tartan.testing import faults

VALUES = {"a": 1.0, "b": 4.0, "c": 9.0, "d": 2.0}
EXPECTED = np.abs(np.subtract.outer(list(VALUES.values()), list(VALUES.values())))


def tile(app: faults.Distances, keys: str = "abcd") -> Any:
    """Return the parsed and preprocessed items of some keys, as one array."""
    return np.stack([app.preprocess(app.parse(key, VALUES[key]), xp) for key in keys])


@pytest.mark.parametrize(
    "app",
    [
        faults.Distances(),
        faults.RaisesOn("x,y"),
        faults.SegfaultOn(["x"]),
        faults.HangsOn(["x"], seconds=0.0),
        faults.NaNOn(["x"]),
        faults.WrongShape(["x"]),
        faults.OomOn(16),
    ],
    ids=lambda app: type(app).__name__,
)
def test_right_where_not_at_fault(app: faults.Distances) -> None:
    items = tile(app)
    np.testing.assert_array_equal(app.compare(items, items, xp), EXPECTED)
    assert as_application(app) is app
    assert output_dtypes(app) == {"scores": np.float32}
    assert cloudpickle.loads(cloudpickle.dumps(app)).parameters() == app.parameters()


def test_items_may_be_text() -> None:
    np.testing.assert_array_equal(faults.Distances().parse("a", b" 3.5\n"), [3.5, 0.0])


def test_two_keys_make_one_guilty_pair() -> None:
    app = faults.RaisesOn("a,c")
    items = tile(app)
    with pytest.raises(faults.InjectedError, match="a and c"):
        app.compare(items, items, xp)
    np.testing.assert_array_equal(app.compare(items[:2], items[1:2], xp), EXPECTED[:2, 1:2])
    with pytest.raises(faults.InjectedError):
        app.compare(items[:1], items[2:3], xp)


def test_one_key_makes_all_its_pairs_guilty() -> None:
    app = faults.NaNOn("b")
    items = tile(app)
    scores = app.compare(items, items, xp)
    expected = EXPECTED.copy()
    expected[1, :] = expected[:, 1] = np.nan
    np.testing.assert_array_equal(scores, expected)


@pytest.mark.parametrize("stage", ["parse", "preprocess"])
def test_stages_of_items(stage: str) -> None:
    app = faults.RaisesOn(["b"], stage=stage)
    np.testing.assert_array_equal(tile(app, "acd").shape, (3, 2))
    with pytest.raises(faults.InjectedError, match=stage):
        tile(app, "b")
    # A compare of such an item is not a fault.
    healthy = np.array([[1.0, 1.0], [3.0, 0.0]])
    np.testing.assert_array_equal(app.compare(healthy, healthy, xp), [[0, 2], [2, 0]])


def test_unknown_stage_is_refused() -> None:
    with pytest.raises(ValueError, match="stage"):
        faults.RaisesOn("a", stage="upload")


def test_once_fails_once(tmp_path: Path) -> None:
    app = faults.RaisesOn("a", once=str(tmp_path / "struck"))
    items = tile(app)
    with pytest.raises(faults.InjectedError):
        app.compare(items, items, xp)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(app)).compare(items, items, xp), EXPECTED)


def test_wrong_shape() -> None:
    app = faults.WrongShape("a,b")
    items = tile(app)
    assert app.compare(items, items, xp).shape == (4, 5)
    assert app.compare(items[2:], items[2:], xp).shape == (2, 2)
    always = faults.WrongShape()
    assert always.compare(items[2:], items[2:], xp).shape == (2, 3)


def test_hang_waits_as_long_as_it_says() -> None:
    waited: list[float] = []

    class Noted(faults.HangsOn):
        def wait(self, seconds: float) -> None:
            waited.append(seconds)
            super().wait(0.0)

    app = Noted("a", seconds=7.0)
    items = tile(app)
    app.compare(items, items, xp)
    assert waited == [7.0]


def test_typo() -> None:
    items = tile(faults.Distances())
    with pytest.raises(NameError, match="lefft"):
        faults.TypoCompare().compare(items, items, xp)


def test_out_of_memory_above_a_size() -> None:
    app = faults.OomOn(8)
    items = tile(app)
    with pytest.raises(DeviceMemoryError):
        app.compare(items, items, xp)
    np.testing.assert_array_equal(app.compare(items[:2], items, xp), EXPECTED[:2])


@pytest.mark.slow
def test_segfault_kills_the_process() -> None:
    code = "from tartan.testing.faults import SegfaultOn; SegfaultOn('a', stage='parse').parse('a', 1.0)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
    assert result.returncode == -11
