"""Random attacks, a few of each kind with fixed seeds; ``make fuzz`` runs without end."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from fuzz import native

ROOT = Path(__file__).resolve().parents[1]


def fuzz(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command, env = [sys.executable, "-m", "fuzz", *words], os.environ | variables
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=250, check=False, env=env)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("part", "rounds"),
    [
        ("corruption", 3),
        ("inputs", 1),
        ("commands", 3),
        ("cluster", 2),
        pytest.param("simulated", 2, marks=pytest.mark.exhaustive),
        pytest.param("kills", 1, marks=pytest.mark.exhaustive),
    ],
)
def test_a_few_attacks_find_nothing(part: str, rounds: int) -> None:
    found = fuzz(part, "--seed", "1", "--rounds", str(rounds))
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout == f"seeds from 1\n{rounds} x {part} without a defect\n"


@pytest.mark.slow
def test_unknown_parts_are_refused() -> None:
    found = fuzz("nothing")
    assert found.returncode == 2
    assert "there is no part nothing" in found.stderr


@pytest.mark.slow
def test_what_needs_more_than_there_is_is_skipped_with_its_reason(tmp_path: Path) -> None:
    found = fuzz("properties", "cargo-fuzz", "--seed", "1", "--rounds", "1", PATH=str(tmp_path))
    assert found.returncode == 0
    assert found.stdout.splitlines()[1:] == [
        "properties is skipped: it needs cargo", "cargo-fuzz is skipped: it needs cargo", "nothing without a defect",
    ]  # fmt: skip


def test_the_same_properties_are_checked_by_tests_and_by_cargo_fuzz() -> None:
    """Targets are listed once more in two places: the package of Rust, and what ``make fuzz`` runs."""
    targets = {path.stem for path in (ROOT / "fuzz/targets").glob("*.rs")}
    package = tomllib.loads((ROOT / "fuzz/Cargo.toml").read_text())
    assert {target["name"] for target in package["bin"]} == targets == set(native.TARGETS)
