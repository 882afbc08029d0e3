"""Colours of maps: of groups, of a column of a table, of parts."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import tartan
from support.in_threads import in_threads
from tartan.base.palette import colours, hex_colour
from tartan.cli.main import main
from tartan.errors import ConfigError
from tartan.view.coordinates import read_column, read_labels, split_column
from tartan.view.map_image import map_png, map_svg
from tartan.view.scene import NO_VALUE, scene

KEYS = ("a.jpg", "b.jpg", "=c", "d.jpg")


def table(folder: Path, text: str, name: str = "t.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_column_of_names(tmp_path: Path) -> None:
    path = table(tmp_path, "item,site\na.jpg,north\n'=c,south\nd.jpg,\nz.jpg,west\n")
    found = read_column(path, "site", KEYS)
    assert found.classes == ("north", NO_VALUE, "south", NO_VALUE)
    assert found.shades is None


def test_a_column_of_many_numbers_is_six_ranges_from_dark_to_yellow(tmp_path: Path) -> None:
    keys = [f"i{k}" for k in range(30)]
    path = table(tmp_path, "item\tdepth\n" + "".join(f"{key}\t{k}\n" for k, key in enumerate(keys)), "t.tsv")
    found = read_column(path, "depth", keys)
    assert found.shades is not None
    assert len(set(found.classes)) == 6
    assert next(iter(found.shades)) == found.classes[0] == "0 to 4.83"
    assert list(found.shades.values())[-1] == hex_colour(colours(np.array([1.0]))[0])
    shown = scene(np.zeros((30, 2)), clusters=found.classes, colours=found.shades)
    assert [hex_colour(cluster.colour[:3]) for cluster in shown.clusters] == list(found.shades.values())


@pytest.mark.parametrize(("given", "said"), [
    ("no colon", "give a table and one of its columns as TABLE:COLUMN"),
    (":x", "TABLE:COLUMN"),
])  # fmt: skip
def test_what_is_no_column_is_refused(given: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        split_column(given)


def test_a_column_of_a_parquet_table_by_names_in_any_column(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    columns = {
        "vector": [[1.0], [2.0], [3.0]],
        "year": [0, 2, 1],
        "doc": ["x", "y", "z"],
        "topic": ["art", None, "law"],
    }
    pq.write_table(pa.table(columns), path)

    assert read_column(path, "topic", ["z", "x"]).classes == ("law", "art")
    assert read_column(path, "topic", ["x", "y"]).classes == ("art", NO_VALUE)
    assert read_column(path, "topic", ["0", "1", "2"]).classes == ("art", "law", NO_VALUE), "the column holds all names"
    pq.write_table(pa.table({"vector": columns["vector"], "topic": columns["topic"]}), path)
    assert read_column(path, "topic", ["0", "1", "2"]).classes == ("art", NO_VALUE, "law"), "no names: rows in order"
    with pytest.raises(ConfigError, match="no column 'vector'"):
        read_column(path, "vector", ["0"])
    path.write_text("no Parquet")
    with pytest.raises(ConfigError, match="cannot be read as Parquet"):
        read_column(path, "topic", ["0"])


def test_labels_of_groups_around_representatives(tmp_path: Path) -> None:
    path = tmp_path / "groups.tsv"
    path.write_text("item\tcluster\trepresentative\tdistance\na\t0\ta\t0\nb\t0\ta\t0.1\nc\t1\tc\t0\n")
    assert read_labels(path, ["a", "b", "c"]) == ["0", "0", "1"]
    path.write_text("doc,topic,year\na,art,1999\nb,law,2001\n")
    with pytest.raises(ConfigError, match="--color-by TABLE:COLUMN"):
        read_labels(path, ["a", "b"])


def test_missing_columns_and_items_are_named(tmp_path: Path) -> None:
    path = table(tmp_path, "item,site\nx.jpg,north\n")
    with pytest.raises(ConfigError, match=r"no column 'sight'; its columns are: site"):
        read_column(path, "sight", KEYS)
    with pytest.raises(ConfigError, match=r"names such as 'x\.jpg', and the items are called 'a\.jpg'"):
        read_column(path, "site", KEYS)
    with pytest.raises(ConfigError, match="there is no file"):
        read_column(tmp_path / "none.csv", "site", KEYS)


def test_items_without_a_row_are_told_apart_from_those_without_a_value(tmp_path: Path) -> None:
    path = table(tmp_path, "item,site\na.jpg,north\n'=c,\nz.jpg,west\nz.jpg,east\n")
    found = read_column(path, "site", KEYS)
    assert found.column == "site"
    assert found.unlisted == ("b.jpg", "d.jpg")
    assert found.classes == ("north", NO_VALUE, NO_VALUE, NO_VALUE)


def test_two_rows_of_an_item_are_refused_by_name(tmp_path: Path) -> None:
    path = table(tmp_path, "item,site\nb.jpg,west\nb.jpg,west\nb.jpg,east\na.jpg,north\na.jpg,east\n")
    with pytest.raises(ConfigError, match=r"2 rows of 'a\.jpg', and several of 1 other item; leave one row of each"):
        read_column(path, "site", KEYS)
    with pytest.raises(ConfigError, match=r"3 rows of 'b\.jpg'; leave one row"):
        read_column(path, "site", ["b.jpg"])
    pq.write_table(pa.table({"doc": ["x", "x"], "topic": ["art", "law"]}), tmp_path / "t.parquet")
    with pytest.raises(ConfigError, match="2 rows of 'x'"):
        read_column(tmp_path / "t.parquet", "topic", ["x", "y"])


def scene_of(page: Path) -> Any:
    found = re.search(r'<script id="scene" type="application/json">(.*?)</script>', page.read_text("utf-8"), re.DOTALL)
    assert found
    return json.loads(found[1])


@pytest.fixture
def groups(tmp_path: Path) -> Path:
    items = [float(100 * (i % 3) + i / 10) for i in range(12)]
    folder = tmp_path / "three.tartan"
    tartan.allpairs(in_threads(lambda a, b: abs(a - b)), items, folder, workers=1)
    return folder


@pytest.mark.slow
def test_a_map_has_the_groups_of_its_run(groups: Path, tmp_path: Path) -> None:
    assert main(["embed", str(groups), "-q", "-o", str(tmp_path / "m")]) == 0
    shown = scene_of(tmp_path / "m.html")
    assert [cluster["label"] for cluster in shown["clusters"]] == ["group 1", "group 2", "group 3"]
    assert shown["title"] == "three: 12 items; near is similar"
    assert "cluster" not in (tmp_path / "m.tsv").read_text().splitlines()[0]


def test_a_map_by_a_column(groups: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "item,site<b>\n" + "".join(f"{i},{'north' if i < 6 else 'south'}\n" for i in range(12))
    path = table(tmp_path, text)
    words = ["embed", str(groups), "-q", "--svg", "-o", str(tmp_path / "m")]
    assert main([*words, "--color-by", f"{path}:site<b>"]) == 0
    shown = scene_of(tmp_path / "m.html")
    assert [cluster["label"] for cluster in shown["clusters"]] == ["north", "south"]
    assert "<b>" not in (tmp_path / "m.html").read_text("utf-8")
    assert "<b>" not in (tmp_path / "m.svg").read_text("utf-8")
    assert main([*words, "--overwrite", "--color-by", f"{path}:x"]) == 2
    assert "its columns are: site<b>" in capsys.readouterr().err
    assert main([*words, "--overwrite", "--color-by", f"{path}:x", "--labels", str(path)]) == 2
    assert "leave out one" in capsys.readouterr().err


@pytest.mark.slow
def test_reports_and_maps_of_clusters_by_a_column(
    groups: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = table(tmp_path, "item,site\n" + "".join(f"{i},{'north' if i < 6 else 'south'}\n" for i in range(11)))
    page, drawn, by = tmp_path / "r.html", tmp_path / "m.svg", ["--color-by", f"{path}:site"]
    assert main(["report", str(groups), "-q", "-o", str(page), *by]) == 0
    assert f"1 of 12 items has no row in {path}, and is grey: 11" in capsys.readouterr().err
    text = page.read_text("utf-8")
    assert "Coloured by site." in text
    assert 'class="map on-paper"' not in text, "a map made for the page is flat already"
    assert "north (6)" in text
    words = ["cluster", str(groups), "-q", "-o", str(tmp_path / "c.tsv"), "--overwrite", *by]
    assert main(words) == 2
    assert "add --map FILE" in capsys.readouterr().err
    assert main(["embed", str(groups), "-q", "-o", str(tmp_path / "e")]) == 0
    assert main([*words, "--map", str(drawn)]) == 0
    assert "no row" in capsys.readouterr().err
    assert "south (5)" in drawn.read_text("utf-8")


@pytest.mark.slow
def test_a_map_of_three_dimensions_turns_on_the_screen_and_is_flat_on_paper(groups: Path, tmp_path: Path) -> None:
    assert main(["embed", str(groups), "-q", "-o", str(tmp_path / "e")]) == 0
    assert main(["report", str(groups), "-q", "-o", str(tmp_path / "r.html")]) == 0
    text = (tmp_path / "r.html").read_text("utf-8")
    turning, paper = text.partition('<figure class="map turns on-screen"')[2].split('<figure class="map on-paper">')
    assert turning.count("data-z=") == 12
    assert "data-z=" not in paper.partition("</figure>")[0]
    assert "Made in two dimensions, for paper" in paper


def test_a_report_without_a_map_takes_no_colours_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tartan.allpairs(in_threads(lambda a, b: abs(a - b)), [1.0, 2.0], tmp_path / "two.tartan", workers=1, quiet=True)
    path = table(tmp_path, "item,site\n0,north\n1,south\n")
    assert main(["report", str(tmp_path / "two.tartan"), "--color-by", f"{path}:site"]) == 2
    assert "keeps no map that could be coloured by 'site'; make one by `tartan embed " in capsys.readouterr().err
    assert not (tmp_path / "two.html").exists()


def test_a_map_of_kept_pairs_is_flat_and_says_what_means_nothing(tmp_path: Path) -> None:
    items = [float(100 * (i % 3) + i / 10) for i in range(12)]
    rule = {"kind": "threshold", "threshold": 10.0, "largest": False}
    tartan.allpairs(in_threads(lambda a, b: abs(a - b)), items, tmp_path / "r.tartan", workers=1, reduce=rule)
    assert main(["embed", str(tmp_path / "r.tartan"), "-q", "-o", str(tmp_path / "m")]) == 0
    shown = scene_of(tmp_path / "m.html")
    assert shown["title"] == "r: 12 items in 3 parts; distance between parts means nothing"
    assert shown["maps"][0]["dim"] == 2
    assert len(shown["clusters"]) == 3


def test_ranges_keep_their_order_in_the_legend() -> None:
    shades = {"0 to 1": "#000001", "1 to 2": "#000002"}
    drawn = map_svg(scene(np.eye(3)[:, :2], clusters=["1 to 2", "1 to 2", "0 to 1"], colours=shades))
    assert drawn.index("0 to 1 (1)") < drawn.index("1 to 2 (2)")


@pytest.mark.parametrize(
    ("column", "first", "none"),
    [
        ([f"{1_700_000_000 + k}" for k in range(20)], "1700000000 to 1700000003", 0),
        (["-1e308", "1e308", *map(str, range(18))], "-1e+308 to -6.67e+307", 0),
        ([*map(str, range(18)), "nan", "NA"], "0 to 2.83", 2),
    ],
    ids=["large and near", "very large", "some not known"],
)
def test_ranges_of_numbers_tell_them_apart(column: list[str], first: str, none: int, tmp_path: Path) -> None:
    keys = [f"i{k}" for k in range(20)]
    path = table(tmp_path, "item,of\n" + "".join(f"{key},{cell}\n" for key, cell in zip(keys, column)))
    found = read_column(path, "of", keys)
    assert found.shades is not None
    assert len(found.shades) == 6
    assert found.classes[0] == first
    assert found.classes.count(NO_VALUE) == none


@pytest.mark.slow
@pytest.mark.parametrize("cell", ["1.{}", "1_{}"])
def test_columns_that_are_no_range_of_numbers_are_names(cell: str, tmp_path: Path) -> None:
    keys = [f"i{k}" for k in range(20)]
    path = table(tmp_path, "item,of\n" + "".join(f"{key},{cell.format('0' * k)}\n" for k, key in enumerate(keys)))
    found = read_column(path, "of", keys)
    assert found.shades is None
    assert len(set(found.classes)) == 20


@pytest.mark.parametrize("height", [200, 640])
def test_a_legend_ends_within_the_picture(height: int) -> None:
    points = np.random.default_rng(0).normal(size=(100, 2))
    names = [*(f"group {k // 2}" for k in range(90)), *["in no group"] * 10]
    drawn = map_svg(scene(points, clusters=names), height=height)
    legend = re.findall(r'y="([0-9.]+)" fill="#1d1e22">((?:group|in no|and) [^<]*)<', drawn)
    assert max(float(y) for y, _ in legend) <= height - 10
    assert legend[-1][1] == f"and {46 - (len(legend) - 1)} more"
    assert legend[0][1] == "in no group (10)"


def test_discs_of_a_legend_have_smooth_rims() -> None:
    picture = Image.open(io.BytesIO(map_png(scene(np.eye(4)[:, :2], clusters=["a", "a", "b", "b"]))))
    around = np.asarray(picture.convert("RGB"))[40:70, 1200 - 195 : 1200 - 178].reshape(-1, 3)
    assert len(np.unique(around, axis=0)) > 5
