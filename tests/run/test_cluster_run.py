"""A run on several ranks, which are threads of this process: the scores of one rank, whatever happens to some."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cluster_world import OPTIONS, Bomb, N, Sums, asked, check, expected, ranks

import tartan
from tartan import _native, apps
from tartan.apps.vectors import Vectors
from tartan.errors import ClusterError, ConfigError, RunFailedError
from tartan.options import run_options
from tartan.result.why_slow import explain_slowness
from tartan.run.execute import extend, resume, start
from tartan.run.reopen import reopen_request
from tartan.run.request import request
from tartan.run.share import Share

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("n_ranks", [1, 3])
@pytest.mark.parametrize("host_cache", ["2items", "16items", "100items"])
def test_several_ranks_make_the_scores_of_one(tmp_path: Path, n_ranks: int, host_cache: str) -> None:
    run = start(asked(host_cache=host_cache), tmp_path / "run", ranks=ranks(n_ranks))
    check(run)
    assert 1 <= run.stats["n_ranks"] <= n_ranks
    assert run.stats["pairs_computed"] == N * (N - 1) // 2
    assert run.stats["ranks_lost"] == 0
    times = run.stats["rank_times"]
    assert sum(one["pairs"] for one in times.values()) == N * (N - 1) // 2
    assert all(name.startswith("rank-") for name in times)
    assert explain_slowness(run.stats, run.n_pairs_done).seconds["losses"] == 0


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("host_cache", ["200items", "600items"])
def test_ranks_screen_pairs_and_keep_what_one_process_keeps(tmp_path: Path, metric: str, host_cache: str) -> None:
    rng = np.random.default_rng(1)
    rows = np.repeat(rng.standard_normal((40, 80), dtype=np.float32), 10, axis=0)  # close ones are much closer
    rows += 0.3 * rng.standard_normal((400, 80), dtype=np.float32)
    app, rule = Vectors(metric=metric), {"kind": "top-k", "k": 2}
    options = run_options(OPTIONS | {"host_cache": host_cache, "tile": 100})
    run = start(request(app, rows, options, registry=apps, reduce=rule), tmp_path / "run", ranks=ranks())
    alone = tartan.allpairs(app, rows, reduce=rule, tile=100, quiet=True)
    for found, wanted in zip(run.neighbors(2), alone.neighbors(2), strict=True):
        np.testing.assert_array_equal(found, wanted)
    if _native.HAS_PRODUCTS:
        said = run.stats["screened"]
        assert said["by_bound"] > 0 or host_cache == "600items"  # where one tile is all that a row ever meets
        assert said["by_bound"] + said["exactly"] + said["unscreened"] >= 400 * 399 // 2


def test_ranks_that_hold_all_items_together_load_each_once(tmp_path: Path) -> None:
    run = start(asked(host_cache="100items"), tmp_path / "run", ranks=ranks())
    check(run)
    stats = run.stats
    assert stats["storage_load_factor_bound"] == 1
    assert 1 <= stats["storage_load_factor"] <= 1 + 6 / N
    assert stats["load_factor"] >= stats["load_factor_bound"] >= 1
    fills, loads = round(stats["load_factor"] * N), round(stats["storage_load_factor"] * N)
    assert stats["bytes_between_ranks"] == (fills - loads) * 16


@pytest.mark.parametrize("host_cache", ["13items", "16items", "30items"])
def test_ranks_with_little_room_load_less_than_each_for_itself(tmp_path: Path, host_cache: str) -> None:
    run = start(asked(host_cache=host_cache), tmp_path / "run", ranks=ranks())
    check(run)
    stats = run.stats
    assert stats["storage_load_factor_bound"] <= stats["storage_load_factor"] < stats["load_factor"]
    assert stats["load_factor"] >= stats["load_factor_bound"]
    assert stats["bytes_between_ranks"] > 0


def test_more_ranks_than_chunks(tmp_path: Path) -> None:
    check(start(asked(n=7), tmp_path / "run", ranks=ranks(4)), 7)


def test_a_single_pair(tmp_path: Path) -> None:
    assert start(asked(n=2), tmp_path / "run", ranks=ranks(2)).finished


@pytest.mark.parametrize(
    ("lost", "at"),
    [
        (("rank-0",), 1),
        (("rank-1", "rank-2"), 20),
        (("rank-0",), 60),
        pytest.param(("rank-0",), 20, marks=pytest.mark.exhaustive),
        pytest.param(("rank-1", "rank-2"), 1, marks=pytest.mark.exhaustive),
        pytest.param(("rank-1", "rank-2"), 60, marks=pytest.mark.exhaustive),
    ],
)
def test_the_loss_of_ranks_changes_no_score(tmp_path: Path, at: int, lost: tuple[str, ...]) -> None:
    ways = ranks()
    run = start(asked(Sums(happens=Bomb(ways.hubs, at, lost))), tmp_path / "run", ranks=ways)
    check(run)
    assert run.stats["ranks_lost"] <= len(lost)


def test_without_a_rank_the_run_stops_and_can_be_resumed_on_any_number(tmp_path: Path) -> None:
    ways = replace(ranks(2), patience_seconds=0.0)
    app = Sums(happens=Bomb(ways.hubs, 15, ("rank-0", "rank-1")))
    with pytest.raises(ClusterError, match="no rank is left"):
        start(asked(app), tmp_path / "run", ranks=ways)
    done = tartan.open(tmp_path / "run").folder.n_known()
    assert not tartan.open(tmp_path / "run").finished
    check(start(asked(), tmp_path / "run"))
    assert done < N * (N - 1) // 2


def test_the_second_run_finds_the_items_of_the_first_on_the_disks_of_its_ranks(tmp_path: Path) -> None:
    cached = {"cache_at": tmp_path / "local", "disk_cache": "1MB"}
    first = start(asked(**cached), tmp_path / "one", ranks=ranks())
    check(first)
    assert first.stats["storage_load_factor"] >= 1
    second = start(asked(**cached), tmp_path / "two", ranks=ranks())
    check(second)
    assert second.stats["storage_load_factor"] == 0, "R leaves disk hits out"
    assert second.stats["disk_hits"] >= N
    assert second.stats["load_factor"] >= 1
    assert not (tmp_path / "two" / "cache").exists()


def test_ranks_with_little_room_and_disks_of_their_own_parse_each_item_once(tmp_path: Path) -> None:
    alone = start(asked(), tmp_path / "a", ranks=ranks())
    cached = start(asked(cache_at=tmp_path / "local"), tmp_path / "b", ranks=ranks())
    check(cached)
    assert cached.stats["storage_load_factor"] < alone.stats["storage_load_factor"]
    assert cached.stats["storage_load_factor"] <= 1.2


class Unequal(tartan.Application):
    """Items of unequal size, in threads or (``processes``) in worker processes."""

    ragged = True

    def __init__(self, processes: bool = False) -> None:
        self.releases_gil = not processes

    def parameters(self) -> dict[str, Any]:
        return {"processes": not self.releases_gil}

    def parse(self, key: str, data: Any) -> Any:
        if data == 4:
            raise ValueError("bad item")
        return {"name": key, "values": np.arange(int(data) % 7 + 1, dtype=np.float64) + data}

    def compare_pair(self, left: Any, right: Any) -> float:
        return float(left["values"].sum() * right["values"].sum() + left["values"][-1] + right["values"][-1])


class OnDevice(Sums):
    """A device preprocesses; the items become larger there, and item 5 fails."""

    def parse(self, key: str, data: Any) -> Any:
        return np.full(2, data, np.float32)

    def preprocess(self, item: Any, xp: Any) -> Any:
        if float(item[0]) == 5.0:
            raise ValueError("bad on the device")
        return xp.stack([item, item]).reshape(-1).astype(np.float64)


@pytest.mark.parametrize("host_cache", ["13items", "100items"])
@pytest.mark.parametrize(
    ("app", "device"),
    [(Unequal(), "cpu"), (OnDevice(), "sim"), pytest.param(Unequal(True), "cpu", marks=pytest.mark.exhaustive)],
)
def test_items_of_unequal_size_and_those_that_a_device_preprocesses_have_homes(
    tmp_path: Path, app: tartan.Application, device: str, host_cache: str
) -> None:
    alone = start(asked(app, host_cache=host_cache, device=device), tmp_path / "one")
    run = start(asked(app, host_cache=host_cache, device=device), tmp_path / "run", ranks=ranks())
    np.testing.assert_array_equal(run.matrix(), alone.matrix())
    found = [(failure.i, failure.kind, failure.stage) for failure in run.failures]
    assert found == [(failure.i, failure.kind, failure.stage) for failure in alone.failures]
    assert len(found) == 1
    stats = run.stats
    assert stats["bytes_between_ranks"] > 0
    assert stats["storage_load_factor"] < stats["load_factor"]
    if host_cache == "100items" and device == "cpu":
        assert stats["storage_load_factor"] <= 1 + 6 / N


class Counted(OnDevice):
    """Writes down how often a device preprocesses something."""

    def __init__(self, log: Path) -> None:
        super().__init__()
        self.log = log

    def preprocess(self, item: Any, xp: Any) -> Any:
        with open(self.log, "ab") as stream:
            stream.write(b".")
        return super().preprocess(item, xp)


@pytest.mark.parametrize("host_cache", ["13items", "100items"])
def test_what_ranks_keep_for_each_other_is_preprocessed_once(tmp_path: Path, host_cache: str) -> None:
    log = tmp_path / "log"
    run = start(asked(Counted(log), host_cache=host_cache, device="sim"), tmp_path / "run", ranks=ranks())
    stats = run.stats
    assert stats["parses"] < stats["loads"]
    assert log.stat().st_size <= (stats["parses"] + stats["loads"]) / 2, "not once for each rank that needs it"


def test_a_failed_item_is_one_failure_whoever_loads_it(tmp_path: Path) -> None:
    run = start(asked(Sums(bad=4)), tmp_path / "run", ranks=ranks())
    assert run.finished
    assert [(failure.i, failure.kind) for failure in run.failures] == [(4, "item")]
    assert run.stats["storage_load_factor"] < run.stats["load_factor"]
    good = np.delete(np.arange(N), 4)
    np.testing.assert_array_equal(
        np.triu(run.matrix()[np.ix_(good, good)], 1), np.triu(expected()[np.ix_(good, good)], 1)
    )


@pytest.mark.parametrize("rule", [{"on_error": "raise"}, {"max_failures": 0}])
def test_too_many_failures_on_all_ranks_together_stop_the_run(tmp_path: Path, rule: dict[str, Any]) -> None:
    with pytest.raises(RunFailedError, match="bad item"):
        start(asked(Sums(bad=4), **rule), tmp_path / "run", ranks=ranks())
    assert not list((tmp_path / "run").glob("writers*"))


def test_the_best_of_each_item_are_merged(tmp_path: Path) -> None:
    reduce = {"kind": "top-k", "k": 3, "largest": True}
    one = start(asked(reduce=reduce), tmp_path / "one")
    several = start(asked(reduce=reduce), tmp_path / "several", ranks=ranks())
    for a, b in zip(one.neighbors(3, largest=True), several.neighbors(3, largest=True), strict=True):
        np.testing.assert_array_equal(a, b)


def test_two_sets_and_candidate_lists_are_shared_too(tmp_path: Path) -> None:
    crossed = start(asked(against=list(range(100, 120))), tmp_path / "a", ranks=ranks())
    np.testing.assert_array_equal(crossed.matrix(), np.arange(N)[:, None] * 1000.0 + np.arange(100, 120)[None, :])
    pairs = np.array([[0, 1], [5, 40], [7, 8], [30, 44]])
    listed = start(asked(pairs=pairs), tmp_path / "b", ranks=ranks())
    assert listed.finished
    matrix = listed.matrix()
    assert [matrix[i, j] for i, j in pairs] == [i * 1000.0 + j for i, j in pairs]


def test_items_are_added_and_runs_resumed_on_ranks(tmp_path: Path) -> None:
    start(asked(n=30), tmp_path / "run")
    reopen = partial(reopen_request, options=run_options(OPTIONS), registry=apps, app=Sums())
    old = partial(reopen, items=list(range(30)))
    run = extend(tmp_path / "run", list(range(30, N)), old, apps, ranks())
    np.testing.assert_array_equal(np.triu(run.matrix(), 1), np.triu(expected(), 1))
    again = resume(tmp_path / "run", partial(reopen, items=list(range(N))), apps, ranks())
    assert again.stats == run.stats


def test_one_trace_has_what_all_ranks_did_on_one_clock(tmp_path: Path) -> None:
    begin = time.perf_counter_ns()
    run = start(asked(trace=True), tmp_path / "run", ranks=ranks(2))
    longest_us = (time.perf_counter_ns() - begin) / 1000
    check(run)
    trace = json.loads((run.path / "trace.json").read_text())
    intervals = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    processes = {e["pid"]: e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "process_name"}
    for rank in ("rank-0", "rank-1"):
        of_rank = [event for event in intervals if processes[event["pid"]].startswith(rank)]
        assert {"read", "parse", "compare", "commit"} <= {event["cat"] for event in of_rank}
    assert all(event["ts"] >= 0 and event["ts"] + event["dur"] <= longest_us for event in intervals)
    assert trace["otherData"]["dropped_events"] == 0


def test_the_statistics_have_what_each_rank_did(tmp_path: Path) -> None:
    run = start(asked(), tmp_path / "run", ranks=ranks(2))
    work = run.stats["rank_work"]
    assert sum(sum(parts) for parts in work["pairs"].values()) == N * (N - 1) // 2
    assert work["begun"] <= time.time()


def test_what_ranks_cannot_do_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--part and --on"):
        start(asked(), tmp_path / "run", Share(1, 2), ranks())
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan")])
def test_a_rank_timeout_is_a_positive_number(seconds: float) -> None:
    with pytest.raises(ConfigError, match="rank_timeout"):
        tartan.allpairs(Sums(), [1, 2, 3], on="local:2", rank_timeout=seconds)


@pytest.mark.parametrize("text", ["local:0", "local:", "local:-1", "tcp://somewhere:80", "nonsense"])
def test_a_cluster_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match="--on"):
        tartan.allpairs(Sums(), [1, 2, 3], tmp_path / "run", on=text)
    assert not (tmp_path / "run").exists()
