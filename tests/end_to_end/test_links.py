"""Symbolic links inside a run folder: whatever lies behind them stays as it is, and the user is told."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from whole_program import APPLICATIONS, Command, Numbers

FOLDERS = ["tmp", "writers", "writers-gone", "claims", "scores.zarr", "scores.zarr/c", "scores.zarr/c/0", "status.zarr"]
FOLDERS += ["status.zarr/c", "status.zarr/c/1", "parts"]
FILES = ["run.lock", "run.lease", "manifest.json", "seal.json", "items.parquet", "candidates.npy", "shares.json"]
FILES += ["healing.json", "failures.jsonl", "failures.parquet", "stats.json", "ranks.json", "trace.json"]
FILES += ["result.parquet", "scores.zarr/zarr.json", "scores.zarr/c/0/0", "status.zarr/c/0/1"]
COMMANDS = ["resume RUN", "resume RUN --retry-failed", "add RUN NEW", "run APP ITEMS -o RUN", "resume RUN --trace"]
COMMANDS += ["resume RUN --on local:1", "run APP ITEMS -o RUN --part 1/2"]


@pytest.fixture
def run(tmp_path: Path, numbers: Numbers, command: Command) -> Path:
    """Return an unfinished run with a failed item."""
    (numbers(7) / "002.txt").write_text("none")
    numbers(2, "new", first=10)
    words = ("run", f"{APPLICATIONS}:Distances", tmp_path / "items", "-o", tmp_path / "run", "--tile", 4)
    assert command(*words, "--workers", 1).status == 3
    (tmp_path / "run/status.zarr/c/0/1").unlink()
    return tmp_path / "run"


def words_of(command_line: str, tmp_path: Path, run: Path) -> list[object]:
    names = {"RUN": run, "NEW": tmp_path / "new", "ITEMS": tmp_path / "items", "APP": f"{APPLICATIONS}:Distances"}
    return [names.get(word, word) for word in command_line.split()]


def lead_away(place: Path, behind: Path) -> None:
    """Move what lies at a place elsewhere, among precious files, and put a link there."""
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.exists():
        place.rename(behind)
    elif place.suffix:
        behind.write_text("precious")
    else:
        behind.mkdir()
    if behind.is_dir():
        (behind / "thesis").mkdir()
        for name in ("notes", "thesis/one.tex", "elsewhere.1.00000000-1"):
            (behind / name).write_text("precious")
            os.utime(behind / name, (0, 0))
    place.symlink_to(behind)


def contents(place: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in (place, *place.rglob("*")) if path.is_file()}


@pytest.mark.slow
@pytest.mark.parametrize("place", FOLDERS + FILES)
def test_nothing_behind_a_link_is_changed(place: str, run: Path, command: Command, tmp_path: Path) -> None:
    for number, line in enumerate(COMMANDS):
        linked, behind = tmp_path / f"linked-{number}", tmp_path / f"behind-{number}"
        shutil.copytree(run, linked)
        lead_away(linked / place, behind)
        own, theirs = contents(linked), contents(behind)
        shown = command(*words_of(line, tmp_path, linked), "--workers", 1)
        assert contents(behind) == theirs, line
        assert shown.status == 1, line
        assert f"{linked / place} is a symbolic link" in " ".join(shown.err.split()), line
        assert contents(linked) == own, f"{line}: refused before anything is written"


@pytest.mark.parametrize("command_line", ["resume RUN --disk-cache 1kB", "add RUN NEW --disk-cache 1kB"])
def test_a_linked_cache_is_refused(command_line: str, run: Path, command: Command, tmp_path: Path) -> None:
    lead_away(run / "cache", tmp_path / "behind")
    (tmp_path / "behind" / "ab").mkdir()
    (tmp_path / "behind" / "ab" / ("ab" * 32)).write_bytes(bytes(10_000))
    theirs = contents(tmp_path / "behind")
    shown = command(*words_of(command_line, tmp_path, run), "--workers", 1)
    assert shown.status == 1
    assert f"{run}/cache is a symbolic link" in " ".join(shown.err.split())
    assert contents(tmp_path / "behind") == theirs


def test_a_link_of_another_name_is_the_users(run: Path, command: Command, tmp_path: Path) -> None:
    lead_away(run / "notes", tmp_path / "behind")
    theirs = contents(tmp_path / "behind")
    assert command(*words_of("resume RUN", tmp_path, run), "--workers", 1).status == 3
    assert contents(tmp_path / "behind") == theirs
    assert (run / "notes").is_symlink()


def test_the_run_folder_itself_may_be_a_link(run: Path, command: Command, tmp_path: Path) -> None:
    run.rename(tmp_path / "elsewhere")
    run.symlink_to(tmp_path / "elsewhere")
    assert command(*words_of("resume RUN", tmp_path, run), "--workers", 1).status == 3
    assert (tmp_path / "elsewhere/status.zarr/c/0/1").exists()
    assert run.is_symlink()


def test_a_folder_that_holds_data_of_the_user_is_no_killed_creation(
    command: Command, numbers: Numbers, tmp_path: Path
) -> None:
    """A file ``run.lock`` alone made a folder look like what a killed creation left."""
    folder = tmp_path / "work"
    (folder / "tmp").mkdir(parents=True)
    (folder / "precious.zarr").mkdir()
    for name in ("run.lock", "tmp/thesis.tex", "precious.zarr/zarr.json"):
        (folder / name).write_text("precious")
    before = contents(folder)
    shown = command("run", f"{APPLICATIONS}:Distances", numbers(3), "-o", folder)
    assert (shown.status, "precious.zarr" in shown.err) == (2, True)
    assert contents(folder) == before


def test_a_run_beside_data_of_the_user_is_not_replaced(run: Path, command: Command, tmp_path: Path) -> None:
    """What is in ``tmp`` would stay, and the next creation would refuse it: that is said before the run is gone."""
    (run / "tmp" / "thesis.tex").write_text("precious")
    before = contents(run)
    words = words_of("run APP ITEMS -o RUN --overwrite", tmp_path, run)
    shown = command(*words, "--workers", 1)
    assert (shown.status, "tmp/thesis.tex" in shown.err) == (2, True)
    assert contents(run) == before
    (run / "tmp" / "thesis.tex").rename(tmp_path / "thesis.tex")
    lead_away(run / "writers", tmp_path / "behind")
    theirs = contents(tmp_path / "behind")
    assert command(*words, "--workers", 1).status == 3
    assert contents(tmp_path / "behind") == theirs
    assert not (run / "writers").is_symlink()
