"""Runs of triples: against a loop over all of them, stopped and resumed, with failures, and asked for wrongly."""

from __future__ import annotations

import itertools
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from whole_program import APPLICATIONS, Command, Numbers, Start

import tartan
from tartan.core.pairs.planned import count_loads
from tartan.core.pairs.setup import NodePlan
from tartan.core.pairs.triples import choose_triple_layout
from tartan.core.pairs.workload import AllPairs
from tartan.errors import ConfigError, RunFailedError, StoreError
from tartan.run.session import folder_grid

N = 20
Row = tuple[int, int, int, float]


class Product(tartan.Application):
    """The sum over the product of three vectors; exact for whole numbers, with many equal scores."""

    releases_gil = True
    similarity = True

    def compare(self, a: Any, b: Any, c: Any, xp: Any) -> Any:
        return xp.einsum("id,jd,kd->ijk", a, b, c)


class InProcesses(Product):
    """The same in worker processes."""

    releases_gil = False


class OneByOne(tartan.Application):
    """The same, one triple at a time, of items that differ in size."""

    releases_gil = True
    ragged = True
    similarity = True

    def compare_triple(self, a: Any, b: Any, c: Any) -> float:
        return float((a * b * c).sum())


def whole_numbers(n: int = N) -> np.ndarray:
    """Return vectors of small whole numbers."""
    return np.random.default_rng(3).integers(-2, 3, (n, 4)).astype(np.float32)


def product(a: Any, b: Any, c: Any) -> float:
    """Return the score of three vectors."""
    return float((a * b * c).sum())


def loop(
    items: np.ndarray, k: int, *, largest: bool = True, bad: Callable[[Row], bool] = lambda row: False
) -> list[Row]:
    """Return the triples that are among the k best of one of their items, by a loop over all."""
    rows = [(*ends, product(*(items[end] for end in ends))) for ends in itertools.combinations(range(len(items)), 3)]
    rows = [row for row in rows if not bad(row)]
    best: set[Row] = set()
    for item in range(len(items)):
        mine = [row for row in rows if item in row[:3]]
        best.update(sorted(mine, key=lambda row: (-row[3] if largest else row[3], row[:3]))[:k])
    return sorted(best)


def rows_of(run: tartan.TripleRun, **ways: Any) -> list[Row]:
    """Return what a run keeps."""
    table = run.triples(**ways).read_all()
    return list(zip(*(table[name].to_pylist() for name in ("i", "j", "k", "score")), strict=True))


WAYS: dict[str, tuple[Any, dict[str, Any]]] = {
    "threads": (Product(), {"workers": 2}),
    "small cache": (Product(), {"workers": 2, "host_cache": "9items"}),
    "middling cache": (Product(), {"workers": 1, "host_cache": "20items", "tile": 7}),
    "processes": (InProcesses(), {"workers": 2, "host_cache": "12items"}),
    "one by one": (OneByOne(), {"workers": 1, "host_cache": "15items"}),
    "a function": (product, {"workers": 1}),
    "disk": (Product(), {"workers": 1, "host_cache": "9items", "disk_cache": "1MB"}),
}


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_the_best_are_those_of_a_loop(way: str, tmp_path: Path) -> None:
    app, options = WAYS[way]
    items = whole_numbers()
    given = list(items) if way == "one by one" else items
    for keep, largest in ((tartan.top(3), True), (tartan.top(2, largest=False), False))[: 2 if way == "threads" else 1]:
        run = tartan.alltuples(app, given, tmp_path / f"{largest}", keep=keep, **options)
        assert rows_of(run) == loop(items, keep["k"], largest=largest)
        assert (run.finished, run.n_triples_done, run.n_triples_left) == (True, 1140, 0)


@pytest.mark.slow
def test_a_threshold_keeps_what_is_beyond_it() -> None:
    items = whole_numbers(12)
    everything = loop(items, 10**6)
    for keep, stays in ((tartan.over(5), lambda s: s >= 5), (tartan.under(-4.5), lambda s: s <= -4.5)):
        run = tartan.alltuples(Product(), items, keep=keep, workers=1)
        assert sorted(rows_of(run)) == [row for row in everything if stays(row[3])]


@pytest.mark.slow
def test_the_best_of_all_come_first() -> None:
    items = whole_numbers(14)
    run = tartan.alltuples(Product(), items, keep=tartan.top(4), workers=1)
    everything = sorted(loop(items, 10**6), key=lambda row: (-row[3], row[:3]))
    assert rows_of(run, limit=4) == everything[:4]
    assert [row[3] for row in rows_of(run, ascending=True)] == sorted(row[3] for row in rows_of(run))


@pytest.mark.slow
def test_large_scores_are_the_best_unless_they_are_distances() -> None:
    items = [1.0, 2.0, 4.0, 9.0]
    spread = lambda a, b, c: max(a, b, c) - min(a, b, c)  # noqa: E731
    assert rows_of(tartan.alltuples(spread, items, keep=tartan.top(1), workers=1))[0] == (0, 1, 3, 8.0)

    class Distance(tartan.Application):
        similarity, releases_gil = False, True

        def compare_triple(self, a: Any, b: Any, c: Any) -> float:
            return float(spread(a, b, c))

    assert rows_of(tartan.alltuples(Distance(), items, keep=tartan.top(1), workers=1))[0] == (0, 1, 2, 3.0)


@pytest.mark.slow
@pytest.mark.parametrize("room", ["9items", "20items", "200items"])
def test_a_run_makes_the_loads_of_its_plan(room: str, tmp_path: Path) -> None:
    run = tartan.alltuples(Product(), whole_numbers(), tmp_path / "run", keep=tartan.top(1), host_cache=room, workers=2)
    grid, slots = folder_grid(run.folder), run.stats["host_slots"]
    setup = NodePlan(grid, AllPairs(N), choose_triple_layout(grid, slots))
    assert run.stats["loads"] == count_loads(setup)
    assert run.stats["loads_bound"] == max(N, N**3 / (3 * slots**2))
    assert run.stats["triples_computed"] == run.n_triples


@pytest.mark.slow
def test_items_of_unequal_size_are_loaded_about_as_often() -> None:
    """Room is counted in bytes: groups that were to stay are not evicted for what streams."""
    sizes = np.random.default_rng(1).integers(20, 30, 24)
    items = [np.arange(size) for size in sizes.tolist()]

    class Sizes(tartan.Application):
        releases_gil = ragged = similarity = True

        def compare_triple(self, a: Any, b: Any, c: Any) -> float:
            return float(len(a) * len(b) * len(c))

    run = tartan.alltuples(Sizes(), items, keep=tartan.top(1), workers=1, host_cache=int(12 * sizes.mean() * 8))
    assert run.stats["loads"] <= 4 * 24**3 / (3 * 12**2)


@pytest.mark.slow
def test_what_is_lost_is_computed_again(tmp_path: Path) -> None:
    items, path = whole_numbers(), tmp_path / "run"
    whole = tartan.alltuples(Product(), items, path, keep=tartan.top(3), host_cache="20items", workers=1)
    result = (path / "result.parquet").read_bytes()
    parts = sorted((path / "parts").iterdir())
    for part in parts[::3]:
        part.unlink()
    parts[1].write_bytes(parts[1].read_bytes()[:-20])
    damaged = bytearray(parts[2].read_bytes())
    damaged[8] ^= 1
    parts[2].write_bytes(damaged)
    (path / "result.parquet").unlink()
    assert not tartan.open(path).finished
    again = tartan.alltuples(Product(), items, path, keep=tartan.top(3), host_cache="30items", workers=2)
    assert (path / "result.parquet").read_bytes() == result
    assert again.n_triples_done == whole.n_triples_done
    (path / "result.parquet").write_bytes(result[:100])
    tartan.resume(path, app=Product(), previous=items)
    assert (path / "result.parquet").read_bytes() == result


@pytest.mark.slow
def test_a_run_that_was_killed_is_resumed(numbers: Numbers, start: Start, command: Command, tmp_path: Path) -> None:
    folder, fifo = numbers(30), tmp_path / "fifo"
    os.mkfifo(fifo)
    words = ("run", f"{APPLICATIONS}:HaltingSpans", folder, "--arity", 3, "--top-k", 2, "--workers", 1, "--tile", 8)
    killed = start(*words, "-o", tmp_path / "run", env={"TARTAN_TEST_FIFO": str(fifo)})
    assert fifo.read_text() == "halted"
    os.kill(killed.process.pid, signal.SIGKILL)
    killed.finish()
    left = json.loads(command("info", tmp_path / "run", "--json").out)
    assert (left["state"], left["n_triples"]) == ("unfinished", 4060)
    assert "\nkeeps         the 2 triples of each item" in command("info", tmp_path / "run").out
    assert command("resume", tmp_path / "run", "--quiet").status == 0
    assert command(*words, "-o", tmp_path / "other", "--quiet").status == 0
    ours, theirs = (pq.read_table(tmp_path / name / "result.parquet") for name in ("run", "other"))
    assert ours.equals(theirs)
    assert ours.num_rows == 30


class Faulty(Product):
    """Fails for some items and triples, as parameters say."""

    def __init__(self, how: str = "") -> None:
        self.how = how

    def preprocess(self, item: Any, xp: Any) -> Any:
        if self.how == "item" and item[0] == 9:
            raise ValueError("a nine")
        return item

    def compare(self, a: Any, b: Any, c: Any, xp: Any) -> Any:
        scores = super().compare(a, b, c, xp)
        bad = a[:, 0][:, None, None] * b[:, 0][None, :, None] * c[:, 0][None, None, :] == 125
        if self.how == "raise" and bad.any():
            raise ZeroDivisionError("three fives")
        if self.how == "NaN":
            scores[bad] = np.nan
        return scores[:, :-1] if self.how == "shape" else scores


def with_fives(first: float) -> np.ndarray:
    """Return whole numbers, and some vectors that begin with a given number."""
    items = whole_numbers()
    items[[3, 4, 11, N - 1], 0] = first
    return items


@pytest.mark.slow
@pytest.mark.parametrize("how", ["raise", "NaN"])
def test_triples_that_fail_are_named_alone(how: str, tmp_path: Path) -> None:
    items, path, app = with_fives(5), tmp_path / "run", Faulty(how)
    run = tartan.alltuples(app, items, path, keep=tartan.top(3), host_cache="20items", workers=1)
    bad = list(itertools.combinations([3, 4, 11, N - 1], 3))
    assert [(f.kind, f.i, f.j, f.k) for f in run.failures] == [("triple", *ends) for ends in bad]
    reason = "three fives" if how == "raise" else "compare returned NaN for output 'scores'"
    assert all(f"{f.i}, {f.j}, {f.k}: " in f.reason and reason in f.reason for f in run.failures)
    assert (run.n_triples_failed, run.n_triples_done, run.finished) == (4, 1136, True)
    assert rows_of(run) == loop(items, 3, bad=lambda row: row[:3] in bad)
    again = tartan.resume(path, app=app, previous=items, retry_failed=True)
    assert (len(again.failures), rows_of(again)) == (4, rows_of(run))


@pytest.mark.slow
def test_an_item_that_fails_takes_its_triples_along_and_may_be_mended(
    numbers: Numbers, command: Command, tmp_path: Path
) -> None:
    folder, run = numbers(9), tmp_path / "run"
    (folder / "004.txt").write_text("four")
    words = ("run", f"{APPLICATIONS}:Spans", folder, "-o", run, "--arity", 3, "--top-k", 1, "--workers", 1)
    found = command(*words)
    assert (found.status, "item 004.txt [parse]" in found.err, "56 of 84 triples of 9 items" in found.err) == (
        3,
        True,
        True,
    )
    about = json.loads(command("info", run, "--json").out)
    assert (about["n_failed_items"], about["n_failed_triples"], about["n_triples_done"]) == (1, 0, 56)
    (folder / "004.txt").write_text("4")
    assert command("resume", run, "--retry-failed", "--quiet").status == 0
    healed = tartan.open(run)
    assert isinstance(healed, tartan.TripleRun)
    assert (healed.failures, healed.n_triples_done) == ([], 84)
    assert command(*words, "--quiet").status == 0


@pytest.mark.slow
def test_too_many_failures_stop_a_run(tmp_path: Path) -> None:
    with pytest.raises(RunFailedError, match=r"triples that were compared all failed.*; first: .*expected"):
        tartan.alltuples(Faulty("shape"), whole_numbers(), keep=tartan.top(1), workers=1)
    with pytest.raises(RunFailedError, match=r"--on-error is raise; first: .*NaN"):
        tartan.alltuples(Faulty("NaN"), with_fives(5), keep=tartan.top(1), workers=1, on_error="raise")
    with pytest.raises(RunFailedError, match="4 items and triples failed, more than --max-failures 3"):
        tartan.alltuples(Faulty("NaN"), with_fives(5), keep=tartan.top(1), workers=1, tile=N, max_failures=3)
    run = tartan.alltuples(Faulty("item"), with_fives(9), keep=tartan.top(1), workers=1)
    assert [(f.kind, f.i) for f in run.failures] == [("item", 3), ("item", 4), ("item", 11), ("item", N - 1)]
    assert run.n_triples_done == 16 * 15 * 14 // 6


def test_several_outputs(tmp_path: Path) -> None:
    class Two(tartan.Application):
        releases_gil = True
        outputs = {"low": np.int32, "high": np.float64}  # noqa: RUF012

        def compare_triple(self, a: float, b: float, c: float) -> dict[str, float]:
            return {"low": min(a, b, c), "high": max(a, b, c)}

    run = tartan.alltuples(Two(), [1.0, 2.0, 3.0, 7.0], keep=tartan.top(1, output="high", largest=False), workers=1)
    table = run.triples().read_all()
    assert table.column_names == ["i", "j", "k", "key_i", "key_j", "key_k", "low", "high"]
    assert table.select(["i", "j", "k", "low", "high"]).to_pylist()[0] == {
        "i": 0,
        "j": 1,
        "k": 2,
        "low": 1,
        "high": 3.0,
    }
    assert run.triples("low").read_all().column_names[-1] == "score"


def test_the_example_finds_what_three_proteomes_share(command: Command, tmp_path: Path) -> None:
    proteins = ["ACDEFGHIKL", "ACDEFGHIKM", "ACDEFWWWWW", "YYYYYYACDE"]
    words = [{text[at : at + 2] for at in range(len(text) - 1)} for text in proteins]
    for number, text in enumerate(proteins):
        (tmp_path / f"{number}.faa").write_text(f">protein\n{text[:4]}\n{text[4:].lower()}\n>short\nA\n")
    example = Path(__file__).parents[2] / "examples" / "triples" / "core_genome.py"
    run = tmp_path / "run"
    found = command(
        "run", f"{example}:CoreGenome", tmp_path, "--set", "k=2", "--arity", 3, "--top-k", 9, "--workers", 1, "-o", run
    )
    assert found.status == 0
    opened = tartan.open(run)
    assert isinstance(opened, tartan.TripleRun)
    expected = [
        (i, j, k, pytest.approx(len(words[i] & words[j] & words[k]) / len(words[i] | words[j] | words[k])))
        for i, j, k in itertools.combinations(range(4), 3)
    ]
    assert rows_of(opened) == expected


REFUSED: dict[str, tuple[Any, Any, dict[str, Any], str]] = {
    "arity 2": (Product(), whole_numbers(4), {"arity": 2}, "arity is 2; it must be 3: allpairs compares pairs"),
    "arity 4": (Product(), whole_numbers(4), {"arity": 4}, "arity is 4; it must be 3"),
    "no keep": (Product(), whole_numbers(4), {"keep": None}, "say which triples to keep, as tartan.top"),
    "k of 0": (Product(), whole_numbers(4), {"keep": tartan.top(0)}, "k is 0|k: 0|k must"),
    "not a rule": (Product(), whole_numbers(4), {"keep": 10}, "10 is not understood"),
    "NaN": (Product(), whole_numbers(4), {"keep": tartan.over(float("nan"))}, "threshold"),
    "no output": (Product(), whole_numbers(4), {"keep": tartan.top(1, output="x")}, "there is no output 'x'"),
    "two items": (Product(), whole_numbers(2), {}, "triples need at least 3 items; found 2 items in the ndarray"),
    "room for two": (Product(), whole_numbers(9), {"host_cache": "2items"}, "triples needs at least 3"),
    "a GPU": (Product(), whole_numbers(4), {"device": "sim"}, "triples are compared on the CPU"),
    "a function of two": (lambda a, b: 0, [1, 2, 3], {}, "cannot be called with three items"),
    "nothing": (3, [1, 2, 3], {}, "nor a function of three items"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused(case: str, tmp_path: Path) -> None:
    app, items, options, message = REFUSED[case]
    with pytest.raises(ConfigError, match=message):
        tartan.alltuples(app, items, tmp_path / "run", **{"keep": tartan.top(1), "workers": 1, **options})
    assert not (tmp_path / "run" / "manifest.json").exists()


def test_ranks_are_refused_when_triples_are_resumed(tmp_path: Path) -> None:
    tartan.alltuples(Product(), whole_numbers(4), tmp_path / "run", keep=tartan.top(1), workers=1)
    with pytest.raises(ConfigError, match="compared on one machine: leave it out"):
        tartan.resume(tmp_path / "run", on="local:2")


def test_applications_of_pairs_are_refused() -> None:
    class Pairs(tartan.Application):
        def compare(self, left: Any, right: Any, xp: Any, out: Any = None) -> Any:
            return left

    with pytest.raises(ConfigError, match="Pairs compares no triples: it defines neither compare_triples"):
        tartan.alltuples(Pairs, [1, 2, 3], keep=tartan.top(1))

    class Ordered(Product):
        symmetric = False

    with pytest.raises(ConfigError, match="Ordered says that scores depend on the order"):
        tartan.alltuples(Ordered, whole_numbers(4), keep=tartan.top(1))


def test_a_folder_is_of_pairs_or_of_triples(numbers: Numbers, command: Command, tmp_path: Path) -> None:
    folder, pairs, triples = numbers(5), tmp_path / "pairs", tmp_path / "triples"
    spans = f"{APPLICATIONS}:Spans"
    words = ("run", spans, folder, "--top-k", 1, "--workers", 1, "--quiet")
    assert command(*words, "-o", pairs).status == command(*words, "-o", triples, "--arity", 3).status == 0
    for out, arity in ((pairs, 3), (triples, 2)):
        refused = command(*words, "-o", out, "--arity", arity)
        assert (refused.status, "is a run of" in refused.err) == (2, True)
    other = command(*words[:-4], 2, *words[-3:], "-o", triples, "--arity", 3)
    assert (other.status, "reduce" in other.err) == (2, True)
    grown = command("add", triples, folder, "--quiet")
    assert (grown.status, "is a run of triples" in grown.err, "in another folder" in grown.err) == (2, True, True)
    assert command(*words, "-o", tmp_path / "another", "--arity", 3).status == 0


@pytest.mark.parametrize(
    "words",
    [("tree",), ("neighbors",), ("outliers",), ("embed",), ("export", "m.npy"), ("show", 0, 1)],
)
def test_commands_for_pairs_say_so(words: tuple[Any, ...], numbers: Numbers, command: Command, tmp_path: Path) -> None:
    run = tmp_path / "run"
    tartan.alltuples(Product(), whole_numbers(6), run, keep=tartan.top(1), workers=1)
    name, *more = words
    found = command(name, run, *(tmp_path / str(word) if "." in str(word) else word for word in more))
    assert (found.status, "triples" in found.err) == (2, True)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--part", "1/2"),
        ("--against", "x"),
        ("--on", "local:2"),
        ("--order", "quadrant"),
        ("--device", "sim"),
        ("--device-cache", "1MB"),
    ],
)
def test_options_for_pairs_are_refused(
    option: str, value: str, numbers: Numbers, command: Command, tmp_path: Path
) -> None:
    words = ("run", f"{APPLICATIONS}:Spans", numbers(4), "-o", tmp_path / "run", "--arity", 3, "--top-k", 1)
    found = command(*words, option, value)
    assert (found.status, option in found.err) == (2, True)
    assert command(*words[:-2]).status == 2  # nothing to keep


@pytest.mark.slow
def test_triples_are_exported_in_the_order_of_scores(numbers: Numbers, command: Command, tmp_path: Path) -> None:
    run, file = tmp_path / "run", tmp_path / "best.tsv"
    words = ("run", f"{APPLICATIONS}:spread", numbers(6), "-o", run, "--arity", 3, "--top-k", 1, "--quiet")
    assert command(*words, "--workers", 1, "--smallest").status == 0
    assert command("export", run, file, "--sorted", "--names", "stem").status == 0
    lines = [line.split("\t") for line in file.read_text().splitlines()]
    assert lines[0] == ["i", "j", "k", "score", "key_i", "key_j", "key_k"]
    ends = [(int(i), int(j), int(k)) for i, j, k, *_ in lines[1:]]
    assert ends == [(0, 1, 2), (1, 2, 3), (2, 3, 4), (3, 4, 5)]
    assert [line[3:5] for line in lines[1:]] == [["2", f"00{i}"] for i, _, _ in ends]
    assert command("export", run, tmp_path / "two.csv", "--threshold-count", 2).status == 0
    assert (tmp_path / "two.csv").read_text().splitlines() == ["i,j,k,score", "0,1,2,2", "1,2,3,2"]
    again = command("export", run, file)
    assert (again.status, "exists" in again.err) == (2, True)


def test_a_run_of_triples_is_shown_by_its_numbers(tmp_path: Path) -> None:
    run = tartan.alltuples(Product(), whole_numbers(5), tmp_path / "<r>", keep=tartan.top(2), workers=1)
    assert repr(run) == "<TripleRun <r>: Product, 5 items, 10 of 10 triples>"
    assert run._repr_html_() == "<code>&lt;TripleRun &lt;r&gt;: Product, 5 items, 10 of 10 triples&gt;</code>"
    assert run._repr_png_() is None
    assert (run.n_triples_done, run.n_triples_failed, run.stats["triples_computed"]) == (10, 0, 10)
    with pytest.raises(ConfigError, match="count is 0; it must be 1 or more"):
        run.export(tmp_path / "t.csv", count=0)


def test_a_run_in_a_read_only_folder_or_of_other_inputs_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run"
    tartan.alltuples(Product(), whole_numbers(5), path, keep=tartan.top(1), workers=1)
    with pytest.raises((ConfigError, StoreError), match="holds another run"):
        tartan.alltuples(Product(), whole_numbers(6), path, keep=tartan.top(1), workers=1)
    with pytest.raises(ConfigError, match="reduce: the run has"):
        tartan.alltuples(Product(), whole_numbers(5), path, keep=tartan.over(1), workers=1)
