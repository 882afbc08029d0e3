"""docs/json.md is what ``--json`` prints: every key that it names, with its type; none is missing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tartan
from tartan.apps.vectors.app import Vectors

PAGE = Path(__file__).parents[2] / "docs" / "json.md"
ROW = re.compile(r"^\| `(\w+)` \| ([a-z ]+) \| ?(.*?) ?\|$", re.MULTILINE)
KINDS = {
    "string": str, "integer": int, "number": (int, float), "object": dict, "array": list, "boolean": bool,
    "null": type(None),
}  # fmt: skip
# Keys of statistics, which the page does not list one by one.
OPEN = {"info", "run"}


def schema(command: str) -> dict[str, tuple[str, str]]:
    text = PAGE.read_text().partition(f"## {command}\n")[2].partition("\n## ")[0]
    return {name: (kind, what) for name, kind, what in ROW.findall(text)}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("json")
    rows = np.random.default_rng(0).normal(size=(12, 3)).astype(np.float32)
    np.save(place / "x.npy", rows)
    tartan.allpairs(Vectors(metric="euclidean"), rows, place / "run", quiet=True, workers=1)
    np.save(place / "map.npy", rows[:, :2].astype(float))
    (place / "t.nwk").write_text("(a:1,b:2,c:3);")
    (place / "t.tsv").write_text("item\tname\na\tA\nb\tB\nc\tC\n")
    return place


WORDS = {
    "info": "info run", "run": "run vectors x.npy -o again --set metric=euclidean -q", "show": "show run 0 1",
    "log": "log run", "cluster": "cluster run -k 2 -q", "tree": "tree run -q", "embed": "embed run -o map2 -q",
    "neighbors": "neighbors run -k 2 -q", "outliers": "outliers run -q", "report": "report run -o r.html",
    "export": "export run m.npy", "align": "align map.npy map.npy", "apps": "apps", "doctor": "doctor",
    "simulate": "simulate vectors sim -n 3", "names": "names t.tsv t.nwk", "expire": "expire run",
}  # fmt: skip


@pytest.mark.parametrize("name", WORDS)
def test_what_is_printed_is_what_the_page_says(
    name: str, place: Path, command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    done = command(*WORDS[name].split(), "--json")
    assert done.status == 0, done.err
    printed, said = json.loads(done.out), schema(name)
    for key, (kind, what) in said.items():
        kinds = tuple(KINDS[one] for one in kind.split(" or "))
        if key not in printed:
            assert "*sometimes*" in what, key
        else:
            flat = tuple(one for each in kinds for one in (each if isinstance(each, tuple) else (each,)))
            assert isinstance(printed[key], flat), key
            assert not isinstance(printed[key], bool) or bool in flat, key
    if name not in OPEN | {"doctor", "embed"}:
        assert set(printed) <= set(said)


def test_every_command_of_the_page_is_tried() -> None:
    assert set(re.findall(r"^## (\w+)$", PAGE.read_text(), re.MULTILINE)) == set(WORDS)
