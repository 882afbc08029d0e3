"""The report and the page of a run in headless Chromium: what it draws, what it asks for, what it complains of."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from test_tiles import sparse_run

import tartan
from support.chromium import BROWSER, Browser
from tartan import apps
from tartan.base.notices import RunNotice
from tartan.cli.main import main
from tartan.run.inspection import Inspector
from tartan.view.live import LiveRun
from tartan.view.report import write_report
from tartan.view.server import Server

pytestmark = [
    pytest.mark.slow,
    pytest.mark.exhaustive,
    pytest.mark.skipif(BROWSER is None, reason="needs Chromium (chromium, chromium-browser or google-chrome)"),
]

WINDOWS = {"light": {}, "dark": {"dark": True}, "phone": {"width": 390, "height": 844, "touch": True}}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Simulated photos of three cameras, with one that is damaged."""
    from tartan.apps.forensics.app import Forensics
    from tartan.apps.forensics.simulate import simulate

    folder = tmp_path_factory.mktemp("photos")
    simulate(folder, 12, 3, cameras=3, size=512, flats=1, prnu=0.02)
    (folder / f"{'a_long_name_without_a_blank_' * 4}.jpg").write_bytes(next(folder.glob("*.jpg")).read_bytes())
    (folder / "a damaged <one>.jpg").write_bytes(b"\xff\xd8\xff")
    with pytest.warns(RunNotice, match="equal others"):
        return tartan.allpairs(Forensics(), str(folder / "*.jpg"), out=folder / "photos.tartan", workers=1)


@contextlib.contextmanager
def viewed(browser: Browser, run: Any) -> Iterator[str]:
    browser.complaints.clear()
    server = Server(LiveRun(lambda: tartan.open(run.path), lambda folder: Inspector(folder, apps)))
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield server.url
    finally:
        browser.leave()  # before the server does: a page whose server is gone complains
        server.stop()
        thread.join()


def luminance(picture: Path) -> float:
    with Image.open(picture) as image:
        return float(np.asarray(image.convert("L"))[:, :40].mean())


@pytest.mark.parametrize("window", WINDOWS)
def test_the_report(browser: Browser, photos: Any, tmp_path: Path, window: str) -> None:
    page = write_report(photos, tmp_path / "r.html")
    browser.complaints.clear()
    asked = len(browser.requested())
    browser.open(page.as_uri(), **WINDOWS[window])
    assert browser.complaints == []
    others = [address for address in browser.requested()[asked:] if not address.startswith(("data:", page.as_uri()))]
    assert others == []
    width = browser.run("document.documentElement.scrollWidth")
    assert width <= (390 if window == "phone" else 1280)
    assert browser.run("document.querySelectorAll('figure svg').length") >= 2
    light = luminance(browser.picture(tmp_path / "seen.png"))
    assert light < 60 if window == "dark" else light > 200


@pytest.mark.parametrize("window", WINDOWS)
def test_the_page_of_a_run(browser: Browser, photos: Any, tmp_path: Path, window: str) -> None:
    with viewed(browser, photos) as url:
        browser.open(url, **WINDOWS[window])
        browser.wait_for("document.querySelectorAll('#body section').length > 2 && matrix.tiles.size > 0")
        assert "token" not in browser.run("location.href")
        assert browser.run("document.cookie") == ""
        assert "finished" in browser.run("document.getElementById('said').textContent")
        assert browser.run("document.documentElement.scrollWidth") <= (390 if window == "phone" else 1280)
        browser.run("document.getElementById('matrix').scrollIntoView({block: 'center'})")
        box = browser.run("(({x, y, width, height}) => [x, y, width, height])(matrix.canvas.getBoundingClientRect())")
        browser.click(box[0] + 0.12 * box[2], box[1] + 0.6 * box[3])
        browser.wait_for("document.querySelectorAll('.sides .side').length === 2")
        browser.wait_for("document.images.length && [...document.images].every((image) => image.complete)")
        light = luminance(browser.picture(tmp_path / "seen.png"))
        assert light < 60 if window == "dark" else light > 200
        browser.run("go('#pair=0,1')")
        browser.wait_for("document.getElementById('shown').textContent.includes('a_long_name')")
        assert browser.run("document.documentElement.scrollWidth") <= (390 if window == "phone" else 1280)
        browser.wait_for("[...document.images].every((image) => image.complete)")
        assert browser.complaints == []


def test_the_page_by_the_keyboard_alone(browser: Browser, photos: Any) -> None:
    key = str(photos.keys[3])
    with viewed(browser, photos) as url:
        browser.open(url)
        browser.wait_for("matrix.tiles.size > 0")
        for _ in range(12):
            browser.press("Tab")
            if browser.run("document.activeElement.id") == "matrix":
                break
        for arrow in ("ArrowRight", "ArrowRight", "ArrowDown"):
            browser.press(arrow)
        browser.wait_for("document.getElementById('cell').textContent.includes(' · ')")
        browser.press("+")
        assert browser.run("matrix.scale > matrix.least()")
        browser.press("0")
        assert browser.run("matrix.scale === matrix.least()")
        browser.press("Enter")
        browser.wait_for("document.querySelectorAll('.side').length === 2")
        browser.run("document.getElementById('matrix').focus()")
        browser.press("Tab")
        assert browser.run("document.activeElement.id") == "text"
        browser.type(key)
        browser.press("Enter")
        browser.wait_for(f"document.querySelector('#shown h2').textContent === '{key}'")
        assert browser.run("document.activeElement.id") == "shown"
        browser.press("Tab")
        assert browser.run("document.activeElement.tagName") == "BUTTON"
        browser.press("Enter")
        browser.wait_for(f"document.querySelector('#shown h2').textContent !== '{key}'")
        assert browser.complaints == []


@pytest.mark.parametrize("window", WINDOWS)
def test_names_tree_and_groups_stay_beside_a_zoomed_matrix(browser: Browser, tmp_path: Path, window: str) -> None:
    items = {f"sample {k} of the river": float(k + 1000 * (k % 3)) for k in range(60)}
    run = tartan.allpairs(lambda a, b: abs(a - b), items, out=tmp_path / "r.tartan", workers=1, quiet=True)
    inked = (
        "((name) => { const one = document.getElementById(name); return one.getContext('2d')"
        ".getImageData(0, 0, one.width, one.height).data.some((value, at) => at % 4 === 3 && value); })"
    )
    with viewed(browser, run) as url:
        browser.open(url, **WINDOWS[window])
        browser.wait_for("beside.groups && matrix.tiles.size > 0")
        assert browser.run("beside.groups.names.length") == 3
        browser.run("matrix.zoom(9)")
        assert browser.complaints == []  # before the test reads pixels, of which the browser complains
        for part in ("beside-tree", "beside-rows", "beside-columns"):
            browser.wait_for(f"{inked}('{part}')")
        browser.wait_for("beside.blocks.get('rows/0')?.length === 60")
        assert set(browser.run("beside.blocks.get('rows/0')")) == set(items)
        heights = browser.run(
            "['beside-tree', 'matrix', 'beside-rows'].map((id) => document.getElementById(id).clientHeight)"
        )
        assert max(heights) - min(heights) <= 2


def test_a_map_of_a_report_is_turned(browser: Browser, tmp_path: Path) -> None:
    items = [np.random.default_rng(k).normal(size=3) for k in range(20)]
    run = tartan.allpairs(
        lambda a, b: float(np.linalg.norm(a - b)), items, tmp_path / "r.tartan", workers=1, quiet=True
    )
    main(["embed", str(run.path), "-q", "-o", str(tmp_path / "m")])
    page = write_report(tartan.open(run.path), tmp_path / "r.html")
    browser.complaints.clear()
    browser.open(page.as_uri())
    points = "[...document.querySelectorAll('figure.turns circle[data-z]')]"
    places = f"{points}.map((one) => one.getAttribute('cx')).sort().join()"
    before = browser.run(places)
    browser.run("document.querySelector('figure.turns').focus()")
    browser.press("ArrowRight")
    browser.wait_for(f"{places} !== '{before}'")
    browser.press("0")
    browser.wait_for(f"{places} === '{before}'")
    assert browser.run("getComputedStyle(document.querySelector('.on-paper')).display") == "none"
    browser.call("Emulation.setEmulatedMedia", media="print")
    shown = [
        browser.run(f"getComputedStyle(document.querySelector('{name}')).display")
        for name in (".on-paper", ".on-screen")
    ]
    browser.call("Emulation.setEmulatedMedia", media="")
    assert shown == ["block", "none"]
    assert browser.complaints == []


def test_a_hundred_thousand_items(browser: Browser, tmp_path: Path) -> None:
    run = sparse_run(tmp_path / "r.tartan", chunk=2000)
    with viewed(browser, run) as url:
        browser.open(url)
        browser.wait_for("matrix.tiles.get('9/0/0')?.complete")
        assert "in progress" in browser.run("document.getElementById('said').textContent")
        browser.run("matrix.zoom(1e9, 1, 1)")
        browser.wait_for("matrix.tiles.get('0/0/0')?.complete")
        browser.wait_for("beside.blocks.get('rows/0')?.length === 128")
        browser.run("go('#pair=3,99990')")
        browser.wait_for("document.querySelector('.scores')?.textContent === 'scores 50'")
        browser.run("go('#item=99999')")
        browser.wait_for("document.querySelectorAll('#shown tbody tr').length === 20")
        assert browser.complaints == []


def test_a_run_that_goes_on(browser: Browser, tmp_path: Path) -> None:
    """What is committed while the page is open appears on it."""
    run = tartan.allpairs(lambda a, b: abs(a - b), list(range(30)), out=tmp_path / "r.tartan", tile=10, workers=1)
    status = tmp_path / "r.tartan" / "status.zarr" / "c" / "0" / "1"
    moved = status.rename(tmp_path / "aside")
    with viewed(browser, run) as url:
        browser.open(url)
        browser.wait_for("document.getElementById('said').textContent.startsWith('in progress · 335 of 435 pairs')")
        moved.rename(status)
        browser.wait_for("document.getElementById('said').textContent.startsWith('finished · 435 of 435 pairs')")
        browser.wait_for("matrix.tiles.get('0/0/0').version.endsWith('-435-1')")
