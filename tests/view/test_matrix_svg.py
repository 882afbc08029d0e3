"""The matrix as SVG: in the order of the dendrogram, with names."""

from __future__ import annotations

import base64
import io
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

import tartan
from tartan.base.palette import DIAGONAL
from tartan.errors import ConfigError
from tartan.view.matrix_svg import save_matrix_svg

SVG = "{http://www.w3.org/2000/svg}"


class Distances(tartan.Application):
    releases_gil = True
    similarity = False

    def compare_pair(self, a: float, b: float) -> float:
        if a == 99 or b == 99:
            raise ValueError("cannot be compared")
        return abs(a - b)


def drawn(path: Path) -> ET.Element:
    return ET.fromstring(path.read_text())


def texts(path: Path) -> list[str]:
    return [element.text or "" for element in drawn(path).iter(f"{SVG}text")]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tartan.Run:
    folder = tmp_path_factory.mktemp("runs")
    made = tartan.allpairs(Distances(), [0.0, 10.0, 1.0, 11.0, 0.5], folder / "run", workers=1)
    made.folder.items.keys[:] = ["a<b>.faa.gz", "far & off.faa", "c.faa", "d.faa", "e.faa"]  # type: ignore[union-attr]
    return made


def test_names_are_in_the_order_of_the_dendrogram(run: tartan.Run, tmp_path: Path) -> None:
    found = texts(save_matrix_svg(run, tmp_path / "m.svg", names="stem"))
    rows = [text for text in found if text in {"a<b>", "far & off", "c", "d", "e"}][::2]
    assert set(rows[:2]) == {"far & off", "d"} or set(rows[3:]) == {"far & off", "d"}
    assert len(rows) == 5
    assert "run: average linkage" in found
    assert "a<b>.faa.gz" in texts(save_matrix_svg(run, tmp_path / "full.svg"))


def test_cells_are_the_scores(run: tartan.Run, tmp_path: Path) -> None:
    from PIL import Image

    image = next(drawn(save_matrix_svg(run, tmp_path / "m.svg", palette="grey")).iter(f"{SVG}image"))
    data = base64.b64decode(image.attrib["href"].partition(",")[2])
    pixels = np.asarray(Image.open(io.BytesIO(data)).convert("L"), np.int64)
    assert pixels.shape == (5, 5)
    np.testing.assert_array_equal(pixels, pixels.T)
    assert (np.diag(pixels) == DIAGONAL[0]).all()
    assert pixels[0, 1] > pixels[0, 4], "neighbours are similar, which is bright"


def test_axis_and_bar_say_what_they_measure(run: tartan.Run, tmp_path: Path) -> None:
    found = texts(save_matrix_svg(run, tmp_path / "m.svg"))
    assert sum(text.endswith(" similar") for text in found) == sum(text.endswith(" different") for text in found) == 1
    assert next(text for text in found if text.endswith(" similar")).startswith("0.5")
    assert found.count("score") == 2  # the axis of the tree, and the bar
    assert "0" in found
    assert "5" in found


def test_a_joint_for_each_but_one(run: tartan.Run, tmp_path: Path) -> None:
    path = next(drawn(save_matrix_svg(run, tmp_path / "m.svg")).iter(f"{SVG}path"))
    assert len(re.findall(r"M[\d.]+ [\d.]+H[\d.]+V[\d.]+H[\d.]+", path.attrib["d"])) == 4


def test_items_without_scores_are_left_out(tmp_path: Path) -> None:
    run = tartan.allpairs(Distances(), [0.0, 99.0, 1.0, 5.0], tmp_path / "run", workers=1)
    with pytest.warns(RuntimeWarning, match="1 item of failed pairs is left out: 1;"):
        picture = save_matrix_svg(run, tmp_path / "m.svg")
    assert "1" not in texts(picture)[:8:2]


@pytest.mark.slow
def test_what_cannot_be_drawn_is_refused(run: tartan.Run, tmp_path: Path) -> None:
    (tmp_path / "m.svg").touch()
    with pytest.raises(ConfigError, match="exists"):
        save_matrix_svg(run, tmp_path / "m.svg")
    save_matrix_svg(run, tmp_path / "m.svg", overwrite=True)
    many = tartan.open(run.path)
    many.manifest.n_items = 3001
    with pytest.raises(ConfigError, match="3,000 at most"):
        save_matrix_svg(many, tmp_path / "x.svg")
    assert not (tmp_path / "x.svg").exists()
