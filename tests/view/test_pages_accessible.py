"""Pages are for everybody: axe-core finds nothing on them, in light, in the dark, on a phone and on paper.

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

import tartan
from support.chromium import BROWSER, Browser
from support.in_threads import in_threads
from tartan import apps
from tartan.run.inspection import Inspector
from tartan.view.blocks_report import write_blocks_report
from tartan.view.cameras_report import write_cameras_report
from tartan.view.live import LiveRun
from tartan.view.report import write_report
from tartan.view.scene import scene
from tartan.view.scene_page import write_scene_page
from tartan.view.server import Server
from tartan.view.triple_report import write_triple_report

WINDOWS: dict[str, dict[str, Any]] = {
    "light": {},
    "dark": {"dark": True},
    "phone": {"width": 390, "height": 844, "touch": True},
    "paper": {"width": 794, "height": 1123, "paper": True},
}
PAGES = ("report", "turning", "duplicates", "triples", "map", "flat", "blocks", "cameras")
CASE: dict[str, Any] = {
    "version": "1.0",
    "cameras": [{"name": "kim", "photos": ["k.jpg"]}],
    "photos": [
        {"photo": "a.jpg", "camera": "kim", "best": "kim", "pce": 400.0, "peak": 400.0, "row": 0, "column": 0,
         "ncc": 0.1, "llr": 2.0, "false_alarm": 1e-9},
        {"photo": "b.jpg", "camera": None, "best": "kim", "pce": 2.0, "peak": 20.0, "row": 3, "column": 4, "ncc": 0.01,
         "llr": -2.0, "false_alarm": 0.3},
        {"photo": "c.jpg", "failed": "truncated"},
    ],
    "notes": ["c.jpg cannot be read"],
    "calibration": {
        "foreign": [1.0, 2.0, 30.0], "same": [300.0, 4000.0], "cut": 60.0, "cut_of_peaks": 70.0, "llr_limit": 2.0,
        "false_alarm": 1e-6, "n_foreign": 3, "n_foreign_above": 0, "n_same": 2, "n_same_below": 0, "n_places": 100,
        "upper_limit": 0.6, "middle": 2.0, "spread": 1.3, "spread_of_peaks": 1.0,
    },
    "files": [
        {"key": "a.jpg", "camera": None, "pixels": "64 x 64", "camera_named": "K3", "bytes": 900, "sha256": "0" * 64},
        {"key": "k.jpg", "camera": "kim", "bytes": 900, "sha256": None},
    ],
    "parameters": {"shift": "all", "crop": None},
}  # fmt: skip
_AXE = os.environ.get("AXE_CORE", "")
in_browser = [
    pytest.mark.slow,
    pytest.mark.exhaustive,
    pytest.mark.skipif(BROWSER is None, reason="needs Chromium (chromium, chromium-browser or google-chrome)"),
    pytest.mark.skipif(not _AXE, reason="needs AXE_CORE=axe.min.js, of the npm package axe-core"),
]


ITEMS = [float(i + 100 * (i % 4)) for i in range(24)]
POINTS = np.random.default_rng(0).normal(size=(24, 3))
LABELS = [f"group {i % 4}" for i in range(24)]


class Pages(dict[str, Path]):
    """A page of each kind, made when it is asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __missing__(self, name: str) -> Path:
        path = self.folder / f"{name}.html"
        match name:
            case "report":
                write_report(self.run(), path)
            case "turning":
                write_report(self.run(), path, points=POINTS, clusters=LABELS)
            case "duplicates":
                write_report(self.run(reduce={"kind": "threshold", "threshold": 1.0, "largest": False}), path)
            case "triples":
                write_triple_report(self.triples(), path)
            case "map":
                write_scene_page(scene(POINTS, clusters=LABELS), path)
            case "flat":
                write_scene_page(scene(POINTS[:, :2], clusters=LABELS), path)
            case "blocks":
                write_blocks_report(path, "LU", {"tasks": "64"}, np.arange(64).reshape(8, 8) % 4)
            case "cameras":
                write_cameras_report(path, CASE)
        self[name] = path
        return path

    def run(self, **ways: Any) -> Any:
        folder = self.folder / f"{'-'.join(ways)}r.tartan"
        if folder.exists():
            return tartan.open(folder)
        compare = in_threads(lambda a, b: abs(a - b))
        return tartan.allpairs(compare, [*ITEMS, 0.1, 100.1] if ways else ITEMS, folder, workers=1, quiet=True, **ways)

    def triples(self) -> Any:
        folder, keep = self.folder / "t.tartan", tartan.top(2)
        return tartan.alltuples(lambda a, b, c: abs(a + b - 2 * c), ITEMS[:8], folder, keep=keep, workers=1, quiet=True)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Pages:
    return Pages(tmp_path_factory.mktemp("pages"))


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
@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_one_title_one_main_and_no_empty_head(pages: Pages, name: str) -> None:
    text = pages[name].read_text(encoding="utf-8")
    assert text.count("<main>") == text.count("<h1>") == len(re.findall("<title>[^<]+</title>\n", text)) == 1
    assert not re.findall(r"<th[^>]*></th>", text)
    for part in re.findall(r'<(?:div class="wide"|figure class="drawing)[^>]*>', text):
        assert 'tabindex="0"' in part
        assert "aria-label=" in part


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("name", [pytest.param(name, marks=in_browser) for name in PAGES])
def test_axe_finds_nothing(browser: Browser, pages: Pages, name: str, window: str) -> None:
    browser.open(pages[name].as_uri(), **WINDOWS[window])
    assert find_violations(browser) == []


@pytest.mark.parametrize("window", [pytest.param(window, marks=in_browser) for window in WINDOWS])
def test_axe_finds_nothing_on_the_page_of_a_run(browser: Browser, pages: Pages, window: str) -> None:
    import threading

    path = pages.run().path
    server = Server(LiveRun(lambda: tartan.open(path), lambda folder: Inspector(folder, apps)))
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        browser.open(server.url, **WINDOWS[window])
        browser.wait_for("document.querySelectorAll('#body section').length > 2 && matrix.tiles.size > 0")
        assert find_violations(browser) == []
        browser.run("matrix.zoom(3)")
        browser.wait_for("beside.blocks.get('rows/0')?.length === 24")
        browser.run("go('#pair=0,1')")
        browser.wait_for("document.querySelectorAll('.side').length === 2")
        assert find_violations(browser) == []
    finally:
        browser.leave()
        server.stop()
        thread.join()


@pytest.mark.parametrize("name", [pytest.param("report", marks=in_browser)])
def test_what_scrolls_on_a_phone_says_so(browser: Browser, pages: Pages, name: str) -> None:
    browser.open(pages[name].as_uri(), **WINDOWS["phone"])
    browser.wait_for("document.querySelectorAll('figure.scrolls').length > 0")
    said = browser.run("getComputedStyle(document.querySelector('figure.scrolls'), '::before').content")
    assert "scroll sideways" in said
    assert browser.run("document.documentElement.scrollWidth") <= 390
