"""The picture of how a number of clusters was chosen."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from tartan.analytics import NumberCurve
from tartan.errors import ConfigError
from tartan.view.curve_image import require_drawing, save_curve_image

CURVE = NumberCurve(np.arange(2, 42), np.linspace(0.9, -0.05, 40), np.linspace(0.4, 0.5, 40), 0.1, 0.6, 0.25, 50)


def test_the_chosen_number_stands_out(tmp_path) -> None:
    root = ElementTree.parse(save_curve_image(CURVE, tmp_path / "c.svg", title="a & b")).getroot()
    radii = [float(disc.get("r", 0)) for disc in root.iter() if disc.tag.endswith("circle")]
    assert len(radii) == 40
    assert radii[0] > max(radii[1:])
    words = [text.text for text in root.iter() if text.tag.endswith("text")]
    assert "a & b: 2 clusters" in words
    assert "random points in one group, and 0.10 above" in words


def test_no_number_stands_out(tmp_path) -> None:
    curve = NumberCurve(np.array([2, 3]), np.array([0.1, 0.2]), np.array([0.2, 0.2]), 0.1, 0.3, 0.0, 4)
    assert "one cluster: no number is better than chance" in save_curve_image(curve, tmp_path / "c.svg").read_text()


@pytest.mark.slow
def test_files_of_both_kinds(tmp_path) -> None:
    assert save_curve_image(CURVE, tmp_path / "c.svg").read_text().startswith("<svg")
    assert save_curve_image(CURVE, tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ConfigError, match=r"c\.pdf: pictures of curves are \.svg or \.png"):
        require_drawing(tmp_path / "c.pdf")
    empty = NumberCurve(np.empty(0, np.int64), np.empty(0), np.empty(0), 0.0, 0.0, 0.0, 2)
    with pytest.raises(ConfigError, match="too few items for a curve"):
        save_curve_image(empty, tmp_path / "e.svg")
