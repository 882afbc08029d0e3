"""``tartan run ... --part I/N``: several processes compute one run without talking, and a resume finishes it."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from whole_program import APPLICATIONS, Command, Numbers, Start

import tartan
from tartan.apps.vectors import Vectors
from tartan.base.lock import is_held
from tartan.errors import ConfigError

N = 60
PARTS = 4


class Half(tartan.Application):
    """The first number less half of the second; one item cannot be parsed, one pair cannot be compared."""

    symmetric = False
    releases_gil = True

    def parse(self, key: str, data: Any) -> np.ndarray:
        if data == 11.0:
            raise ValueError("eleven")
        return np.array([data])

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        if (left == 20).any() and (right == 47).any():
            raise ValueError("no")
        return left - 0.5 * right.T


class Apart(Half):
    """How far two numbers are apart."""

    symmetric = True

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        return xp.abs(super().compare(left, right, xp) - 0.5 * right.T)


NUMBERS = [float(i) for i in range(N)]
ROWS = np.random.default_rng(3).normal(size=(N, 5)).astype(np.float32)
LISTED = np.random.default_rng(4).integers(0, N, (300, 2))
WAYS: dict[str, tuple[tartan.Application, Any, dict[str, Any]]] = {
    "dense": (Vectors(metric="cosine"), ROWS, {}),
    "streamed": (Vectors(metric="cosine"), ROWS, {"host_cache": "16items"}),
    "both ways, failures": (Half(), NUMBERS, {}),
    "top-k": (Vectors(metric="cosine"), ROWS, {"reduce": {"kind": "top-k", "k": 3, "largest": True}}),
    "top-k, failures": (Half(), NUMBERS, {"reduce": {"kind": "top-k", "k": 3, "largest": False}}),
    "threshold": (Apart(), NUMBERS, {"reduce": {"kind": "threshold", "threshold": 4.0}}),
    "A x B": (Apart(), NUMBERS[:23], {"against": NUMBERS[23:]}),
    "list": (Apart(), NUMBERS, {"pairs": LISTED[(LISTED[:, 0] != LISTED[:, 1])]}),
}


def bits(run: tartan.Run) -> list[bytes]:
    """Return everything that a run has found, in a form that shows every bit."""
    if run.manifest.reduce is not None:
        table = pq.read_table(run.path / "result.parquet")
        return [np.asarray(column).tobytes() for column in table.columns if column.type != "string"]
    return [np.asarray(run.matrix()).tobytes(), np.asarray(run.status[:]).tobytes()]


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_all_parts_and_a_resume_are_one_run(tmp_path: Path, way: str) -> None:
    app, items, options = WAYS[way]
    options = {"tile": 7, "workers": 1, **options}
    whole = tartan.allpairs(app, items, tmp_path / "whole", **options)
    for index in (3, 1, 4, 2):
        part = tartan.allpairs(app, items, tmp_path / "run", part=f"{index}/{PARTS}", **options)
        assert [each.state for each in part.parts][index - 1] == "finished"
    assert [each.part for each in part.parts] == ["1/4", "2/4", "3/4", "4/4"]
    assert sum(each.n_pairs for each in part.parts) == whole.n_pairs
    pairs = [each.n_pairs for each in part.parts]
    assert max(pairs) < 1.5 * whole.n_pairs / PARTS
    run = tartan.resume(tmp_path / "run", app=app, previous=_all_items(items, options))
    assert run.finished
    assert bits(run) == bits(whole)
    assert [(f.i, f.j, f.reason) for f in run.failures] == [(f.i, f.j, f.reason) for f in whole.failures]
    assert run.stats["pairs_computed"] == whole.stats["pairs_computed"]
    assert run.stats["load_factor"] >= whole.stats["load_factor_bound"]
    assert {"writers", "writers-gone", "claims"}.isdisjoint(entry.name for entry in run.path.iterdir())


def _all_items(items: Any, options: dict[str, Any]) -> Any:
    return [*items, *options["against"]] if "against" in options else items


@pytest.mark.slow
def test_failed_items_are_retried_after_all_parts(numbers: Numbers, command: Command, tmp_path: Path) -> None:
    folder, run = numbers(9), tmp_path / "run"
    (folder / "002.txt").write_text("none")
    words = ("run", f"{APPLICATIONS}:Distances", folder, "-o", run, "--tile", 3)
    for index in (1, 2):
        ended = command(*words, "--part", f"{index}/2")
        assert ended.status == 3
        assert f"part {index}/2 has ended; {index} of 2 parts are finished" in ended.err
        rest = "when all have ended, `tartan resume" if index == 1 else "the run is finished"
        assert f"{index} of 2 parts are finished; {rest}" in ended.err
    (folder / "002.txt").write_text("2")
    healed = command("resume", run, "--retry-failed")
    assert (healed.status, "1 of 1 failed items are healed" in healed.err) == (0, True)
    values = np.arange(9.0)
    np.testing.assert_array_equal(tartan.open(run).matrix(diagonal=0.0), np.abs(values[:, None] - values))


def test_what_is_refused(numbers: Numbers, command: Command, tmp_path: Path) -> None:
    folder, run = numbers(6), tmp_path / "run"
    words = ("run", f"{APPLICATIONS}:Distances", folder, "-o", run, "--tile", 3)
    for text, why in {
        "0/4": "parts are counted from 1: 1/4 to 4/4",
        "5/4": "the last part is 4/4",
        "3": "write I/N",
        "1/0": "a run has 1 to 100,000 parts",
    }.items():
        refused = command(*words, "--part", text)
        assert (refused.status, why in refused.err) == (2, True), refused.err
    assert command(*words, "--part", "1/2", "--trace").status == 2
    assert not run.exists()
    with pytest.raises(ConfigError, match="parts meet in a run folder"):
        tartan.allpairs(lambda a, b: a, [1.0, 2.0], part="1/2")
    first = command(*words, "--part", "1/2")
    assert (first.status, "of 2 has 1.6 times the pairs" in first.err) == (0, True)
    other = command(*words, "--part", "1/3")
    assert (other.status, "is divided into 2 parts, not 3: give --part I/2" in other.err) == (2, True)
    again = command(*words, "--part", "1/2", "--json")
    assert json.loads(again.out)["parts"][0]["state"] == "finished"
    shown = command("info", run)
    assert "1/2" in shown.out
    assert "unfinished: 0 of" in shown.out


def test_a_part_with_other_inputs_is_refused(numbers: Numbers, command: Command, tmp_path: Path) -> None:
    """Nodes may see other files under the same names; the fingerprints tell."""
    folder, run = numbers(6), tmp_path / "run"
    words = ("run", f"{APPLICATIONS}:Distances", folder, "-o", run, "--tile", 3)
    assert command(*words, "--part", "1/2", "--quiet").status == 0
    (folder / "004.txt").write_text("44")
    refused = command(*words, "--part", "2/2")
    assert (refused.status, "size of items has changed: 004.txt" in refused.err) == (2, True)
    other = command("run", f"{APPLICATIONS}:Halting", folder, "-o", run, "--tile", 3, "--part", "2/2")
    assert (other.status, "application" in other.err) == (2, True)


@pytest.mark.slow
def test_a_part_that_is_stopped_ends_cleanly(numbers: Numbers, start: Start, tmp_path: Path) -> None:
    folder, fifo, run = numbers(N), tmp_path / "fifo", tmp_path / "run"
    os.mkfifo(fifo)
    words = ("run", f"{APPLICATIONS}:Halting", folder, "-o", run, "--tile", 4, "--workers", 1, "--part", "1/2")
    stopped = start(*words, env={"TARTAN_TEST_FIFO": str(fifo), "TARTAN_TEST_PAIRS": "2"})
    assert fifo.read_text() == "halted"
    os.kill(stopped.process.pid, signal.SIGTERM)
    assert stopped.finish().status == 143
    assert stopped.family() == []
    assert [entry.name for entry in (run / "writers").rglob("*")] != []
    assert not is_held(run)
    assert start(*words).finish().status == 0


def test_a_single_pair(numbers: Numbers, command: Command, tmp_path: Path) -> None:
    words = ("run", f"{APPLICATIONS}:Distances", numbers(2), "-o", tmp_path / "run")
    assert [command(*words, "--part", f"{index}/2", "--quiet").status for index in (1, 2)] == [0, 0]
    assert command("resume", tmp_path / "run", "--quiet").status == 0


def test_more_parts_than_chunks(command: Command, numbers: Numbers, tmp_path: Path) -> None:
    folder, run = numbers(3), tmp_path / "run"
    words = ("run", f"{APPLICATIONS}:Distances", folder, "-o", run)
    statuses = [command(*words, "--part", f"{index}/5", "--quiet").status for index in range(1, 6)]
    assert statuses == [0] * 5
    about = json.loads(command("info", run, "--json").out)
    assert (about["state"], len(about["parts"]), about["n_pairs_done"]) == ("finished", 5, 3)


@pytest.mark.exhaustive
def test_four_parts_at_once_one_killed_and_a_resume(numbers: Numbers, start: Start, tmp_path: Path) -> None:
    """All four are processes; the one that is killed had computed some of its share. The matrix has the same bits."""
    folder, fifo = numbers(N), tmp_path / "fifo"
    os.mkfifo(fifo)

    def words(run: str) -> tuple[object, ...]:
        return "run", f"{APPLICATIONS}:Halting", folder, "-o", tmp_path / run, "--tile", 4, "--workers", 1

    killed = start(*words("run"), "--part", "2/4", env={"TARTAN_TEST_FIFO": str(fifo), "TARTAN_TEST_PAIRS": "2"})
    others = [start(*words("run"), "--part", f"{index}/4") for index in (1, 3, 4)]
    assert fifo.read_text() == "halted"
    about = json.loads(start("info", tmp_path / "run", "--json").finish().out)
    running = about["parts"][1]
    assert (running["state"], running["pid"]) == ("running", killed.process.pid)
    refused = start("resume", tmp_path / "run").finish()
    assert refused.status == 1
    assert "in use by process" in refused.err
    os.killpg(killed.process.pid, signal.SIGKILL)
    assert [other.finish().status for other in others] == [0, 0, 0]
    killed.process.wait()
    states = [each.state for each in tartan.open(tmp_path / "run").parts]
    assert states == ["finished", "unfinished", "finished", "finished"]
    whole = [start("resume", tmp_path / "run", "--trust"), start(*words("whole"))]
    assert [each.finish().status for each in whole] == [0, 0]
    assert bits(tartan.open(tmp_path / "run")) == bits(tartan.open(tmp_path / "whole"))
    assert killed.family() == []
