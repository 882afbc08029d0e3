"""What an application says of its scores, from the declaration to clusters, trees and maps."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import tartan
from tartan.analytics import as_dissimilarities, cluster
from tartan.apps.forensics.app import Forensics, cameras, ncc_threshold
from tartan.apps.phylogeny.app import Phylogeny
from tartan.apps.vectors.app import Vectors
from tartan.errors import ConfigError
from tartan.result.pair import say_decision
from tartan.store.manifest import Manifest
from tartan.view.report import write_report

POINTS = [0.0, 0.5, 1.0, 20.0, 20.5, 50.0]


class Likeness(tartan.Application):
    """Numbers are alike by 100 less their distance; a meaning is a parameter, so that tests can choose one."""

    releases_gil = True
    similarity = True

    def __init__(self, distance=None, cut=None, linkage="single", tree=False):
        self.distance, self.cut, self.linkage, self.tree = distance, cut, linkage, tree

    def parse(self, key, data):
        if data < 0:
            raise ValueError("negative")
        return np.array([float(data)])

    def compare(self, left, right, xp):
        return 100 - xp.abs(left - right.T)

    def meaning(self, output, shape):
        if self.distance == "raise":
            raise KeyError(output)
        assert (output, shape) == ("scores", (1,))
        if self.distance is None:
            return None
        return tartan.Meaning(
            distance=self.distance,
            cut=self.cut,
            cut_why="so far and no farther",
            linkage=self.linkage,
            tree=self.tree,
        )


def test_built_in_applications_declare_what_they_mean() -> None:
    found = Forensics().meaning("scores", (500, 600))
    assert found.cut == ncc_threshold(500 * 600)
    assert found.distance == f"max(max,{found.cut!r})-s"
    assert Forensics().meaning("scores", None).cut is None
    energy = Forensics(score="pce")
    assert energy.meaning("scores", (2, 500, 301)).cut == 60.0
    assert energy.meaning("ncc", (2, 500, 301)).cut == ncc_threshold(500 * 600)
    for app in (Phylogeny(), Vectors()):
        said = app.meaning("scores", None)
        assert said is not None
        assert (said.distance, said.cut) == (None, None)
        assert said.tree == isinstance(app, Phylogeny)


@pytest.mark.slow
def test_the_declaration_is_kept_and_used(tmp_path) -> None:
    tartan.allpairs(Likeness("max-s", 99.0), POINTS, tmp_path / "run")
    run = tartan.open(tmp_path / "run")
    assert run.manifest.meaning()["distance"] == "max-s"
    assert run.dissimilarities().block(0, 1).round(3).tolist() == [[0.0, 0.0, 0.5, 19.5, 20.0, 49.5]]
    found = cluster(run)
    assert found.labels.tolist() == run.cluster().tolist() == [0, 0, 0, 1, 1, 2]
    assert found.threshold == pytest.approx(0.5)
    assert found.reason == "the cut that Likeness declares, a score of 99 (so far and no farther)"
    assert set(run.tree("upgma").leaf_names) == set("012345")
    assert run.outliers(2).indices.tolist() == [5]


@pytest.mark.slow
def test_a_conversion_of_ones_own_overrides_the_declaration() -> None:
    run = tartan.allpairs(Likeness("max-s", 99.0), POINTS)
    D = run.dissimilarities(distance="100-s")
    assert D.conversion == "100-s"
    assert D.block(0, 1).round(3).tolist() == [[0.0, 0.5, 1.0, 20.0, 20.5, 50.0]]
    assert cluster(run, distance="100-s").curve is not None
    assert cluster(run, 2).labels.max() == 1


def test_options_of_annealing_are_refused_where_something_else_decides() -> None:
    run = tartan.allpairs(Likeness("max-s", 99.0), POINTS)
    with pytest.raises(ConfigError, match=r"level: .*cut decides.*method='pwc'"):
        run.cluster(level=0.1)
    assert len(run.cluster(level=0.1, method="pwc")) == len(run.cluster(2, level=0.1)) == len(POINTS)
    some = tartan.allpairs(Likeness("max-s", 99.0), POINTS, reduce={"kind": "top-k", "k": 2, "largest": True})
    with pytest.raises(ConfigError, match=r"level: .*needs all pairs.*leave it out"):
        some.cluster(level=0.1)


@pytest.mark.parametrize("limit", [{"kind": "top-k", "k": 1}, {"kind": "threshold", "threshold": 99.4}])
def test_the_likest_pairs_are_kept_unless_others_are_asked_for(limit) -> None:
    for said, largest in (({}, True), ({"largest": None}, True), ({"largest": False}, False)):
        run = tartan.allpairs(Likeness(), POINTS, reduce=limit | said)
        assert run.manifest.reduce is not None
        assert run.manifest.reduce["largest"] is largest
        pairs = run.pairs().read_all().to_pydict()
        assert (pairs["i"][0], pairs["j"][0]) == ((0, 1) if largest else (0, 5 if limit["kind"] == "top-k" else 2))


@pytest.mark.slow
def test_similarities_without_a_declaration() -> None:
    run = tartan.allpairs(Likeness(), POINTS)
    for call in (run.dissimilarities, lambda: run.cluster(threshold=0.5)):
        with pytest.raises(ConfigError, match=r"declares no distance; say how they become distances, .*'max-s'"):
            call()
    assert run.tree().newick() == run.tree(distance="max-s").newick()
    assert run.outliers(2).scores.tolist() == run.outliers(2, distance="max-s").scores.tolist()
    found = run.embed("smacof", 2, random_state=0)
    assert found.recipe["matrix"]["distance"] == "max-s"
    clusters = cluster(run)
    assert clusters.labels.tolist() == cluster(run, distance="max-s").labels.tolist()
    assert clusters.conversion == "max-s"
    assert "no distance: pairs were measured by how far they are below the best one (max-s)" in clusters.notes[-1]


@pytest.mark.slow
@pytest.mark.parametrize("tree", [True, False])
def test_a_report_draws_the_tree_that_is_declared_to_be_the_answer(tree, tmp_path) -> None:
    run = tartan.allpairs(Likeness("max-s", tree=tree), POINTS, tmp_path / "run")
    page = write_report(run, tmp_path / "report.html").read_text(encoding="utf-8")
    assert ("Neighbour joining" in page) == tree


@pytest.mark.slow
@pytest.mark.parametrize(
    ("meaning", "said"),
    [
        ({"distance": "1-x"}, r"Likeness\.meaning: distance: '1-x' is not a formula of s"),
        ({"distance": "max-s", "cut": float("nan")}, r"Likeness\.meaning: cut"),
        ({"distance": "max-s", "linkage": "median"}, r"Likeness\.meaning: linkage is 'median'"),
        ({"distance": "max-s", "tree": "yes"}, r"Likeness\.meaning: tree is 'yes'"),
        ({"distance": "raise"}, r"Likeness\.meaning\('scores', \(1,\)\) raised KeyError: 'scores'"),
    ],
)
def test_a_declaration_that_cannot_be_read_is_refused_first(meaning, said, tmp_path) -> None:
    with pytest.raises(ConfigError, match=said):
        tartan.allpairs(Likeness(**meaning), POINTS, tmp_path / "run")
    assert not (tmp_path / "run" / "manifest.json").exists()


@pytest.mark.slow
def test_kept_pairs_use_the_declaration(tmp_path) -> None:
    nearest = {"kind": "top-k", "k": 2, "largest": True}
    run = tartan.allpairs(Likeness("max-s", 99.0), [*POINTS, -1.0], tmp_path / "run", reduce=nearest)
    found = cluster(run, failed="drop")
    assert found.labels.tolist() == [0, 0, 0, 1, 1, 2, -1]
    assert found.representatives is not None
    assert found.representatives.tolist() == [1, 3, 5]
    assert cluster(run, distance="100-s", threshold=30.0, failed="drop").labels.tolist() == [0, 0, 0, 0, 0, 0, -1]
    assert found.reason.endswith(
        "kept pairs beyond the cut that Likeness declares, a score of 99 (so far and no farther)"
    )
    assert cluster(run, 3, failed="drop").n_clusters == 3
    with pytest.raises(ConfigError, match="keeps pairs and no matrix, and pwc needs all pairs"):
        run.cluster(2, "pwc", failed="drop")
    points = run.embed("smacof", 2, random_state=0, failed="drop").points
    assert np.isnan(points[6]).all()
    assert np.isfinite(points[:6]).all()


@pytest.mark.slow
def test_a_run_of_an_older_version_is_told_by_its_application(tmp_path) -> None:
    rng = np.random.default_rng(0)
    np.save(tmp_path / "v.npy", rng.standard_normal((8, 4)).astype(np.float32))
    path = tartan.allpairs(Vectors(), str(tmp_path / "v.npy"), tmp_path / "run").path
    manifest = tartan.open(path).manifest
    del manifest.application["meaning"]
    (path / "manifest.json").write_text(manifest.to_json())
    assert "meaning" not in json.loads((path / "manifest.json").read_text())["application"]
    assert tartan.open(path).manifest.meaning()["why"] == "the cosine distance is a distance as it is"
    assert as_dissimilarities(str(path)).n == 8


@pytest.mark.slow
def test_the_cut_of_forensics_is_that_of_cameras(tmp_path) -> None:
    from tartan.apps.forensics.simulate import simulate

    simulate(tmp_path / "photos", 9, 3, size=256, prnu=0.04)
    run = tartan.allpairs(Forensics(), str(tmp_path / "photos"), tmp_path / "run")
    expected = cameras(run.matrix(), n_pixels=256 * 256)
    assert run.cluster().tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("similarity", "score", "said"),
    [
        (True, 0.96, "same species, by the cut that x declares: a score of 0.96 is above 0.95 (so it is)"),
        (True, 0.95, "same species, by the cut that x declares: a score of 0.95 is equal to 0.95 (so it is)"),
        (True, 0.9, "they do not belong together, by the cut that x declares: a score of 0.9 is below 0.95 (so it is)"),
        (False, 0.9, "same species, by the cut that x declares: a score of 0.9 is below 0.95 (so it is)"),
        (True, float("nan"), ""),
        (True, 1j, ""),
        (True, None, ""),
    ],
)
def test_the_decision_on_a_pair(similarity: bool, score: Any, said: str) -> None:
    meaning = {"scores": {"cut": 0.95, "cut_why": "so it is", "together": "same species"}}
    about = {"name": "x", "outputs": {"scores": "<f4"}, "similarity": similarity}
    manifest = manifest_of(about | {"meaning": meaning})
    assert say_decision(manifest, {"scores": score} if score is not None else {}) == said
    assert say_decision(manifest_of(about), {"scores": 0.5}) == ""


def manifest_of(application: dict[str, Any]) -> Manifest:
    return Manifest(application, {"kind": "all"}, 2, {"chunk": 1, "panel": 1, "strip": 1, "span": 1})
