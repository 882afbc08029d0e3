"""Items are shared and read-only; an application that asks gets copies, and an error that needs them says so."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np
import pytest

import tartan
from tartan.errors import RunFailedError
from tartan.runtime.writable import comparison, read_only, way_out, writable, writable_operand

Both = namedtuple("Both", "a b")


def centred(a: np.ndarray, b: np.ndarray) -> float:
    """Return a distance, and write to both."""
    a -= a.mean()
    b -= b.mean()
    return float(abs(a - b).sum())


def frozen(*shape: int) -> np.ndarray:
    return read_only(np.arange(float(np.prod(shape))).reshape(shape))


def test_read_only_is_a_view() -> None:
    array = np.zeros(3)
    item = read_only((array, [array]))
    assert not item[0].flags.writeable
    assert not item[1][0].flags.writeable
    assert np.shares_memory(item[0], array)
    assert array.flags.writeable
    both = Both(array, 1)
    assert read_only(both) is both


def test_copies_share_nothing() -> None:
    array = frozen(3)
    for copied in (writable(array), writable((array,))[0], writable_operand([array, array])[1]):
        copied += 1
    assert array.tolist() == [0.0, 1.0, 2.0]
    first, second = writable_operand([array, array])
    assert not np.shares_memory(first, second)
    assert writable("text") == "text"


class Wants(tartan.Application):
    writable_items = True


def test_comparison_copies_where_that_is_asked_for() -> None:
    assert comparison(tartan.Application(), centred) is centred
    assert comparison(Wants(), centred)(frozen(3), frozen(3)) == 0.0


@pytest.mark.parametrize(
    ("function", "items", "expected"),
    [
        (centred, (frozen(3), frozen(3)), True),
        (centred, (frozen(3), frozen(4)), False),  # fails with copies, too
        (centred, (np.zeros(3), np.zeros(3)), False),  # not read-only
        (lambda both: centred(*both), ([frozen(3), frozen(3)],), True),
        (lambda both: centred(*both.values()), ({"a": frozen(3), "b": frozen(3)},), True),
    ],
)
def test_way_out_is_tried(function: Any, items: tuple[Any, ...], expected: bool) -> None:
    assert ("writable_items = True" in way_out(ValueError("any text"), function, *items)) is expected
    assert way_out(KeyError("any text"), function, *items) == ""


class Pair(tartan.Application):
    def compare_pair(self, a: Any, b: Any) -> Any:
        return centred(a, b)


class Tile(tartan.Application):
    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        return np.array([[centred(a, b) for b in right] for a in left])


class Parsed(tartan.Application):
    def parse(self, key: str, data: Any) -> Any:
        data -= data.mean()
        return data

    def compare_pair(self, a: Any, b: Any) -> Any:
        return abs(a - b).sum()


class Prepared(Parsed):
    def parse(self, key: str, data: Any) -> Any:
        return data

    def preprocess(self, item: Any, xp: Any) -> Any:
        item -= item.mean()
        return item


class Block(Parsed):
    def parse(self, key: str, data: Any) -> Any:
        return data

    def preprocess_block(self, items: Any, xp: Any) -> Any:
        items -= items.mean(axis=1, keepdims=True)
        return items


ROWS = np.array([[0.0, 1.0, 5.0], [2.0, 2.0, 2.0], [1.0, 0.0, 8.0]])
CENTRED = ROWS - ROWS.mean(axis=1, keepdims=True)
EXPECTED = [float(abs(CENTRED[i] - CENTRED[j]).sum()) for i, j in ((0, 1), (0, 2), (1, 2))]


@pytest.mark.parametrize("kind", [Pair, Tile, Parsed, Prepared, Block])
@pytest.mark.parametrize("rows", [ROWS, list(ROWS)], ids=["rows", "list"])
def test_in_threads_nothing_is_written_to_what_was_given(kind: type[tartan.Application], rows: Any) -> None:
    class InThreads(kind):  # type: ignore[misc,valid-type]
        releases_gil = True

    before = ROWS.copy()
    with pytest.raises(tartan.TartanError, match=r"read-only; .*writable_items = True"):
        tartan.allpairs(InThreads(), rows, workers=1)
    InThreads.writable_items = True
    run = tartan.allpairs(InThreads(), rows, workers=1)
    np.testing.assert_allclose(run.condensed(), EXPECTED, rtol=1e-6)
    np.testing.assert_array_equal(ROWS, before)


@pytest.mark.slow
def test_items_of_their_own_size_and_triples() -> None:
    """Ragged arrays in processes and threads, and triples."""
    items = [np.arange(float(n)) for n in (3, 5, 4, 6)]

    class Ragged(tartan.Application):
        writable_items = True

        def compare_pair(self, a: Any, b: Any) -> Any:
            a[:] += 1
            return a.sum() - len(a) + b.sum()

        def compare_triple(self, a: Any, b: Any, c: Any) -> Any:
            return self.compare_pair(a, b) + c.sum()

    class InThreads(Ragged):
        releases_gil = True

    for app in (Ragged(), InThreads()):
        run = tartan.allpairs(app, items, workers=1)
        assert run.condensed().tolist() == [13.0, 9.0, 18.0, 16.0, 25.0, 21.0]
        best = tartan.alltuples(app, items, keep=tartan.top(1), workers=1)
        assert len(best.failures) == 0
    assert [item.sum() for item in items] == [3.0, 10.0, 6.0, 15.0]


def test_a_block_of_triples_that_writes_to_its_items_learns_the_way_out() -> None:
    class Writing(tartan.Application):
        releases_gil = True

        def compare_triples(self, a: Any, b: Any, c: Any, xp: Any) -> Any:
            a += 1
            return np.zeros((len(a), len(b), len(c)))

    rows = np.zeros((3, 2), np.float32)
    with pytest.raises(RunFailedError, match="with copies it works"):
        tartan.alltuples(Writing(), rows, keep=tartan.top(1), workers=1, on_error="raise")
