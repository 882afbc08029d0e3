"""Complex scores keep both parts through every command, or are refused with a way out: nothing is dropped."""

from __future__ import annotations

import csv
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
from tartan.errors import ConfigError, RunFailedError

N = 10
VALUES = np.arange(N, dtype=float)
WAVES = np.add.outer(VALUES, VALUES) + 1j * np.outer(VALUES, VALUES)
WAY_OUT = r"is complex(64|128); .* real numbers: name an output that is real, .* magnitude"


class Sums(tartan.Application):
    """Complex sums of one dtype, and their magnitude."""

    releases_gil = True

    def __init__(self, dtype: str = "complex64", lost: Any = None, magnitude: bool = False) -> None:
        self.dtype, self.lost = dtype, lost
        self.outputs = {"z": dtype} | ({"size": "float64"} if magnitude else {})

    def parameters(self) -> dict[str, Any]:
        return {}

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        sums = left + right.T + 1j * left * right.T
        if self.lost is not None:
            sums[left * right.T == 10] = self.lost
        return {"z": sums, "size": abs(sums)} if len(self.outputs) > 1 else sums


def make(folder: Path, n: int = N, **options: Any) -> tartan.Run:
    return tartan.allpairs(Sums(**options), VALUES[:n, None], folder / "run", workers=1)


def off_diagonal(matrix: np.ndarray) -> np.ndarray:
    return matrix[~np.eye(len(matrix), dtype=bool)]


@pytest.fixture(params=["complex64", "complex128"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> tartan.Run:
    return make(tmp_path, dtype=request.param)


def test_the_matrix_holds_both_parts(run: tartan.Run) -> None:
    found = run.matrix()
    assert found.dtype == run.manifest.outputs["z"]
    np.testing.assert_array_equal(off_diagonal(found), off_diagonal(WAVES))


def test_text_holds_what_python_reads(run: tartan.Run, tmp_path: Path, command: Command) -> None:
    for name, separator in (("csv", ","), ("tsv", "\t")):
        target = tmp_path / f"m.{name}"
        assert command("export", run.path, target).status == 0
        rows = list(csv.reader(target.read_text().splitlines(), delimiter=separator))
        read = np.array([[complex(cell) for cell in row[1:]] for row in rows[1:]])
        np.testing.assert_array_equal(off_diagonal(read), off_diagonal(WAVES))
        assert np.isnan(read.diagonal()).all()


@pytest.mark.parametrize("sign", [1, -1])
def test_text_keeps_signs_and_every_digit(sign: int, tmp_path: Path) -> None:
    number = complex(sign / 3, -sign * 1e-30)
    one = tartan.allpairs(Sums("complex128", number), np.array([[2.0], [5.0]]), tmp_path / "run", workers=1)
    one.export(tmp_path / "m.csv")
    rows = list(csv.reader((tmp_path / "m.csv").read_text().splitlines()))
    assert complex(rows[1][2]) == number


def test_tables_of_pairs_have_a_column_for_each_part(run: tartan.Run, tmp_path: Path, command: Command) -> None:
    assert command("export", run.path, tmp_path / "p.parquet").status == 0
    assert command("export", run.path, tmp_path / "p.csv", "--pairs").status == 0
    table = pq.read_table(tmp_path / "p.parquet").to_pydict()
    rows = list(csv.DictReader((tmp_path / "p.csv").read_text().splitlines()))
    assert len(rows) == len(table["i"]) == N * (N - 1) // 2
    for where in (table, {name: [row[name] for row in rows] for name in rows[0]}):
        i, j = (np.array(where[name], int) for name in "ij")
        found = np.array(where["score_real"], float) + 1j * np.array(where["score_imag"], float)
        np.testing.assert_array_equal(found, WAVES[i, j])


def test_each_of_several_outputs_is_called_by_its_name(tmp_path: Path) -> None:
    both = make(tmp_path, magnitude=True)
    assert both.pairs().schema.names[4:] == ["z_real", "z_imag", "size"]
    i, j = np.triu_indices(N, 1)
    np.testing.assert_allclose(both.pairs().read_all()["size"], abs(WAVES[i, j]))
    assert len(both.neighbors(2, output="size")[0]) == N


def test_columns_never_share_a_name(tmp_path: Path) -> None:
    app = Sums()
    app.outputs = {"z": "complex64", "z_real": "float32"}
    app.compare = lambda left, right, xp: {"z": left + right.T, "z_real": left + right.T}  # type: ignore[method-assign]
    two = tartan.allpairs(app, VALUES[:, None], tmp_path / "run", workers=1)
    with pytest.raises(ConfigError, match="would share a name; name one of its outputs"):
        two.export(tmp_path / "p.parquet")
    two.export(tmp_path / "p.parquet", output="z")


def test_failed_pairs_are_null_in_both_columns(tmp_path: Path) -> None:
    lost = make(tmp_path, lost=complex(1, np.nan))
    table = lost.pairs().read_all()
    assert table["score_real"].null_count == table["score_imag"].null_count == 1


@pytest.mark.parametrize("lost", [complex(np.nan, 1), complex(1, np.nan), complex(np.nan, np.nan)])
def test_nan_in_either_part_fails_the_pair(lost: complex, tmp_path: Path) -> None:
    found = make(tmp_path, lost=lost)
    (failure,) = found.failures
    assert (failure.i, failure.j) == (2, 5)
    assert "compare returned NaN for output 'z'" in failure.reason
    assert np.isnan(found.matrix()[2, 5])


@pytest.mark.slow
@pytest.mark.parametrize("single", [False, True])
def test_an_output_that_is_real_takes_no_complex_score(single: bool, tmp_path: Path) -> None:
    app = (lambda a, b: complex(a[0], b[0])) if single else Sums()
    if isinstance(app, Sums):
        app.outputs = {"z": "float64"}
    with pytest.raises(RunFailedError, match=r"declare outputs = .*'complex64'.* magnitude"):
        tartan.allpairs(app, VALUES[:, None], tmp_path / "run", workers=1)


def test_it_is_shown_and_described(run: tartan.Run, command: Command) -> None:
    text = command("show", run.path, 3, 4)
    assert text.status == 0
    assert text.out.splitlines()[0] == "z   7+12j"
    shown = json.loads(command("show", run.path, 3, 4, "--json").out)
    assert shown["scores"] == {"z": {"real": 7.0, "imag": 12.0}}
    assert shown["rank_of_b"] is None
    assert command("info", run.path).status == 0
    assert run._repr_html_()


@pytest.mark.parametrize(
    "words",
    [
        ("neighbors", "-k", "2"),
        ("cluster", "--cut", "0.5"),
        ("tree",),
        ("embed",),
        ("outliers",),
        ("report",),
        ("view",),
        ("export", "m.phy"),
        ("export", "m.i16"),
        ("export", "m.f32"),
        ("export", "m.svg"),
        ("export", "m.parquet", "--threshold-count", "5"),
    ],
    ids="-".join,
)
def test_what_needs_real_numbers_says_so(
    words: tuple[str, ...], run: tartan.Run, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    found = command(words[0], run.path, *words[1:])
    assert found.status != 0
    assert "Traceback" not in found.err
    assert "real numbers: name an output that is real" in found.err
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("keep", [tartan.top(2), tartan.over(0.5)])
@pytest.mark.parametrize("arity", [2, 3])
def test_what_is_kept_has_an_order(keep: Any, arity: int, tmp_path: Path) -> None:
    app = Sums()
    if arity == 3:
        app.compare_triple = lambda a, b, c: 1j  # type: ignore[method-assign]
    compare: Any = tartan.allpairs if arity == 2 else tartan.alltuples
    with pytest.raises(ConfigError, match=WAY_OUT):
        compare(app, VALUES[:, None], tmp_path / "run", **{"reduce" if arity == 2 else "keep": keep})
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("convert", ["to_pandas", "to_xarray"])
def test_other_libraries_get_both_parts(convert: str, run: tartan.Run) -> None:
    pytest.importorskip(convert.removeprefix("to_"))
    np.testing.assert_array_equal(off_diagonal(np.asarray(getattr(run, convert)())), off_diagonal(WAVES))


def test_anndata_gets_both_parts(run: tartan.Run) -> None:
    pytest.importorskip("anndata")
    np.testing.assert_array_equal(off_diagonal(run.to_anndata().obsp["z"]), off_diagonal(WAVES))


@pytest.mark.parametrize("convert", ["to_networkx", "to_sparse"])
def test_libraries_of_real_numbers_get_none(convert: str, run: tartan.Run) -> None:
    with pytest.raises(ConfigError, match=WAY_OUT):
        getattr(run, convert)()


@pytest.mark.slow
def test_listed_pairs(tmp_path: Path, command: Command, numbers: Numbers) -> None:
    np.save(tmp_path / "pairs.npy", np.array([[0, 3], [2, 5]]))
    words = ("run", f"{APPLICATIONS}:Waves", numbers(N), "-o", tmp_path / "run", "--pairs", tmp_path / "pairs.npy")
    assert command(*words).status == 0
    table = tartan.open(tmp_path / "run").pairs().read_all().to_pydict()
    found = dict(zip(zip(table["i"], table["j"]), zip(table["score_real"], table["score_imag"])))
    assert found == {(0, 3): (3.0, 0.0), (2, 5): (7.0, 10.0)}


@pytest.mark.exhaustive
def test_a_killed_run_is_resumed_and_grows(tmp_path: Path, command: Command, numbers: Numbers, start: Start) -> None:
    fifo, run = tmp_path / "fifo", tmp_path / "run"
    os.mkfifo(fifo)
    words = ("run", f"{APPLICATIONS}:Waves", numbers(8), "-o", run, "--tile", "4", "--workers", "1")
    started = start(*words, env={"TARTAN_TEST_FIFO": str(fifo)})
    with fifo.open() as report:
        assert report.readline() == "stuck\n"
        os.kill(started.process.pid, signal.SIGKILL)
        started.finish()
    assert command("resume", run).status == 0
    np.testing.assert_array_equal(tartan.open(run).matrix(), WAVES[:8, :8])
    assert command("add", run, numbers(2, "more", 8)).status == 0
    np.testing.assert_array_equal(tartan.open(run).matrix(), WAVES)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_several_ranks(tmp_path: Path, command: Command, numbers: Numbers) -> None:
    words = ("run", f"{APPLICATIONS}:Waves", numbers(N), "-o", tmp_path / "run", "--on", "local:2", "--tile", "3")
    assert command(*words).status == 0
    np.testing.assert_array_equal(tartan.open(tmp_path / "run").matrix(), WAVES)


def test_a_complex_matrix_of_others_is_refused(tmp_path: Path, command: Command) -> None:
    np.save(tmp_path / "m.npy", WAVES)
    found = command("cluster", tmp_path / "m.npy", "--cut", "0.5")
    assert found.status != 0
    assert "complex" in found.err
    assert "Traceback" not in found.err
