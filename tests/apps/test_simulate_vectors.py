"""Simulated vectors: reproducible, written in blocks, with the clusters that the truth names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tartan.apps.vectors.app import Vectors
from tartan.apps.vectors.simulate import simulate
from tartan.errors import ConfigError


def load(folder: Path) -> tuple[np.ndarray, dict[str, Any]]:
    return np.load(folder / "vectors.npy"), json.loads((folder / "truth.json").read_text())


def test_the_same_arguments_give_the_same_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        assert simulate(tmp_path / name, 50, 7, d=12) == tmp_path / name / "truth.json"
    simulate(tmp_path / "c", 50, 8, d=12)
    contents = [(tmp_path / name / "vectors.npy").read_bytes() for name in "abc"]
    assert contents[0] == contents[1] != contents[2]
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["truth.json", "vectors.npy"]


def test_the_truth_describes_the_file(tmp_path: Path) -> None:
    simulate(tmp_path, 300, 1, d=5, clusters=4, spread=0.25)
    vectors, truth = load(tmp_path)
    assert vectors.shape == (300, 5)
    assert vectors.dtype == np.float32
    labels = truth.pop("labels")
    assert truth == {"n": 300, "d": 5, "seed": 1, "clusters": 4, "metric": "cosine", "spread": 0.25}
    assert len(labels) == 300
    assert set(labels) == {0, 1, 2, 3}


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["cosine", "hamming"])
def test_blocks_join_and_a_longer_file_begins_with_the_shorter(metric: str, tmp_path: Path) -> None:
    simulate(tmp_path / "short", 9, 3, d=1 << 19, metric=metric)  # blocks are of 8 vectors
    simulate(tmp_path / "long", 10, 3, d=1 << 19, metric=metric)
    (short, short_truth), (long, long_truth) = load(tmp_path / "short"), load(tmp_path / "long")
    assert short.shape == (9, 1 << 19)
    np.testing.assert_array_equal(short, long[:9])
    assert short_truth["labels"] == long_truth["labels"][:9]
    assert len({row.tobytes() for row in long}) == 10


@pytest.mark.parametrize("metric", ["cosine", "euclidean", "manhattan", "correlation", "hamming", "jaccard"])
def test_vectors_of_a_cluster_are_closer_than_others(metric: str, tmp_path: Path) -> None:
    simulate(tmp_path, 120, 5, d=256, clusters=5, metric=metric)
    vectors, truth = load(tmp_path)
    assert (vectors.dtype == np.bool_) == (metric in ("hamming", "jaccard"))
    app = Vectors(metric=metric)
    assert app.check_block(vectors) is None
    block = app.preprocess_block(vectors, np)
    scores = app.compare(block, block, np)
    labels = np.array(truth["labels"])
    same = labels[:, None] == labels[None, :]
    assert scores[same].max() < scores[~same].min()


@pytest.mark.parametrize(
    "options",
    [
        {"n": 0},
        {"d": 0},
        {"clusters": 0},
        {"seed": -1},
        {"spread": -1.0},
        {"spread": float("nan")},
        {"spread": 1.5, "metric": "jaccard"},
        {"metric": "cosinus"},
    ],
)
def test_impossible_requests_are_refused(options: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        simulate(tmp_path / "new", **({"n": 5, "seed": 1} | options))
    assert not (tmp_path / "new").exists()


def test_a_failed_write_leaves_no_file_behind(tmp_path: Path) -> None:
    (tmp_path / "vectors.npy").mkdir()
    with pytest.raises(IsADirectoryError):
        simulate(tmp_path, 5, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["vectors.npy"]
