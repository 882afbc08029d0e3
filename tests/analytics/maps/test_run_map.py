"""Maps that runs keep: new items on them, and what does not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import cdist

import tartan
from tartan.analytics import DAMDS, Monitor, embed
from tartan.analytics.maps.run_map import extend_map, fit_of
from tartan.apps.vectors.app import Vectors
from tartan.base.lock import FolderLock
from tartan.comm.communicator import Alone
from tartan.errors import ConfigError, RunCancelledError, StoreError
from tartan.result.kept_map import count_map
from tartan.store.folder import RunFolder
from tartan.store.maps import FILE_NAME, map_of

POINTS = np.random.default_rng(3).normal(size=(36, 3))
pytestmark = pytest.mark.slow
#: Points that the application below refuses to parse, or to compare with those that have another sign.
BROKEN, SHY = 1e9, 1e6


class Places(tartan.Application):
    """Distances of points in space."""

    releases_gil = True
    similarity: bool | None = False
    outputs = {"scores": np.float64}  # noqa: RUF012 - as applications declare them

    def parse(self, key: str, data: Any) -> np.ndarray:
        point = np.asarray(data, np.float64)
        if point[0] == BROKEN:
            raise ValueError("broken")
        return point

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        if (left[:, 0] == SHY).any() or (right[:, 0] == SHY).any():
            raise ValueError("shy")
        return cdist(left, right)


class Likeness(Places):
    """Similarities that have no bound."""

    similarity = True

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        return 7.0 - cdist(left, right)


def made(path: Path, n: int = 30, app: Any = Places, points: Any = POINTS, **options: Any) -> tartan.Run:
    """Return a run of some points that keeps a map."""
    run = tartan.allpairs(app(), list(points[:n]), out=path)
    run.embed(keep=True, **{"random_state": 0, **options})
    return run


def grow(path: Path, n_old: int, new: Any, app: Any = Places, points: Any = POINTS, **options: Any) -> tartan.Run:
    return tartan.add(path, list(new), app=app(), previous=list(points[:n_old]), **options)


def test_added_items_are_placed_and_no_other_moves(tmp_path: Path) -> None:
    before = made(tmp_path / "r").map
    assert before is not None
    run = grow(tmp_path / "r", 30, POINTS[30:])
    after = run.map
    assert after is not None
    assert after.points.shape == (36, 3)
    assert after.points[:30].tobytes() == before.points.tobytes()
    assert after.stress[:30].tobytes() == before.stress.tobytes()
    np.testing.assert_allclose(cdist(after.points[30:], after.points[:30]), cdist(POINTS[30:], POINTS[:30]), atol=0.02)
    assert (after.n_fitted, fit_of(after).n_placed, fit_of(after).poor) == (30, 6, False)
    assert after.stress[30:].max() < 1e-5


def test_places_are_those_of_transform_and_do_not_depend_on_the_order_of_adding(tmp_path: Path) -> None:
    estimator = DAMDS(random_state=0).fit(cdist(POINTS[:30], POINTS[:30]))
    made(tmp_path / "once")
    made(tmp_path / "twice")
    once = grow(tmp_path / "once", 30, POINTS[30:]).map
    grow(tmp_path / "twice", 30, POINTS[30:33])
    twice = grow(tmp_path / "twice", 33, POINTS[33:]).map
    assert once is not None
    assert twice is not None
    np.testing.assert_array_equal(once.points, twice.points)
    np.testing.assert_array_equal(once.stress, twice.stress)
    np.testing.assert_allclose(once.points[30:], estimator.transform(cdist(POINTS[30:], POINTS[:30])), atol=1e-9)


def test_blocks_do_not_change_the_places(tmp_path: Path) -> None:
    made(tmp_path / "r")
    run = grow(tmp_path / "r", 30, POINTS[30:], extend_map=False)
    kept = (tmp_path / "r" / FILE_NAME).read_bytes()
    whole = run.extend_map()
    (tmp_path / "r" / FILE_NAME).write_bytes(kept)
    np.testing.assert_array_equal(extend_map(run.folder, block_bytes=8 * 30 * 2).points, whole.points)


@pytest.mark.parametrize("method", ["smacof", "lmmds"])
def test_maps_of_every_method_grow(tmp_path: Path, method: str) -> None:
    made(tmp_path / "r", method=method)
    grown = grow(tmp_path / "r", 30, POINTS[30:]).map
    assert grown is not None
    assert grown.method == method
    assert fit_of(grown).stress_placed < 1e-3


def test_statistics_of_a_formula_are_those_of_the_old_items(tmp_path: Path) -> None:
    """max is what it was when the map was made; a new item that is nearer than any is at distance 0."""
    made(tmp_path / "r", app=Likeness, distance="max-s", transform="d/mean")
    nearest = 7.0 - cdist(POINTS[:30], POINTS[:30])[np.triu_indices(30, 1)]
    new = np.array([POINTS[0] + 1e-3, [5.0, 5.0, 5.0]])
    grown = grow(tmp_path / "r", 30, new, app=Likeness).map
    assert grown is not None
    mean = (nearest.max() - nearest).mean()
    delta = np.maximum(nearest.max() - (7.0 - cdist(new, POINTS[:30])), 0.0) / mean
    error = np.square(cdist(grown.points[30:], grown.points[:30]) - delta).sum(1) / np.square(delta).sum(1)
    np.testing.assert_allclose(grown.stress[30:], error, rtol=1e-6)
    assert grown.stress[30] < 0.02


@pytest.mark.parametrize("n_components", [2, 3])
def test_a_copy_lies_where_its_original_lies(tmp_path: Path, n_components: int) -> None:
    """Of nine items that are all about as far from each other, with two that are one on the map already."""
    far = np.vstack([np.eye(9)[:, :8] + 0.1 * POINTS[:9, :1], np.eye(9)[2:3, :8] + 0.1 * POINTS[2, 0]])
    before = made(tmp_path / "r", 10, points=far, n_components=n_components).map
    assert before is not None
    grown = grow(tmp_path / "r", 10, far[[4, 7]], points=far).map
    assert grown is not None
    apart = np.linalg.norm(grown.points[10:] - grown.points[[4, 7]], axis=1)
    assert (apart < 0.03 * np.ptp(grown.points)).all()


@pytest.mark.parametrize("value", [BROKEN, SHY])
def test_items_without_any_score_have_no_place(tmp_path: Path, value: float) -> None:
    """One failed when the map was made, one among the new ones; the others are placed as if these were not there."""
    none = np.array([value, 0.0, 0.0])
    points = np.vstack([POINTS[:9], none, POINTS[9:29]])
    first = made(tmp_path / "r", 30, points=points, failed="drop").map
    assert first is not None
    assert np.flatnonzero(np.isnan(first.points).any(axis=1)).tolist() == [9]
    grown = grow(tmp_path / "r", 30, [POINTS[30], none + 0.0, POINTS[31]], points=points).map
    assert grown is not None
    assert fit_of(grown).without_place == (9, 31)
    expected = cdist(POINTS[30:32], POINTS[:29])
    np.testing.assert_allclose(cdist(grown.points[[30, 32]], np.delete(grown.points[:30], 9, 0)), expected, atol=0.02)
    assert np.isnan(grown.stress[[9, 31]]).all()


def test_badly_placed_or_many_items_call_for_a_new_map(tmp_path: Path) -> None:
    flat = POINTS * (1, 1, 0)
    made(tmp_path / "r", points=flat, n_components=2)
    grown = grow(tmp_path / "r", 30, POINTS[30:] + np.array([0, 0, 2]), points=flat).map
    assert grown is not None
    fit = fit_of(grown)
    assert fit.poor
    assert fit.worst in range(30, 36)
    assert fit.stress_placed > 0.01 > fit.stress_fitted
    made(tmp_path / "few", 8)
    few = grow(tmp_path / "few", 8, POINTS[8:13]).map
    assert few is not None
    assert fit_of(few).poor
    assert fit_of(few).stress_placed < 0.01


def test_what_cannot_be_extended(tmp_path: Path) -> None:
    run = tartan.allpairs(Places(), POINTS[:6], out=tmp_path / "r")
    assert run.map is None
    with pytest.raises(ConfigError, match=r"keeps no map; `tartan embed .*` makes one"):
        run.extend_map()
    run.embed(keep=True, random_state=0)
    same = run.map
    assert same is not None
    assert run.extend_map().points.tobytes() == same.points.tobytes()  # nothing is missing
    folder = RunFolder.open(tmp_path / "r", writable=True)
    with folder.lock():
        with pytest.raises(StoreError, match="is in use by process"):
            run.extend_map()
        folder.extend(8)
    with pytest.raises(
        ConfigError, match=r"not finished, 13 pairs .*`tartan resume .*--extend --overwrite` places the new items"
    ):
        tartan.open(tmp_path / "r").extend_map()


def test_what_cannot_be_kept(tmp_path: Path) -> None:
    run = tartan.allpairs(Places(), list(POINTS[:6]), out=tmp_path / "r")
    for options, said in (
        ({"transform": np.sqrt}, "transform: a function cannot be kept"),
        ({"distance_transform": 0.5}, "distance_transform cannot be kept"),
    ):
        with pytest.raises(ConfigError, match=said):
            run.embed(keep=True, **options)
    assert run.map is None


def test_a_map_that_cannot_be_kept_is_returned_with_a_warning(tmp_path: Path) -> None:
    run = tartan.allpairs(Places(), list(POINTS[:6]), out=tmp_path / "r")
    with pytest.warns(RuntimeWarning, match="the map is not kept for tartan add: .*formula='squared'"):
        assert len(run.embed("lmmds", keep=True, formula="squared").points) == 6
    with FolderLock(tmp_path / "r"), pytest.warns(RuntimeWarning, match="is in use"):
        assert len(run.embed(keep=True, random_state=0).points) == 6
    of_one = Places()
    of_one.diagonal = True
    one = tartan.allpairs(of_one, list(POINTS[:1]), out=tmp_path / "one")
    with pytest.warns(RuntimeWarning, match="a map of one item has no directions"):
        assert len(one.embed(keep=True).points) == 1
    assert run.map is None
    assert one.map is None


def test_two_sets_have_no_map(tmp_path: Path) -> None:
    run = tartan.allpairs(Places(), list(POINTS[:4]), against=list(POINTS[4:9]), out=tmp_path / "r")
    with pytest.raises(ConfigError, match="compares two sets of items; this needs the pairs within one"):
        run.embed(keep=True)
    with pytest.raises(ConfigError, match="keeps no map"):
        run.extend_map()


def test_the_map_of_another_run_is_not_taken(tmp_path: Path) -> None:
    made(tmp_path / "a", 8)
    other = tartan.allpairs(Places(), list(POINTS[:6]), out=tmp_path / "b")
    (tmp_path / "a" / FILE_NAME).replace(tmp_path / "b" / FILE_NAME)
    with pytest.raises(StoreError, match="is the map of another run; remove it, or make the map afresh"):
        map_of(other.folder)


def test_scores_that_become_no_dissimilarity_name_the_item(tmp_path: Path) -> None:
    made(tmp_path / "r", app=Likeness, distance="6.9-s")
    with pytest.warns(RuntimeWarning, match=r"all scores of .* its map was not extended: .*new item 31 .*is -0.0"):
        run = grow(tmp_path / "r", 30, [POINTS[30], POINTS[4] + 0.01], app=Likeness)
    assert run.n_pairs_done == run.n_pairs
    assert len(run.map) == 30


def test_a_stop_leaves_the_map_as_it_was(tmp_path: Path) -> None:
    made(tmp_path / "r")
    run = grow(tmp_path / "r", 30, POINTS[30:], extend_map=False)
    before = (tmp_path / "r" / FILE_NAME).read_bytes()
    monitor = Monitor()
    monitor.cancel()
    with pytest.raises(RunCancelledError):
        extend_map(run.folder, monitor)
    assert (tmp_path / "r" / FILE_NAME).read_bytes() == before
    assert len(run.extend_map()) == 36  # and the lock is free


def test_maps_of_kept_pairs_refuse_what_needs_a_matrix(tmp_path: Path) -> None:
    points = np.random.default_rng(3).normal(size=(12, 3))
    best = {"kind": "top-k", "k": 3}
    kept = tartan.allpairs(Vectors(metric="euclidean"), points, out=tmp_path / "r", workers=1, reduce=best)
    assert np.isfinite(embed(kept, "smacof", 2, random_state=0).points).all()
    for options, said in [
        ({"communicator": Alone()}, "keeps pairs only; embed without ranks"),
        ({"start": np.zeros((12, 2))}, "no matrix; leave out start"),
        ({"missing": "weight-0"}, "no matrix; leave out missing"),
    ]:
        with pytest.raises(ConfigError, match=said):
            embed(kept, "smacof", 2, **options)
    with pytest.raises(ConfigError, match="method is 'tsne'; it must be one of"):
        embed(kept, "tsne", 2)
    none = {"kind": "threshold", "threshold": 1e-9}
    empty = tartan.allpairs(Vectors(metric="euclidean"), points, out=tmp_path / "e", workers=1, reduce=none)
    with pytest.raises(ConfigError, match="keeps no pair: there is nothing to draw"):
        embed(empty, "smacof", 2)


def test_a_map_and_its_pairs_are_counted_where_the_ranks_are(tmp_path: Path) -> None:
    points = np.random.default_rng(4).normal(size=(20, 2))
    np.save(tmp_path / "m.npy", np.linalg.norm(points[:, None] - points, axis=2))
    call = {"monitor": Monitor(0), "communicator": Alone(), "random_state": 0}
    found, pairs = count_map(str(tmp_path / "m.npy"), "smacof", 2, counts=True, **call)
    assert pairs is not None
    assert pairs.counts.sum() == 190
    again, none = count_map(str(tmp_path / "m.npy"), "smacof", 2, counts=False, **call)
    assert none is None
    np.testing.assert_array_equal(found.points, again.points)
