"""One compare call: what comes back, and what is said of pairs that fail."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pytest

import tartan
from tartan.application import Application, as_application
from tartan.core.pairs.ledger import DONE, FAILED_ITEM, FAILED_PAIR, NOT_COMPUTED
from tartan.errors import CompareError
from tartan.runtime.compare import (
    MOST_LISTED,
    CellFailure,
    check_scores,
    compare_cells,
    merge_mirrored,
    score_tile,
    write_block,
)
from tartan.runtime.parts import TileMask

SCORES: Mapping[str, np.dtype[Any]] = {"scores": np.dtype(np.float32)}
TWO: Mapping[str, np.dtype[Any]] = {"near": np.dtype(np.float32), "far": np.dtype(np.int16)}


class Dot(Application):
    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        return left @ right.T


def buffers(m: int, k: int, dtypes: Mapping[str, np.dtype[Any]] = SCORES) -> tuple[dict[str, np.ndarray], np.ndarray]:
    return {name: np.full((m, k), 9, dtype) for name, dtype in dtypes.items()}, np.full((m, k), 9, np.uint8)


def test_codes_of_a_mask() -> None:
    wanted = np.ones((3, 3), bool)
    wanted[2] = False
    mask = TileMask(wanted, failed=((1,), (2,)))
    assert TileMask().codes((3, 3)) == DONE
    np.testing.assert_array_equal(
        mask.codes((3, 3)),
        [[DONE, DONE, FAILED_ITEM], [FAILED_ITEM] * 3, [NOT_COMPUTED] * 3],
    )


@pytest.mark.parametrize("rows", [slice(0, 2), slice(2, 5)])
@pytest.mark.parametrize("columns", [slice(0, 3), slice(3, 4)])
def test_a_part_of_a_mask_has_the_codes_of_that_part(rows: slice, columns: slice) -> None:
    wanted = np.random.default_rng(0).random((5, 4)) < 0.7
    mask = TileMask(wanted, failed=((1, 4), (3,)))
    codes = mask.codes((5, 4))
    assert isinstance(codes, np.ndarray)
    part = codes[rows, columns]
    np.testing.assert_array_equal(mask.part((rows, columns)).codes(part.shape), part)  # type: ignore[arg-type]


def test_scores_of_another_shape_or_name_are_refused() -> None:
    with pytest.raises(CompareError, match=r"\(2,\).*expected \(2, 3\)"):
        check_scores(np.zeros(2), (2, 3), SCORES)
    with pytest.raises(CompareError, match="no output 'far'"):
        check_scores({"near": np.zeros((2, 3))}, (2, 3), TWO)
    with pytest.raises(CompareError, match="one array where a dict"):
        check_scores(np.zeros((2, 3)), (2, 3), TWO)
    assert check_scores([[1, 2, 3]], (1, 3), SCORES)["scores"].shape == (1, 3)


def test_pairs_one_at_a_time_equal_the_plain_loop() -> None:
    app = as_application(lambda a, b: a - b)
    scores, failures = compare_cells(app, ([1, 2], [5, 7, 9]), SCORES, DONE)
    assert failures == []
    np.testing.assert_array_equal(scores["scores"], [[-4, -6, -8], [-3, -5, -7]])


def test_a_pair_that_raises_fails_alone() -> None:
    scores, failures = compare_cells(as_application(lambda a, b: a / b), ([4.0], [2.0, 0.0, 1.0]), SCORES, DONE)
    assert [(*f.place, f.reason) for f in failures] == [(0, 1, "ZeroDivisionError: float division by zero")]
    np.testing.assert_array_equal(scores["scores"], [[2, 0, 4]])


def test_pairs_that_do_not_count_are_not_compared() -> None:
    seen: list[tuple[int, int]] = []

    def compare(a: int, b: int) -> float:
        seen.append((a, b))
        return 1.0

    codes = np.array([[DONE, NOT_COMPUTED], [FAILED_ITEM, DONE]], np.uint8)
    compare_cells(as_application(compare), ([0, 1], [2, 3]), SCORES, codes)
    assert seen == [(0, 2), (1, 3)]


def test_pairs_with_several_outputs() -> None:
    class Both(Application):
        outputs = TWO

        def compare_pair(self, a: float, b: float) -> Any:
            return {"near": a - b, "far": 3} if a < b else a

    scores, failures = compare_cells(Both(), ([1.0, 9.0], [2.0]), TWO, DONE)
    assert (scores["near"][0, 0], scores["far"][0, 0]) == (-1, 3)
    assert [(f.place[0], "dict of near, far" in f.reason) for f in failures] == [(1, True)]


def test_a_tile_is_scored_into_its_buffers() -> None:
    out, status = buffers(2, 2)
    left, right = np.eye(2, dtype=np.float32), np.array([[1, 2], [3, 4]], np.float32)
    assert score_tile(Dot(), (left, right), SCORES, TileMask(failed=((1,), ())).codes((2, 2)), out, status) == []
    np.testing.assert_array_equal(out["scores"][0], [1, 3])
    np.testing.assert_array_equal(status, [[DONE, DONE], [FAILED_ITEM, FAILED_ITEM]])


def test_an_application_may_write_in_place() -> None:
    class InPlace(Application):
        compare_into = True

        def compare(self, left: Any, right: Any, xp: Any, out: Any = None) -> Any:
            return np.matmul(left, right.T, out=out)

    out, status = buffers(2, 3)
    before = out["scores"]
    score_tile(InPlace(), (np.ones((2, 4), np.float32), np.ones((3, 4), np.float32)), SCORES, DONE, out, status)
    assert out["scores"] is before
    assert (out["scores"] == 4).all()


def test_an_application_may_write_several_outputs_in_place() -> None:
    class InPlace(Application):
        compare_into = True
        outputs: ClassVar[dict[str, Any]] = {"sum": np.float32, "difference": np.float32}

        def compare(self, left: Any, right: Any, xp: Any, out: Any = None) -> Any:
            np.add(left, right.T, out=out["sum"])
            np.subtract(left, right.T, out=out["difference"])
            return out

    left, right = np.array([[1], [2]], np.float32), np.array([[10], [20], [30]], np.float32)
    out = {name: np.zeros((2, 3), np.float32) for name in InPlace.outputs}
    before, status = dict(out), np.zeros((2, 3), np.uint8)
    score_tile(InPlace(), (left, right), {name: np.dtype(np.float32) for name in out}, DONE, out, status)
    assert all(out[name] is before[name] for name in out)
    assert out["sum"].tolist() == [[11, 21, 31], [12, 22, 32]]
    assert out["difference"].tolist() == [[-9, -19, -29], [-8, -18, -28]]


@pytest.mark.parametrize("device", ["cpu", "sim"])
def test_an_application_that_writes_in_place_gets_the_same_scores_everywhere(device: str) -> None:
    given: list[bool] = []

    class InPlace(Application):
        releases_gil = True
        compare_into = True

        def compare(self, left: Any, right: Any, xp: Any, out: Any = None) -> Any:
            given.append(out is not None)
            return xp.matmul(left, right.T) if out is None else np.matmul(left, right.T, out=out)

    rows = np.arange(12, dtype=np.float32).reshape(4, 3)
    run = tartan.allpairs(InPlace(), rows, device=device, workers=1)
    above = np.triu_indices(4, 1)
    np.testing.assert_array_equal(run.matrix()[above], (rows @ rows.T)[above])
    assert device == "sim" or any(given)


def test_a_score_that_is_no_number_is_a_failed_pair_unless_it_does_not_count() -> None:
    out, status = buffers(2, 2)
    scores = np.array([[np.nan, 1], [np.nan, 2]], np.float32)
    mask = TileMask(failed=((1,), ()))
    failures = write_block(Dot(), {"scores": scores}, mask.codes((2, 2)), [], out, status)
    assert [f.place for f in failures] == [(0, 0)]
    np.testing.assert_array_equal(status, [[FAILED_PAIR, DONE], [FAILED_ITEM, FAILED_ITEM]])


def test_of_very_many_failed_pairs_some_are_listed_and_all_are_marked() -> None:
    out, status = buffers(40, 50)
    failures = write_block(Dot(), {"scores": np.full((40, 50), np.nan, np.float32)}, DONE, [], out, status)
    assert len(failures) == MOST_LISTED
    assert failures[-1].reason.endswith(f"and so for {2000 - MOST_LISTED:,} more pairs of this tile")
    assert (status == FAILED_PAIR).all()


def test_the_other_way_round_marks_the_same_codes() -> None:
    out, status = buffers(3, 2)
    status[...] = [[DONE, FAILED_ITEM], [DONE, DONE], [FAILED_PAIR, DONE]]
    before = status.copy()
    write_block(Dot(), {"scores": np.array([[1, 2], [np.nan, 3], [4, 5]])}, DONE, [], out, status, filled=True)
    before[1, 0] = FAILED_PAIR
    np.testing.assert_array_equal(status, before)


def test_infinities_of_both_signs_are_scores() -> None:
    out, status = buffers(1, 2)
    before = status.copy()
    assert write_block(Dot(), {"scores": np.array([[np.inf, -np.inf]])}, DONE, [], out, status) == []
    np.testing.assert_array_equal(status, before, "where all pairs are done, that is known without codes")


def test_postprocess_is_applied_before_scores_are_judged() -> None:
    class Root(Dot):
        def postprocess(self, scores: np.ndarray) -> np.ndarray:
            with np.errstate(invalid="ignore"):
                return np.sqrt(scores)

    out, status = buffers(1, 2)
    failures = write_block(Root(), {"scores": np.array([[4.0, -1.0]])}, DONE, [], out, status)
    assert out["scores"][0, 0] == 2
    assert [f.place for f in failures] == [(0, 1)]


def test_a_pair_fails_when_either_way_does_and_is_named_once() -> None:
    status = np.array([[FAILED_PAIR, DONE, DONE]], np.uint8)
    mirrored = [CellFailure((0, 0), "twice"), CellFailure((2, 0), "second only")]
    failures = merge_mirrored([CellFailure((0, 0), "first")], mirrored, status)
    assert [(*f.place, f.reason) for f in failures] == [
        (0, 0, "first"),
        (0, 2, "second only (second before first)"),
    ]
    np.testing.assert_array_equal(status, [[FAILED_PAIR, DONE, FAILED_PAIR]])
