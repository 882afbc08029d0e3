"""Names of items."""

from __future__ import annotations

import pytest

from tartan.base.keys import stems


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (["a.faa.gz", "b.JPG", "c"], ["a", "b", "c"]),
        (["x/.hidden", ".gz", "Nikon_1.5.jpg"], ["x/.hidden", ".gz", "Nikon_1.5"]),
        (["a.5", "b.toolongsuffix"], ["a.5", "b.toolongsuffix"]),
        (["a.jpg", "a.png", "b.png"], ["a.jpg", "a.png", "b"]),
        (["a.b.gz", "a.b", "a"], ["a.b.gz", "a.b", "a"]),
        (["1/a.jpg", "2/a.jpg"], ["1/a", "2/a"]),
        ([], []),
    ],
)
def test_suffixes_are_cut_where_names_stay_apart(keys: list[str], expected: list[str]) -> None:
    assert stems(keys) == expected
    assert len(set(stems(keys))) == len(set(keys))
