"""``tartan bench guard``: what it says of times that are known."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from tartan.cli.main import main
from tartan.errors import ConfigError

FOLDER = Path(__file__).parents[2] / "benches"
PYTHONS = ("before", "now")

#: Benchmarks without a line, and why.
WITHOUT = {
    "nearest_join": "needs DuckDB, beside which it is measured",
    "affinity": "counts bytes",
    "answers": "judges answers; its time is that of pwc",
    "blocks_kill": "kills ranks",
    "blocks_plan": "counts bytes in virtual time",
    "cluster_kill": "kills ranks",
    "cluster_loads": "counts loads",
    "cluster_parts": "kills processes",
    "cluster_replay": "compares with a replay",
    "cluster_stages": "its links are throttled: their time is set",
    "cluster_uneven": "its time is set by the simulated device, as that of cluster_speed",
    "comm_gpu": "needs a GPU",
    "comm_kill": "kills ranks",
    "false_alarms": "counts decisions",
    "gpu": "needs a GPU",
    "guard": "itself",
    "hops": "counts files",
    "kernels": "runs on an emulator",
    "kill": "kills runs",
    "lines": "counts lines",
    "linkage": "runs for minutes, beside peers and their memory",
    "pages": "times a browser",
    "photos": "counts decisions",
    "plan": "compares with a prediction",
    "sort_kill": "kills ranks",
    "sort_ranks": "counts bytes; its links are throttled, and starting ranks takes longer than sorting",
}


@pytest.fixture
def guard(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(FOLDER.parent))
    return importlib.import_module("benches.project.guard")


def found_of(guard: Any, *ratios: float) -> Any:
    return guard.Found([(2.0, 2.0 * ratio) for ratio in ratios])


@pytest.mark.parametrize(
    ("ratios", "verdict"),
    [
        ((1.0, 1.01, 0.99, 1.0, 1.02), "same"),
        ((1.06, 1.06, 1.07, 1.06, 1.06), "slower"),
        ((1.06, 1.05, 1.07, 1.06, 1.07), "unclear"),  # above 1.05 by no more than the spread
        ((1.10, 1.12, 1.11, 1.10, 1.12), "slower"),
        ((1.10, 1.12, 1.11, 0.3, 1.12), "slower"),  # one lucky pair does not hide it
        ((1.0, 1.01, 0.99, 1.0, 9.0), "same"),  # nor does one disturbed pair make it
        ((0.7, 1.0, 1.4, 0.8, 1.3), "unclear"),
        ((0.8, 1.5, 1.7, 0.9, 1.6), "unclear"),
        ((2.0, 2.5, 1.8, 2.2, 2.1), "slower"),
        ((0.5, 0.52, 0.51, 0.5, 0.5), "faster"),
        ((1.05, 1.05, 1.05), "same"),
        ((3.0, 3.0), "not judged"),
        ((), "not judged"),
    ],
)
def test_verdict_of_known_times(guard: Any, ratios: tuple[float, ...], verdict: str) -> None:
    assert found_of(guard, *ratios).verdict == verdict


def test_ratio_is_that_of_pairs_and_not_of_medians(guard: Any) -> None:
    found = guard.Found([(1.0, 1.1), (10.0, 11.0), (2.0, 2.2), (100.0, 110.0), (3.0, 3.3)])  # load came and went
    assert found.ratio == pytest.approx(1.1)
    assert found.spread == pytest.approx(0.0, abs=1e-9)


def test_versions_take_turns_round_after_round(guard: Any) -> None:
    asked = []

    def measure(python: str, name: str) -> tuple[float, str]:
        asked.append((python, name))
        return (1.0, "Haswell") if python == "before" else (1.5, "Zen")

    found = guard.take_turns(["a", "b"], PYTHONS, 2, 100.0, measure, lambda: 0.0)
    assert asked == [(p, n) for order in (PYTHONS, PYTHONS[::-1]) for n in "ab" for p in order]
    assert found["a"].pairs == [(1.0, 1.5)] * 2
    assert found["b"].kernels == {"Haswell", "Zen"}


def test_no_pair_begins_that_would_end_too_late(guard: Any) -> None:
    now = [0.0]

    def measure(python: str, name: str) -> tuple[float, str]:
        now[0] += {"short": 1.0, "long": 20.0}[name]
        return 1.0, ""

    found = guard.take_turns(["short", "long"], PYTHONS, 50, 100.0, measure, lambda: now[0])
    assert (len(found["short"].pairs), len(found["long"].pairs)) == (3, 2)
    assert now[0] <= 100.0
    assert found["long"].verdict == "not judged"


def test_a_line_that_one_version_cannot_do_is_asked_once(guard: Any) -> None:
    asked = []

    def measure(python: str, name: str) -> Any:
        asked.append(name)
        return "KeyError: 'x'" if (python, name) in {("before", "new"), ("now", "broken")} else (1.0, "")

    found = guard.take_turns(["new", "broken", "old"], PYTHONS, 5, 100.0, measure, lambda: 0.0)
    assert [found[name].verdict for name in found] == ["new", "fails", "same"]
    assert asked.count("new") == asked.count("broken") == 2
    texts = guard.closing(found, "OLD")
    assert texts == [
        "fails now: broken: KeyError: 'x'",
        "fails before, and is not judged: new: KeyError: 'x'",
        "1 of 3 lines judged: 0 slower, 0 unclear, 1 same, 0 faster",
    ]


def test_what_is_in_doubt_can_be_looked_at_again(guard: Any) -> None:
    found = {"mds: steps": found_of(guard, 2.0, 2.0, 2.0), "sort: CSV": found_of(guard, 0.7, 1.0, 1.4)}
    assert guard.closing(found, "old/python") == [
        "more pairs tell more: tartan bench guard before=old/python rounds=11 only=mds,sort",
        "2 of 2 lines judged: 1 slower, 1 unclear, 0 same, 0 faster",
    ]


@pytest.mark.parametrize(("now", "status"), [(1.0, 0), (1.2, 1)])
def test_exit_status(guard: Any, now: float, status: int, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    times = iter([1.0, now, now, 1.0, 1.0, now])
    monkeypatch.setattr(guard, "measured", lambda python, name: (next(times), "Zen"))
    assert guard.main(["rounds=3", "only=sort_kernels"]) == status
    row = next(line for line in capsys.readouterr().out.splitlines() if "sort_kernels: " in line)
    assert row.split()[-7:-1] == ["1000", f"{1000 * now:.0f}", f"{now:.3f}", "0.000", "3", "Zen"]
    assert row.split()[-1] == ("slower" if status else "same")


def test_words_that_name_nothing_are_refused(guard: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="only=speed: lines begin with start, vectors, "):
        guard.main(["only=sort,speed"])
    with pytest.raises(ConfigError, match=r"before=.*none: it is not Python that imports tartan: "):
        guard.main([f"before={tmp_path / 'none'}"])


def test_choices_of_a_kernel_do_not_reach_the_lines(guard: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    monkeypatch.setenv("OPENBLAS_L2_SIZE", "512")
    assert not {"OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"} & guard.environment().keys()


def test_each_benchmark_has_a_line_or_a_reason(guard: Any) -> None:
    from benches.project._guard_lines import LINES

    names = {path.stem for path in FOLDER.glob("*/[!_]*.py")}
    lined = set(guard.benchmarks(LINES)) - {"start", "analyses"}
    assert lined | WITHOUT.keys() == names
    assert not lined & WITHOUT.keys()


@pytest.mark.slow
def test_a_line_is_measured(guard: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    seconds, kernel = guard.measured(sys.executable, "vectors_kernels: tile of jaccard")
    assert 0 < seconds < 10
    assert isinstance(kernel, str)
    assert guard.measured(sys.executable, "no such line") == "KeyError: 'no such line'"
    assert not list(tmp_path.iterdir())


@pytest.mark.exhaustive
def test_every_line_can_be_done(guard: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from benches.project._guard_lines import LINES

    monkeypatch.chdir(tmp_path)
    assert {name: found for name in LINES if isinstance(found := guard.measured(sys.executable, name), str)} == {}


@pytest.mark.slow
def test_the_command_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any) -> None:
    monkeypatch.chdir(FOLDER.parent)
    assert main(["bench", "guard", "rounds=1", "only=sort_kernels"]) == 1  # one pair is not judged
    assert "0 of 1 lines judged" in capsys.readouterr().out
