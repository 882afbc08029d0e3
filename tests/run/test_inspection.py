"""Items opened to be looked at: only those of the run, as they were compared, and never as bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import tartan
from tartan import apps
from tartan.apps.vectors import Vectors
from tartan.errors import ConfigError
from tartan.result.lookup import read_facts
from tartan.result.pair import inspect_pair
from tartan.run.inspection import Inspector
from tartan.store.manifest import Manifest

SECRET = "the password is swordfish"


def photos(folder: Path, n: int = 3) -> Path:
    folder.mkdir(exist_ok=True)
    for k in range(n):
        pixels = np.random.default_rng(k).integers(0, 255, (64, 80, 3), np.uint8)
        Image.fromarray(pixels).save(folder / f"{k}.png")
    return folder


@pytest.fixture
def run(tmp_path: Path) -> Any:
    from tartan.apps.forensics.app import Forensics

    return tartan.allpairs(Forensics(), str(photos(tmp_path / "photos") / "*.png"), out=tmp_path / "r", workers=1)


@pytest.fixture(scope="module")
def two_sets() -> tartan.Run:
    rows = np.arange(10, dtype=np.float32).reshape(5, 2)
    return tartan.allpairs(Vectors(), rows[:3], against=rows[3:], workers=1)


@pytest.mark.slow
def test_a_photo_has_facts_and_a_picture(run: Any) -> None:
    portrait = Inspector(run.folder, apps).portrait(1)
    assert portrait.problem == ""
    assert dict(portrait.facts) == {"pixels": "80 x 64", "format": "PNG"}
    assert portrait.arrays["photo"].shape == (64, 80, 3)


@pytest.mark.slow
def test_what_has_changed_or_is_gone_is_not_opened(run: Any, tmp_path: Path) -> None:
    (tmp_path / "photos" / "0.png").write_bytes((tmp_path / "photos" / "1.png").read_bytes())
    (tmp_path / "photos" / "2.png").unlink()
    inspector = Inspector(run.folder, apps)
    assert "changed" in inspector.portrait(0).problem
    assert inspector.portrait(1).problem == ""
    assert inspector.portrait(2).problem == "the file is gone"
    assert not inspector.portrait(0).arrays


@pytest.mark.slow
def test_a_refusal_opens_nothing(run: Any) -> None:
    portrait = Inspector(run.folder, apps, "not trusted").portrait(1)
    assert (portrait.problem, dict(portrait.facts), dict(portrait.arrays)) == ("not trusted", {}, {})


@pytest.mark.slow
def test_a_private_file_that_a_manifest_names_is_not_shown(run: Any, tmp_path: Path) -> None:
    """Even of a trusted folder: other bytes than those of a photo give neither facts nor a drawing."""
    from tartan.store.items import ItemTable

    secret = tmp_path / "private" / "0.png"
    secret.parent.mkdir()
    secret.write_text(SECRET)
    folder = Path(run.path)
    manifest = Manifest.load(folder)
    manifest.inputs["patterns"] = [str(secret.parent / "*.png"), str(tmp_path / "photos" / "[12].png")]
    (folder / "manifest.json").write_text(manifest.to_json())
    status = secret.stat()
    sizes, mtimes = run.folder.items.sizes.copy(), run.folder.items.mtimes.copy()
    sizes[0], mtimes[0] = status.st_size, status.st_mtime_ns
    with tartan.open(folder).folder.open(folder, writable=True).lock() as locked:
        from tartan.base.files import FileWriter

        ItemTable(list(run.keys), sizes, mtimes).write(locked.path, FileWriter(locked.path))
    (folder / "checksums.bin").unlink()  # it would tell at once
    forged = tartan.open(folder)
    portrait = Inspector(forged.folder, apps).portrait(0)
    assert portrait.problem == "0.png: no photo, or a damaged one (UnidentifiedImageError)"
    assert "swordfish" not in json.dumps([portrait.problem, dict(portrait.facts), [*portrait.arrays]])
    assert Inspector(forged.folder, apps).portrait(1).problem == ""


@pytest.mark.slow
def test_what_cannot_be_opened_is_named(run: Any, tmp_path: Path) -> None:
    assert "up to 10 are opened" in Inspector(run.folder, apps, max_bytes=10).portrait(1).problem
    folder = Path(run.path)
    manifest = Manifest.load(folder)
    manifest.inputs["patterns"] = ["https://127.0.0.1/0.png"]
    (folder / "manifest.json").write_text(manifest.to_json())
    assert "URL" in Inspector(tartan.open(folder).folder, apps).portrait(1).problem


@pytest.mark.slow
def test_rows_of_an_array_and_objects_of_a_program(tmp_path: Path) -> None:
    from tartan.apps.vectors.app import Vectors

    np.save(tmp_path / "v.npy", np.arange(12.0).reshape(4, 3))
    rows = tartan.allpairs(Vectors(), tmp_path / "v.npy", out=tmp_path / "rows", workers=1)
    portrait = Inspector(rows.folder, apps).portrait(2)
    assert portrait.facts["shape"] == "3"
    assert portrait.arrays["values"].tolist() == [6.0, 7.0, 8.0]
    named = tartan.allpairs(Vectors(), tmp_path / "v.npy", keys=list("abcd"), out=tmp_path / "named", workers=1)
    assert Inspector(named.folder, apps).portrait(2).arrays["values"].tolist() == [6.0, 7.0, 8.0]
    np.save(tmp_path / "v.npy", np.zeros((5, 3)))
    assert "file has changed" in Inspector(tartan.open(rows.path).folder, apps).portrait(2).problem
    assert "file has changed" in Inspector(tartan.open(named.path).folder, apps).portrait(2).problem
    (tmp_path / "v.npy").unlink()
    assert "cannot be read: No such file" in Inspector(tartan.open(rows.path).folder, apps).portrait(2).problem
    objects = tartan.allpairs(lambda a, b: a + b, [1.0, 2.0, 3.0], out=tmp_path / "objects", workers=1)
    assert "no fingerprint" in Inspector(objects.folder, apps).portrait(0).problem
    texts = tartan.allpairs(lambda a, b: a + b, {"x": 1.0, "y": 2.0}, out=tmp_path / "texts", workers=1)
    assert "no fingerprint" in Inspector(texts.folder, apps).portrait(0).problem


APPLICATION = """
import tartan

class Mine(tartan.Application):
    def parse(self, key, data):
        return len(data)
    def compare_pair(self, a, b):
        return abs(a - b)
    def describe_item(self, key, data):
        {body}
"""


def own(tmp_path: Path, body: str) -> Any:
    from tartan.workers.shipping import load_application

    source = tmp_path / "mine.py"
    source.write_text(APPLICATION.format(body=body))
    app = load_application(f"{source}:Mine", {}, apps)
    items = str(photos(tmp_path / "photos") / "*.png")
    return tartan.allpairs(app, items, out=tmp_path / "own", workers=1)


@pytest.mark.slow
def test_an_application_describes_its_items(tmp_path: Path) -> None:
    run = own(tmp_path, "return {'bytes': len(data), 'is it': True, 'half': 0.5, 'name': key}")
    facts = Inspector(run.folder, apps).portrait(0).facts
    assert facts["is it"] == "yes"
    assert facts["half"] == "0.5"
    assert facts["name"] == "0.png"
    (tmp_path / "mine.py").write_text(APPLICATION.format(body="open('/nowhere/at/all', 'w')"))
    assert "has changed since" in Inspector(tartan.open(run.path).folder, apps).portrait(0).problem
    (tmp_path / "mine.py").unlink()
    assert "cannot be read; its items" in Inspector(tartan.open(run.path).folder, apps).portrait(0).problem


@pytest.mark.slow
def test_an_application_that_fails_is_named(tmp_path: Path) -> None:
    run = own(tmp_path, "return 1 / 0")
    assert Inspector(run.folder, apps).portrait(0).problem == (
        "the item cannot be described: ZeroDivisionError: division by zero"
    )


@pytest.mark.slow
def test_a_pair_and_what_failed(tmp_path: Path) -> None:
    folder = photos(tmp_path / "photos", 4)
    (folder / "3.png").write_bytes(b"\x89PNG damaged")
    from tartan.apps.forensics.app import Forensics

    run = tartan.allpairs(Forensics(), str(folder / "*.png"), out=tmp_path / "r", workers=1)
    pair = inspect_pair(run.folder, 0, 1)
    assert (pair.state, pair.b_for_a.of, pair.a_for_b.of) == ("done", 2, 2)
    assert pair.scores["scores"] == run.matrix()[0, 1]
    assert {pair.b_for_a.rank, inspect_pair(run.folder, 0, 2).b_for_a.rank} == {1, 2}
    failed = inspect_pair(run.folder, 3, 0)
    assert (failed.state, failed.scores, failed.b_for_a.rank) == ("an item failed", {}, None)
    assert "3.png" in failed.reasons[0]
    with pytest.raises(ConfigError, match="is one item; name two"):
        inspect_pair(run.folder, 1, 1)


@pytest.mark.parametrize(
    ("item", "number", "side"),
    [(0, "0 of 3", "first set"), (2, "2 of 3", "first set"), (3, "0 of 2", "second set"), (4, "1 of 2", "second set")],
)
def test_an_item_of_two_sets_is_numbered_within_its_own(item: int, number: str, side: str, two_sets: Any) -> None:
    facts = read_facts(two_sets.folder, item)
    assert (facts["item"], facts["side"]) == (number, side)
