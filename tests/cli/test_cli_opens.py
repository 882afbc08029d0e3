"""A command opens its input once: it parses a matrix, loads a manifest and looks at all pairs one time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tartan
from tartan.analytics.matrix import dissimilarities
from tartan.analytics.matrix import open as opening
from tartan.apps.vectors import Vectors
from tartan.store.manifest import Manifest

POINTS = np.array([[0.0], [1.0], [3.0], [7.0], [40.0], [41.0]], np.float32)
COMMANDS = (
    "cluster INPUT -k 2 --json --centres 1 --picture p.png",
    "cluster INPUT -k 2 --method average --json --centres 1",
    "cluster INPUT --json",
    "tree INPUT",
    "neighbors INPUT",
    "outliers INPUT",
)


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    found: Counter[str] = Counter()

    def counting(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any) -> Any:
            found[name] += 1
            return call(*args)

        return counted

    monkeypatch.setattr(opening, "open_file", counting("parsed", opening.open_file))
    monkeypatch.setattr(dissimilarities, "check", counting("checked", dissimilarities.check))
    monkeypatch.setattr(Manifest, "load", counting("manifests", Manifest.load))
    return found


@pytest.fixture
def run(tmp_path: Path) -> Path:
    app = Vectors(metric="euclidean")
    return Path(tartan.allpairs(app, POINTS, tmp_path / "run", quiet=True).path)


@pytest.mark.parametrize("words", [*COMMANDS, "embed INPUT -o m", "embed INPUT -o m --density d.png"])
def test_a_file_is_parsed_once(
    command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, done: Counter[str], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    np.savetxt("d.csv", np.abs(POINTS - POINTS.T), delimiter=",")
    assert command(*words.replace("INPUT", "d.csv").split(), "--quiet").status == 0
    assert (done["parsed"], done["manifests"]) == (1, 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [*COMMANDS, "embed INPUT -o m --no-keep", "export INPUT x.npy", "report INPUT", "info INPUT"]
)
def test_a_run_is_opened_once(
    command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Path, done: Counter[str], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done.clear()
    quiet = [] if words.startswith(("export", "info")) else ["--quiet"]
    assert command(*words.replace("INPUT", "run").split(), *quiet).status == 0
    assert (done["parsed"], done["manifests"]) == (0, 1)


@pytest.mark.parametrize("name", ["d.csv", "run"])
def test_all_pairs_are_looked_at_once_for_clusters_and_their_centres(
    command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Path, done: Counter[str], name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    np.savetxt("d.csv", np.abs(POINTS - POINTS.T), delimiter=",")
    done.clear()
    assert command("cluster", name, "-k", 2, "--json", "--centres", 1).status == 0
    assert done["checked"] == 1


def test_the_map_of_a_run_is_of_the_run_that_is_open(
    command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Path, done: Counter[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    tartan.open(run).embed(n_components=2, keep=True)
    done.clear()
    assert command("cluster", "run", "-k", 2, "--map", "m.svg", "--quiet").status == 0
    assert done["manifests"] == 1
