"""Values made ahead: their order, errors, and an early end."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tartan.base.daemon_pool import ahead, map_ahead


def test_all_values_come_in_order() -> None:
    assert list(ahead(iter([3, None, 1]))) == [3, None, 1]
    assert list(ahead(iter(()))) == []


def test_the_next_value_is_made_while_one_is_used() -> None:
    made = threading.Event()

    def values() -> Iterator[int]:
        yield 1
        made.set()
        yield 2

    found = ahead(values())
    assert next(found) == 1
    assert made.wait(60)
    assert list(found) == [2]


def test_an_error_comes_where_its_value_would() -> None:
    def values() -> Iterator[int]:
        yield 1
        raise ValueError("the second")

    found = ahead(values())
    assert next(found) == 1
    with pytest.raises(ValueError, match="the second"):
        next(found)


def test_who_stops_early_leaves_no_thread() -> None:
    found = ahead(iter(range(9)))
    assert next(found) == 0
    found.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("tartan-ahead")]


def test_what_threads_make_comes_in_the_order_of_the_values() -> None:
    second = threading.Event()

    def work(value: int) -> int:
        if value == 0:
            assert second.wait(60), "the next one is made meanwhile"
        second.set()
        return value * value

    assert list(map_ahead(work, iter(range(6)), 2)) == [0, 1, 4, 9, 16, 25]
    assert list(map_ahead(work, [], 3)) == []


def test_an_error_of_the_values_comes_behind_all_before_it() -> None:
    def values() -> Iterator[int]:
        yield 2
        yield 1
        raise KeyError("third")

    found = map_ahead(lambda value: 6 // value, values(), 4)
    assert [next(found), next(found)] == [3, 6]
    with pytest.raises(KeyError, match="third"):
        next(found)
    with pytest.raises(ZeroDivisionError):
        list(map_ahead(lambda value: 1 // value, [0], 2))


def test_who_stops_a_map_early_leaves_no_thread() -> None:
    found = map_ahead(abs, iter(range(99)), 2)
    assert next(found) == 0
    found.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("tartan-map")]
