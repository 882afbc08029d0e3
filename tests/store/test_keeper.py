"""What is chosen from tiles against the same from the whole matrix."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tartan import _native
from tartan.core.pairs.ledger import DONE, FAILED_PAIR, NOT_COMPUTED
from tartan.store.keeper import BEST_BYTES, Keeper, Rows, concatenate

from .kit import describe

N, SIDE, TILE = 41, 12, 5


def few_values(symmetric: bool, seed: int = 3) -> np.ndarray:
    """Return scores of which most are equal to many others, and some are not finite."""
    scores = np.random.default_rng(seed).integers(0, 9, (N, N)).astype(np.float32)
    for value, step in ((np.nan, 11), (np.inf, 13), (-np.inf, 17)):
        scores.reshape(-1)[::step] = value
    return np.where(np.tri(N, dtype=bool), scores.T, scores) if symmetric else scores


def tiles(seed: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield the corners of the tiles of the upper triangle in a random order; none crosses a line of chunks."""
    starts = [top for line in range(0, N, SIDE) for top in range(line, min(line + SIDE, N), TILE)]
    ends = [min(top + TILE, (top // SIDE + 1) * SIDE, N) for top in starts]
    corners = [(a, b, c, d) for a, b in zip(starts, ends) for c, d in zip(starts, ends) if c >= a]
    return iter(np.random.default_rng(seed).permutation(np.array(corners)).tolist())


def codes_of(scores: np.ndarray, symmetric: bool) -> np.ndarray:
    """Return the codes that a run would give the pairs i < j."""
    bad = np.isnan(scores) | (False if symmetric else np.isnan(scores.T))
    codes = np.where(bad, FAILED_PAIR, DONE).astype(np.uint8)
    codes[np.tri(N, dtype=bool)] = NOT_COMPUTED
    return codes


def feed(keeper: Keeper, scores: np.ndarray, symmetric: bool, seed: int) -> None:
    codes = codes_of(scores, symmetric)
    for r0, r1, c0, c1 in tiles(seed):
        done = codes[r0:r1, c0:c1]
        back = None if symmetric else {"scores": scores[c0:c1, r0:r1]}
        keeper.choose((r0, c0), {"scores": scores[r0:r1, c0:c1]}, None if (done == DONE).all() else done, back)


def taken(keeper: Keeper) -> Rows:
    n_chunks = -(-N // SIDE)
    chunks = [(row, column) for row in range(n_chunks) for column in range(row, n_chunks)]
    return keeper.cut(concatenate([rows for chunk in chunks for rows in keeper.chosen(chunk)]))


def expected(scores: np.ndarray, symmetric: bool, k: int, largest: bool) -> list[tuple[int, int]]:
    codes = codes_of(scores, symmetric)
    good = (codes == DONE) | (codes.T == DONE)
    found = []
    for i in range(N):
        keys = np.clip(-scores[i] if largest else scores[i], None, np.finfo(np.float32).max)
        others = [j for j in np.argsort(keys, kind="stable").tolist() if good[i, j]]
        found += [(i, j) for j in others[:k]]
    return found


@pytest.mark.parametrize("best_bytes", [BEST_BYTES, 0])
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("k", [1, 4, 50])
def test_the_best_of_tiles_are_the_best_of_the_matrix(k: int, symmetric: bool, largest: bool, best_bytes: int) -> None:
    scores = few_values(symmetric)
    rule = {"kind": "top-k", "k": k, "largest": largest}
    manifest = describe(N, SIDE, reduce=rule, symmetric=symmetric)
    for seed in range(3):
        keeper = Keeper(manifest, best_bytes)
        feed(keeper, scores, symmetric, seed)
        rows = taken(keeper)
        assert list(zip(rows["i"].tolist(), rows["j"].tolist())) == expected(scores, symmetric, k, largest)
        np.testing.assert_array_equal(rows["scores"], scores[rows["i"], rows["j"]])


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("symmetric", [True, False])
def test_scores_beyond_a_threshold(symmetric: bool, largest: bool) -> None:
    scores = few_values(symmetric)
    manifest = describe(N, SIDE, reduce={"kind": "threshold", "threshold": 4, "largest": largest}, symmetric=symmetric)
    keeper = Keeper(manifest)
    feed(keeper, scores, symmetric, 0)
    rows = taken(keeper)
    codes = codes_of(scores, symmetric)
    good = codes == DONE if symmetric else (codes == DONE) | (codes.T == DONE)
    beyond = good & (scores >= 4 if largest else scores <= 4)
    assert list(zip(rows["i"].tolist(), rows["j"].tolist())) == [tuple(pair) for pair in np.argwhere(beyond).tolist()]


def test_an_item_compared_with_itself_is_beyond_a_threshold_once() -> None:
    rule = {"kind": "threshold", "threshold": 0, "largest": True}
    keeper = Keeper(describe(3, 4, reduce=rule, symmetric=False, diagonal=True))
    scores = {"scores": np.ones((3, 3), np.float32)}
    keeper.choose((0, 0), scores, np.triu(np.full((3, 3), DONE, np.uint8)), scores)
    rows = keeper.chosen((0, 0))[0]
    assert list(zip(rows["i"].tolist(), rows["j"].tolist())) == [(i, j) for i in range(3) for j in range(3)]


@pytest.mark.parametrize("dtype", ["float16", "float64", "int16", "uint8", "bool"])
def test_every_kind_of_number(dtype: str) -> None:
    scores = np.random.default_rng(1).integers(0, 2 if dtype == "bool" else 9, (N, N)).astype(dtype)
    scores = np.where(np.tri(N, dtype=bool), scores.T, scores)
    keeper = Keeper(describe(N, SIDE, reduce={"kind": "top-k", "k": 3}, outputs={"scores": dtype}))
    feed(keeper, scores, True, 0)
    rows = taken(keeper)
    assert rows["scores"].dtype == scores.dtype
    wide = scores.astype(np.float32)
    assert list(zip(rows["i"].tolist(), rows["j"].tolist())) == expected(wide, True, 3, False)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_threshold_has_the_precision_of_the_scores(dtype: str) -> None:
    """0.1 is another number in each."""
    rule = {"kind": "threshold", "threshold": 0.1, "largest": True}
    keeper = Keeper(describe(2, 4, reduce=rule, outputs={"scores": dtype}))
    scores = np.full((2, 2), 0.1, dtype)
    keeper.choose((0, 0), {"scores": scores}, np.triu(np.full((2, 2), DONE, np.uint8), 1), None)
    assert len(keeper.chosen((0, 0))[0]["i"]) == 1


def test_the_right_side_of_a_rectangle_gets_none() -> None:
    scores = few_values(True)
    workload: dict[str, Any] = {"kind": "rectangle", "n_left": 5}
    keeper = Keeper(describe(N, SIDE, reduce={"kind": "top-k", "k": 2}, workload=workload))
    keeper.choose((0, SIDE), {"scores": scores[:5, SIDE : 2 * SIDE]}, None, None)
    first, second = keeper.chosen((0, 1))
    assert set(first["i"].tolist()) <= set(range(5))
    assert not len(second["i"])


def test_threads_choose_what_one_chooses() -> None:
    scores = few_values(True)
    keeper = Keeper(describe(N, SIDE, reduce={"kind": "top-k", "k": 4, "largest": True}))
    codes, waiting, lock = codes_of(scores, True), list(tiles(5)), threading.Lock()

    def work() -> None:
        while True:
            with lock:
                if not waiting:
                    return
                r0, r1, c0, c1 = waiting.pop()
            keeper.choose((r0, c0), {"scores": scores[r0:r1, c0:c1]}, codes[r0:r1, c0:c1], None)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rows = taken(keeper)
    assert list(zip(rows["i"].tolist(), rows["j"].tolist())) == expected(scores, True, 4, True)


def unit_rows(dtype: str) -> np.ndarray:
    """Return rows of length 1, of which many are equal."""
    rows = np.random.default_rng(4).integers(0, 3, (N, 5)).astype(dtype) + np.eye(5, dtype=dtype)[0]
    return rows / np.linalg.norm(rows, axis=1, keepdims=True).astype(dtype)


@pytest.mark.skipif(not _native.HAS_PRODUCTS, reason="this processor has no AVX2, or is not an x86")
@pytest.mark.parametrize("best_bytes", [BEST_BYTES, 0])
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rule", [{"kind": "top-k", "k": 4}, {"kind": "threshold", "threshold": 0.2}])
def test_what_is_chosen_by_rows_is_what_is_chosen_by_scores(
    rule: dict[str, Any], dtype: str, largest: bool, best_bytes: int
) -> None:
    manifest = describe(N, SIDE, reduce=rule | {"largest": largest}, outputs={"scores": dtype})
    by_rows, by_scores = Keeper(manifest, best_bytes), Keeper(manifest, best_bytes)
    rows, scores = unit_rows(dtype), np.empty((N, N), dtype)
    _native.cosine_tile(rows, rows, scores)
    codes = codes_of(scores, True)
    codes[3], codes[:, 3] = FAILED_PAIR, FAILED_PAIR
    for r0, r1, c0, c1 in tiles(2):
        done = codes[r0:r1, c0:c1]
        plain = None if (done == DONE).all() else done
        assert by_rows.choose_rows((r0, c0), rows[r0:r1], rows[c0:c1], plain)
        by_scores.choose((r0, c0), {"scores": scores[r0:r1, c0:c1]}, plain, None)
    found, wanted = taken(by_rows), taken(by_scores)
    assert len(found["i"])
    for name, values in wanted.items():
        np.testing.assert_array_equal(found[name], values)


def test_rows_with_nan_and_other_outputs_need_scores() -> None:
    rule = {"kind": "top-k", "k": 1}
    rows = unit_rows("float32")
    rows[1] = np.nan
    assert not Keeper(describe(N, SIDE, reduce=rule)).choose_rows((0, 5), rows[:5], rows[5:9], None)
    two = Keeper(describe(N, SIDE, reduce=rule, outputs={"scores": "float32", "more": "float32"}))
    assert not two.choose_rows((0, 5), rows[2:5], rows[5:9], None)
    double = Keeper(describe(N, SIDE, reduce=rule, outputs={"scores": "float64"}))
    assert not double.choose_rows((0, 5), rows[2:5], rows[5:9], None)


def test_what_was_chosen_stays_until_it_is_forgotten() -> None:
    keeper = Keeper(describe(N, SIDE, reduce={"kind": "top-k", "k": 4}))
    feed(keeper, few_values(True), True, 0)
    assert len(keeper.chosen((0, 1))[0]["i"]) == len(keeper.chosen((0, 1))[0]["i"]) > 0
    keeper.forget((0, 1))
    assert not len(keeper.chosen((0, 1))[0]["i"])
