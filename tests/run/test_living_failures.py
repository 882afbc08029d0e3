"""What failed of a run whose items change, and readers that are open meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest

import tartan
from tartan.errors import StoreError


class Numbers(tartan.Application):
    releases_gil = True
    outputs: ClassVar[dict[str, str]] = {"scores": "float64"}
    item_suffixes = (".txt",)
    similarity = False

    def parse(self, key: str, data: bytes) -> float:
        return float(data)

    def compare_pair(self, a: float, b: float) -> float:
        return abs(a - b)


KINDS = [None, {"kind": "threshold", "threshold": 100.0}]


def make_run(place: Path, rule: dict[str, Any] | None) -> Path:
    """Run four items, the first of which fails."""
    for name, text in zip("abcd", ("bad", "1", "2", "4"), strict=True):
        (place / f"{name}.txt").write_text(text)
    files = [str(place / f"{name}.txt") for name in "abcd"]
    return tartan.allpairs(Numbers, files, out=place / "r.tartan", tile=8, workers=1, reduce=rule).path


@pytest.mark.sampled(2)
@pytest.mark.parametrize("rule", KINDS)
@pytest.mark.parametrize("change", ["remove", "replace"])
def test_what_was_removed_does_not_fail_by_its_stand_in(
    tmp_path: Path, rule: dict[str, Any] | None, change: str
) -> None:
    path = make_run(tmp_path, rule)
    (tmp_path / "e.txt").write_text("8")
    if change == "remove":
        tartan.remove(path, ["c.txt"])
        tartan.add(path, str(tmp_path / "e.txt"), app=Numbers, workers=1)
    else:
        tartan.replace(path, "c.txt", str(tmp_path / "e.txt"), app=Numbers, workers=1)
    assert [(one.i, one.j) for one in tartan.open(path, version=1).failures] == [(0, None)]
    assert [(one.i, one.j) for one in tartan.open(path).failures] == [(0, None)]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("rule", KINDS)
@pytest.mark.parametrize("changed", [False, True])
def test_an_open_reader_keeps_its_items_when_others_are_added(
    tmp_path: Path, rule: dict[str, Any] | None, changed: bool
) -> None:
    path, expected = make_run(tmp_path, rule), {("b.txt", "c.txt"): 1.0, ("b.txt", "d.txt"): 3.0}
    expected[("c.txt", "d.txt")] = 2.0
    if changed:
        tartan.remove(path, ["c.txt"])
        expected = {("b.txt", "d.txt"): 3.0}
    reader = tartan.open(path)
    (tmp_path / "e.txt").write_text("8")
    tartan.add(path, str(tmp_path / "e.txt"), app=Numbers, workers=1)
    found = {
        (row["key_i"], row["key_j"]): row["score"]
        for batch in reader.pairs()
        for row in batch.to_pylist()
        if row["score"] is not None
    }
    assert found == expected
    assert len(reader.keys) == 4 - changed


@pytest.mark.parametrize("rule", KINDS)
def test_an_open_reader_of_a_run_without_a_log_ends_when_its_version_is_erased(
    tmp_path: Path, rule: dict[str, Any] | None
) -> None:
    path = make_run(tmp_path, rule)
    reader = tartan.open(path)
    tartan.remove(path, ["c.txt"])
    assert sum(batch.num_rows for batch in reader.pairs()) == sum(
        batch.num_rows for batch in tartan.open(path, version=1).pairs()
    )
    tartan.expire(path, now=True)
    with pytest.raises(StoreError, match=r"version 1 of .* has expired"):
        list(reader.pairs())
    if rule is None:
        with pytest.raises(StoreError, match=r"version 1 of .* has expired"):
            reader.matrix()
