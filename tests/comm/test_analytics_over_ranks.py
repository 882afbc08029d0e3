"""The algorithms over the real communicator: the same bits on any number of ranks, however spread over nodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from support.comm_threads import ThreadWorld
from tartan.analytics import DAMDS, DAPWC, DAVS, LMMDS, Monitor, as_dissimilarities, cluster, density
from tartan.cli.main import main
from tartan.comm.loopback import run_ranks
from tartan.errors import ConfigError

SPREADS = [(1,), (2,), (4,), (7,), (2, 2), (3, 4)]


def matrix(n: int = 45) -> np.ndarray:
    points = np.random.default_rng(3).standard_normal((n, 4)) + 4.0 * (np.arange(n) % 3)[:, None]
    return np.sqrt(np.square(points[:, None] - points).sum(axis=2))


def damds(ranks: Any = None, **options: Any) -> np.ndarray:
    return DAMDS(2, random_state=1, **options).fit(matrix(), communicator=ranks).embedding_


def dapwc(ranks: Any = None) -> np.ndarray:
    model = DAPWC(3, random_state=1).fit(matrix(), communicator=ranks)
    return np.append(model.labels_, 0.0)


def davs(ranks: Any = None) -> np.ndarray:
    points = np.random.default_rng(4).standard_normal((12, 2)) + 30.0 * (np.arange(12) % 2)[:, None]
    return DAVS(max_clusters=2).fit(points, communicator=ranks).cluster_centers_


def lmmds(ranks: Any = None) -> np.ndarray:
    return LMMDS(2, random_state=1).fit(matrix(25), communicator=ranks).embedding_


def pairs(ranks: Any = None) -> np.ndarray:
    return density(matrix(), damds(), communicator=ranks).counts.astype(float)


@pytest.mark.slow
@pytest.mark.parametrize("fit", [damds, dapwc, lmmds, pairs], ids=lambda fit: fit.__name__)
def test_the_same_bits_on_any_number_of_ranks_and_without_any(fit) -> None:
    expected = fit().tobytes()
    assert run_ranks(2, fit)[0].tobytes() == expected
    for sizes in SPREADS:
        assert {array.tobytes() for array in ThreadWorld(sizes).run(fit)} == {expected}, sizes


@pytest.mark.slow
def test_clusters_of_points_have_the_same_bits_on_any_number_of_ranks() -> None:
    """Few steps: each of them has dozens of small exchanges."""
    found = {array.tobytes() for sizes in [(3,), (1, 1)] for array in ThreadWorld(sizes).run(davs)}
    assert found == {davs().tobytes()}


def shared_weights(n: int, kind: str) -> dict[str, Any]:
    points = np.random.default_rng(5).uniform(0.5, 2.0, n)
    ways: dict[str, dict[str, Any]] = {
        "unit": {},
        "missing": {},
        "points": {"weights": points},
        "sammon": {"sammon": True},
    }
    ways["matrix"] = {"weights": np.outer(points, points).astype(np.float32)}
    return ways[kind]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["unit", "points", "matrix", "sammon", "missing"])
def test_all_weightings_of_a_map_in_several_shares_have_the_bits_of_one_process(kind: str) -> None:
    distances: Any = matrix(330)
    if kind == "missing":
        gone = np.random.default_rng(6).random((330, 330)) < 0.1
        distances = as_dissimilarities(
            np.where(np.triu(gone, 1) | np.triu(gone, 1).T, np.nan, distances), missing="nan"
        )
    ways = shared_weights(330, kind)

    def fit(ranks: Any = None) -> np.ndarray:
        model = DAMDS(2, random_state=1, max_temperatures=2, max_iter=4, **ways)
        return model.fit(distances, communicator=ranks).embedding_

    assert len(fit()) == 330
    for sizes in [(1,), (3,), (7,), (2, 3)]:
        assert {array.tobytes() for array in ThreadWorld(sizes).run(fit)} == {fit().tobytes()}, sizes


@pytest.mark.exhaustive
def test_a_map_over_processes_has_the_bits_of_one_rank(tmp_path, capsys) -> None:
    np.save(tmp_path / "m.npy", matrix())
    written = []
    for n_ranks in (1, 3):
        words = [
            "embed",
            str(tmp_path / "m.npy"),
            "--dim",
            "2",
            "--ranks",
            str(n_ranks),
            "-o",
            str(tmp_path / f"map-{n_ranks}"),
        ]
        assert main(words) == 0, capsys.readouterr().err
        written.append((tmp_path / f"map-{n_ranks}.tsv").read_bytes())
    assert written[0] == written[1]


@pytest.mark.exhaustive
def test_clusters_over_processes(tmp_path, capsys) -> None:
    np.save(tmp_path / "m.npy", matrix())
    words = ["cluster", str(tmp_path / "m.npy"), "-k", "3", "--quiet"]
    assert main(words) == 0
    alone = capsys.readouterr().out
    assert main([*words, "--ranks", "2"]) == 0
    assert capsys.readouterr().out == alone


@pytest.mark.parametrize("ways", [{}, {"n_clusters": 3, "method": "single"}, {"threshold": 1.0}], ids=str)
def test_ranks_share_pairwise_clustering_alone(ways) -> None:
    with pytest.raises(ConfigError, match="ranks share pairwise clustering"):
        ThreadWorld((1,)).run(lambda ranks: cluster(matrix(), communicator=ranks, **ways))


def test_ranks_that_only_read_a_checkpoint_leave_it(tmp_path) -> None:
    path = tmp_path / "c.npz"
    writer = Monitor(checkpoint=path, every_seconds=0.0)
    reader = Monitor(checkpoint=path, every_seconds=0.0, writes=False)
    for monitor in (writer, reader):
        monitor.identify("test", lambda: "input", dict)
    reader.save({"step": 1})
    assert not path.exists()
    writer.save({"step": 2})
    reader.save({"step": 3})
    assert reader.load() == {"step": 2}
    reader.finish()
    assert path.exists()
    writer.finish()
    assert not path.exists()
