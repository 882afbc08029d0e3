"""Run folders from elsewhere: nothing that they name is run before it is compared and trusted."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from whole_program import Command, Numbers

import tartan
from tartan.errors import StoreError
from tartan.run.trust import require_consent
from tartan.store.disk_cache import DiskCache
from tartan.store.folder import RunFolder
from tartan.store.manifest import FILE_NAME, Manifest

CODE = """
import pathlib
import numpy as np
import tartan

pathlib.Path(__file__).with_name("ran").touch()


class Lengths(tartan.Application):
    releases_gil = True

    def parse(self, key, data):
        return np.array([float(data)])

    def compare(self, left, right, xp):
        return xp.abs(left - right.T)
"""


@pytest.fixture
def run(tmp_path: Path, numbers: Numbers, command: Command) -> Path:
    """Return an unfinished run of a program in a file; the mark that the program leaves is gone."""
    (tmp_path / "program.py").write_text(CODE)
    folder = tmp_path / "run"
    words = ("run", f"{tmp_path}/program.py:Lengths", numbers(6), "-o", folder, "--tile", 3)
    assert command(*words, "--workers", 1).status == 0
    (folder / "status.zarr/c/0/1").unlink()
    (tmp_path / "ran").unlink()
    return folder


def as_another_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another user"))


def edit(run: Path, **changes: Any) -> None:
    """Write another manifest, with a checksum that fits, as anyone can."""
    body = json.loads((run / FILE_NAME).read_text())
    del body["format"], body["checksum"]
    body["application"] |= changes
    (run / FILE_NAME).write_text(Manifest(**body).to_json())


def forget_the_program(tmp_path: Path) -> None:
    """Let the next command load the program anew: one that this process knows already is not run again."""
    import sys

    for name in [name for name in sys.modules if name.startswith("tartan_user_program")]:
        del sys.modules[name]
    assert not (tmp_path / "ran").exists()


def refused(command: Command, words: tuple[object, ...]) -> str:
    outcome = command(*words)
    assert outcome.status == 2
    return outcome.err


@pytest.mark.slow
def test_a_run_of_this_user_is_resumed_and_extended_without_asking(
    run: Path, command: Command, numbers: Numbers, tmp_path: Path
) -> None:
    forget_the_program(tmp_path)
    assert command("resume", run).status == 0
    assert command("add", run, numbers(2, "more", 6)).status == 0
    (run / "status.zarr/c/0/1").unlink()
    link = tmp_path / "link"
    link.symlink_to(run)
    assert command("resume", link).status == 0
    assert tartan.open(run).n_pairs_done == 28


@pytest.mark.slow
@pytest.mark.parametrize("what", ["resume", "add"])
def test_a_folder_from_elsewhere_runs_nothing_until_it_is_trusted(
    run: Path, command: Command, numbers: Numbers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    as_another_user(monkeypatch, tmp_path)
    forget_the_program(tmp_path)
    words = (what, run, *([numbers(1, "more", 6)] if what == "add" else []))
    message = refused(command, words)
    assert "was not made by this user on this machine" in message
    assert f"{tmp_path}/program.py:Lengths" in message
    assert "--trust" in message
    assert not (tmp_path / "ran").exists()
    before = (run / "seal.json").read_bytes()
    assert command(*words, "--trust").status == 0
    assert (tmp_path / "ran").exists()
    assert (run / "seal.json").read_bytes() == before  # consent is for one command
    assert not RunFolder.open(run).sealed


@pytest.mark.slow
def test_the_python_interface_asks_as_well(
    run: Path, numbers: Numbers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_another_user(monkeypatch, tmp_path)
    forget_the_program(tmp_path)
    for call in (lambda: tartan.resume(run), lambda: tartan.add(run, str(numbers(1, "more", 6)))):
        with pytest.raises(StoreError, match="trust=True") as caught:
            call()
        assert caught.value.code == "not-trusted"
    assert not (tmp_path / "ran").exists()
    assert tartan.resume(run, trust=True).finished


@pytest.mark.slow
@pytest.mark.parametrize("trust", [(), ("--trust",)])
def test_changed_code_is_refused_before_it_is_run(
    run: Path, command: Command, tmp_path: Path, trust: tuple[str, ...]
) -> None:
    forget_the_program(tmp_path)
    (tmp_path / "program.py").write_text(CODE + "# changed\n")
    assert "the source of application 'Lengths' has changed" in refused(command, ("resume", run, *trust))
    assert not (tmp_path / "ran").exists()


@pytest.mark.slow
def test_an_edited_manifest_has_lost_its_seal(run: Path, command: Command, tmp_path: Path) -> None:
    import hashlib

    forget_the_program(tmp_path)
    other = tmp_path / "other.py"
    other.write_text(CODE)
    edit(run, source=f"{other}:Lengths", source_hash=hashlib.sha256(CODE.encode()).hexdigest())
    assert "--trust" in refused(command, ("resume", run))
    assert not (tmp_path / "ran").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "source", ["builtin:evil.py:Lengths", "builtin:evil.py", "evil.py:Lengths", "evil:Lengths", "this:d", "os:system"]
)
def test_no_name_leads_around_the_question(
    run: Path, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    import hashlib
    import sys

    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("evil.py", "builtin:evil.py"):
        (tmp_path / name).write_text(CODE)
    edit(run, kind="builtin", source=source, source_hash=hashlib.sha256(CODE.encode()).hexdigest())
    known = set(sys.modules)
    assert command("resume", run).status in (1, 2)
    assert not (tmp_path / "ran").exists()
    assert not {"this", "evil"} & (set(sys.modules) - known)


@pytest.mark.slow
def test_a_seal_of_another_folder_does_not_fit(run: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    tartan.allpairs(lambda a, b: abs(a - b), [1.0, 2.0], other, workers=1)
    assert RunFolder.open(other).sealed
    shutil.copy(other / "seal.json", run / "seal.json")
    assert not RunFolder.open(run).sealed


def test_a_copy_by_the_same_user_stays_trusted_and_by_another_does_not(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = shutil.copytree(run, tmp_path / "copy")
    assert RunFolder.open(copy).sealed
    as_another_user(monkeypatch, tmp_path)
    assert not RunFolder.open(copy).sealed
    assert not (tmp_path / "another user").exists()  # asking makes no key


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"3", b'{"seals": 3}', b'{"seals": [3, null, "x", "\xc3\xa9"]}', b"{" * 100_000]
)
def test_what_is_no_seal_is_none(run: Path, content: bytes) -> None:
    (run / "seal.json").write_bytes(content)
    assert not RunFolder.open(run).sealed


def test_a_pipe_in_the_place_of_a_seal_does_not_block(run: Path) -> None:
    (run / "seal.json").unlink()
    os.mkfifo(run / "seal.json")
    assert not RunFolder.open(run).sealed


def test_consent_names_what_it_is_for(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require_consent(RunFolder.open(run), "its items would be shown", trust=False)
    as_another_user(monkeypatch, tmp_path)
    require_consent(RunFolder.open(run), "its items would be shown", trust=True)
    with pytest.raises(StoreError, match="its items would be shown"):
        require_consent(RunFolder.open(run), "its items would be shown", trust=False)


@pytest.fixture
def vectors(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an unfinished run of a built-in application, as another user finds it."""
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).random((6, 4)))
    assert command("run", "vectors", tmp_path / "rows.npy", "-o", tmp_path / "v", "--tile", 3).status == 0
    (tmp_path / "v/status.zarr/c/0/1").unlink()
    as_another_user(monkeypatch, tmp_path)
    return tmp_path / "v"


def name_inputs(run: Path, inputs: dict[str, Any]) -> None:
    body = json.loads((run / FILE_NAME).read_text())
    del body["format"], body["checksum"]
    (run / FILE_NAME).write_text(Manifest(**body | {"inputs": inputs}).to_json())


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the inputs that are opened from now on."""
    import fsspec.core

    from tartan.sources import items
    from tartan.sources.rows import opening

    names: list[str] = []
    open_stored, url_to_fs = items.open_stored_array, fsspec.core.url_to_fs
    monkeypatch.setattr(fsspec.core, "url_to_fs", lambda url: (names.append(url), url_to_fs(url))[1])
    for module in (items, opening):
        monkeypatch.setattr(module, "open_stored_array", lambda path: (names.append(path), open_stored(path))[1])
    return names


@pytest.mark.slow
@pytest.mark.parametrize("what", ["resume", "add"])
def test_inputs_of_a_folder_from_elsewhere_are_opened_only_when_it_is_trusted(
    vectors: Path, command: Command, tmp_path: Path, opened: list[str], what: str
) -> None:
    """The application is a built-in one: no code of the folder is run, but it may name any file and any server."""
    np.save(tmp_path / "more.npy", np.random.default_rng(1).random((2, 4)))
    words = (what, vectors, *([tmp_path / "more.npy"] if what == "add" else []))
    message = refused(command, words)
    assert f"the inputs that it names would be opened: '{tmp_path}/rows.npy'" in message
    assert "--trust" in message
    assert not opened
    assert command(*words, "--trust").status == 0
    assert opened


@pytest.mark.slow
def test_items_that_are_given_take_no_trust(vectors: Path, tmp_path: Path, opened: list[str]) -> None:
    name_inputs(vectors, {"kind": "array", "patterns": ["memory://elsewhere.npy"]})
    assert tartan.resume(vectors, previous=np.load(tmp_path / "rows.npy"), workers=1).finished
    assert not opened


@pytest.mark.parametrize(
    "inputs",
    [
        {"kind": "files", "patterns": [f"http://127.0.0.1:9/{i}.faa" for i in range(14)]},
        {"kind": "files", "parts": [{"kind": "files", "patterns": [f"http://127.0.0.1:9/{i}.faa"]} for i in range(14)]},
    ],
)
def test_the_question_names_the_first_inputs_and_counts_urls(
    vectors: Path, opened: list[str], inputs: dict[str, Any]
) -> None:
    name_inputs(vectors, inputs)
    names = r"'http://127.0.0.1:9/0.faa', .*, 'http://127.0.0.1:9/2.faa' and 11 more \(14 of 14 are URLs\)"
    with pytest.raises(StoreError, match=names):
        tartan.resume(vectors)
    assert not opened


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    ["info RUN", "show RUN 0 1", "report RUN -o OUT.html", "neighbors RUN -k 1", "export RUN OUT.csv", "cluster RUN"],
)
def test_looking_at_a_folder_from_elsewhere_opens_no_input(
    vectors: Path, command: Command, tmp_path: Path, opened: list[str], words: str
) -> None:
    name_inputs(vectors, {"kind": "files", "patterns": ["memory://x/*.faa", str(tmp_path / "rows.npy")]})
    given = words.replace("RUN", str(vectors)).replace("OUT", str(tmp_path / "out")).split()
    assert command(*given).status in (0, 1, 3)
    assert not opened


@pytest.mark.slow
def test_fusing_a_folder_from_elsewhere_takes_trust(
    vectors: Path, command: Command, tmp_path: Path, opened: list[str]
) -> None:
    from tartan import apps
    from tartan.run.reopen import parse_items

    with pytest.raises(StoreError, match="`trust=True`"):
        parse_items(RunFolder.open(vectors), apps, trust=False)
    assert not opened
    assert len(parse_items(RunFolder.open(vectors), apps, trust=True)) == 6


class Bomb:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (self.path,))


@pytest.mark.slow
def test_a_cache_full_of_pickles_harms_no_built_in_application(command: Command, tmp_path: Path) -> None:
    """Every entry is replaced by a pickle that writes a file, as an earlier form of the cache held them."""
    (tmp_path / "in").mkdir()
    rng = np.random.default_rng(1)
    for name in "abcdef":
        text = "".join(rng.choice(list("ACDEFGHIKLMNPQRSTVWY"), 300))
        (tmp_path / "in" / f"{name}.faa").write_text(f">p\n{text}\n")
    words = ("run", "phylogeny", tmp_path / "in", "-o", tmp_path / "run", "--set", "k=3", "--disk-cache", "10MB")
    assert command(*words, "--tile", 3).status == 0
    truth = tartan.open(tmp_path / "run").matrix()
    cache = tmp_path / "run" / "cache"
    entries = [path for path in cache.rglob("*") if path.is_file()]
    assert len(entries) == 6
    for entry in entries:
        pickled = np.frombuffer(pickle.dumps(Bomb(tmp_path / "exploded")), np.uint8)
        entry.unlink()
        DiskCache(cache, 10**7).put(entry.name, [pickled])
    for chunk in (tmp_path / "run/status.zarr/c").rglob("*"):
        if chunk.is_file():
            chunk.unlink()
    assert command("resume", tmp_path / "run", "--disk-cache", "10MB").status == 0
    assert not (tmp_path / "exploded").exists()
    np.testing.assert_array_equal(tartan.open(tmp_path / "run").matrix(), truth)


@pytest.mark.slow
def test_items_of_built_in_applications_are_found_in_the_cache_again(command: Command, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name in "abcd":
        (tmp_path / "in" / f"{name}.faa").write_text(f">p\n{'ACDEFGHIKL' * 3}{name.upper() * 5}\n")
    words = ("run", "phylogeny", tmp_path / "in", "-o", tmp_path / "run", "--set", "k=3", "--disk-cache", "10MB")
    assert command(*words).status == 0
    (tmp_path / "run/status.zarr/c/0/0").unlink()
    assert command("resume", tmp_path / "run", "--disk-cache", "10MB").status == 0
    assert tartan.open(tmp_path / "run").stats["disk_hits"] >= 4


@pytest.mark.slow
def test_opening_a_run_of_an_older_version_runs_no_code(run: Path, command: Command, tmp_path: Path) -> None:
    """What a built-in application means by its scores is looked up, whatever the folder claims to be."""
    forget_the_program(tmp_path)
    body = json.loads((run / FILE_NAME).read_text())
    del body["format"], body["checksum"]
    body["application"].pop("meaning", None)
    body["application"]["kind"] = "builtin"
    (run / FILE_NAME).write_text(Manifest(**body).to_json())
    assert tartan.open(run).manifest.application["kind"] == "builtin"
    assert command("info", run).status == 0
    assert not (tmp_path / "ran").exists()
