"""The benchmarks of the checkout: each can be loaded, and refuses words that it does not know."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from tartan.cli.main import main
from tartan.errors import ConfigError

FOLDER = Path(__file__).parents[2] / "benches"


@pytest.fixture
def options_of(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("_measure").options_of


def test_words_have_the_types_of_their_defaults(options_of: Any) -> None:
    found = options_of(["n=7", "times=2", "small", "folder=/a=b"], n=1, times=0.5, small=False, folder="", rounds=3)
    assert vars(found) == {"n": 7, "times": 2.0, "small": True, "folder": "/a=b", "rounds": 3}


@pytest.mark.parametrize("word", ["m=7", "n", "n=x", "small=1", "=1", ""])
def test_other_words_are_named(word: str, options_of: Any) -> None:
    with pytest.raises(ConfigError, match=f"^{word}: .*"):
        options_of([word], n=1, small=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("[!_]*.py")))
def test_no_benchmark_begins_with_a_word_that_it_does_not_know(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(FOLDER.parent)
    monkeypatch.setenv("RAYON_NUM_THREADS", "1")  # one of them sets it; this takes it away again
    assert main(["bench", name, "nonsense=1"]) == 2
    assert "nonsense=1: " in capsys.readouterr().err
