"""The tree of a run with support from resampled items."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tartan
from tartan.apps.phylogeny.app import Phylogeny, resample_proteome
from tartan.cli.main import main
from tartan.errors import ConfigError, ItemError, StoreError
from tartan.run.support import Resampling, cost_of, time_of

LETTERS = list("ACDEFGHIKLMNPQRSTVWY")


def write_proteomes(folder: Path) -> None:
    """Write two families of two proteomes each: relatives share nine proteins of ten."""
    rng = np.random.default_rng(1)
    for family in "ab":
        shared = ["".join(rng.choice(LETTERS, 60)) for _ in range(30)]
        for member in "12":
            own = ["".join(rng.choice(LETTERS, 60)) for _ in range(3)]
            text = "".join(f">p{k}\n{protein}\n" for k, protein in enumerate(shared + own))
            (folder / f"{family}{member}.faa").write_text(text)


@pytest.fixture
def run(tmp_path: Path) -> tartan.Run:
    write_proteomes(tmp_path)
    return tartan.allpairs(Phylogeny(k=3), str(tmp_path / "*.faa"), tmp_path / "run", workers=1)


def test_a_sample_has_as_many_records_drawn_from_the_file() -> None:
    data = b">a x\nAC\nDE\n>b\nFG\n>c\nHI\n"
    records = [b">a x\nAC\nDE", b">b\nFG", b">c\nHI"]
    seen = set()
    for seed in range(20):
        drawn = (b"\n" + resample_proteome("k", data, seed, 1000)).split(b"\n>")[1:]
        assert len(drawn) == 3
        assert {b">" + record for record in drawn} <= set(records)
        seen.add(tuple(drawn))
        assert resample_proteome("k", data, seed, 1000) == resample_proteome("k", data, seed, 1000)
    assert len(seen) > 5
    with pytest.raises(ItemError, match="one protein"):
        resample_proteome("k", b">a\nACDE", 0, 1000)
    import gzip

    assert resample_proteome("k", gzip.compress(data), 3, 1000) == resample_proteome("k", data, 3, 1000)
    with pytest.raises(ItemError, match="after decompression"):
        resample_proteome("k", gzip.compress(data * 100), 3, 1000)
    with pytest.raises(ItemError, match="k: "):
        resample_proteome("k", gzip.compress(data)[:-9], 3, 1000)


@pytest.mark.slow
def test_clear_families_are_supported(run: tartan.Run) -> None:
    tree = tartan.supported_tree(run.path, 3, workers=1)
    assert tree.support is not None
    assert tree.support[~np.isnan(tree.support)].tolist() == [1.0]
    assert ")100:" in tree.newick()
    again = tartan.supported_tree(run.path, 3, workers=1)
    assert again.newick() == tree.newick()


@pytest.mark.slow
def test_items_that_failed_are_no_leaves_and_fail_in_resamplings_too(
    run: tartan.Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad.faa").write_text("no protein\n")
    damaged = tartan.allpairs(Phylogeny(k=3), str(tmp_path / "*.faa"), tmp_path / "damaged", workers=1)
    with pytest.warns(RuntimeWarning, match=r"1 failed item is left out: bad\.faa"):
        tree = tartan.supported_tree(damaged.path, 2, workers=1, quiet=True)
    assert tree.newick() == tartan.supported_tree(run.path, 2, workers=1, quiet=True).newick()
    assert main(["tree", str(damaged.path), "--support", "2"]) == 0
    shown = capsys.readouterr()
    assert shown.out == tree.newick() + "\n"
    assert "1 failed item is left out: bad.faa" in shown.err
    assert main(["tree", str(damaged.path), "--support", "2", "--failed", "error"]) == 2
    with pytest.raises(ConfigError, match=r"1 item failed: bad\.faa"):
        tartan.supported_tree(damaged.path, 2, failed="error")


def test_the_command_line_builds_the_same_tree(run: tartan.Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tree", str(run.path), "--support", "2", "--seed", "3"]) == 0
    shown = capsys.readouterr()
    assert cost_of(run, Resampling(2)) in shown.err
    assert shown.out == tartan.supported_tree(run.path, 2, seed=3, quiet=True).newick() + "\n"
    assert main(["tree", str(run.path), "--support", "2", "--missing", "nan"]) == 2
    assert "--support resamples a run" in capsys.readouterr().err


def test_the_cost_is_said(run: tartan.Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert cost_of(run, Resampling(100)) == "support: 100 resamplings, each a run of 4 items and 6 pairs"
    assert time_of(100, 3.0) == "support: the first of 100 resamplings took 3 s, so all take about 5 min"
    for n, quiet, said in ((2, False, 1), (1, False, 0), (2, True, 0)):
        tartan.supported_tree(run.path, n, workers=1, quiet=quiet)
        assert capsys.readouterr().err.count("the first of 2 resamplings took") == said


@pytest.mark.slow
def test_what_cannot_be_resampled_is_refused(run: tartan.Run, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="1 or more"):
        tartan.supported_tree(run.path, 0)
    source = tmp_path / "own.py"
    source.write_text(
        "import tartan\n\n\nclass D(tartan.Application):\n"
        "    def compare_pair(self, a, b):\n        return abs(len(a) - len(b))\n"
    )
    from tartan.api import apps
    from tartan.workers.shipping import load_application

    app = load_application(f"{source}:D", {}, apps)
    tartan.allpairs(app, str(tmp_path / "*.faa"), tmp_path / "other", workers=1)
    with pytest.raises(ConfigError, match="D does not resample its items"):
        tartan.supported_tree(tmp_path / "other", 2)
    (tmp_path / "a1.faa").write_text(">x\nACDEFGHIKLMNP\n>y\nACDEFGHIKLMNPQRS\n")
    with pytest.raises(StoreError, match="changed"):
        tartan.supported_tree(run.path, 2)
