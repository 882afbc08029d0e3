"""Maps in files, and the commands that write and align them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tartan.cli.main import main
from tartan.errors import ConfigError
from tartan.view.coordinates import read_coordinates, read_labels, write_coordinates

POINTS = np.random.default_rng(1).normal(size=(12, 3))
KEYS = [f"item, {i}" for i in range(12)]


@pytest.mark.parametrize("suffix", [".tsv", ".csv", ".npy"])
@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_what_is_written_is_read(tmp_path: Path, suffix: str, dimension: int) -> None:
    clusters = ["a" if i % 2 else "b" for i in range(12)]
    file = write_coordinates(tmp_path / f"map{suffix}", POINTS[:, :dimension], KEYS, clusters)
    found = read_coordinates(file)
    np.testing.assert_allclose(found.points, POINTS[:, :dimension], rtol=1e-9)
    if suffix != ".npy":
        assert (found.keys, found.clusters) == (tuple(KEYS), tuple(clusters))


@pytest.mark.parametrize(
    ("text", "shape", "keys", "clusters"),
    [
        ("1 2 3\n4 5 6\n", (2, 3), None, None),
        ("0\t1\t2\t7\n1\t3\t4\t8\n", (2, 2), ("0", "1"), ("7", "8")),
        ("0 1 2 3 1\n", (1, 3), ("0",), ("1",)),
        ("0,1,2,3,5,name\n", (1, 3), ("name",), ("5",)),
    ],
)
def test_the_text_formats_of_viewers_are_read(
    tmp_path: Path, text: str, shape: tuple[int, int], keys: tuple[str, ...] | None, clusters: tuple[str, ...] | None
) -> None:
    file = tmp_path / "points.txt"
    file.write_text(text)
    found = read_coordinates(file)
    assert (found.points.shape, found.keys, found.clusters) == (shape, keys, clusters)


@pytest.mark.parametrize("text", ["", "a\tb\nc\td\n", "1 2 3\n4 5\n", "1 2 x\n", "1 2 3 4 5 6 7\n"])
def test_texts_that_are_no_maps_are_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "points.txt"
    file.write_text(text)
    with pytest.raises(ConfigError):
        read_coordinates(file)


ODD = ("a\nb", "\u2028c", "d\x85e", "f\tg", 'h"i', "", "j,k", " l", "\xa0m")


@pytest.mark.parametrize("suffix", [".tsv", ".csv"])
def test_names_of_every_kind_are_read_as_they_were_written(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"odd{suffix}"
    write_coordinates(file, np.zeros((len(ODD), 2)), ODD, ODD[::-1])
    found = read_coordinates(file)
    assert (found.keys, found.clusters) == (ODD, ODD[::-1])
    rows = [f'"{key.replace(chr(34), chr(34) * 2)}"\t7\n' for key in ODD]
    file.write_text("item\tcluster\n" + "".join(rows))
    assert read_labels(file, ODD) == ["7"] * len(ODD)


def test_files_of_spreadsheets_are_read(tmp_path: Path) -> None:
    file = tmp_path / "points.csv"
    file.write_bytes("\ufeffkey,y,x\r\nb,1,2\r\na,3,4\r\n".encode())
    found = read_coordinates(file)
    assert (found.keys, found.points.tolist()) == (("b", "a"), [[2.0, 1.0], [4.0, 3.0]])
    file.write_bytes("\ufeffa,1\r\nb,1\r\n".encode())
    assert read_labels(file, ["a", "b"]) == ["1", "1"]
    file.write_bytes("\ufeff1\r\n1\r\n".encode())
    assert read_labels(file, ["a", "b"]) == ["1", "1"]


def test_a_quotation_mark_without_its_other_half_is_said(tmp_path: Path) -> None:
    file = tmp_path / "points.csv"
    file.write_text('key,x,y\n"a,1,2\n' + "b,1,2\n" * 30_000)
    with pytest.raises(ConfigError, match="a quotation mark unclosed"):
        read_coordinates(file)


def test_labels_are_a_line_an_item_or_named(tmp_path: Path) -> None:
    file = tmp_path / "labels"
    file.write_text("x\ny\n")
    assert read_labels(file, ["a", "b"]) == ["x", "y"]
    file.write_text("b\tx\na\ty\n")
    assert read_labels(file, ["a", "b"]) == ["y", "x"]
    with pytest.raises(ConfigError, match="'c'"):
        read_labels(file, ["a", "c"])


@pytest.mark.slow
def test_a_matrix_becomes_a_map_and_a_map_is_aligned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    matrix, base = tmp_path / "D.npy", tmp_path / "map"
    np.save(matrix, np.linalg.norm(POINTS[:, None] - POINTS, axis=2))
    assert (
        main(["embed", str(matrix), "--method", "lmmds", "-o", str(base), "--pviz", "--svg", "--json", "--quiet"]) == 0
    )
    told = json.loads(capsys.readouterr().out)
    assert [Path(file).suffix for file in told["files"]] == [".tsv", ".png", ".html", ".svg", ".pviz"]
    assert all(Path(file).stat().st_size > 100 for file in told["files"])
    np.testing.assert_allclose(
        read_coordinates(f"{base}.tsv").points, read_coordinates(f"{base}.pviz").points, rtol=1e-8, atol=1e-9
    )
    truth, out = write_coordinates(tmp_path / "truth.tsv", POINTS), tmp_path / "moved.tsv"
    assert main(["align", f"{base}.tsv", str(truth), "-o", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["error"] < 0.05
    np.testing.assert_allclose(read_coordinates(out).points, POINTS, atol=0.1)


def test_what_cannot_be_written_or_has_no_labels_is_told_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    matrix, labels = tmp_path / "D.npy", tmp_path / "labels"
    np.save(matrix, np.linalg.norm(POINTS[:, None] - POINTS, axis=2))
    labels.write_text("a\nb\n")
    monkeypatch.setattr("tartan.analytics.embed", lambda *_, **__: pytest.fail("the work began"))
    for options, message in (
        (["--labels", str(labels)], "2 labels for 12 points"),
        (["-o", f"{tmp_path}/"], "is a folder"),
        (["-o", "."], "is a folder"),
        (["-o", ".."], "is a folder"),
    ):
        assert main(["embed", str(matrix), "--quiet", *options]) == 2
        assert message in capsys.readouterr().err
    truth = str(write_coordinates(tmp_path / "truth.tsv", POINTS))
    assert main(["align", truth, truth, "-o", str(tmp_path / "moved.pviz")]) == 2
    assert "a map is written as .tsv, .csv, .txt or .npy" in capsys.readouterr().err


def test_coordinates_to_begin_with_go_by_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    matrix, init = tmp_path / "D.npy", tmp_path / "init.tsv"
    np.save(matrix, np.linalg.norm(POINTS[:, None] - POINTS, axis=2))
    given: list[np.ndarray] = []

    def embed(*_: object, start: np.ndarray, **__: object) -> None:
        given.append(start)
        raise ConfigError("enough")

    monkeypatch.setattr("tartan.analytics.embed", embed)
    order = np.random.default_rng(0).permutation(12)
    for keys in ([str(i) for i in order], [f"no {i}" for i in order], None):
        write_coordinates(init, POINTS[order], keys)
        assert main(["embed", str(matrix), "--init", str(init), "--quiet"]) == 2
    by_key, by_place, numbered = given
    np.testing.assert_allclose(by_key, POINTS)
    np.testing.assert_allclose(by_place, POINTS[order])
    np.testing.assert_allclose(numbered, POINTS[order])


@pytest.mark.slow
def test_a_full_disk_under_the_density_leaves_the_map(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    matrix = tmp_path / "D.npy"
    np.save(matrix, np.linalg.norm(POINTS[:, None] - POINTS, axis=2))
    command = ["embed", str(matrix), "--method", "smacof", "-o", str(tmp_path / "map.svg"), "--svg", "--quiet"]
    assert main([*command, "--density", "/dev/full"]) == 1
    said = capsys.readouterr().err
    assert "no space left" in said
    assert "kept: " in said
    assert {path.name for path in tmp_path.iterdir()} == {"D.npy", "map.tsv", "map.png", "map.html", "map.svg"}
    assert main([*command, "--overwrite"]) == 0


@pytest.mark.slow
def test_wrong_use_ends_with_2(tmp_path: Path) -> None:
    one, other = tmp_path / "one.npy", tmp_path / "other.npy"
    np.save(one, POINTS)
    np.save(other, POINTS[:5])
    assert main(["align", str(one), str(other)]) == 2
    assert main(["embed", str(tmp_path / "absent.npy"), "--quiet"]) == 2
