"""Words without a letter, as variables that are not set leave them: every command refuses them, and writes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tartan.cli.main import main

WITH_OUT = (
    "run vectors x.npy",
    "report r",
    "tree r",
    "cluster r",
    "embed r",
    "neighbors r",
    "outliers r",
    "align a b",
    "lcms cluster f",
)
LINES = [
    *((f"{line} -o", "-o") for line in WITH_OUT),
    *((f"{line} --out=", "--out") for line in WITH_OUT),
    *(
        (line, "an argument")
        for line in ("export r", "sort a", "simulate forensics", "demo", "info", "resume", "add r")
    ),
    ("run vectors x.npy -o r --pairs", "--pairs"),
    ("cluster r --picture", "--picture"),
    ("tree r --picture=", "--picture"),
    ("sort a b --tmp", "--tmp"),
]


@pytest.mark.parametrize(("line", "named"), LINES)
def test_an_empty_word_is_refused_by_name(
    line: str, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = line.split() if line.endswith("=") else [*line.split(), ""]
    assert main(words) == 2
    assert f"tartan: error: {named} is empty" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_an_empty_parameter_is_a_value(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "forensics", "none.jpg", "-o", "r", "--set", "crop="]) == 2
    assert "is empty" not in capsys.readouterr().err
