"""Parsing and preprocessing, item by item and by rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tartan
from support.fake_cupy import FakeCupy, FakeOutOfMemoryError
from tartan.application import Application
from tartan.errors import ConfigError, DeviceMemoryError, ItemError
from tartan.runtime.items import ItemFailure, ItemForm, check_rows, parse_item, prepare_item, prepare_rows, takes_rows


class Plain(Application):
    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        return left @ right.T


class Blocks(Plain):
    def preprocess_block(self, items: Any, xp: Any) -> Any:
        return items / items.sum(axis=1, keepdims=True)

    def check_block(self, items: np.ndarray) -> list[str | None]:
        return ["sums to zero" if row.sum() == 0 else None for row in items]


def test_a_parse_that_raises_fails_its_item_with_key_and_traceback() -> None:
    class Broken(Plain):
        def parse(self, key: str, data: Any) -> Any:
            raise ValueError("no number")

    failure = parse_item(Broken(), "a.txt", b"x")
    assert isinstance(failure, ItemFailure)
    assert (failure.stage, failure.reason) == ("parse", "a.txt: ValueError: no number")
    assert "in parse" in failure.traceback


def test_an_error_of_ours_speaks_for_itself() -> None:
    class Broken(Plain):
        def parse(self, key: str, data: Any) -> Any:
            raise ItemError("a.txt: too large")

    assert parse_item(Broken(), "a.txt", b"x") == ItemFailure("parse", "a.txt: too large")


def test_running_out_of_memory_fails_no_item() -> None:
    class Full(Plain):
        def preprocess(self, item: Any, xp: Any) -> Any:
            raise DeviceMemoryError("full")

    with pytest.raises(DeviceMemoryError):
        prepare_item(Full(), "a", np.zeros(2), np, True)


def test_an_item_that_the_host_has_no_memory_for_fails_and_one_for_which_a_gpu_has_none_does_not() -> None:
    """The device gives cached memory back and tries again; CuPy's error is a MemoryError too."""

    class Large(Plain):
        def preprocess(self, item: Any, xp: Any) -> Any:
            raise FakeOutOfMemoryError("no memory")

    assert isinstance(prepare_item(Large(), "a", np.zeros(2), np, True), ItemFailure)
    with pytest.raises(FakeOutOfMemoryError):
        prepare_item(Large(), "a", np.zeros(2), FakeCupy().array_namespace, False)


def test_an_item_that_says_why_it_cannot_be_compared_fails() -> None:
    class Picky(Plain):
        def describe_failure(self, item: Any) -> str | None:
            return "is empty" if len(item) == 0 else None

    assert prepare_item(Picky(), "a", np.zeros(0), np, True) == ItemFailure("preprocess", "a: is empty")
    assert prepare_item(Picky(), "a", np.zeros(1), np, True).shape == (1,)


def test_numbers_become_arrays_where_items_have_one_form() -> None:
    assert prepare_item(Plain(), "a", 3.5, np, True) == np.asarray(3.5)
    assert prepare_item(Plain(), "a", [1, 2], np, False) == [1, 2]


def test_one_item_of_an_application_of_blocks_is_a_block_of_one() -> None:
    np.testing.assert_allclose(prepare_item(Blocks(), "a", np.array([1.0, 3.0]), np, True), [0.25, 0.75])


def test_rows_are_checked_and_prepared_at_once() -> None:
    rows = np.array([[1.0, 3.0], [0.0, 0.0]])
    assert check_rows(Blocks(), rows, ["a", "b"]) == {1: ItemFailure("preprocess", "b: sums to zero")}
    np.testing.assert_allclose(prepare_rows(Blocks(), rows, np)[0], [0.25, 0.75])
    assert check_rows(Plain(), rows, ["a", "b"]) == {}
    assert prepare_rows(Plain(), rows, np) is rows


def test_rows_go_in_blocks_only_where_nothing_of_the_application_is_passed_by() -> None:
    class Parses(Plain):
        def parse(self, key: str, data: Any) -> Any:
            return data[:2]

    class Prepares(Plain):
        def preprocess(self, item: Any, xp: Any) -> Any:
            return item * 2

    class Describes(Plain):
        def describe_failure(self, item: Any) -> str | None:
            return "is negative" if item[0] < 0 else None

    class ChecksBlocks(Describes):
        def check_block(self, items: np.ndarray) -> list[str | None]:
            return [self.describe_failure(row) for row in items]

    taken = {app.__name__: takes_rows(app()) for app in (Plain, Blocks, Parses, Prepares, Describes, ChecksBlocks)}
    assert taken == {
        "Plain": True,
        "Blocks": True,
        "Parses": False,
        "Prepares": False,
        "Describes": False,
        "ChecksBlocks": True,
    }


@pytest.mark.parametrize("alone", [False, True])
def test_a_check_of_blocks_finds_the_same_items_in_rows_and_one_by_one(alone: bool) -> None:
    class Checked(Plain):
        releases_gil = True

        def check_block(self, items: np.ndarray) -> list[str | None] | None:
            return [f"value {row[0]:g} is negative" if row[0] < 0 else None for row in items]

    rows = np.array([[1, 2], [-3, 4], [5, 6]], np.float32)
    run = tartan.allpairs(Checked(), list(rows) if alone else rows, workers=1)
    assert [(f.i, f.j, f.stage, f.reason) for f in run.failures] == [(1, None, "preprocess", "1: value -3 is negative")]
    assert run.n_pairs_done == 1


def test_a_check_of_blocks_answers_for_every_row() -> None:
    class Short(Plain):
        def check_block(self, items: np.ndarray) -> list[str | None]:
            return [None]

    with pytest.raises(ConfigError, match=r"Short\.check_block gave 1 answers for 2 rows"):
        check_rows(Short(), np.zeros((2, 2)), ["a", "b"])


def test_a_form_tells_how_an_item_differs() -> None:
    form = ItemForm.of(np.zeros((2, 3), np.float32))
    assert form.nbytes == 24
    assert form.mismatch(np.ones((2, 3), np.float32)) is None
    assert "float64 (2, 3)" in (form.mismatch(np.ones((2, 3))) or "")
    assert "list" in (form.mismatch([1]) or "")
