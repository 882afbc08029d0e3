"""The benchmarks of the checkout: each can be loaded, and refuses words that it does not know."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from support.compiler import require_compiler
from tartan.cli.main import main
from tartan.devices import find_gpus
from tartan.errors import ConfigError

FOLDER = Path(__file__).parents[2] / "benches"


@pytest.fixture
def options_of(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(FOLDER.parent))
    return importlib.import_module("benches.shared._measure").options_of


def test_words_have_the_types_of_their_defaults(options_of: Any) -> None:
    found = options_of(["n=7", "times=2", "small", "folder=/a=b"], n=1, times=0.5, small=False, folder="", rounds=3)
    assert vars(found) == {"n": 7, "times": 2.0, "small": True, "folder": "/a=b", "rounds": 3}


@pytest.mark.parametrize("word", ["m=7", "n", "n=x", "small=1", "=1", ""])
def test_other_words_are_named(word: str, options_of: Any) -> None:
    with pytest.raises(ConfigError, match=f"^{word}: .*"):
        options_of([word], n=1, small=False)


@pytest.mark.slow
def test_a_benchmark_of_slots_needs_a_gpu(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    if any(gpu["usable"] for gpu in find_gpus()):
        pytest.skip("there is a GPU")
    monkeypatch.chdir(FOLDER.parent)
    assert main(["bench", "comm-gpu"]) == 1
    assert "slots cannot run on a GPU" in capsys.readouterr().err


@pytest.mark.exhaustive
def test_the_benchmark_of_slots_runs_without_a_gpu(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    require_compiler()
    monkeypatch.chdir(FOLDER.parent)
    words = ["device=emulated", "times=2", "slots=3", "largest=1000", "messages=20"]
    assert main(["bench", "comm-gpu", *words]) == 0
    found = capsys.readouterr().out
    assert "20 messages from slot to slot, 0 lost or changed" in found
    assert found.count("slot to slot") == 3
    assert "while 3 slots wait" in found
    assert [line.split()[0] for line in found.splitlines() if " the host " in line] == ["mandelbrot", "cannon", "nbody"]


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*/[!_]*.py")))
def test_no_benchmark_begins_with_a_word_that_it_does_not_know(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(FOLDER.parent)
    monkeypatch.setenv("RAYON_NUM_THREADS", "1")  # one of them sets it; this takes it away again
    assert main(["bench", name, "nonsense=1"]) == 2
    assert "nonsense=1: " in capsys.readouterr().err


def test_benchmarks_have_names_of_their_own() -> None:
    names = [path.stem for path in FOLDER.glob("*/[!_]*.py")]
    assert len(names) == len(set(names))
    assert not list(FOLDER.glob("*.py"))
