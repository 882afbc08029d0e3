"""Run folders of an earlier version: opened, resumed and extended, bit by bit as a fresh run has it.

``tests/data/make_old_runs.py`` made them. Their scores are whole numbers, so that they are the same on any machine.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import numpy as np
import pytest

import tartan
from tartan.errors import StoreError
from tartan.store.manifest import FILE_NAME, Manifest

DATA = Path(__file__).resolve().parents[1] / "data"
MADE_IN = "/tmp/old_runs"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with the inputs and the runs, as they were packed."""
    with tarfile.open(DATA / "old_runs.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


def moved(folder: Path, name: str) -> Path:
    """Name the inputs of a run where they lie now; its manifest is all that knows."""
    path = folder / name / FILE_NAME
    body = json.loads(path.read_text().replace(MADE_IN, str(folder)))
    del body["format"], body["checksum"]
    path.write_text(Manifest(**body).to_json())
    return folder / name


def sums(folder: Path, *kinds: str) -> np.ndarray:
    """Return the sum of each item."""
    return np.array([sum(path.read_bytes()) for kind in kinds for path in sorted((folder / kind).iterdir())], "f4")


def expected(values: np.ndarray) -> np.ndarray:
    matrix = values[:, None] + values
    np.fill_diagonal(matrix, 0)
    return matrix


def test_every_finished_run_opens_as_it_is(folder: Path) -> None:
    old, other = sums(folder, "old"), sums(folder, "other")
    rows = np.load(folder / "rows.npy")
    euclidean = np.sqrt(((rows[:, None] - rows) ** 2).sum(axis=2))
    np.testing.assert_array_equal(tartan.open(folder / "file").matrix(), expected(old))
    np.testing.assert_allclose(tartan.open(folder / "vectors").matrix(), euclidean, rtol=1e-6)
    np.testing.assert_array_equal(tartan.open(folder / "rectangle").matrix(), old[:, None] + other)
    candidates = tartan.open(folder / "candidates").pairs().read_all().to_pydict()
    assert {(i, j): s for i, j, s in zip(candidates["i"], candidates["j"], candidates["score"])} == {
        (i, j): old[i] + old[j] for i, j in [(0, 3), (3, 5), (2, 13), (7, 8)]
    }
    kept = tartan.open(folder / "threshold").pairs().read_all()
    assert kept.num_rows == np.count_nonzero(np.triu(expected(old) <= 250, 1))
    indices, scores = tartan.open(folder / "top-k").neighbors(3)
    np.testing.assert_array_equal(np.take_along_axis(old[None] + old[:, None], indices, axis=1), scores)
    assert len(tartan.open(folder / "map").map.points) == 14


@pytest.mark.slow
@pytest.mark.parametrize("name", ["file", "top-k", "threshold", "rectangle", "candidates", "map", "vectors"])
def test_a_finished_run_has_nothing_to_resume(folder: Path, name: str) -> None:
    run = moved(folder, name)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert tartan.resume(run, workers=1, trust=True).folder.finished
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


@pytest.mark.slow
def test_a_killed_run_is_resumed(folder: Path) -> None:
    run = moved(folder, "unfinished")
    assert 0 < tartan.open(run).n_pairs_done < 91
    np.testing.assert_array_equal(tartan.resume(run, workers=1, trust=True).matrix(), expected(sums(folder, "old")))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["file", "unfinished"])
def test_items_are_added_without_computing_old_pairs_again(folder: Path, name: str) -> None:
    run = moved(folder, name)
    done = tartan.open(run).n_pairs_done
    grown = tartan.add(run, str(folder / "new/*.bin"), workers=1, trust=True)
    np.testing.assert_array_equal(grown.matrix(), expected(sums(folder, "old", "new")))
    assert grown.stats["pairs_computed"] >= 136 - done


@pytest.mark.slow
@pytest.mark.parametrize("name", ["top-k", "threshold"])
def test_a_reduced_run_grows_to_what_a_fresh_one_keeps(folder: Path, name: str) -> None:
    reduce = json.loads((folder / name / FILE_NAME).read_text())["reduce"]
    grown = tartan.add(moved(folder, name), str(folder / "new/*.bin"), workers=1, trust=True)
    items = [str(folder / kind / "*.bin") for kind in ("old", "new")]
    fresh = tartan.allpairs(_application(folder), items, folder / "fresh", reduce=reduce, tile=4, workers=1)
    tables = [run.pairs().read_all().sort_by([("i", "ascending"), ("j", "ascending")]) for run in (grown, fresh)]
    assert tables[0].equals(tables[1])


@pytest.mark.slow
def test_a_run_of_rows_grows_to_the_bits_of_a_fresh_one(folder: Path) -> None:
    grown = tartan.add(moved(folder, "vectors"), str(folder / "more.npy"), workers=1, trust=True)
    rows = np.concatenate([np.load(folder / name) for name in ("rows.npy", "more.npy")])
    from tartan.apps.vectors.app import Vectors

    fresh = tartan.allpairs(Vectors(metric="euclidean"), rows, folder / "fresh", tile=4, workers=1)
    assert grown.matrix().tobytes() == fresh.matrix().tobytes()


@pytest.mark.slow
def test_new_items_are_placed_on_the_map(folder: Path) -> None:
    before = tartan.open(folder / "map").map
    grown = tartan.add(moved(folder, "map"), str(folder / "new/*.bin"), workers=1, trust=True)
    assert len(grown.map) == 17
    np.testing.assert_array_equal(grown.map.points[:14], before.points)
    assert grown.map.stress[14:].max() < 1e-3


@pytest.mark.slow
def test_folders_without_a_seal_run_code_and_open_inputs_only_when_trusted(folder: Path) -> None:
    """Nothing in them shows who made them."""
    with pytest.raises(StoreError, match="`trust=True`") as caught:
        tartan.resume(moved(folder, "unfinished"), workers=1)
    assert caught.value.code == "not-trusted"
    with pytest.raises(StoreError, match=r"inputs that it names would be opened: '.*rows.npy'"):
        tartan.add(moved(folder, "vectors"), str(folder / "more.npy"), workers=1)


def test_a_changed_application_is_refused(folder: Path) -> None:
    (folder / "sums.py").write_text((folder / "sums.py").read_text() + "# changed\n")
    with pytest.raises(StoreError, match="the source of application 'Sums' has changed"):
        tartan.resume(moved(folder, "unfinished"), workers=1)


def _application(folder: Path) -> tartan.Application:
    from tartan.workers.shipping import load_application

    return load_application(f"{folder / 'sums.py'}:Sums", {})[0]
