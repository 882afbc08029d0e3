"""Any stage beside the data: the same scores wherever parse, group and preprocess run, and no dead end."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cluster_world import Once, ranks

import tartan
from tartan import apps
from tartan.base.notices import RunNotice
from tartan.cli.main import main
from tartan.errors import ConfigError
from tartan.options import run_options
from tartan.run.execute import start
from tartan.run.request import request

N = 24
WAYS = ("compute", "storage:parse", "storage:parse,preprocess", "auto")


class Photos(tartan.Application):
    """A tenth of the bytes is left after preprocess, which writes into what parse made."""

    releases_gil = True
    ragged = False

    def __init__(self, happens: Any = None) -> None:
        self.happens = happens

    def parameters(self) -> dict[str, Any]:
        return {}

    def parse(self, key: str, data: bytes) -> Any:
        if data == b"bad":
            raise ValueError("bad file")
        return np.full(640, int(data[:8]), np.float64)

    def preprocess(self, item: Any, xp: Any) -> Any:
        item += 1 / 3
        return item[:64] * np.float64(1.1)

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        if self.happens is not None and len(left) * len(right) > 1:
            self.happens()
        a, b = left[:, 0][:, None], right[:, 0][None, :]
        return xp.minimum(a, b) * 1000 + xp.maximum(a, b)


class Uneven(Photos):
    """Items of unlike sizes, in containers."""

    ragged = True

    def parse(self, key: str, data: bytes) -> Any:
        return {"x": super().parse(key, data), "n": int(data[:8]) % 5 + 1}

    def preprocess(self, item: Any, xp: Any) -> Any:
        item["x"] /= 3
        return item["x"][: item["n"]]

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        return np.array([[min(a[0], b[0]) * 1000 + max(a[0], b[0]) for b in right] for a in left])


class Means(Photos):
    """Many files are one item: their mean."""

    def group(self, key: str, files: Any) -> Any:
        return np.mean([self.parse(name, data) for name, data in files], axis=0)


class OnlyParse(tartan.Application):
    releases_gil = True
    ragged = False

    def parse(self, key: str, data: bytes) -> Any:
        return np.full(2, int(data[:8]), np.float64)

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        return left[:, 0][:, None] * right[:, 0][None, :]


class Handles(Photos):
    """What parse makes cannot leave the process."""

    def parse(self, key: str, data: bytes) -> Any:
        return [super().parse(key, data), threading.Lock()]

    def preprocess(self, item: Any, xp: Any) -> Any:
        return item[0][:64]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(N):
        (folder / f"{number:03}.txt").write_bytes(f"{number:08}".encode() + bytes(500))
    return folder


def compute(files: Path, out: Path, app: Any, ways: Any = None, **options: Any) -> tartan.Run:
    given = {"host_cache": "100items", "tile": 5, "workers": 1, "quiet": True} | options
    return start(request(app, str(files / "*.txt"), run_options(given), registry=apps), out, ranks=ways)


def at(run: tartan.Run) -> dict[str, int]:
    return {name: int(count) for name, count in run.stats["items_per_stage"].items() if count}


@pytest.mark.slow
@pytest.mark.parametrize("app", [Photos(), Uneven()], ids=["even", "uneven"])
@pytest.mark.parametrize("stages", WAYS)
def test_the_bits_are_those_of_one_process_wherever_stages_run(
    files: Path, tmp_path: Path, app: Any, stages: str
) -> None:
    alone = compute(files, tmp_path / "one", app)
    run = compute(files, tmp_path / "run", app, ranks(1, n_storage=1, stages=stages))
    np.testing.assert_array_equal(run.matrix(), alone.matrix())
    assert run.stats["bytes_per_level"]["storage"] == N * 508, "each file was read once, by the storage rank"
    assert run.stats["bytes_per_level"]["storage ranks"] > 0
    places = {
        "compute": {"compute:parse": N, "compute:preprocess": N},
        "storage:parse": {"storage:parse": N, "compute:preprocess": N},
        "storage:parse,preprocess": {"storage:parse": N, "storage:preprocess": N},
    }
    if stages != "auto":
        assert at(run) == places[stages]


@pytest.mark.slow
def test_auto_sends_what_is_least_after_preprocess(files: Path, tmp_path: Path) -> None:
    sent = {}
    for stages in WAYS:
        run = compute(files, tmp_path / stages, Photos(), ranks(1, n_storage=1, stages=stages))
        sent[stages] = run.stats["bytes_per_level"]["storage ranks"]
    assert sent["auto"] == min(sent.values()) < sent["storage:parse"]


@pytest.mark.slow
@pytest.mark.parametrize("stages", WAYS)
def test_a_killed_storage_rank_costs_no_score(files: Path, tmp_path: Path, stages: str) -> None:
    alone = compute(files, tmp_path / "one", Photos())
    ways = ranks(1, n_storage=1, stages=stages)
    app = Photos(Once(3, lambda: ways.hubs[-1].kill("rank-1")))
    run = compute(files, tmp_path / "run", app, ways, host_cache="8items")
    np.testing.assert_array_equal(run.matrix(), alone.matrix())
    assert run.stats["ranks_lost"] == 1
    assert run.stats["bytes_per_level"]["storage"] > N * 508, "what came from there before was read again here"


@pytest.mark.parametrize("stages", WAYS)
def test_a_bad_file_fails_with_its_reason_wherever_it_is_parsed(files: Path, tmp_path: Path, stages: str) -> None:
    (files / "005.txt").write_bytes(b"bad")
    run = compute(files, tmp_path / "run", Photos(), ranks(1, n_storage=1, stages=stages))
    assert [(failure.i, failure.stage) for failure in run.failures] == [(5, "parse")]
    assert "bad file" in run.failures[0].reason


@pytest.mark.parametrize("stages", ["compute", "storage:group", "storage:group,preprocess", "auto"])
def test_many_files_become_one_item_beside_the_data(tmp_path: Path, stages: str) -> None:
    for number in range(18):
        folder = tmp_path / "in" / f"camera-{number // 3}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number:03}.txt").write_bytes(f"{number:08}".encode() + bytes(500))
    options = run_options({"host_cache": "100items", "tile": 5, "workers": 1, "quiet": True})
    asked = request(Means(), [str(tmp_path / "in" / "*")], options, registry=apps, group="folders")
    alone = start(asked, tmp_path / "one")
    run = start(asked, tmp_path / "run", ranks=ranks(1, n_storage=1, stages=stages))
    np.testing.assert_array_equal(run.matrix(), alone.matrix())
    assert run.n_items == 6
    if stages.startswith("storage"):
        assert at(run)["storage:parse"] == 6
        assert run.stats["bytes_per_level"]["storage ranks"] < 18 * 508 * 4


def test_a_filter_that_keeps_a_hundredth_runs_beside_the_data(tmp_path: Path) -> None:
    """What a user's own parse keeps is all that travels."""
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(N):
        (folder / f"{number:03}.txt").write_bytes(f"{number:08}".encode() + bytes(100_000))
    run = compute(folder, tmp_path / "run", OnlyParse(), ranks(1, n_storage=1, stages="auto"))
    assert run.stats["bytes_per_level"]["storage ranks"] < N * 100_000 / 100
    assert at(run) == {"storage:parse": N}


@pytest.mark.parametrize(
    ("stages", "app", "problem"),
    [
        (
            "storage:compare",
            Photos,
            "'compare' cannot run beside the data; what can is parse, group, pre",
        ),
        ("storage:", Photos, "'storage:' is unknown; choose auto, compute, or storage: and stages"),
        ("disk:parse", Photos, "'disk:parse' is unknown"),
        ("storage:parse,parse", Photos, "names a stage twice"),
        ("storage:preprocess", Photos, "needs what parse makes.* write --stages storage:parse,preprocess"),
        ("storage:parse,preprocess", OnlyParse, "OnlyParse defines no preprocess; its stages are parse"),
        ("storage:group", Photos, "Photos defines no group; its stages are parse, preprocess"),
    ],
)
def test_stages_that_cannot_be_are_refused(files: Path, tmp_path: Path, stages: str, app: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        tartan.allpairs(app(), str(files / "*.txt"), tmp_path / "run", on="tcp://127.0.0.1:9", stages=stages)
    assert not (tmp_path / "run").exists(), "nothing was made"


def test_info_says_where_each_stage_ran_and_what_the_link_carried(
    files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compute(files, tmp_path / "run", Photos(), ranks(1, n_storage=1, stages="storage:parse"))
    assert main(["info", str(tmp_path / "run")]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("stages"))
    assert f"parse beside the data ({N}); preprocess where pairs are computed ({N}); " in line
    assert line.endswith("kB from storage ranks")
    compute(files, tmp_path / "one", Photos())
    assert main(["info", str(tmp_path / "one")]) == 0
    assert "stages" not in capsys.readouterr().out


def test_stages_want_ranks_and_files_and_one_word_for_them(files: Path, tmp_path: Path) -> None:
    items, out = str(files / "*.txt"), tmp_path / "run"
    with pytest.raises(ConfigError, match="give `on=`, too"):
        tartan.allpairs(Photos(), items, out, stages="auto")
    with pytest.raises(ConfigError, match="leave --parse-at out"):
        tartan.allpairs(Photos(), items, out, on="local:2", stages="auto", parse_at="auto")
    with pytest.raises(ConfigError, match=r"the 2 ranks that --on local:2 starts are alike.*--resources"):
        tartan.allpairs(Photos(), items, out, on="local:2", stages="storage:parse")
    with pytest.raises(ConfigError, match=r"are not files.*leave --stages out"):
        tartan.allpairs(OnlyParse(), [b"1", b"2", b"3"], out, on="local:2", stages="storage:parse")


def test_a_run_without_a_storage_rank_says_so(files: Path, tmp_path: Path) -> None:
    class Elsewhere(type(ranks())):  # type: ignore[misc]
        may_have_storage = True

    there = ranks(1, stages="storage:parse,preprocess")
    ways = Elsewhere(there.target, stages=there.stages, storage_seconds=0.1)
    assert re.search(
        r"no storage rank is there: what --stages storage:parse,preprocess names waits 0.1 s", ways.unserved
    )
    assert not ranks(1, stages="auto").unserved
    with pytest.warns(RunNotice, match=r"no storage rank sent anything.*--resources"):
        run = compute(files, tmp_path / "run", Photos(), ways)
    assert at(run) == {"compute:parse": N, "compute:preprocess": N}


def test_a_stage_that_devices_run_is_refused_with_what_works(files: Path, tmp_path: Path) -> None:
    class Doubled(Photos):
        def preprocess(self, item: Any, xp: Any) -> Any:
            return item * 2.0

    ways = ranks(1, n_storage=1, stages="storage:parse,preprocess")
    with pytest.raises(ConfigError, match=r"runs on the devices of this run.*--stages storage:parse, or --device cpu"):
        compute(files, tmp_path / "run", Doubled(), ways, device="sim")
    ways = ranks(1, n_storage=1, stages="storage:parse")
    run = compute(files, tmp_path / "run", Doubled(), ways, device="sim")
    np.testing.assert_array_equal(run.matrix(), compute(files, tmp_path / "one", Doubled(), device="sim").matrix())
    assert at(run) == {"storage:parse": N, "compute:preprocess": N}


@pytest.mark.slow
def test_items_that_cannot_travel_are_refused_with_what_works(files: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"what parse makes \(list\) cannot be pickled.*storage:parse,preprocess"):
        compute(files, tmp_path / "run", Handles(), ranks(1, n_storage=1, stages="storage:parse"))
    run = compute(files, tmp_path / "run", Handles(), ranks(1, n_storage=1, stages="storage:parse,preprocess"))
    assert at(run) == {"storage:parse": N, "storage:preprocess": N}
    auto = compute(files, tmp_path / "auto", Handles(), ranks(1, n_storage=1, stages="auto"))
    np.testing.assert_array_equal(run.matrix(), auto.matrix())
