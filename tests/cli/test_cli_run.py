"""run, resume, add: what is asked of the Python interface, and what is said of the result."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_api import FULL_STATS, FakeRun

from tartan.core.pairs.ledger import Failure
from tartan.options import Size


class TestRequest:
    def test_least_that_can_be_said(self, command: Any, api: Any) -> None:
        assert command("run", "vectors", "x.npy", "-o", "r").status == 0
        assert api.loaded == ("vectors", {})
        assert api.calls == [
            ("allpairs", ((api.application, {"source": "vectors"}), ["x.npy"], "r"), {"quiet": False}),
        ]

    def test_everything_is_passed_on(self, command: Any, api: Any) -> None:
        command(
            "run", "a.py:F", "*.fa", "more/", "-o", "r", "--host-cache", "60items", "--device-cache", "2GiB",
            "--disk-cache", "500MB", "--cache-at", "local", "--tile", "64",
            "--workers", "3", "--order", "quadrant", "--on-error", "raise",
            "--max-failures", "0", "--tile-timeout", "2.5", "--verify", "--trace", "--quiet", "--against", "b/", "c",
        )  # fmt: skip
        ((_, (named, items, out), options),) = api.calls
        assert named.described == {"source": "a.py:F"}
        assert (items, out) == (["*.fa", "more/"], "r")
        assert options == {
            "host_cache": Size(60, True), "device_cache": Size(2**31),
            "disk_cache": Size(500_000_000), "cache_at": "local",
            "tile": 64, "workers": 3, "order": "quadrant", "on_error": "raise",
            "max_failures": 0, "tile_timeout": 2.5, "verify": True, "trace": True, "quiet": True,
            "against": ["b/", "c"],
        }  # fmt: skip

    @pytest.mark.parametrize(
        ("words", "device"),
        [
            (["--device", "sim"], ["sim"]),
            (["--device", "cpu,cuda:1"], ["cpu", "cuda:1"]),
            (["--device", "cuda", "--device", "cpu"], ["cuda", "cpu"]),
        ],
    )
    def test_devices(self, command: Any, api: Any, words: list[str], device: list[str]) -> None:
        command("run", "vectors", "x", "-o", "r", *words)
        assert api.options["device"] == device

    def test_settings_arrive_as_text(self, command: Any, api: Any) -> None:
        command("run", "--set", "k=5", "unknown=map", "phylogeny", "x", "-o", "r", "--set", "a-b=x=y")
        assert api.loaded == ("phylogeny", {"k": "5", "unknown": "map", "a_b": "x=y"})

    @pytest.mark.parametrize(
        ("words", "reduce"),
        [
            (["--top-k", "10"], {"kind": "top-k", "k": 10, "largest": None}),
            (["--top-k", "10", "--smallest"], {"kind": "top-k", "k": 10, "largest": False}),
            (["--threshold", "0.3", "--largest"], {"kind": "threshold", "threshold": 0.3, "largest": True}),
            (["--threshold", "-1"], {"kind": "threshold", "threshold": -1.0, "largest": None}),
        ],
    )
    def test_reductions(self, command: Any, api: Any, words: list[str], reduce: dict[str, Any]) -> None:
        """Which end is kept, where nobody says so, is asked of the application behind the API, not here."""
        command("run", "vectors", "x", "-o", "r", *words)
        assert api.options["reduce"] == reduce

    def test_pairs_are_resolved_by_key(self, command: Any, api: Any, tmp_path: Path) -> None:
        for name in ("a", "b", "c"):
            (tmp_path / name).write_text(name)
        (tmp_path / "pairs.csv").write_text("c,a\nb,c\n")
        shown = command("run", "f", *[tmp_path / n for n in "abc"], "-o", "r", "--pairs", tmp_path / "pairs.csv")
        assert shown.status == 0
        ((_, (_, items, _), options),) = api.calls
        assert list(items.keys) == ["a", "b", "c"]
        np.testing.assert_array_equal(options["pairs"], [[2, 0], [1, 2]])

    def test_pairs_reach_across_two_sides(self, command: Any, api: Any, tmp_path: Path) -> None:
        for name in ("l/a", "r/b"):
            (tmp_path / name).parent.mkdir()
            (tmp_path / name).write_text(name)
        (tmp_path / "pairs.csv").write_text("a,b\n")
        sides = (tmp_path / "l", "--against", tmp_path / "r")
        assert command("run", "f", *sides, "-o", "x", "--pairs", tmp_path / "pairs.csv").status == 0
        np.testing.assert_array_equal(api.options["pairs"], [[0, 1]])

    def test_resume_and_add(self, command: Any, api: Any) -> None:
        api.opened = FakeRun(n_pairs_done=3)
        assert command("resume", "r", "--workers", "1").status == 0
        assert command("add", "r", "new/*.fa", "z", "--quiet").status == 0
        assert api.calls == [
            ("resume", ("r",), {"retry_failed": False, "trust": False, "workers": 1, "quiet": False}),
            ("add", ("r", ["new/*.fa", "z"]), {"extend_map": False, "trust": False, "quiet": True}),
        ]

    def test_resume_of_nothing_fails(self, command: Any, api: Any) -> None:
        shown = command("resume", "r")
        assert (shown.status, shown.err) == (2, "tartan: error: x.tartan is not a run\n")


class TestResult:
    def test_summary_goes_to_stderr(self, command: Any, api: Any) -> None:
        shown = command("run", "vectors", "x", "-o", "r")
        assert shown.out == ""
        assert shown.err == ("45 of 45 pairs of 10 items in 12 s (3.75 pairs/s); result in x.tartan\n")

    def test_loads_of_an_item_are_for_those_who_ask(self, command: Any, api: Any) -> None:
        shown = command("run", "vectors", "x", "-o", "r", "--verbose")
        assert "(3.75 pairs/s); 24 loads, R 2.40 (bound 2.00); result" in shown.err
        assert "verbose" in str(api.calls[-1])

    def test_the_summary_of_several_ranks_tells_loads_from_fills(self, command: Any, api: Any) -> None:
        api.run.stats = api.run.stats | {"n_ranks": 3, "storage_load_factor": 1.0, "storage_load_factor_bound": 1.0}
        shown = command("run", "vectors", "x", "-o", "r", "-v")
        assert "; R 1.00 (bound 1.00), F 2.40 (bound 2.00); 3 ranks; result" in shown.err

    def test_quiet_says_nothing(self, command: Any, api: Any) -> None:
        shown = command("run", "vectors", "x", "-o", "r", "--quiet")
        assert (shown.status, shown.out, shown.err) == (0, "", "")

    def test_json_is_one_object_on_stdout(self, command: Any, api: Any) -> None:
        api.run.stats["system_efficiency"] = np.float64("nan")
        shown = command("run", "vectors", "x", "-o", "r", "--json", "--quiet")
        assert json.loads(shown.out) == {
            "path": "x.tartan", "n_items": 10, "n_pairs": 45, "n_pairs_done": 45, "n_failed_items": 0,
            "n_failed_pairs": 0, **FULL_STATS, "system_efficiency": None,
            "joules_per_million_pairs": None, "energy_unknown": None, "memory_need": None,
        }  # fmt: skip

    def test_failures_are_listed_and_status_is_3(self, command: Any, api: Any) -> None:
        api.run.failures = [Failure(3, None, "parse", "3.fa: no header"), Failure(1, 2, "compare", "raised")]
        shown = command("run", "vectors", "x", "-o", "r", "--quiet", "--json")
        assert shown.status == 3
        assert shown.err == (
            "tartan: 2 failed:\n  item 3.fa [parse] 3.fa: no header\n  pair 1.fa, 2.fa [compare] raised\n"
        )
        about = json.loads(shown.out)
        assert (about["n_failed_items"], about["n_failed_pairs"]) == (1, 1)

    def test_twenty_failures_are_enough(self, command: Any, api: Any) -> None:
        api.run.failures = [Failure(i % 10, None, "read", "gone") for i in range(1025)]
        shown = command("run", "vectors", "x", "-o", "r", "--quiet")
        lines = shown.err.splitlines()
        assert lines[0] == "tartan: 1,025 failed:"
        assert len(lines) == 22
        assert lines[-1] == "  and 1,005 more in x.tartan/failures.parquet"

    @pytest.mark.parametrize("words", [("run", "vectors", "x", "-o", "r"), ("resume", "r")])
    def test_finished_run_says_so(self, command: Any, api: Any, words: tuple[str, ...]) -> None:
        api.opened, api.run = FakeRun(), FakeRun(found_finished=True)
        shown = command(*words)
        assert shown.status == 0
        assert shown.err.startswith("tartan: x.tartan is finished already; nothing to do\n")
        assert len(api.calls) == 1  # which refuses a request that is not this run

    def test_failed_pairs_are_finished_too(self, command: Any, api: Any) -> None:
        api.opened = FakeRun(n_pairs_done=40, n_pairs_failed=5)
        assert "finished already" in command("resume", "r").err

    def test_unfinished_run_goes_on(self, command: Any, api: Any) -> None:
        api.opened = FakeRun(n_pairs_done=44)
        assert "finished already" not in command("run", "vectors", "x", "-o", "r").err


class TestInfo:
    def test_json_has_every_name(self, command: Any, api: Any) -> None:
        api.opened = FakeRun(stats={}, n_pairs_done=7)
        about = json.loads(command("info", "r", "--json").out)
        assert set(about) == {
            "path", "n_items", "n_pairs", "n_pairs_done", "n_failed_items", "n_failed_pairs", "loads",
            "load_factor", "load_factor_bound", "bytes_per_level", "seconds_per_stage", "wall_seconds",
            "system_efficiency", "map", "state", "application", "parameters", "created", "seconds_left", "stopped",
            "left_out", "call_shape", "failures", "joules_per_million_pairs", "energy_unknown", "notes",
        }  # fmt: skip
        assert about["n_pairs_done"] == 7
        assert about["loads"] is None

    def test_counts_come_from_the_ledger_not_from_old_statistics(self, command: Any, api: Any) -> None:
        api.opened = FakeRun(stats={"n_pairs_done": 2, "extra": [1, (2, 3)]}, n_pairs_done=7)
        about = json.loads(command("info", "r", "--json").out)
        assert about["n_pairs_done"] == 7
        assert about["extra"] == [1, [2, 3]]

    def test_table_is_for_people(self, command: Any, api: Any) -> None:
        api.opened = FakeRun()
        shown = command("info", "r", "--verbose")
        rows = {line.split("  ")[0].strip(): line.split("  ")[-1].strip() for line in shown.out.splitlines()}
        assert shown.status == 0
        assert shown.out.splitlines()[0].split() == ["state", "finished"]
        assert rows["wall"] == "12.000 s"
        assert rows["system efficiency"] == "97.5%"
        assert rows["load factor"] == "2.4"
        assert "host" in shown.out
        assert "4.0 MB" in shown.out
        assert "0.250 s" in shown.out

    def test_ten_lines_begin_with_what_is_done(self, command: Any, api: Any) -> None:
        api.opened = FakeRun(n_pairs_done=7)
        shown = command("info", "r")
        lines = (shown.out or shown.err).splitlines()
        assert re.fullmatch(r"pairs done +7 of [\d,]+ \([\d.]+ %\)", lines[0])
        assert lines[1].startswith("state  ")
        assert 6 < len(lines) <= 10

    def test_what_is_nested_is_no_python(self, command: Any, api: Any) -> None:
        costs = {"load_seconds": 2.5e-6, "n_known": 3}
        sizing = {"device_items": [None, 1000], "chunk": None, "costs": costs}
        api.opened = FakeRun(stats={"sizing": sizing})
        lines = command("info", "r", "-v").out.splitlines()
        begin = lines.index("sizing")
        found = [line.split("  ") for line in lines[begin + 1 : begin + 5]]
        assert [[part.strip() for part in line if part.strip()] for line in found] == [
            ["device items", "none, 1,000"], ["costs"], ["load", "2.5e-06 s"], ["known", "3"],
        ]  # fmt: skip

    def test_an_unknown_run_is_wrong_use(self, command: Any, api: Any) -> None:
        assert command("info", "r").status == 2
