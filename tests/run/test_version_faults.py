"""What goes wrong while items of a run change: forged and half written logs, full disks, others at the same time."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import tartan
from support.in_threads import in_threads
from tartan.base.files import FileWriter
from tartan.cli.main import main
from tartan.errors import ConfigError, CorruptResultError, DiskFullError, StoreError
from tartan.store.folder import RunFolder
from tartan.store.manifest import Manifest
from tartan.store.remote import RemoteFolder, excerpt
from tartan.store.versions import Record, VersionLog
from tartan.view.live import LiveRun

pytestmark = pytest.mark.slow
N = 9
POINTS = np.random.default_rng(6).normal(size=(N, 3))
KEYS = [f"item{at}" for at in range(N)]
BEST = {"kind": "top-k", "k": 2, "largest": False}
WAYS: dict[str, Any] = {"workers": 1, "quiet": True}


@in_threads
def difference(a: Any, b: Any) -> float:
    return float(np.abs(a - b).sum())


def compute(path: Path, reduce: Any = None) -> Any:
    return tartan.allpairs(difference, list(POINTS), out=path, keys=KEYS, reduce=reduce, tile=4, **WAYS)


def forge(path: Path, record: Record) -> None:
    """Write a log that is whole, with a change that no command makes."""
    log = VersionLog.read(path, Manifest.load(path)).with_record(record)
    log.write(path, FileWriter(path))


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("names", "said"),
    [
        ({"1": "item2"}, "calls two items 'item2'"),
        ({"1": "x", "2": "x"}, "calls two items 'x'"),
        ({"1": "a\nb"}, r"has the name 'a\\nb'"),
        ({"1": "\x1b[2J"}, "has the name"),
        ({"1": ""}, "has the name ''"),
        ({"99": "x"}, "names items that the run does not have"),
        ({"-1": "x"}, "names what is not an item"),
    ],
)
def test_forged_names_are_refused(names: dict[str, str], said: str, tmp_path: Path) -> None:
    compute(tmp_path / "run.tartan")
    forge(tmp_path / "run.tartan", Record("rename", "2026-11-27T00:00:00+00:00", 1, names=names))
    with pytest.raises(CorruptResultError, match=said):
        list(tartan.open(tmp_path / "run.tartan").keys)


def test_names_of_files_are_shown_on_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compute(tmp_path / "run.tartan")
    tartan.remove(tmp_path / "run.tartan", [KEYS[0]])
    from tartan.cli.shared.changes import say_change

    about = {"change": "rename", "items": ["a\nb"], "names": ["c\x1b[2J"], "n_new": 0}
    assert say_change(about) == r"rename 'a\nb' as 'c\x1b[2J'"
    assert main(["log", str(tmp_path / "run.tartan")]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_a_name_that_is_given_again_is_no_version(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.tartan"
    compute(path)
    assert tartan.rename(path, KEYS[1], KEYS[1]).version == 1
    assert not (path / "versions.jsonl").exists()
    assert tartan.rename(path, KEYS[1], "other").version == 2
    assert main(["rename", str(path), "other", "other"]) == 0
    assert "other is called that already: nothing to do" in capsys.readouterr().err
    assert tartan.open(path).version == 2
    with pytest.raises(ConfigError, match="no item"):
        tartan.rename(path, "nobody", "nobody")


@pytest.mark.parametrize("reduce", [None, BEST], ids=["dense", "best"])
def test_a_full_disk_leaves_the_version_before_or_after(
    reduce: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.tartan"
    compute(path, reduce)
    before = tartan.open(path).pairs().read_all().to_pylist()
    replace, seen = FileWriter.replace, set()
    for moment in range(30):
        count = iter(range(1000))

        def full(self: Any, *args: Any, count: Any = count, moment: int = moment) -> Any:
            if next(count) == moment:
                raise DiskFullError("no space left")
            return replace(self, *args)

        with monkeypatch.context() as patched:
            patched.setattr(FileWriter, "replace", full)
            try:
                tartan.remove(path, [KEYS[3]])
                break
            except DiskFullError:
                pass
        found = tartan.open(path)
        seen.add(found.version)
        assert tartan.open(path, 1).pairs().read_all().to_pylist() == before
        if found.version == 2:
            assert KEYS[3] not in found.keys
            break
    assert seen
    tartan.expire(path, keep=10)  # the next writer, where there is room again
    if tartan.open(path).version == 1:
        tartan.remove(path, [KEYS[3]])
    run = tartan.resume(path, app=difference, previous=list(POINTS), **WAYS)
    assert run.finished
    other = [point for at, point in enumerate(POINTS) if at != 3]
    keys = [key for key in KEYS if key != KEYS[3]]
    expected = tartan.allpairs(difference, other, out=tmp_path / "o.tartan", keys=keys, reduce=reduce, tile=4, **WAYS)
    assert run.pairs().read_all().to_pylist() == expected.pairs().read_all().to_pylist()


def test_two_removals_at_once(tmp_path: Path) -> None:
    path = tmp_path / "run.tartan"
    compute(path)
    start, outcomes = threading.Barrier(4), {}

    def remove(key: str) -> None:
        start.wait(timeout=60)
        try:
            tartan.remove(path, [key])
            outcomes[key] = "removed"
        except StoreError as error:
            outcomes[key] = error.code

    threads = [threading.Thread(target=remove, args=(key,)) for key in KEYS[:4]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(outcomes.values()) <= {"removed", "locked"}
    gone = [key for key, how in outcomes.items() if how == "removed"]
    assert gone
    run = tartan.open(path)
    assert list(run.keys) == [key for key in KEYS if key not in gone]
    assert [version.change for version in run.versions] == ["run"] + ["remove"] * len(gone)


class RemovesWhileLoading(tartan.Application):
    """Tries to remove an item from its own run each time that one is loaded."""

    outputs: ClassVar = {"scores": "float64"}
    item_suffixes = (".txt",)
    releases_gil = True  # in threads of this process, so that ``said`` is seen
    path: ClassVar[Path]
    said: ClassVar[list[str | None]] = []

    def parse(self, key: str, data: bytes) -> Any:
        if (self.path / "manifest.json").exists():
            try:
                tartan.remove(self.path, ["b.txt"])
                self.said.append(None)
            except StoreError as error:
                self.said.append(error.code)
        return np.array([float(data)])

    def compare_pair(self, a: Any, b: Any) -> float:
        return float(abs(a - b)[0])


def test_an_item_that_is_loaded_cannot_be_removed_meanwhile(tmp_path: Path) -> None:
    for at, name in enumerate("abcd"):
        (tmp_path / f"{name}.txt").write_text(str(at))
    RemovesWhileLoading.path = tmp_path / "run.tartan"
    run = tartan.allpairs(RemovesWhileLoading(), str(tmp_path), out=RemovesWhileLoading.path, **WAYS)
    assert set(RemovesWhileLoading.said) == {"locked"}
    assert (run.version, run.n_items, run.finished) == (1, 4, True)


def test_an_item_cannot_be_removed_while_ranks_share_the_folder(tmp_path: Path) -> None:
    compute(tmp_path / "run.tartan")
    folder = RunFolder.open(tmp_path / "run.tartan", writable=True)
    with folder.join("group", {"what": "rank 3"}), pytest.raises(StoreError, match="rank 3") as caught:
        tartan.remove(tmp_path / "run.tartan", [KEYS[1]])
    assert caught.value.code == "locked"
    assert tartan.remove(tmp_path / "run.tartan", [KEYS[1]]).version == 2


def test_what_ranks_get_of_a_folder_has_its_versions(tmp_path: Path) -> None:
    path = tmp_path / "run.tartan"
    compute(path, BEST)
    tartan.remove(path, [KEYS[1]])
    folder = RunFolder.open(path, writable=True)
    sent: Any = RemoteFolder.unpack(tmp_path / "elsewhere", excerpt(folder), None)  # type: ignore[arg-type]
    assert sent.live.tolist() == [key != KEYS[1] for key in KEYS]
    assert sent.n_left == folder.n_left > 0
    lacking = folder.missing()
    assert lacking.keys() == sent.missing(verify=False).keys()
    assert all((lacking[chunk] == which).all() for chunk, which in sent.missing(verify=False).items())


def test_half_an_upgrade(tmp_path: Path) -> None:
    path = tmp_path / "run.tartan"
    compute(path)
    manifest = (path / "manifest.json").read_bytes()
    tartan.remove(path, [KEYS[1]])
    log = (path / "versions.jsonl").read_bytes()
    upgraded = (path / "manifest.json").read_bytes()
    assert json.loads(upgraded) != json.loads(manifest)
    (path / "manifest.json").write_bytes(manifest)  # the log is there, the manifest says nothing of it yet
    assert list(tartan.open(path).keys) == [key for key in KEYS if key != KEYS[1]]
    run = tartan.remove(path, [KEYS[2]])
    assert (run.version, run.n_items) == (3, N - 2)
    assert json.loads((path / "manifest.json").read_bytes()) == json.loads(upgraded)
    (path / "versions.jsonl").unlink()  # the other half
    with pytest.raises(CorruptResultError, match=r"versions\.jsonl.* is gone"):
        tartan.open(path)
    lines = log.decode().splitlines(keepends=True)
    head = lines[0].replace('"format":1', '"format":7')
    import hashlib

    body = head[len('{"entry": ') : head.rindex(', "check": ')]
    check = hashlib.sha256(f"\n{body}".encode()).hexdigest()[:16]
    (path / "versions.jsonl").write_text(f'{{"entry": {body}, "check": "{check}"}}\n')
    with pytest.raises(CorruptResultError, match=r"has format 7, this Tartan reads 1; use a newer Tartan") as caught:
        tartan.open(path)
    assert caught.value.code == "newer-format"


def test_a_page_shows_an_old_version(tmp_path: Path) -> None:
    path = tmp_path / "run.tartan"
    compute(path)
    tartan.remove(path, [KEYS[1], KEYS[4]])
    for version, n_items in ((1, N), (2, N - 2), (None, N - 2)):
        live = LiveRun(lambda version=version: tartan.open(path, version), lambda folder: None)  # type: ignore[misc]
        assert live.state()["n_items"] == n_items
        assert re.search(r"\bitem4\b", json.dumps(live.find("item4"))) is not None or n_items < N
