"""The lines of the gallery make its pictures; with ``TARTAN_TRANSCRIPTS=write`` they are written."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest

from tartan.cli.main import main

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "gallery.md"
PICTURES = ROOT / "docs" / "images" / "gallery"
STEP = re.compile(r"^```python\n([\s\S]*?)^```|((?:^ {4}tartan .*\n)+)", re.MULTILINE)


SECTIONS = dict(re.findall(r"^## (.*)\n([\s\S]*?)(?=^## |\Z)", PAGE.read_text(encoding="utf-8"), re.MULTILINE))


def run_steps(section: str) -> None:
    """Run all that a section shows, in its order."""
    scope: dict[str, object] = {"__name__": "__example__"}
    for number, (python, shell) in enumerate(STEP.findall(section)):
        if python:
            exec(compile(python, f"gallery[{number}]", "exec"), scope)
        for line in shell.splitlines():
            assert main(shlex.split(line)[1:]) == 0, line


def find_picture(section: str) -> str:
    (name,) = re.findall(r"\(images/gallery/(.*?)\)", section)
    return str(name)


def test_each_section_of_the_gallery_has_a_picture() -> None:
    assert sorted(map(find_picture, SECTIONS.values())) == sorted(path.name for path in PICTURES.iterdir())
    assert len(SECTIONS) >= 10


@pytest.mark.exhaustive
@pytest.mark.parametrize("title", SECTIONS)
def test_the_gallery_is_what_its_lines_make(title: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = pytest.importorskip("PIL.Image")
    if "align.py" in SECTIONS[title]:
        pytest.importorskip("Bio", reason="Biopython is not installed (pip install biopython)")
    monkeypatch.chdir(tmp_path)
    for example in (ROOT / "examples" / "pairs").glob("*.py"):
        shutil.copy(example, tmp_path)
    run_steps(SECTIONS[title])
    name = find_picture(SECTIONS[title])
    (made,) = tmp_path.rglob(name)
    kept = PICTURES / name
    if os.environ.get("TARTAN_TRANSCRIPTS") == "write":
        PICTURES.mkdir(parents=True, exist_ok=True)
        shutil.copy(made, kept)
    if name.endswith(".svg"):
        assert made.read_text().count("<") == kept.read_text().count("<")
        return
    with image.open(made) as found, image.open(kept) as shown:
        assert found.size == shown.size
        pixels = [np.asarray(one.convert("RGB"), dtype=float) for one in (found, shown)]
    # Letters and the edges of points fall a little differently with another version of matplotlib or FreeType.
    assert abs(pixels[0] - pixels[1]).mean() < 8
    assert pixels[0].std() > 10, "it is blank"
