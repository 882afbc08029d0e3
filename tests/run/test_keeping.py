"""A threshold that keeps nearly everything: the run stops at its first chunks, and goes on where all is wanted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import pytest
from cluster_world import ranks

import tartan
from tartan import apps
from tartan.core.pairs.kept import KeptLimits, KeptSoFar
from tartan.core.pairs.ledger import DONE
from tartan.errors import ResourceError
from tartan.options import run_options
from tartan.run.execute import resume, start
from tartan.run.keeping import KeptWatch
from tartan.run.kept_rules import under
from tartan.run.reopen import reopen_request
from tartan.run.request import request
from tartan.run.session import RunSession
from tartan.run.share import Share
from tartan.run.triples import triple_request
from tartan.store.folder import RunFolder

pytestmark = pytest.mark.slow

N = 400
N_PAIRS = N * (N - 1) // 2
TILE = 50
EVEN = [float(value) for value in np.random.default_rng(7).permutation(N)]
"""Distances from 1 to 399, half of them up to 117; the matrix takes 360 kB, all pairs about 1 MB."""
SORTED = [0.0] * 150 + [10.0 * value for value in range(1, N - 149)]
"""Copies at the front: the first chunks keep all their pairs, the run 14 % of them."""


class Distance(tartan.Application):
    """The absolute difference of two numbers."""

    releases_gil = True

    def parse(self, key: str, data: Any) -> Any:
        return data

    def compare_pair(self, a: float, b: float) -> float:
        return abs(a - b)


def on_a_disk(free: int, kind: type[RunSession] = RunSession) -> type[RunSession]:
    """Return sessions that see so many free bytes."""
    return type("OnADisk", (kind,), {"free_bytes": staticmethod(lambda path: free)})


def asked(items: Sequence[float], threshold: float, app: Any = Distance, **ways: Any) -> Any:
    against = ways.pop("against", None)
    options = {"tile": TILE, "workers": 1, "quiet": True} | ways
    keep = {"kind": "threshold", "threshold": threshold, "largest": False}
    return request(app, items, run_options(options), reduce=keep, against=against, registry=apps)


def refused(run: Callable[[], Any], path: Path) -> ResourceError:
    """Have a run refused; what it has done by then is a small part, and is kept."""
    with pytest.raises(ResourceError) as caught:
        run()
    assert caught.value.code == "keeps-too-much"
    assert 0 < tartan.open(path).folder.counts()[DONE] < N_PAIRS / 2
    return caught.value


def test_a_threshold_that_keeps_everything_is_refused_and_goes_on_by_consent(tmp_path: Path) -> None:
    path, kind = tmp_path / "run", on_a_disk(300_000)
    error = refused(lambda: start(asked(EVEN, 1000), path, kind=kind), path)
    message = str(error)
    assert "--threshold 1000 keeps about 100 % of 79,800 pairs" in message
    assert "300 kB are free" in message
    assert "the whole matrix takes up to 360 kB" in message
    assert "--keep-all (keep_all=True)" in message
    assert "a run without --threshold" not in message, "the matrix does not fit either"
    assert error.exit_status == 2
    assert error.context["n_rows"] == pytest.approx(N_PAIRS, rel=0.01)
    done = tartan.open(path).folder.counts()[DONE]
    refused(lambda: start(asked(EVEN, 1000), path, kind=kind), path)
    assert tartan.open(path).folder.counts()[DONE] == done, "it is refused at once, and nothing is lost"
    run = start(asked(EVEN, 1000, keep_all=True), path, kind=kind)
    assert run.finished
    assert run.stats["pairs_computed"] <= N_PAIRS + 2 * TILE**2, "what was done is not done again"
    assert run.pairs().read_all().num_rows == N_PAIRS


def test_the_threshold_that_is_named_fits(tmp_path: Path) -> None:
    kind = on_a_disk(10**6)
    error = refused(lambda: start(asked(EVEN, 1000), tmp_path / "run", kind=kind), tmp_path / "run")
    assert "a run without --threshold the whole matrix" in str(error), "which fits"
    stricter = error.context["threshold"]
    assert f"--threshold {stricter:g} about" in str(error)
    run = start(asked(EVEN, stricter), tmp_path / "stricter", kind=kind)
    assert run.finished
    # An estimate: of the tiles that were compared when it was seen, which depends on how busy the machine is.
    assert 0 < run.pairs().read_all().num_rows < N_PAIRS / 3


def test_copies_at_the_front_are_not_taken_for_all_pairs(tmp_path: Path) -> None:
    run = start(asked(SORTED, 5), tmp_path / "run", kind=on_a_disk(300_000))
    assert run.finished
    assert run.pairs().read_all().num_rows == 150 * 149 // 2


@pytest.mark.parametrize(("free", "items", "threshold"), [(10**8, EVEN, 1000), (300_000, EVEN, 20)])
def test_small_results_and_strict_thresholds_are_never_refused(
    tmp_path: Path, free: int, items: list[float], threshold: float
) -> None:
    assert start(asked(items, threshold), tmp_path / "run", kind=on_a_disk(free)).finished


def test_resume_and_parts_are_refused_alike(tmp_path: Path) -> None:
    path, kind = tmp_path / "run", on_a_disk(300_000)
    refused(lambda: start(asked(EVEN, 1000), path, Share(1, 2), kind=kind), path)
    reopen = partial(reopen_request, registry=apps, app=Distance, items=EVEN)
    refused(lambda: resume(path, partial(reopen, options=run_options({"workers": 1})), apps, kind=kind), path)
    assert "--threshold 1000 keeps about" in str(tartan.open(path).stats.get("stopped", ""))
    keeps_all = partial(reopen, options=run_options({"workers": 1, "keep_all": True}))
    assert resume(path, keeps_all, apps, kind=kind).finished


class Listened:
    """Limits that note what they are asked about, and allow it."""

    def __init__(self) -> None:
        self.kept: list[KeptSoFar] = []

    def is_doubtful(self, kept: KeptSoFar, free_bytes: int) -> bool:
        self.kept.append(kept)
        return False


def test_chunks_that_are_saved_while_they_are_open_are_looked_at_again(tmp_path: Path) -> None:
    whole = start(asked(EVEN[:TILE], 1000), tmp_path / "whole").folder
    folder = RunFolder.create(tmp_path / "run", whole.manifest, whole.items)
    limits = Listened()
    watch = KeptWatch(folder, cast(KeptLimits, limits), lambda: np.zeros(0), lambda path: 10**9)
    scores = dict.fromkeys(whole.manifest.outputs, np.zeros((TILE, TILE), np.float32))
    with folder.lock():
        folder.new_keeper()
        for first in range(0, TILE, 10):
            codes = np.triu(np.full((TILE, TILE), DONE, np.uint8), 1)
            codes[:first] = codes[first + 10 :] = 0
            folder.commit(0, 0, scores, codes)
            watch.add(TILE**2)
    rows = [TILE * (TILE - 1) // 2 - (TILE - n) * (TILE - n - 1) // 2 for n in range(10, TILE + 1, 10)]
    assert [kept.n_pairs for kept in limits.kept] == rows
    assert [kept.n_rows for kept in limits.kept] == rows


class Bad(Distance):
    """The same, of items of which those below 200 cannot be loaded."""

    def parse(self, key: str, data: Any) -> Any:
        if data < 200:
            raise ValueError("below 200")
        return data


def test_pairs_without_an_item_are_not_taken_for_kept(tmp_path: Path) -> None:
    """A quarter of the pairs is kept, 270 kB: as much as fits."""
    run = start(asked(EVEN, 1000, Bad), tmp_path / "run", kind=on_a_disk(500_000))
    assert run.finished
    assert run.pairs().read_all().num_rows == 200 * 199 // 2


class Whole(Distance):
    """Distances as whole numbers, whose matrix is compressed: its size is not known beforehand."""

    outputs: ClassVar[Any] = {"scores": "int32"}


@pytest.mark.parametrize("ways", [{"app": Whole}, {"against": EVEN[:300]}, {"device": "sim"}])
def test_whole_numbers_two_sets_and_devices_are_watched_too(tmp_path: Path, ways: dict[str, Any]) -> None:
    with pytest.raises(ResourceError, match="--threshold 1000 keeps about 100 %"):
        start(asked(EVEN, 1000, **ways), tmp_path / "run", kind=on_a_disk(300_000))


class InProcesses(Distance):
    """The same, on worker processes."""

    releases_gil = False


class OneWay(Distance):
    """Differences that depend on the direction."""

    symmetric = False

    def compare_pair(self, a: float, b: float) -> float:
        return a - b


@pytest.mark.exhaustive
@pytest.mark.sampled(2)
@pytest.mark.parametrize("app", [InProcesses, OneWay])
def test_workers_of_all_kinds_and_scores_both_ways(tmp_path: Path, app: type[Distance]) -> None:
    path, kind = tmp_path / "run", on_a_disk(300_000)
    with pytest.raises(ResourceError, match="--threshold 1000 keeps about 100 %"):
        start(asked(EVEN, 1000, app), path, kind=kind)
    assert start(asked(EVEN, 1000, app, keep_all=True), path, kind=kind).finished


def test_several_ranks_are_stopped_by_their_driver(tmp_path: Path) -> None:
    path, kind = tmp_path / "run", on_a_disk(300_000)
    with pytest.raises(ResourceError, match="--threshold 1000 keeps about 100 %"):
        start(asked(EVEN, 1000), path, ranks=ranks(2), kind=kind)
    run = start(asked(EVEN, 1000, keep_all=True), path, ranks=ranks(2), kind=kind)
    assert run.pairs().read_all().num_rows == N_PAIRS


@pytest.mark.exhaustive
def test_triples_are_watched_too(tmp_path: Path) -> None:
    def extent(a: float, b: float, c: float) -> float:
        return max(a, b, c) - min(a, b, c)

    def wanted(**ways: Any) -> Any:
        return triple_request(extent, EVEN[:60], run_options({"tile": 10, "workers": 1} | ways), under(1000.0))

    path, kind = tmp_path / "run", on_a_disk(100_000)
    with pytest.raises(ResourceError, match="keeps about 100 % of 34,220 triples"):
        start(wanted(), path, kind=kind)
    run = start(wanted(keep_all=True), path, kind=kind)
    assert run.finished
    assert len(run.triples().read_all()) == 34220
