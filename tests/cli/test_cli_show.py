"""`tartan show`, `tartan report` and `tartan view` as a user calls them."""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import tartan

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tartan.apps.forensics.app import Forensics

    place = tmp_path_factory.mktemp("photos")
    for k, name in enumerate(("left.png", "mid\x1b[31mdle.png", "right.png")):
        pixels = np.random.default_rng(k).integers(0, 255, (64, 64, 3), np.uint8)
        Image.fromarray(pixels).save(place / name)
    tartan.allpairs(Forensics(), str(place / "*.png"), out=place / "r.tartan", workers=1)
    return place / "r.tartan"


def test_show(command: Any, folder: Path) -> None:
    done = command("show", folder, "left", "RIGHT.png")
    run = tartan.open(folder)
    assert done.status == 0
    lines = done.out.splitlines()
    cut = run.manifest.meaning()["cut"]
    assert run.matrix()[0, 2] < cut
    said = "not shown to be of the same camera, by the cut that forensics declares: a score of "
    assert lines[0].startswith(f"{said}{run.matrix()[0, 2]:.4g} is below {cut:.4g} (it stands for a PCE of 60")
    assert lines[1].split() == ["scores", f"{run.matrix()[0, 2]:.6g}"]
    rank = 1 + run.neighbors(2)[0][0].tolist().index(2)
    assert f"right.png is number {rank} of the 2 neighbours of left.png" in lines
    assert re.search(r"^pixels +64 x 64 +64 x 64$", done.out, re.MULTILINE)
    assert re.search(r"^ +left\.png +right\.png$", done.out, re.MULTILINE)


def test_show_as_json(command: Any, folder: Path) -> None:
    found = json.loads(command("show", folder, "0", "2", "--json").out)
    assert (found["a"]["item"], found["b"]["key"], found["state"]) == (0, "right.png", "done")
    assert found["rank_of_b"]["of"] == found["rank_of_a"]["of"] == 2
    assert found["scores"]["scores"] == pytest.approx(float(tartan.open(folder).matrix()[0, 2]))
    assert found["decision"].startswith("not shown to be of the same camera")
    assert found["a"]["facts"]["format"] == "PNG"
    assert found["a"]["not_opened"] is None


def test_control_characters_never_reach_the_terminal(command: Any, folder: Path) -> None:
    done = command("show", folder, "mid", "left")
    assert "\x1b" not in done.out + done.err
    assert "mid\ufffd[31mdle.png" in done.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("left", "left"), "is one item; name two"),
        (("lfet.png", "right"), "did you mean"),
        (("png", "left"), "several"),
    ],
)
def test_show_what_cannot_be_shown(command: Any, folder: Path, words: tuple[str, str], said: str) -> None:
    done = command("show", folder, *words)
    assert done.status == 2
    assert said in done.err


def test_items_of_a_folder_from_elsewhere_are_opened_with_trust_only(
    command: Any, folder: Path, tmp_path: Path
) -> None:
    import shutil

    copy = tmp_path / "r.tartan"
    shutil.copytree(folder, copy)
    (copy / "seal.json").unlink()
    done = command("show", copy, "left", "right")
    assert done.status == 0
    assert "pixels" not in done.out
    assert "not opened: " in done.err
    assert "--trust" in done.err
    assert "pixels" in command("show", copy, "left", "right", "--trust").out
    page = tmp_path / "page.html"
    assert command("report", copy, "-o", page).status == 0
    assert "data:image/jpeg" not in page.read_text()


def test_a_manifest_that_names_a_private_file_opens_nothing(command: Any, folder: Path, tmp_path: Path) -> None:
    """A folder whose manifest was changed after it was made, to name photos that are none of its inputs."""
    import shutil

    from tartan.store.manifest import Manifest

    forged, private = tmp_path / "r.tartan", tmp_path / "private"
    shutil.copytree(folder, forged)
    private.mkdir()
    for photo in folder.parent.glob("*.png"):
        shutil.copy2(photo, private / photo.name)  # the fingerprints fit
    manifest = Manifest.load(forged)
    manifest.inputs["patterns"] = [str(private / "*.png")]
    (forged / "manifest.json").write_text(manifest.to_json())
    done = command("show", forged, "left", "right")
    assert "not made by this user on this machine" in done.err
    assert "pixels" not in done.out
    assert command("report", forged, "-o", tmp_path / "page.html").status == 0
    assert "data:image/jpeg" not in (tmp_path / "page.html").read_text()


def test_report(command: Any, folder: Path, tmp_path: Path) -> None:
    done = command("report", folder, "-o", tmp_path / "page.html", "--json")
    assert done.status == 0
    assert json.loads(done.out)["report"] == str(tmp_path / "page.html")
    assert f"report in {tmp_path / 'page.html'}" in done.err
    text = (tmp_path / "page.html").read_text()
    for said in (
        "The matrix</h2>",
        "The scores</h2>",
        "What failed</h2>",
        "What it cost</h2>",
        "All 3 pairs of 3 items",
    ):
        assert said in text
    assert "\x1b" not in text
    assert command("report", folder).status == 0
    assert folder.with_suffix(".html").is_file()


def test_report_where_it_cannot_be_written(command: Any, folder: Path, tmp_path: Path) -> None:
    done = command("report", folder, "-o", tmp_path / "no" / "page.html")
    assert done.status == 2
    assert "there is no folder" in done.err
    assert command("report", tmp_path).status != 0


def test_view_prints_its_address_answers_and_ends(folder: Path) -> None:
    words = [sys.executable, "-m", "tartan", "view", str(folder), "--json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        text = ""
        while not text.endswith("}\n"):
            text += process.stdout.readline()
        about = json.loads(text)
        connection = http.client.HTTPConnection("127.0.0.1", about["port"], timeout=60)
        connection.request("GET", about["url"].partition(str(about["port"]))[2])
        assert connection.getresponse().status == 303
        connection.close()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "Traceback" not in err


def test_view_of_what_is_no_run(command: Any, tmp_path: Path) -> None:
    done = command("view", tmp_path)
    assert done.status == 2
    assert "is not a run" in done.err
