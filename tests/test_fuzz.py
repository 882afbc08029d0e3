"""Random attacks, a few of each kind with fixed seeds; ``make fuzz`` runs without end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def fuzz(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fuzz", *words], capture_output=True, text=True, cwd=ROOT, timeout=250, check=False
    )


@pytest.mark.slow
@pytest.mark.parametrize(("part", "rounds"), [("corruption", 3), ("inputs", 1), ("commands", 3), ("kills", 1)])
def test_a_few_attacks_find_nothing(part: str, rounds: int) -> None:
    found = fuzz(part, "--seed", "1", "--rounds", str(rounds))
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout == f"seeds from 1\n{rounds} x {part} without a defect\n"


@pytest.mark.slow
def test_unknown_parts_are_refused() -> None:
    found = fuzz("nothing")
    assert found.returncode == 2
    assert "there is no part nothing" in found.stderr
