"""Items found by what a user writes."""

from __future__ import annotations

import pytest

from tartan.base.keys import IndexKeys
from tartan.errors import ConfigError
from tartan.result.lookup import find_matching, item_number

KEYS = ["a.jpg", "b.jpg", "ba.jpg", "12", "C1.png"]


@pytest.mark.parametrize(
    ("text", "item"), [("a.jpg", 0), ("ba", 2), ("c1", 4), ("12", 3), ("2.", None), ("4", 4), ("png", 4)]
)
def test_a_name_a_part_of_it_or_a_number(text: str, item: int | None) -> None:
    if item is None:
        with pytest.raises(ConfigError, match="no item"):
            item_number(KEYS, text)
    else:
        assert item_number(KEYS, text) == item


def test_what_could_be_several_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"several items have 'jpg' in their names: a\.jpg, b\.jpg, ba\.jpg;"):
        item_number(KEYS, "jpg")
    with pytest.raises(ConfigError, match=r"did you mean 'a\.jpg'"):
        item_number(KEYS, "a.jgp")


def test_a_number_holds_where_several_names_have_its_digits() -> None:
    keys = ["photo_0010.jpg", "photo_0011.jpg", "photo_0012.jpg"]
    assert [item_number(keys, text) for text in ("0", "1", "12")] == [0, 1, 2]
    with pytest.raises(ConfigError, match="several items have '001'"):
        item_number(keys, "001")


def test_rows_of_an_array_are_numbers() -> None:
    keys = IndexKeys(10**9)
    assert item_number(keys, "123456789") == 123456789
    assert find_matching(keys, "7", 5) == [7]
    assert find_matching(keys, "x", 5) == []
    assert find_matching(keys, "1000000000", 5) == []


def test_the_very_name_comes_first_and_the_list_ends() -> None:
    assert find_matching(["xa", "a", "ab"], "a", 2) == [1, 0]
