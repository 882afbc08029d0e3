"""Pages are for everybody: axe-core finds nothing on them, in light, in the dark and on a phone.

It runs where Chromium is and AXE_CORE names a file axe.min.js (of the npm package axe-core); what can be told without a
browser is told always.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chromium import BROWSER, Browser

import tartan
from support.in_threads import in_threads
from tartan import apps
from tartan.run.inspection import Inspector
from tartan.view.blocks_report import write_blocks_report
from tartan.view.live import LiveRun
from tartan.view.report import write_report
from tartan.view.scene import scene
from tartan.view.scene_page import write_scene_page
from tartan.view.server import Server
from tartan.view.triple_report import write_triple_report

WINDOWS: tuple[dict[str, Any], ...] = ({}, {"dark": True}, {"width": 390, "height": 844, "touch": True})
_AXE = os.environ.get("AXE_CORE", "")
in_browser = [
    pytest.mark.slow,
    pytest.mark.exhaustive,
    pytest.mark.skipif(BROWSER is None, reason="needs Chromium (chromium, chromium-browser or google-chrome)"),
    pytest.mark.skipif(not _AXE, reason="needs AXE_CORE=axe.min.js, of the npm package axe-core"),
]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    items = [float(i + 100 * (i % 4)) for i in range(24)]
    run = tartan.allpairs(in_threads(lambda a, b: abs(a - b)), items, folder / "r.tartan", workers=1)
    triples = tartan.alltuples(
        lambda a, b, c: abs(a + b - 2 * c), items[:8], folder / "t.tartan", keep=tartan.top(2), workers=1, quiet=True
    )
    points = np.random.default_rng(0).normal(size=(24, 3))
    labels = [f"group {i % 4}" for i in range(24)]
    return {
        "report": write_report(run, folder / "report.html"),
        "triples": write_triple_report(triples, folder / "triples.html"),
        "map": write_scene_page(scene(points, clusters=labels), folder / "map.html"),
        "blocks": write_blocks_report(folder / "blocks.html", "LU", {"tasks": "64"}, np.arange(64).reshape(8, 8) % 4),
    }


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as browser:
        browser.call("Page.setBypassCSP", enabled=True)  # for axe itself
        yield browser


def find_violations(browser: Browser) -> list[str]:
    browser.run(Path(_AXE).read_text(encoding="utf-8") + ";1")
    found = browser.run("axe.run(document).then((found) => JSON.stringify(found.violations))")
    return [f"{one['id']}: {[node['target'] for node in one['nodes'][:3]]}" for one in json.loads(found)]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["report", "triples", "map", "blocks"])
def test_a_page_has_one_title_one_main_and_no_empty_head(pages: dict[str, Path], name: str) -> None:
    text = pages[name].read_text(encoding="utf-8")
    assert text.count("<main>") == text.count("<h1>") == len(re.findall("<title>[^<]+</title>\n", text)) == 1
    assert not re.findall(r"<th[^>]*></th>", text)
    for part in re.findall(r'<(?:div class="wide"|figure class="drawing)[^>]*>', text):
        assert 'tabindex="0"' in part
        assert "aria-label=" in part


@pytest.mark.parametrize("window", WINDOWS, ids=["light", "dark", "phone"])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=in_browser) for name in ("report", "triples", "map", "blocks")]
)
def test_axe_finds_nothing(browser: Browser, pages: dict[str, Path], name: str, window: dict[str, Any]) -> None:
    browser.open(pages[name].as_uri(), **window)
    assert find_violations(browser) == []


@pytest.mark.parametrize("window", [pytest.param(window, marks=in_browser) for window in WINDOWS])
def test_axe_finds_nothing_on_the_page_of_a_run(
    browser: Browser, pages: dict[str, Path], window: dict[str, Any]
) -> None:
    import threading

    path = pages["report"].with_name("r.tartan")
    server = Server(LiveRun(lambda: tartan.open(path), lambda folder: Inspector(folder, apps)))
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        browser.open(server.url, **window)
        browser.wait_for("document.querySelectorAll('#body section').length > 2 && matrix.tiles.size > 0")
        browser.run("go('#pair=0,1')")
        browser.wait_for("document.querySelectorAll('.side').length === 2")
        assert find_violations(browser) == []
    finally:
        browser.leave()
        server.stop()
        thread.join()


@pytest.mark.parametrize("name", [pytest.param("report", marks=in_browser)])
def test_what_scrolls_on_a_phone_says_so(browser: Browser, pages: dict[str, Path], name: str) -> None:
    browser.open(pages[name].as_uri(), **WINDOWS[2])
    browser.wait_for("document.querySelectorAll('figure.scrolls').length > 0")
    said = browser.run("getComputedStyle(document.querySelector('figure.scrolls'), '::before').content")
    assert "scroll sideways" in said
    assert browser.run("document.documentElement.scrollWidth") <= 390
