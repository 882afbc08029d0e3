"""Finished tiles of triples are saved while their chunk is open: what a kill leaves at any moment, and what is resumed.

A kill leaves what the folder holds, so the folder is copied at several moments of one run. The clock is the test's: it
goes on by ten seconds with each call that ends.
"""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import tartan
from spec.plain import READER
from store.kit import describe
from tartan.application import output_dtypes
from tartan.base.trace import NO_TRACER
from tartan.core.pairs.ledger import DONE, FAILED_PAIR, NOT_COMPUTED
from tartan.core.pairs.saves import SavePolicy
from tartan.core.pairs.setup import NodePlan
from tartan.core.pairs.triples import choose_triple_layout
from tartan.core.pairs.verdict import NodeReport
from tartan.core.pairs.workload import AllPairs
from tartan.devices import open_device
from tartan.errors import CorruptResultError, StoreError
from tartan.runtime.committer import FinishedChunk
from tartan.runtime.events import ChunkCommitted, ChunkSaved, Event
from tartan.runtime.execution import NodeInputs
from tartan.runtime.host import UniformItems
from tartan.runtime.items import ItemForm
from tartan.runtime.node import Node
from tartan.runtime.remaining import RemainingTriples
from tartan.runtime.tasks import ItemPlan
from tartan.sources.items import open_source
from tartan.store.folder import RunFolder
from tartan.store.keeper import concatenate
from tartan.store.manifest import FEATURES, FINISHED_TILES
from tartan.workers.start import open_executor

N, SLOTS = 16, 9
CUTS = {"chunk": 8, "panel": 0, "strip": 2, "span": 2}
ROWS = np.random.default_rng(5).integers(-2, 3, (N, 3)).astype(np.float32)  # products are exact, and many are equal
ROWS[:, 2] = np.arange(N)
TOP, OVER = {"kind": "top-k", "k": 3, "largest": True}, {"kind": "threshold", "threshold": 9.0, "largest": True}
SECONDS = 10.0
# A minute of finished calls, and the one that had just ended.
MOST_LOST = 60 / SECONDS + 1
Row = tuple[int, int, int, float]


class Product(tartan.Application):
    """The sum over the product of three vectors; a call that holds the triple ``bad`` fails as a whole."""

    releases_gil = True
    similarity = True

    def __init__(self, bad: tuple[int, int, int] | None = None) -> None:
        self._bad = bad
        self.calls: list[tuple[int, ...]] = []

    def parameters(self) -> dict[str, Any]:
        return {}

    def compare(self, a: Any, b: Any, c: Any, xp: Any) -> Any:
        groups = [rows[:, 2].astype(int).tolist() for rows in (a, b, c)]
        self.calls.append(tuple(group[0] for group in groups))
        if self._bad is not None and all(item in group for item, group in zip(self._bad, groups, strict=True)):
            raise ValueError("it does not like these")
        return xp.einsum("id,jd,kd->ijk", a, b, c)


class Prompt:
    """A sink that has committed when it is asked to."""

    commit_seconds = 0.0
    committed_bytes = 0

    def __init__(self, folder: RunFolder) -> None:
        self.keeper = folder.new_keeper()
        self.n_saves = 0
        self._folder = folder

    def commit(self, finished: FinishedChunk, post: Callable[[Event], None]) -> None:
        chunk, rows = finished.chunk, finished.rows
        assert rows is not None
        self._folder.commit_kept(chunk, rows, finished.status.tolist(), finished.failures, finished.tiles)
        self.n_saves += not finished.last
        post(ChunkCommitted(chunk) if finished.last else ChunkSaved(chunk, 0.0))

    def close(self) -> None:
        pass


def make(path: Path, rule: dict[str, Any]) -> RunFolder:
    described = describe(N, workload={"kind": "triples"}, reduce=rule, inputs={"kind": "array"})
    described.grid = dict(CUTS)
    return RunFolder.create(path, described)


def compute(path: Path, app: Product, *, seconds: float = SECONDS, at: Callable[[int], None] = lambda n: None) -> int:
    """Compute what a folder lacks; ``at`` is called with the number of parts that have ended. Return the saves."""
    now, ended = 0.0, 0

    def report(found: NodeReport) -> None:
        nonlocal now, ended
        if not any(found.pairs):  # items that were loaded
            return
        now, ended = now + seconds, ended + 1
        at(ended)

    folder = RunFolder.open(path, writable=True, arity=3)
    with folder.lock():
        grid = folder.wanted.grid
        remaining, layout, form = (
            RemainingTriples(folder, grid),
            choose_triple_layout(grid, SLOTS),
            ItemForm.of(ROWS[0]),
        )
        plan = NodePlan(
            grid,
            AllPairs(N),
            layout,
            needed=remaining.needs,
            slots=SLOTS,
            host_bytes=layout.room.total * form.nbytes,
        )
        sink = Prompt(folder)
        inputs = NodeInputs(
            source=open_source(ROWS),
            app=app,
            outputs=output_dtypes(app),
            both_ways=False,
            plan=plan,
            items=ItemPlan(UniformItems(form), None, form, ROWS[0], ready_substitute=ROWS[0]),
            remaining=remaining,
            executor=open_executor(app, 1),
            devices=[open_device("cpu")],
            sink=sink,
            report=report,
            call_limit=None,
            tracer=NO_TRACER,
            saves=SavePolicy(1),
        )
        Node(inputs, clock=lambda: now).run()
    return sink.n_saves


def kept(path: Path) -> list[Row]:
    """Return what a run keeps, as its parts say."""
    folder = RunFolder.open(path, arity=None)
    assert folder.cubes is not None
    rows = concatenate([folder.cubes.rule.empty(), *folder.cubes.bands(folder.committed())])
    return sorted(zip(*(rows[name].tolist() for name in ("i", "j", "k", "scores")), strict=True))


def loop(rule: dict[str, Any], bad: tuple[int, int, int] | None) -> list[Row]:
    """Return what is to be kept, by a loop over all triples."""
    rows = [
        (*ends, float((ROWS[ends[0]] * ROWS[ends[1]] * ROWS[ends[2]]).sum()))
        for ends in itertools.combinations(range(N), 3)
        if ends != bad
    ]
    if rule["kind"] == "threshold":
        return [row for row in rows if row[3] >= rule["threshold"]]
    best: set[Row] = set()
    for item in range(N):
        mine = [row for row in rows if item in row[:3]]
        best.update(sorted(mine, key=lambda row: (-row[3], row[:3]))[: rule["k"]])
    return sorted(best)


MOMENTS = (1, 7, 20, 44, 79, 100)


@pytest.mark.slow
@pytest.mark.parametrize("bad", [None, (2, 9, 12)], ids=["all good", "a call fails"])
@pytest.mark.parametrize("rule", [TOP, OVER], ids=["top-k", "threshold"])
def test_a_kill_costs_triples_a_minute_at_most(
    rule: dict[str, Any], bad: tuple[int, int, int] | None, tmp_path: Path
) -> None:
    app, copies = Product(bad), dict[int, int]()
    make(tmp_path / "run", rule)

    def copy(n: int) -> None:
        if n in MOMENTS:
            shutil.copytree(tmp_path / "run", tmp_path / f"{n}")
            copies[n] = len(app.calls)

    assert compute(tmp_path / "run", app, at=copy) >= 3
    whole = kept(tmp_path / "run")
    assert whole == loop(rule, bad)
    assert set(copies) == set(MOMENTS)
    n_partial = 0
    for n, n_calls in copies.items():
        path, again = tmp_path / f"{n}", Product(bad)
        before = RunFolder.open(path, arity=3)
        counts = [before.counts([chunk]) for chunk in before.committed()]
        n_partial += any(count[NOT_COMPUTED] for count in counts)
        assert n_partial == 0 or FINISHED_TILES in before.manifest.features
        assert [tuple(row.values()) for row in READER.PlainRun(path).pairs()] == kept(path)
        compute(path, again)
        assert kept(path) == whole
        after = RunFolder.open(path, arity=3)
        assert after.counts().tolist() == [0, 560 - (bad is not None), 0, int(bad is not None)]
        assert [(one.i, one.j, one.k) for one in after.failures()] == ([] if bad is None else [bad])
        assert all(after.counts([chunk])[NOT_COMPUTED] == 0 for chunk in after.committed())
        if bad is None:  # else halves of one call count as several
            assert len(app.calls) - len(again.calls) >= n - MOST_LOST, (n, n_calls)
    assert n_partial >= 3, "the test sees chunks of which some tiles are saved"


def test_a_fast_run_of_triples_needs_no_feature(tmp_path: Path) -> None:
    make(tmp_path / "run", TOP)
    assert compute(tmp_path / "run", Product(), seconds=0.0) == 0
    assert "features" not in json.loads((tmp_path / "run" / "manifest.json").read_text())


def save_some(path: Path) -> tuple[RunFolder, tuple[int, int]]:
    """Return a folder of which some tiles of one chunk are saved."""
    folder = make(path, OVER)
    assert folder.cubes is not None
    grid, chunk = folder.wanted.grid, folder.wanted.grid.chunk_at(0, 0, 1)
    tiles = [tile for tile in grid.chunk_tiles(chunk) if grid.count(tile)][:3]
    counts = np.zeros(4, int)
    counts[DONE] = sum(map(grid.count, tiles))
    with folder.lock():
        folder.commit_kept(chunk, folder.cubes.rule.empty(), counts.tolist(), (), tiles)
    return folder, chunk


def test_older_versions_refuse_a_folder_with_finished_tiles(tmp_path: Path) -> None:
    """They know the features before it, and refuse others by name, as this one does."""
    folder, _ = save_some(tmp_path / "run")
    manifest = tmp_path / "run" / "manifest.json"
    assert json.loads(manifest.read_text())["features"] == [FINISHED_TILES]
    assert FINISHED_TILES in FEATURES
    assert RunFolder.open(folder.path, arity=3).manifest == folder.manifest
    text = manifest.read_text().replace(FINISHED_TILES, "other-tiles")
    manifest.write_text(text)
    with pytest.raises(StoreError, match=r"checksum|other-tiles"):
        RunFolder.open(folder.path, arity=3)


FORGED: dict[str, Callable[[list[Any]], Any]] = {
    "one less": lambda tiles: tiles[1:],
    "twice": lambda tiles: [tiles[0], *tiles[:-1]],
    "of another chunk": lambda tiles: [[0, 0, 0], *tiles[1:]],
    "beyond": lambda tiles: [[0, 0, 10**9], *tiles[1:]],
    "below": lambda tiles: [[-1, 0, 4], *tiles[1:]],
    "turned": lambda tiles: [[1, 0, 4], *tiles[1:]],
    "no numbers": lambda tiles: ["a", {}, [None, 1, 2]],
    "true": lambda tiles: [[True, 1, 4], *tiles[1:]],
    "no list": lambda tiles: 3,
    "nothing": lambda tiles: None,
}


@pytest.mark.slow
@pytest.mark.parametrize("what", FORGED)
def test_a_forged_list_of_tiles_is_damage(what: str, tmp_path: Path) -> None:
    folder, chunk = save_some(tmp_path / "run")
    assert folder.cubes is not None
    assert len(folder.cubes.finished_tiles(chunk) or ()) == 3
    path = folder.cubes.chunk_path(*chunk)
    rows = pq.read_table(path)
    about = dict(rows.schema.metadata)
    about[b"tartan.tiles"] = json.dumps(FORGED[what](json.loads(about[b"tartan.tiles"])))
    pq.write_table(rows.replace_schema_metadata(about), path)
    with pytest.raises(CorruptResultError, match="tiles"):
        folder.cubes.finished_tiles(chunk)
    assert not folder.cubes.verify(*chunk)
    compute(tmp_path / "run", Product())
    assert kept(tmp_path / "run") == loop(OVER, None)
    assert RunFolder.open(tmp_path / "run", arity=3).counts()[FAILED_PAIR] == 0
