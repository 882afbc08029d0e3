"""A release: every file that names the version gets the new one, and the change log one section of it."""

import importlib.machinery
import importlib.util
import re
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


def load() -> ModuleType:
    """Load packaging/set-version, which is a program without a suffix."""
    loader = importlib.machinery.SourceFileLoader("set_version", str(ROOT / "packaging/set-version"))
    spec = importlib.util.spec_from_loader("set_version", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


PROGRAM = load()
VERSION = PROGRAM.read_version(ROOT)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Copy the files that name the version."""
    for name in (*PROGRAM.FILES, *PROGRAM.LOCKS):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_no_file_keeps_the_old_version(copy: Path) -> None:
    PROGRAM.set_version(copy, "98.7.6")
    assert PROGRAM.read_version(copy) == "98.7.6"
    assert {name for name in PROGRAM.FILES if "98.7.6" not in (copy / name).read_text()} == set()
    assert {name for name in PROGRAM.FILES if VERSION in (copy / name).read_text()} == set()


def test_the_lock_changes_for_our_crates_only(copy: Path) -> None:
    PROGRAM.set_version(copy, "98.7.6")
    before, after = ((root / "Cargo.lock").read_text().split("[[package]]") for root in (ROOT, copy))
    changed = [new for old, new in zip(before, after, strict=True) if old != new]
    assert len(changed) == len(list((ROOT / "crates").glob("*/Cargo.toml")))
    assert [block for block in changed if not re.match(r'\nname = "tartan-\w+"\nversion = "98\.7\.6"\n', block)] == []


def test_every_file_that_names_the_version_is_listed() -> None:
    if not (ROOT / ".git").exists() or not shutil.which("git"):
        pytest.skip("the files of the project are those that git knows, and this is not a checkout")
    # Where a fake names a version, any will do; lists of other projects' versions hold one that is written alike.
    others = {"tests/view/fake_run.py", "CHANGELOG.md", *PROGRAM.LOCKS}
    command = ["git", "grep", "--name-only", "--fixed-strings", "--word-regexp", VERSION]
    named = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert set(named) - others == set(PROGRAM.FILES)


@pytest.mark.parametrize("version", ["1.2", "v9.0.0", "9.0.0rc1", "0.0.1", VERSION, ""])
def test_what_is_no_next_version_is_refused(version: str, copy: Path) -> None:
    with pytest.raises(ValueError, match="version"):
        PROGRAM.set_version(copy, version)
    assert PROGRAM.read_version(copy) == VERSION


def test_a_file_that_names_no_version_is_named(copy: Path) -> None:
    (copy / "CITATION.cff").write_text("version: unknown\n")
    with pytest.raises(ValueError, match=r"CITATION\.cff does not name version"):
        PROGRAM.set_version(copy, "98.7.6")


def test_what_was_not_released_joins_the_version() -> None:
    log = """# Changelog

<!-- here -->

## [2.0.0] - 2030-01-01

### Added

- new a

### Fixed

- new f

## [Unreleased]

### Security

- old s

### Added

- old a
  goes on

## [1.0.0] - 2029-01-01

### Added

- first
"""
    merged = PROGRAM.merge_unreleased(log)
    assert (
        merged
        == """# Changelog

<!-- here -->

## [2.0.0] - 2030-01-01

### Added

- new a
- old a
  goes on

### Fixed

- new f

### Security

- old s

## [1.0.0] - 2029-01-01

### Added

- first
"""
    )
    assert PROGRAM.merge_unreleased(merged) == merged


def test_nothing_of_the_change_log_is_lost() -> None:
    log = (ROOT / "CHANGELOG.md").read_text()
    marker = "<!-- the next release stands here -->\n"
    assert marker in log
    released = log.replace(marker, f"{marker}\n## [98.7.6] - 2030-01-01\n\n### Changed\n\n- new\n\n", 1)
    merged = PROGRAM.merge_unreleased(released)
    titles = ("## [98.7.6] - 2030-01-01", "## [Unreleased]", "")

    def entries(text: str) -> list[str]:
        return sorted(line for line in text.splitlines() if not line.startswith("### ") and line not in titles)

    assert entries(merged) == entries(released)
    assert "## [Unreleased]" not in merged
