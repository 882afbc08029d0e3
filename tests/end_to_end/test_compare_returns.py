"""What compare may return, and what becomes of numbers that an output cannot hold: no wrong score, nothing silent."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest

import tartan
from tartan.errors import ConfigError, RunFailedError

VALUES = np.arange(6.0)[:, None]
DISTANCES = np.abs(VALUES - VALUES.T)


class Returns(tartan.Application):
    """Returns distances, changed by a function."""

    releases_gil = True

    def __init__(self, change: Callable[[Any], Any], dtype: str = "<f4") -> None:
        self.change = change
        self.outputs = {"scores": dtype}

    def parameters(self) -> dict[str, Any]:
        return {}

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        return self.change(xp.abs(left - right.T))


class PairReturns(Returns):
    """The same a pair at a time."""

    def compare_pair(self, a: Any, b: Any) -> Any:
        return self.change(abs(a[0] - b[0]))


def read_only(scores: np.ndarray) -> np.ndarray:
    scores.flags.writeable = False
    return scores


@pytest.mark.parametrize(
    "change",
    [
        np.asfortranarray,
        read_only,
        lambda s: s.tolist(),
        lambda s: s.astype(object),
        lambda s: s.astype(str),
        lambda s: s.astype(np.int8),
        lambda s: s.astype(">f8"),
        lambda s: np.broadcast_to(s[..., None], (*s.shape, 2))[..., 0],
        lambda s: {"scores": s, "not declared": s},
        lambda s: np.ma.masked_array(s),
    ],
)
def test_arrays_of_every_kind(change: Callable[[Any], Any]) -> None:
    run = tartan.allpairs(Returns(change), VALUES, workers=1)
    np.testing.assert_array_equal(run.matrix(diagonal=0.0), DISTANCES)


@pytest.mark.parametrize("device", ["cpu", "sim"])
@pytest.mark.parametrize(
    ("change", "dtype", "reason"),
    [
        (lambda s: s + np.where(s == 4, np.nan, 0), "<f4", "compare returned NaN"),
        (lambda s: s + np.where(s == 4, np.nan, 0), "<i4", "compare returned nan .* which int32 cannot hold"),
        (lambda s: s + np.where(s == 4, np.inf, 0), "<i8", "compare returned inf .* which int64 cannot hold"),
        (lambda s: s + np.where(s == 4, 1e6, 0), "<i2", "compare returned 1000004.0 .* which int16 cannot hold"),
        (lambda s: s - np.where(s == 4, 9, 0), "<u2", "compare returned -5.0 .* which uint16 cannot hold"),
        (lambda s: (s + np.where(s == 4, 300, 0)).astype(np.int64), "<u1", "returned 304 .* which uint8 cannot hold"),
        (
            lambda s: s + np.where(s == 4, 1e300, 0),
            "<f4",
            r"returned 1e\+300 .* which float32 cannot hold; declare outputs",
        ),
        (
            lambda s: s - np.where(s == 4, 1e39, 0),
            "<f4",
            r"returned -1e\+39 .* declare outputs = {'scores': 'float64'}",
        ),
        (lambda s: s + np.where(s == 4, 70_000, 0), "<f2", "compare returned 70004.0 .* which float16 cannot hold"),
        (lambda s: np.where(s == 4, 70_000, s).astype(np.int64), "<f2", "returned 70000 .* float16 cannot hold"),
        (lambda s: s * np.where(s == 4, np.longdouble("1e4000"), 1), "<f8", "float64 cannot hold; scale it"),
    ],
)
def test_numbers_that_do_not_fit_fail_their_pairs(
    change: Callable[[Any], Any], dtype: str, reason: str, device: str
) -> None:
    run = tartan.allpairs(Returns(change, dtype), VALUES, device=device)
    assert [(f.i, f.j) for f in run.failures] == [(0, 4), (1, 5)]
    for failure in run.failures:
        assert re.search(f"^{failure.i}, {failure.j}: .*{reason}", failure.reason)
    np.testing.assert_array_equal(run.matrix(diagonal=0.0), np.where(DISTANCES == 4, np.nan, DISTANCES))


@pytest.mark.parametrize("device", ["cpu", "sim"])
@pytest.mark.parametrize(
    ("change", "dtype"),
    [
        (lambda s: float("nan") if s == 4 else s, "<f4"),
        (lambda s: float("nan") if s == 4 else s, "<i4"),
        (lambda s: np.float32(np.inf) if s == 4 else s, "<i8"),
        (lambda s: 1e6 if s == 4 else int(s), "<i2"),
        (lambda s: -5 if s == 4 else int(s), "<u2"),
        (lambda s: None if s == 4 else int(s), "<u2"),
        (lambda s: "four" if s == 4 else float(s), "<f8"),
        (lambda s: np.zeros(2) if s == 4 else float(s), "<f8"),
        (lambda s: 1j if s == 4 else float(s), "<f8"),
        (lambda s: 1e300 if s == 4 else float(s), "<f4"),
        (lambda s: -(10**40) if s == 4 else int(s), "<f4"),
    ],
)
def test_a_pair_function_that_returns_what_does_not_fit(change: Callable[[Any], Any], dtype: str, device: str) -> None:
    run = tartan.allpairs(PairReturns(change, dtype), VALUES, device=device)
    assert [(f.i, f.j) for f in run.failures] == [(0, 4), (1, 5)]
    np.testing.assert_array_equal(run.matrix(diagonal=0.0), np.where(DISTANCES == 4, np.nan, DISTANCES))


@pytest.mark.parametrize("device", ["cpu", "sim"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s + 1j, "compare returned complex128 for output 'scores', which is float32"),
        (lambda s: None, "compare returned shape"),
        (lambda s: 1.0, "compare returned shape"),
        (lambda s: s[:-1], "compare returned shape"),
        (lambda s: {"other": s}, "compare returned no output 'scores', only other"),
        (lambda s: (_ for _ in ()).throw(SystemExit(3)), "SystemExit: 3"),
        (lambda s: (_ for _ in ()).throw(KeyboardInterrupt()), "KeyboardInterrupt"),
        (lambda s: (_ for _ in ()).throw(MemoryError()), "MemoryError"),
    ],
)
def test_what_cannot_be_a_tile_of_scores(change: Callable[[Any], Any], message: str, device: str) -> None:
    with pytest.raises(RunFailedError, match=rf"pairs failed; first: \d, \d: .*{message}"):
        tartan.allpairs(Returns(change), VALUES, device=device)


def test_masked_scores_have_failed() -> None:
    run = tartan.allpairs(Returns(lambda s: np.ma.masked_equal(s, 4)), VALUES)
    assert [(f.i, f.j) for f in run.failures] == [(0, 4), (1, 5)]


def test_numbers_near_the_ends_of_float32_are_kept() -> None:
    """The largest, whose sum is infinite; infinities beside them; and numbers that become 0, as in any sum."""
    largest = float(np.finfo(np.float32).max)
    for kind in (Returns, PairReturns):
        run = tartan.allpairs(kind(lambda s: np.where(s == 4, -np.inf, np.where(s > 2, largest, s * 1e-60))), VALUES)
        assert not run.failures
        expected = np.where(DISTANCES == 4, -np.inf, np.where(DISTANCES > 2, largest, 0))
        np.testing.assert_array_equal(run.matrix(diagonal=0.0), expected)


class TwoWays(Returns):
    """One of two outputs does not fit where the second item is far above the first."""

    symmetric = False

    def __init__(self) -> None:
        super().__init__(abs)
        self.outputs = {"near": "float32", "far": "float32"}

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        return {"near": xp.abs(left - right.T), "far": xp.where(right.T - left == 4, 1e300, 1.0)}


class Reversed(Returns):
    """The reverse of a score does not fit."""

    directed = ("scores",)

    def reverse(self, outputs: Any) -> Any:
        return {"scores": np.where(outputs["scores"] == 4, np.float64(1e300), outputs["scores"])}


@pytest.mark.parametrize("device", ["cpu", "sim"])
@pytest.mark.parametrize("app", [TwoWays(), Reversed(lambda s: s)])
def test_one_output_or_direction_that_does_not_fit_fails_its_pair(app: Returns, device: str) -> None:
    run = tartan.allpairs(app, VALUES, device=device)
    assert [(f.i, f.j) for f in run.failures] == [(0, 4), (1, 5)]
    assert all("float32 cannot hold" in f.reason for f in run.failures)


@pytest.mark.parametrize("device", ["cpu", "sim"])
@pytest.mark.parametrize("rule", [{"kind": "threshold", "threshold": 3.0}, {"kind": "top-k", "k": 5}])
@pytest.mark.parametrize("kind", [Returns, PairReturns])
def test_what_does_not_fit_is_not_among_the_kept(kind: type[Returns], rule: dict[str, Any], device: str) -> None:
    app = kind(lambda s: s + np.where(s == 4, 1e300, 0))
    run = tartan.allpairs(app, VALUES, reduce=rule | {"largest": True}, device=device)
    assert [(f.i, f.j) for f in run.failures] == [(0, 4), (1, 5)]
    assert max(run.pairs().read_all()["score"].to_pylist()) == 5


@pytest.mark.slow
def test_a_triple_that_does_not_fit_fails() -> None:
    def extent(a: float, b: float, c: float) -> float:
        found = max(a, b, c) - min(a, b, c)
        return 1e300 if found == 5 else found

    run = tartan.alltuples(extent, VALUES[:, 0].tolist(), keep=tartan.top(3), workers=1)
    assert len(run.failures) == 4
    assert all("float32 cannot hold; declare outputs" in f.reason for f in run.failures)


def test_infinity_is_a_number() -> None:
    def change(scores: np.ndarray) -> np.ndarray:
        return np.where(scores == 4, np.inf, np.where(scores == 3, -np.inf, scores))

    run = tartan.allpairs(Returns(change), VALUES)
    assert not run.failures
    np.testing.assert_array_equal(run.matrix(diagonal=0.0), change(DISTANCES))


@pytest.mark.slow
def test_an_enormous_message_is_cut() -> None:
    def change(scores: Any) -> Any:
        raise ValueError("x" * 10**7)

    with pytest.raises(RunFailedError, match="ValueError: xxx") as caught:
        tartan.allpairs(Returns(change), VALUES)
    assert len(str(caught.value)) < 10_000
    assert len(caught.value.context["traceback"]) < 100_000


class BigEndian(tartan.Application):
    outputs: ClassVar[dict[str, Any]] = {"scores": ">f4", "count": ">i2"}
    releases_gil = True

    def compare(self, left: Any, right: Any, xp: Any) -> dict[str, Any]:
        distances = abs(left[:, None] - right[None, :])
        return {"scores": distances, "count": distances.astype(np.int64)}


def test_outputs_in_the_other_byte_order_are_kept_in_that_of_the_machine() -> None:
    items = np.arange(5.0)
    run = tartan.allpairs(BigEndian(), items)
    assert run.manifest.outputs == {"scores": np.dtype("f4"), "count": np.dtype("i2")}
    assert run.pairs_sorted(limit=4).read_all()["score"].to_pylist() == [1.0] * 4
    kept = tartan.allpairs(BigEndian(), items, reduce={"kind": "top-k", "k": 1})
    assert kept.pairs().read_all().num_rows == 5
    app = BigEndian()
    app.outputs = {"scores": "f4", "count": "c8"}  # type: ignore[misc]
    with pytest.raises(ConfigError, match="output 'count' is complex64"):
        tartan.allpairs(app, items, reduce={"kind": "top-k", "k": 1})


class Declares(tartan.Application):
    """Declares outputs in some form, and returns what it is given."""

    def __init__(self, outputs: Any, result: Any) -> None:
        self.outputs, self.result = outputs, result

    def parameters(self) -> dict[str, Any]:
        return {}

    def compare_pair(self, a: float, b: float) -> Any:
        return self.result


@pytest.mark.slow
@pytest.mark.parametrize(
    ("result", "reason"),
    [
        ({"d": 1.0}, "compare_pair returned no output 's', only d"),
        ({}, "compare_pair returned no output 'd', only nothing"),
        ((1.0, 2.0), "compare_pair returned a tuple where a dict of d, s is declared"),
        (1.0, "compare_pair returned one number where a dict of d, s is declared"),
    ],
)
def test_a_missing_output_is_named(result: Any, reason: str) -> None:
    with pytest.raises(RunFailedError) as caught:
        tartan.allpairs(Declares({"d": "f4", "s": "f4"}, result), [1.0, 2.0], workers=1)
    assert reason in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("outputs", "dtypes"),
    [(["d", "s"], ["f4", "f4"]), (("d",), ["f4"]), ("d", ["f4"]), ([("d", "f8"), "s"], ["f8", "f4"])],
)
def test_outputs_may_be_a_list(outputs: Any, dtypes: list[str]) -> None:
    run = tartan.allpairs(Declares(outputs, {"d": 1.0, "s": 2.0}), [1.0, 2.0], workers=1)
    assert run.outputs == ("d", "s")[: len(dtypes)]
    assert [dtype.str[1:] for dtype in run.manifest.outputs.values()] == dtypes
    assert run.matrix(run.outputs[-1])[0, 1] == len(dtypes)


@pytest.mark.parametrize("outputs", [{"d", "s"}, ["d", "d"], [("d", "f4", 3)], [3], 3, []])
def test_outputs_that_mean_nothing_are_refused(outputs: Any) -> None:
    with pytest.raises(ConfigError, match=r"outputs names each score with its dtype"):
        tartan.allpairs(Declares(outputs, 1.0), [1.0, 2.0], workers=1)
