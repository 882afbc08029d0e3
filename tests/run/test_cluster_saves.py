"""Ranks save finished tiles of open chunks; those that get the chunks of a lost one complete what it saved."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cluster_world import Bomb, Sums, asked, check, ranks

import tartan
from tartan.core.pairs import saves
from tartan.errors import ClusterError
from tartan.run import cluster_run
from tartan.run.execute import start
from tartan.store.folder import RunFolder
from tartan.store.ledger import Ledger
from tartan.store.remote import RemoteFolder

pytestmark = pytest.mark.slow


class Pieces:
    """Counts commits that are not the last one of their chunk, and calls a function after each."""

    n = 0

    def after(self) -> None:
        pass


@pytest.fixture(autouse=True)
def pieces(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pieces]:
    """Let every finished tile be saved as soon as the loop turns."""
    counted = Pieces()

    def counting(commit: Callable[..., bool]) -> Callable[..., bool]:
        def count(self: Ledger, *chunk: Any, last: bool = True, **more: Any) -> bool:
            counts = commit(self, *chunk, last=last, **more)
            if not last:
                counted.n += 1
                counted.after()
            return counts

        return count

    monkeypatch.setattr(saves, "OLDEST_SECONDS", 0.0)
    monkeypatch.setattr(saves, "MOST_OF_TIME", 1e9)
    for folder in (Ledger, RemoteFolder):
        monkeypatch.setattr(folder, "commit", counting(folder.commit))
    yield counted
    assert counted.n > 0


WHERE = {
    "all see the folder": lambda folder: lambda number, place: Path(place),
    "one sees the folder": lambda folder: lambda number, place: Path(place) if number == 0 else folder / "absent",
    "none sees the folder": lambda folder: lambda number, place: folder / "absent",
    "one does not": lambda folder: lambda number, place: Path(place) if number else folder / "absent",
}
KEPT: dict[str, Any] = {
    "matrix": None,
    "top 3": {"kind": "top-k", "k": 3, "largest": True},
    "threshold": {"kind": "threshold", "threshold": 20_000.0, "largest": True},
}


def check_kept(run: tartan.Run, reduce: Any, tmp_path: Path) -> None:
    if reduce is None:
        check(run)
        return
    one = start(asked(reduce=reduce), tmp_path / "one")
    assert run.pairs().read_all().to_pylist() == one.pairs().read_all().to_pylist()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("where", WHERE.values(), ids=WHERE)
@pytest.mark.parametrize("reduce", KEPT.values(), ids=KEPT)
@pytest.mark.parametrize("at", [25, 60])
def test_what_a_lost_rank_saved_is_completed(tmp_path: Path, where: Any, reduce: Any, at: int) -> None:
    ways = ranks(locate=where(tmp_path))
    app = Sums(happens=Bomb(ways.hubs, at, ("rank-0", "rank-1")))
    check_kept(start(asked(app, reduce=reduce), tmp_path / "run", ranks=ways), reduce, tmp_path)


@pytest.mark.parametrize("reduce", KEPT.values(), ids=KEPT)
def test_one_process_saves_too(tmp_path: Path, reduce: Any) -> None:
    check_kept(start(asked(reduce=reduce), tmp_path / "run"), reduce, tmp_path)


def test_failed_items_of_saved_pieces_keep_their_reasons(tmp_path: Path) -> None:
    ways = ranks()
    app = Sums(bad=4, happens=Bomb(ways.hubs, 40, ("rank-1",)))
    run = start(asked(app), tmp_path / "run", ranks=ways)
    assert run.finished
    assert [(failure.i, failure.kind) for failure in run.failures] == [(4, "item")]
    assert np.isnan(run.matrix()[4, 5:]).all()


@pytest.mark.parametrize("where", WHERE.values(), ids=WHERE)
def test_what_was_saved_of_a_chunk_outlives_all_ranks(
    tmp_path: Path, where: Any, pieces: Pieces, monkeypatch: pytest.MonkeyPatch
) -> None:
    ways = ranks(2, locate=where(tmp_path))

    def end() -> None:
        for name in ("rank-0", "rank-1"):
            ways.hubs[-1].kill(name)
        raise ClusterError("this rank is killed: the rest of the chunk is lost")

    monkeypatch.setattr(pieces, "after", end)
    monkeypatch.setattr(cluster_run, "RETURN_SECONDS", 0.0)
    with pytest.raises(ClusterError, match="no rank is left"):
        start(asked(), tmp_path / "run", ranks=ways)
    folder = RunFolder.open(tmp_path / "run")
    assert set(folder.missing()) & set(folder.committed()), "no chunk of which some is there"
    monkeypatch.undo()
    check(start(asked(), tmp_path / "run"))
