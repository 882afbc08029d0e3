"""The demonstration end to end, small: the real simulator, the real run, real files."""

from __future__ import annotations

import json

import pytest

from tartan.errors import ConfigError
from tartan.view.demo import run_demo

SMALL = {"n_photos": 8, "n_cameras": 2, "quiet": True}


@pytest.mark.slow
def test_demo_finds_the_cameras_and_runs_again(tmp_path, capsys):
    first = run_demo(tmp_path / "d", **SMALL)
    shown = capsys.readouterr()
    assert first["n_right"] == first["n_photos"] == 8
    assert (first["n_same_found"], first["n_different_found"]) == (12, 16)
    assert "8 of 8 photos are with their camera." in shown.out
    assert "report.html" in shown.out
    assert (tmp_path / "d" / "map.html").exists()
    assert (tmp_path / "d" / "report.html").read_text().count("<circle") >= 8
    assert shown.err == ""
    kept = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "d" / "photos").iterdir()}

    second = run_demo(tmp_path / "d", **SMALL, json=True)
    assert json.loads(capsys.readouterr().out) == second
    assert {k: v for k, v in second.items() if k != "seconds"} == {k: v for k, v in first.items() if k != "seconds"}
    assert {p.name: p.stat().st_mtime_ns for p in (tmp_path / "d" / "photos").iterdir()} == kept

    with pytest.raises(ConfigError, match="delete the folder or name another one"):
        run_demo(tmp_path / "d", n_photos=9, n_cameras=2, quiet=True)


@pytest.mark.exhaustive
def test_a_run_of_another_version_is_made_anew(tmp_path, capsys):
    first = run_demo(tmp_path, **SMALL)
    manifest = tmp_path / "photos.tartan" / "manifest.json"
    from tartan.store.manifest import Manifest

    old = Manifest.load(manifest.parent)
    old.application["source_hash"] = "an older one"
    manifest.write_text(old.to_json(), encoding="utf-8")
    assert run_demo(tmp_path, **SMALL)["n_right"] == first["n_right"]


@pytest.mark.slow
def test_a_damaged_photo_stands_aside(tmp_path, capsys):
    run_demo(tmp_path, **SMALL)
    photo = sorted((tmp_path / "photos").glob("*.jpg"))[0]
    photo.write_bytes(photo.read_bytes()[:1000])
    again = run_demo(tmp_path, **SMALL)
    assert again["n_failed_items"] == 1
    assert again["n_right"] == 7
    assert "not compared" in capsys.readouterr().out
    assert "1 item has no place on it" in (tmp_path / "report.html").read_text()


@pytest.mark.slow
def test_two_photos_of_one_camera_have_no_map(tmp_path, capsys):
    assert run_demo(tmp_path, n_photos=2, n_cameras=1)["map"] is None
    shown = capsys.readouterr()
    assert "there is no map: " in shown.err
    assert "map     none" in shown.out


@pytest.mark.slow
@pytest.mark.parametrize(("photos", "cameras"), [(1, 1), (4, 0), (3, 4)])
def test_senseless_numbers_are_refused(tmp_path, photos, cameras):
    with pytest.raises(ConfigError, match="no more cameras than photos"):
        run_demo(tmp_path / "d", n_photos=photos, n_cameras=cameras)
    assert not (tmp_path / "d").exists()
