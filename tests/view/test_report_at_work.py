"""What a report lets its reader do: find groups, take them away as a table, look at cells, save pictures."""

from __future__ import annotations

import base64
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tartan
from support.chromium import BROWSER, Browser
from tartan.apps.vectors.app import Vectors
from tartan.view.groups import Groups, groups_of
from tartan.view.overview import overview
from tartan.view.report import MAX_BYTES, findings_of, write_report
from tartan.view.scene import ASIDE, group_colours, order_groups

in_browser = [
    pytest.mark.slow,
    pytest.mark.exhaustive,
    pytest.mark.skipif(BROWSER is None, reason="needs Chromium (chromium, chromium-browser or google-chrome)"),
]


def near_duplicates(folder: Path, n: int = 60) -> tartan.Run:
    """A run of numbers that keeps near pairs: 0, 1 and 2 have a twin each, all others are alone."""
    items = [100.0 * i for i in range(n)] + [0.1, 100.1, 200.1, 200.2]
    return tartan.allpairs(
        lambda a, b: abs(a - b),
        items,
        folder / "r.tartan",
        workers=1,
        reduce={"kind": "threshold", "threshold": 1.0, "largest": False},
    )


def data_of(path: Path) -> Any:
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', path.read_text("utf-8"), re.DOTALL)
    assert found
    return json.loads(found[1])


def scores_of(matrix: dict[str, Any]) -> np.ndarray:
    return np.frombuffer(base64.b64decode(matrix["scores"]), "<f4")


@pytest.mark.slow
def test_items_that_are_alone_are_no_groups(tmp_path: Path) -> None:
    run = near_duplicates(tmp_path)
    found = groups_of(run)
    assert found is not None
    assert found.labels is not None
    assert sorted(set(found.labels)) == ["group 1", "group 2", "group 3", ASIDE]
    text = write_report(run, tmp_path / "r.html").read_text("utf-8")
    assert "<h2>3 groups; 57 items are in none</h2>" in text
    assert text.count('<th scope="row"><span class="dot"') == 4


@pytest.mark.slow
def test_a_picture_of_kept_pairs_shows_the_items_that_are_in_groups(tmp_path: Path) -> None:
    run = near_duplicates(tmp_path)
    found = groups_of(run)
    assert found is not None
    seen = overview(run, 480, found.labels)
    assert seen.shown is not None
    assert seen.shown.tolist() == [2, 62, 63, 0, 60, 1, 61]
    assert seen.cells.shape == (7, 7)
    assert seen.cells[0, 1] == pytest.approx(0.1)
    assert "Shown are the 7 items that are in groups" in write_report(run, tmp_path / "r.html").read_text("utf-8")
    assert data_of(tmp_path / "r.html")["matrix"]["down"] == seen.shown.tolist()


def test_an_item_that_is_alone_is_right_where_it_truly_is() -> None:
    match = findings_of(Groups(["group 1", "group 1", ASIDE, ASIDE]), ["a", "a", "b", "c"]).match
    assert match is not None
    assert match.perfect


def test_groups_have_the_order_and_colours_of_their_numbers() -> None:
    names = ["group 10", "group 2", ASIDE, "group 1"]
    assert order_groups(names) == ["group 1", "group 2", "group 10", ASIDE]
    assert group_colours(names)["group 1"] == group_colours(["x"])["x"]
    assert group_colours(names)[ASIDE] not in {group_colours(names)[name] for name in names if name != ASIDE}
    assert order_groups(["tiger", "cat", "tiger"]) == ["tiger", "cat"]


def test_the_page_has_the_scores_of_its_cells(make_run: Any, tmp_path: Path) -> None:
    run = make_run(24, 4)
    data = data_of(write_report(run, tmp_path / "r.html", clusters=[f"group {i % 4}" for i in range(24)]))
    matrix, order = data["matrix"], data["matrix"]["down"]
    assert matrix["mirrored"]
    assert matrix["unit"] == "NCC"
    shown = run.full[np.ix_(order, order)][np.triu_indices(24)]
    np.testing.assert_array_equal(scores_of(matrix), shown)
    assert data["items"] == list(run.keys)
    assert [data["groups"]["names"][k] for k in data["groups"]["of"]] == [f"group {i % 4}" for i in range(24)]


def test_the_same_run_gives_the_same_bytes(make_run: Any, tmp_path: Path) -> None:
    first, second = (write_report(make_run(24, 4), tmp_path / f"{name}.html", title="x") for name in "ab")
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.slow
def test_a_report_of_ten_thousand_items_is_small(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = np.repeat(rng.normal(size=(500, 16)), 20, axis=0) + 0.01 * rng.normal(size=(10_000, 16))
    run = tartan.allpairs(
        Vectors(), rows.astype(np.float32), tmp_path / "r.tartan", reduce={"kind": "top-k", "k": 10, "largest": False}
    )
    path = write_report(run, tmp_path / "r.html")
    assert path.stat().st_size <= MAX_BYTES == 5_000_000
    text = path.read_text("utf-8")
    assert "the first 20 are shown" in text
    assert len(data_of(path)["items"]) == 10_000


@pytest.mark.slow
def test_names_that_are_too_long_are_left_out_of_the_script(make_run: Any, tmp_path: Path) -> None:
    run = make_run(24, 4, keys=["k" * 200_000 + str(i) for i in range(24)])
    path = write_report(run, tmp_path / "r.html", clusters=[f"group {i % 4}" for i in range(24)])
    assert data_of(path) == {"items": None, "groups": None, "matrix": None}
    assert "tartan cluster photos.tartan -o groups.csv" in path.read_text("utf-8")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


HOSTILE = ['=1+1,"x"', "<img src=x onerror=alert(1)>", "</script><b>", "\u202egpj.exe"]


@pytest.mark.parametrize("n", [pytest.param(24, marks=in_browser)])
def test_a_reader_finds_takes_away_and_looks(browser: Browser, make_run: Any, tmp_path: Path, n: int) -> None:
    run = make_run(n, 4, keys=[*HOSTILE, *(f"photo_{i:02}.jpg" for i in range(4, n))])
    facts = lambda item: {"pixels": str(1000 + item)}  # noqa: E731
    page = write_report(run, tmp_path / "r.html", clusters=[f"group {i % 4}" for i in range(n)], facts_of=facts)
    browser.complaints.clear()
    browser.open(page.as_uri())
    assert browser.complaints == []
    find = "const box = byId('find-group'); box.value = TEXT; box.dispatchEvent(new Event('input'))"
    browser.run("{" + find.replace("TEXT", "'photo_07'") + "}")
    assert browser.run("byId('groups').tBodies[0].innerText").split() == ["group", "3", "6", "photo_07.jpg"]
    browser.run("{" + find.replace("TEXT", "'onerror'") + "}")
    assert browser.run("byId('groups').querySelectorAll('img').length") == 0
    assert "onerror" in browser.run("byId('groups').innerText")
    browser.run("{" + find.replace("TEXT", "''") + "}")
    assert browser.run("byId('groups').tBodies[0].rows.length") == 4
    browser.run("window.saved = []; save = (name, parts, type) => saved.push([name, parts.join ? parts : '', type])")
    browser.run("byId('save-groups').click()")
    lines = browser.run("saved[0][1].join('')").splitlines()
    assert lines[:3] == ["item,group", '"\'=1+1,""x""",group 0', "<img src=x onerror=alert(1)>,group 1"]
    assert len(lines) == n + 1
    browser.run("document.querySelector('#matrix-section figure').focus()")
    for key in ("ArrowRight", "ArrowRight", "Enter"):
        browser.press(key)
    said = browser.run("byId('cell').textContent")
    order = data_of(page)["matrix"]["down"]
    assert f"NCC {float(f'{run.full[order[0], order[2]]:.4g}'):g}"[:9] in said
    assert browser.run("document.querySelectorAll('#both .side').length") == 2
    assert str(1000 + order[2]) in browser.run("byId('both').innerText")
    assert browser.run("byId('both').querySelectorAll('img, b').length") == 0
    browser.press("+")
    assert browser.run("document.querySelector('#matrix-section figure').scrollWidth > 1100")
    browser.run("document.querySelector('[aria-label=\"Save SVG of The matrix\"]').click()")
    name, parts, _ = browser.run("saved.at(-1)")
    assert name == "photos-matrix.svg"
    assert ET.fromstring(parts[0]).tag == "{http://www.w3.org/2000/svg}svg"
    browser.run("document.querySelector('[aria-label=\"Save PNG of The matrix\"]').click()")
    browser.wait_for("saved.at(-1)[2] === 'image/png'")
    assert browser.complaints == []
