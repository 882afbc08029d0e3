"""Right results, whatever is compared and however: every score of random runs against a known answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from random_runs import DEVICES, RandomRun, random_runs

import tartan
from tartan.errors import ConfigError
from tartan.sources.items import SequenceSource


def check(case: RandomRun, run: tartan.Run) -> None:
    """Compare every output of a run with what it must be."""
    assert not run.failures
    assert run.n_pairs_done == run.n_pairs
    for number, output in enumerate(run.outputs):
        np.testing.assert_array_equal(run.matrix(output), case.expected(number))


def small(**changes: Any) -> RandomRun:
    """Return a simple run with some of its properties changed."""
    options = {"host_cache": "2items", "device_cache": "2items", "workers": 1, **changes.pop("options", {})}
    about = {
        "numbers": (5, 0, 7, 7),
        "form": "rows",
        "pairwise": False,
        "prepared": False,
        "symmetric": True,
        "diagonal": False,
        "dtypes": ("<f4",),
        "n_left": None,
        "pairs": None,
    }
    return RandomRun(**{**about, **changes}, options=options)


@pytest.mark.exhaustive
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@example(small())  # a span moves in a level of two slots
@example(small(numbers=(1,), diagonal=True, options={"order": "quadrant"}))
@example(small(numbers=(1, 2), options={"device": "sim"}))
@example(small(numbers=(4, 3, 2, 1, 0, 9), prepared=True, options={"device": "sim", "host_cache": "4items"}))
@example(small(numbers=tuple(range(9)), options={"order": "quadrant", "tile": 1}))
@given(random_runs())
def test_random_runs_in_threads(case: RandomRun) -> None:
    check(case, case.start())


@pytest.mark.exhaustive
@settings(max_examples=2000, suppress_health_check=list(HealthCheck))
@given(random_runs(most_items=120))
def test_many_random_runs_in_threads(case: RandomRun) -> None:
    check(case, case.start())


@pytest.mark.exhaustive
@pytest.mark.slow
@settings(max_examples=6, suppress_health_check=list(HealthCheck))
@given(random_runs(devices=("cpu", "cpu", ("cpu", "sim"))))
def test_random_runs_in_processes(case: RandomRun) -> None:
    check(case, case.start(threads=False))


@pytest.mark.exhaustive
@pytest.mark.slow
@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(random_runs(most_items=80))
def test_many_random_runs_in_processes(case: RandomRun) -> None:
    check(case, case.start(threads=False))


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("form", ["rows", "text", "tuples", "unequal"])
def test_forms_in_processes(form: str) -> None:
    case = small(numbers=tuple(range(0, 60, 5)), form=form, options={"host_cache": "5items", "workers": 2})
    check(case, case.start(threads=False))


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("order", ["panel", "quadrant"])
def test_every_device_and_order(device: Any, order: str) -> None:
    numbers = tuple(int(n) for n in np.random.default_rng(3).integers(0, 500, 30))
    options = {"device": device, "order": order, "host_cache": "11items", "device_cache": "7items", "workers": 2}
    case = small(numbers=numbers, prepared=True, symmetric=False, diagonal=True, options=options)
    check(case, case.start())


def _thresholded(scores: np.ndarray, rule: dict[str, Any]) -> set[tuple[int, int]]:
    kept = scores >= rule["threshold"] if rule["largest"] else scores <= rule["threshold"]
    return {(int(i), int(j)) for i, j in zip(*np.nonzero(np.triu(kept, 1)), strict=True)}


@pytest.mark.slow
@settings(max_examples=15, suppress_health_check=list(HealthCheck))
@given(
    numbers=st.lists(st.integers(0, 300), min_size=2, max_size=30, unique=True),
    largest=st.booleans(),
    tile=st.integers(1, 12),
    threshold=st.integers(0, 600),
)
def test_pairs_beyond_a_threshold(numbers: list[int], largest: bool, tile: int, threshold: int) -> None:
    rule = {"kind": "threshold", "threshold": threshold, "largest": largest}
    case = small(numbers=tuple(numbers), options={"reduce": rule, "tile": tile, "host_cache": "7items"})
    pairs = case.start().pairs().read_all().to_pydict()
    scores = case.expected()
    found = set(zip(pairs["i"], pairs["j"], strict=True))
    assert found == _thresholded(scores, rule)
    assert all(scores[i, j] == s for i, j, s in zip(pairs["i"], pairs["j"], pairs["score"], strict=True))


@pytest.mark.slow
@settings(max_examples=15, suppress_health_check=list(HealthCheck))
@given(
    numbers=st.lists(st.integers(0, 300), min_size=2, max_size=30, unique=True),
    largest=st.booleans(),
    tile=st.integers(1, 12),
    k=st.integers(1, 5),
)
def test_the_best_of_each_item(numbers: list[int], largest: bool, tile: int, k: int) -> None:
    rule = {"kind": "top-k", "k": k, "largest": largest}
    case = small(numbers=tuple(numbers), options={"reduce": rule, "tile": tile, "host_cache": "7items"})
    dense = small(numbers=tuple(numbers)).start()
    indices, scores = case.start().neighbors(k, largest=largest)
    expected_indices, expected_scores = dense.neighbors(k, largest=largest)
    np.testing.assert_array_equal(indices, expected_indices)
    np.testing.assert_array_equal(scores, expected_scores)


def test_one_item_is_refused_and_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"pairs need at least 2 items; found 1 item in the list; name more"):
        tartan.allpairs(lambda a, b: a - b, [5.0], tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_only_file_says_why_it_cannot_be_read(tmp_path: Path) -> None:
    from tartan.apps.microscopy import Microscopy

    (tmp_path / "p.csv").write_text("x,y,sigma,precision\n1,2,100,5\n3,4,100,5\n5,9,100,5\n")
    with pytest.raises(ConfigError, match=r"found 1 item in .* which cannot be read: p\.csv: it has 'sigma', which"):
        tartan.allpairs(Microscopy(), tmp_path / "p.csv", tmp_path / "run")


@pytest.mark.slow
def test_one_item_makes_a_pair_with_itself_or_with_another_set() -> None:
    class Sums(tartan.Application):
        diagonal = True

        def compare_pair(self, a: float, b: float) -> float:
            return a + b

    assert tartan.allpairs(Sums(), [5.0], workers=1).matrix().tolist() == [[10.0]]
    sides = tartan.allpairs(lambda a, b: a + b, [5.0], against=[1.0], workers=1)
    assert (sides.n_pairs, sides.matrix().tolist()) == (1, [[6.0]])


@pytest.mark.exhaustive
def test_functions_and_odd_items() -> None:
    """Plain functions and lambdas, items of any kind."""
    ages = tartan.allpairs(lambda a, b: abs(a["age"] - b["age"]), [{"age": 3}, {"age": 5}, {"age": 11}], workers=1)
    assert ages.condensed().tolist() == [2.0, 8.0, 6.0]
    nothing = tartan.allpairs(lambda a, b: 1.0, [None, None, None], workers=1)
    assert nothing.condensed().tolist() == [1.0, 1.0, 1.0]
    objects = tartan.allpairs(lambda a, b: len(a) + len(b), np.array([[1, 2], "a", (1,) * 5], dtype=object), workers=1)
    assert objects.condensed().tolist() == [3.0, 7.0, 6.0]
    texts = tartan.allpairs(lambda a, b: len({*a} & {*b}), SequenceSource(["abc", "bcd", "x"]), workers=1)
    assert texts.condensed().tolist() == [2.0, 0.0, 0.0]
    generated = tartan.allpairs(lambda a, b: a + b, (float(i) for i in range(3)), workers=1)
    assert generated.condensed().tolist() == [1.0, 2.0, 3.0]
    large = tartan.allpairs(lambda a, b: a * b % 7, [10**12 + 1, 10**12 + 2, 3], workers=1)  # as Python multiplies
    assert large.condensed().tolist() == [6.0, 6.0, 2.0]
    named = tartan.allpairs(lambda a, b: a + b, {"one": 1.0, "two": 2.0}, workers=1)
    assert (list(named.keys), named.condensed().tolist()) == (["one", "two"], [3.0])


ROWS = np.arange(12.0).reshape(6, 2)


@pytest.mark.parametrize(
    "rows",
    [
        np.asfortranarray(ROWS),
        np.repeat(ROWS, 2, axis=0)[::2],
        ROWS[::-1][::-1],
        ROWS.astype(">f8"),
        ROWS.astype(np.int16),
        np.broadcast_to(ROWS[:, :, None], (6, 2, 4)),
    ],
)
def test_arrays_in_every_layout(rows: np.ndarray) -> None:
    class First(tartan.Application):
        releases_gil = True

        def compare(self, left: Any, right: Any, xp: Any) -> Any:
            a, b = (xp.reshape(items, (len(items), -1))[:, 0] for items in (left, right))
            return xp.abs(a[:, None] - b[None, :])

    for cache in ("2items", "6items"):
        run = tartan.allpairs(First(), rows, host_cache=cache)
        np.testing.assert_array_equal(run.matrix(diagonal=0.0), np.abs(ROWS[:, :1] - ROWS[:, :1].T))


def test_masked_items_are_refused() -> None:
    with pytest.raises(ConfigError, match="are a masked array; fill it with"):
        tartan.allpairs(lambda a, b: 1.0, np.ma.masked_greater(ROWS, 8))


def test_a_temporary_result_lasts_as_long_as_what_reads_it() -> None:
    case = small()
    expected = case.expected()[np.triu_indices(4, 1)].tolist()
    assert case.start().pairs().read_all()["score"].to_pylist() == expected
    assert np.asarray(case.start().scores)[np.triu_indices(4, 1)].tolist() == expected
    run = case.start()
    path = run.path
    assert path.exists()
    del run
    assert not path.exists()


@pytest.mark.parametrize("tile", [2, 3, 8])
def test_every_score_is_counted_once(tile: int) -> None:
    """Two of a pair that differs by order, one of an item with itself."""

    class Differences(tartan.Application):
        releases_gil, symmetric, diagonal = True, False, True

        def compare(self, left: Any, right: Any, xp: Any) -> Any:
            return left - right.T

    run = tartan.allpairs(Differences(), np.arange(7.0)[:, None], tile=tile)
    assert run.stats["pairs_computed"] == run.n_pairs == run.n_pairs_done == 49


@pytest.mark.slow
def test_one_item_may_be_far_larger_than_those_that_were_looked_at() -> None:
    sizes = [1, 2, 3, 10**6, 4, 5, 6, 7]
    run = tartan.allpairs(lambda a, b: float(abs(len(a) - len(b))), [np.zeros(size) for size in sizes], workers=1)
    expected = np.triu(np.abs(np.subtract.outer(sizes, sizes)), 1).astype(np.float32)
    np.testing.assert_array_equal(run.matrix(diagonal=0), expected + expected.T)


@pytest.mark.slow
def test_a_run_says_whether_its_call_found_it_finished(tmp_path: Path) -> None:
    items, out = [1.0, 2.0, 4.0], tmp_path / "run"
    for expected in (False, True):
        run = tartan.allpairs(abs_difference, items, out, workers=1)
        assert (run.found_finished, run.finished) == (expected, True)
    assert tartan.allpairs(abs_difference, items, out, workers=1, part="1/2").found_finished
    assert not tartan.open(out).found_finished


def abs_difference(a: float, b: float) -> float:
    return abs(a - b)
