"""Fusion of particles: poses from known motions, wrong pairs, groups apart, and the detail of the result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import tartan
from tartan.apps.microscopy import Microscopy
from tartan.apps.microscopy.fused_run import (
    PairMotions,
    climb,
    correlate_rings,
    fuse,
    groups,
    move_points,
    pair_weights,
    resolution,
    split_kinds,
    spread,
)
from tartan.apps.microscopy.simulate import simulate
from tartan.apps.vectors import Vectors
from tartan.cli.main import main
from tartan.errors import ConfigError, StoreError

Array = NDArray[np.float64]


def truth(n: int, seed: int = 0) -> tuple[list[Array], PairMotions, Array, Array]:
    """Return n copies of some points in their own frames, their exact motions, and their poses."""
    rng = np.random.default_rng(seed)
    shape = np.column_stack([rng.normal(size=(40, 2)), np.full(40, 0.02)])
    angles, shifts = rng.uniform(-np.pi, np.pi, n), rng.normal(size=(n, 2))
    points = []
    for angle, shift in zip(angles, shifts):
        there = shape.copy()
        there[:, :2] -= shift
        points.append(move_points(there, -angle, np.zeros(2)))
    theta = (angles[:, None] - angles[None, :] + np.pi) % (2 * np.pi) - np.pi
    way = shifts[:, None] - shifts[None, :]
    cos, sin = np.cos(angles)[None, :], np.sin(angles)[None, :]
    tx, ty = cos * way[..., 0] + sin * way[..., 1], -sin * way[..., 0] + cos * way[..., 1]
    return points, PairMotions(np.ones((n, n)), theta, tx, ty), angles, shifts


def turns(found: Array, angles: Array) -> Array:
    """Return how far angles are from the true ones, up to one turn of all."""
    off = np.exp(1j * (found - angles))
    errors: Array = np.abs(np.angle(off / np.exp(1j * np.angle(np.median(off.real) + 1j * np.median(off.imag)))))
    return errors


def test_exact_motions_give_exact_poses() -> None:
    points, motions, angles, _ = truth(9)
    found = fuse(points, motions, refine=False)
    assert turns(found.angles, angles).max() < 1e-9
    placed = [found.moved(one, k) for k, one in enumerate(points)]
    for one in placed[1:]:
        np.testing.assert_allclose(one, placed[0], atol=1e-9)
    assert found.fits.all()


def test_wrong_pairs_count_less() -> None:
    points, motions, angles, _ = truth(20)
    rng = np.random.default_rng(1)
    for a in range(20):
        for b in range(a):
            if rng.random() < 0.3:
                motions.theta[a, b] = rng.uniform(-np.pi, np.pi)
                motions.theta[b, a] = -motions.theta[a, b]
                motions.tx[a, b], motions.tx[b, a] = rng.normal(size=2)
    found = fuse(points, motions, refine=False)
    assert turns(found.angles, angles).max() < 0.02
    placed = np.array([found.moved(one, k)[:, :2] for k, one in enumerate(points)])
    assert np.abs(placed - np.median(placed, axis=0)).max() < 0.02


def test_a_particle_that_agrees_with_no_other_does_not_fit() -> None:
    points, motions, _, _ = truth(12)
    rng = np.random.default_rng(2)
    motions.theta[3, :] = rng.uniform(-np.pi, np.pi, 12)
    motions.theta[:, 3] = -motions.theta[3, :]
    assert np.flatnonzero(~fuse(points, motions, refine=False).fits).tolist() == [3]


@pytest.mark.parametrize("n", [10, 40])
def test_random_pairs_are_not_trusted(n: int) -> None:
    points, motions, _, _ = truth(n)
    assert fuse(points, motions, refine=False).trusted
    theta = np.triu(np.random.default_rng(4).uniform(-np.pi, np.pi, (n, n)), 1)
    lost = PairMotions(motions.scores, theta - theta.T, motions.tx, motions.ty)
    assert not fuse(points, lost, refine=False).trusted


def test_particles_that_no_pairs_connect_are_apart() -> None:
    weights = np.zeros((5, 5))
    for a, b in ((0, 3), (1, 4), (1, 2)):
        weights[a, b] = weights[b, a] = 1.0
    weights[0, 1] = weights[1, 0] = 1e-3
    assert groups(weights).tolist() == [1, 0, 0, 1, 0]
    assert groups(np.zeros((2, 2))).tolist() == [0, 1]


def test_pairs_without_a_score_have_no_weight() -> None:
    scores = np.array([[np.nan, 6.0, np.nan], [6.0, np.nan, 3.0], [np.nan, 3.0, np.nan]])
    found = pair_weights(scores, np.array([4, 9, 1]))
    np.testing.assert_allclose(found, [[0, 1, 0], [1, 0, 1], [0, 1, 0]])


def test_a_pose_nearby_is_climbed_to() -> None:
    points, motions, _, _ = truth(2)
    exact = np.array([motions.tx[0, 1], motions.ty[0, 1], motions.theta[0, 1]])
    found = climb(points[0], points[1], exact + np.array([0.01, -0.008, 0.006]), 0.03, None)
    np.testing.assert_allclose(found, exact, atol=1e-4)


def test_copies_of_a_symmetric_structure_are_filled_in_turn() -> None:
    square = np.array([[1.0, 0, 1], [-1, 0, 1], [0, 1, 1], [0, -1, 1]])
    turned = spread(square, np.array([0, 1, 2, 3]), 4)
    np.testing.assert_allclose(turned[:, :2], [[1, 0], [0, -1], [0, -1], [-1, 0]], atol=1e-12)
    assert spread(square, np.zeros(4, np.int64), 1) is square


def test_detail_is_as_fine_as_the_points() -> None:
    rng = np.random.default_rng(3)
    sites = rng.uniform(-0.3, 0.3, (40, 2))
    lengths = []
    for sigma in (0.005, 0.02):
        halves = [sites.repeat(60, axis=0) + sigma * rng.normal(size=(2400, 2)) for _ in range(2)]
        lengths.append(resolution(*correlate_rings(halves[0], halves[1], 0.002)))
    assert lengths[0] < 0.5 * lengths[1]
    assert 0.005 < lengths[0] < 0.03
    apart = [rng.uniform(-0.3, 0.3, (200, 2)) for _ in range(2)]
    assert not resolution(*correlate_rings(apart[0], apart[1], 0.002)) < 0.1


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("fusion")
    simulate(folder, 10, 1, localisations=6)
    (folder / "bad.csv").write_text("x,y,sigma\n0,0,1\n")
    inputs = [folder / "particles.json", folder / "bad.csv"]
    return tartan.allpairs(Microscopy(), inputs, folder / "run", quiet=True)


@pytest.mark.slow
def test_a_run_becomes_one_particle(run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import pyarrow.parquet as pq
    import scipy.io

    assert main(["microscopy", "fuse", str(run.path), "-o", str(tmp_path / "out"), "--json"]) == 0
    about = json.loads(capsys.readouterr().out)
    assert (about["n_particles"], about["n_fitting"], about["n_apart"]) == (10, 10, 0)
    assert about["resolution"] < about["resolution_of_single"]
    known = json.loads((Path(run.path).parent / "truth.json").read_text())
    rows = [line.split(",") for line in (tmp_path / "out" / "particles.csv").read_text().splitlines()[1:]]
    assert [row[0] for row in rows] == [f"particles.json#{k}" for k in range(10)]
    angles = np.array([one["angle"] for one in known["particles"]])
    assert turns(np.array([float(row[1]) for row in rows]), angles).max() < 0.1
    table = pq.read_table(tmp_path / "out" / "fused.parquet")
    stored = scipy.io.loadmat(tmp_path / "out" / "fused.mat")
    assert table.num_rows == about["n_points"] == len(stored["points"])
    np.testing.assert_array_equal(table["x"].to_numpy(), stored["points"][:, 0])
    assert (tmp_path / "out" / "fused.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "out" / "frc.csv").read_text().startswith("frequency,correlation\n")


def refusal(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert main(["microscopy", "fuse", *map(str, words)]) in (1, 2)
    return capsys.readouterr().err


def test_other_runs_are_refused(run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tartan.allpairs(Vectors(), np.eye(3, dtype=np.float32), tmp_path / "v", quiet=True)
    assert "is a run of vectors; fuse takes one of microscopy" in refusal(capsys, tmp_path / "v", "-o", tmp_path / "o")
    source = Path(run.path).parent / "particles.json"
    rule = {"kind": "top-k", "k": 2, "largest": True}
    tartan.allpairs(Microscopy(), source, tmp_path / "few", quiet=True, reduce=rule)
    assert "keeps not all motions" in refusal(capsys, tmp_path / "few", "-o", tmp_path / "o")
    assert not (tmp_path / "o").exists()


@pytest.mark.slow
def test_copies_of_a_ring_are_fused_up_to_a_part_of_a_turn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    simulate(tmp_path, 8, 1, structure="ring", localisations=8)
    run = tartan.allpairs(Microscopy(symmetry=8), tmp_path / "particles.json", tmp_path / "run", quiet=True)
    known = json.loads((tmp_path / "truth.json").read_text())["particles"]
    angles = np.array([one["angle"] for one in known])
    off = 8 * (run.matrix("theta") - angles[:, None] + angles[None, :])
    assert (np.abs(np.angle(np.exp(1j * off)))[np.triu_indices(8, 1)] < 8 * 0.1).mean() > 0.9
    assert main(["microscopy", "fuse", str(run.path), "-o", str(tmp_path / "out"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["n_fitting"] == 8
    rows = [line.split(",") for line in (tmp_path / "out" / "particles.csv").read_text().splitlines()[1:]]
    assert turns(8 * np.array([float(row[1]) for row in rows]), 8 * angles).max() < 8 * 0.03


def true_motions(folder: Path, pairs: list[tuple[int, int]], prefix: str = "particles.json") -> str:
    """Write the true motions of some pairs of simulated particles; return the file."""
    known = json.loads((folder / "truth.json").read_text())["particles"]
    lines = ["i,j,tx,ty,theta"]
    for i, j in pairs:
        a, b = known[i], known[j]
        way, turn = np.subtract(a["translation"], b["translation"]), -b["angle"]
        x, y = np.cos(turn) * way[0] - np.sin(turn) * way[1], np.sin(turn) * way[0] + np.cos(turn) * way[1]
        lines.append(f"{prefix}#{i},{prefix}#{j},{x},{y},{a['angle'] - b['angle']}")
    (folder / "motions.csv").write_text("\n".join(lines))
    return str(folder / "motions.csv")


def fused(folder: Path, pairs: list[tuple[int, int]], capsys: pytest.CaptureFixture[str]) -> Any:
    """Simulate six particles, compare at the true motions of some pairs, fuse; return what is said."""
    simulate(folder, 6, 1, localisations=4)
    app = Microscopy(score_only=true_motions(folder, pairs))
    run = tartan.allpairs(app, folder / "particles.json", folder / "run", quiet=True)
    assert main(["microscopy", "fuse", str(run.path), "-o", str(folder / "out"), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def listed(folder: Path, name: str) -> list[str]:
    return (folder / "out" / name).read_text().splitlines()[1:]


@pytest.mark.slow
def test_failed_pairs_carry_no_weight(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    about = fused(tmp_path, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (0, 3), (1, 4), (2, 5)], capsys)
    assert (about["n_particles"], about["n_fitting"], about["n_apart"], about["n_pairs_failed"]) == (6, 6, 0, 7)
    known = json.loads((tmp_path / "truth.json").read_text())["particles"]
    found = np.array([float(row.split(",")[1]) for row in listed(tmp_path, "particles.csv")])
    assert turns(found, np.array([one["angle"] for one in known])).max() < 0.03


@pytest.mark.slow
def test_particles_around_one_have_no_halves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    about = fused(tmp_path, [(0, k) for k in range(1, 6)], capsys)
    assert (about["n_fitting"], about["resolution"], about["resolution_of_single"]) == (6, None, None)
    assert not (tmp_path / "out" / "frc.csv").exists()


@pytest.mark.slow
def test_a_graph_in_pieces_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    about = fused(tmp_path, [(0, 1), (0, 2), (1, 2), (0, 3), (4, 5)], capsys)
    assert (about["n_particles"], about["n_apart"], about["n_pairs_failed"]) == (4, 2, 10)
    assert listed(tmp_path, "apart.csv") == ["particles.json#4,1", "particles.json#5,1"]
    assert [line.split(",")[0][-1] for line in listed(tmp_path, "particles.csv")] == ["0", "1", "2", "3"]


@pytest.mark.slow
def test_two_particles_are_fused_without_a_resolution(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    simulate(tmp_path, 2, 1, localisations=4)
    run = tartan.allpairs(Microscopy(), tmp_path / "particles.json", tmp_path / "run", quiet=True)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "frc.csv").write_text("of an earlier fusion")
    assert main(["microscopy", "fuse", str(run.path), "-o", str(tmp_path / "out"), "--overwrite"]) == 0
    assert "2 of 2 particles fused into " in capsys.readouterr().err
    assert not (tmp_path / "out" / "frc.csv").exists()
    known = json.loads((tmp_path / "truth.json").read_text())["particles"]
    found = np.array([float(row.split(",")[1]) for row in listed(tmp_path, "particles.csv")])
    assert turns(found, np.array([one["angle"] for one in known])).max() < 0.03


def test_runs_that_cannot_be_fused_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    simulate(tmp_path, 3, 1, localisations=1, density=0.3)
    (tmp_path / "good.csv").write_text("x,y,sigma\n0,0,0.01\n1,0,0.01\n0,2,0.01\n")
    out = tmp_path / "out"
    (tmp_path / "bad.csv").write_text("x,y,sigma\n")
    both = [tmp_path / "good.csv", tmp_path / "bad.csv"]
    one = tartan.allpairs(Microscopy(), both, tmp_path / "one", quiet=True, max_failures=2)
    assert "has 1 particles that could be read; fusion takes two or more" in refusal(capsys, one.path, "-o", out)
    run = tartan.allpairs(Microscopy(), tmp_path / "particles.json", tmp_path / "run", quiet=True)
    assert "lies in the run" in refusal(capsys, run.path, "-o", run.path)
    (tmp_path / "file").write_text("")
    assert "cannot be made a folder: it is a file" in refusal(capsys, run.path, "-o", tmp_path / "file")
    chunk = next(iter(run.folder.committed()))
    folder = type(run.folder).open(run.path, writable=True)
    with folder.lock():
        folder.take_back(*chunk, np.ones(folder.chunk_shape(*chunk), bool))
    said = refusal(capsys, run.path, "-o", out)
    assert "is not finished: 3 pairs are left; tartan resume finishes it" in said
    assert not out.exists()


@pytest.mark.slow
def test_noise_is_said_and_not_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    simulate(tmp_path, 10, 1, localisations=4)
    pairs = [(i, j) for i in range(10) for j in range(i + 1, 10)]
    motions = Path(true_motions(tmp_path, pairs))
    angles = np.random.default_rng(5).uniform(-np.pi, np.pi, len(pairs)).tolist()
    lines = motions.read_text().splitlines()
    changed = [f"{line.rpartition(',')[0]},{angle}" for line, angle in zip(lines[1:], angles, strict=True)]
    motions.write_text("\n".join([lines[0], *changed]))
    app = Microscopy(score_only=str(motions))
    run = tartan.allpairs(app, tmp_path / "particles.json", tmp_path / "run", quiet=True)
    assert main(["microscopy", "fuse", str(run.path), "-o", str(tmp_path / "out"), "--json"]) == 1
    printed = capsys.readouterr()
    about = json.loads(printed.out)
    assert (about["trusted"], about["resolution"], about["resolution_of_single"]) == (False, None, None)
    assert "little more than by chance" in printed.err
    assert main(["microscopy", "fuse", str(run.path), "-o", str(tmp_path / "out"), "--overwrite"]) == 1
    assert "; resolution" not in capsys.readouterr().err
    assert not (tmp_path / "out" / "fused.png").exists()
    assert not (tmp_path / "out" / "frc.csv").exists()
    assert (tmp_path / "out" / "particles.csv").exists()


def mixture(folder: Path, n_true: int, n_false: int, seed: int, *, density: float = 0.8, points: bool = False) -> Path:
    """Write particles of one structure, and behind them some of random sites, or of random points; return the file."""
    simulate(folder, max(1, n_true), seed, localisations=6, density=density)
    particles = json.loads((folder / "particles.json").read_text())["particles"][:n_true]
    rng = np.random.default_rng([seed, 99])
    for _ in range(n_false):
        sites = rng.uniform(-1, 1, (144 if points else 24, 2)) * [0.3, 0.24]
        each = np.ones(len(sites), int) if points else rng.poisson(5, len(sites)) + 1
        sigma = rng.uniform(0.006, 0.012, each.sum())
        at = np.repeat(sites, each, axis=0) + rng.normal(size=(each.sum(), 2)) * sigma[:, None]
        cos, sin = np.cos(turn := rng.uniform(-np.pi, np.pi)), np.sin(turn)
        particles.append({"points": (at @ [[cos, sin], [-sin, cos]]).tolist(), "sigma": sigma.tolist()})
    path = folder / "mixture.json"
    path.write_text(json.dumps({"particles": particles}))
    return path


@pytest.mark.exhaustive
@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(("n_true", "n_false", "points"), [(20, 15, False), (15, 15, True), (8, 14, False)])
def test_particles_of_no_structure_are_told_apart(
    seed: int, n_true: int, n_false: int, points: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = mixture(tmp_path, n_true, n_false, seed, points=points)
    run = tartan.allpairs(Microscopy(), path, tmp_path / "run", quiet=True)
    assert main(["microscopy", "fuse", str(run.path), "-o", str(tmp_path / "out"), "--json"]) == 0
    about = json.loads(capsys.readouterr().out)
    fits = [row.rpartition(",")[2] for row in listed(tmp_path, "particles.csv")]
    assert fits == ["yes"] * n_true + ["no"] * n_false
    assert about["n_fitting"] == n_true
    assert about["resolution"] < about["resolution_of_single"]
    known = json.loads((tmp_path / "truth.json").read_text())["particles"]
    found = np.array([float(row.split(",")[1]) for row in listed(tmp_path, "particles.csv")[:n_true]])
    assert turns(found, np.array([one["angle"] for one in known])).max() < 0.03


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("density", [0.8, 0.5])
def test_no_true_particle_is_left_out(seed: int, density: float, tmp_path: Path) -> None:
    path = mixture(tmp_path, 24, 0, seed, density=density)
    run = tartan.allpairs(Microscopy(), path, tmp_path / "run", quiet=True)
    fused = tartan.fuse(run.path)
    assert fused.fusion.fits.all()
    assert fused.fusion.trusted


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("points", [False, True])
def test_noise_is_no_structure(seed: int, points: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = mixture(tmp_path, 0, 20, seed, points=points)
    run = tartan.allpairs(Microscopy(), path, tmp_path / "run", quiet=True)
    assert main(["microscopy", "fuse", str(run.path), "-o", str(tmp_path / "out")]) == 1
    said = capsys.readouterr().err
    assert "no structure is found" in said
    assert "; resolution" not in said


@pytest.mark.exhaustive
def test_the_share_that_fits_can_be_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = mixture(tmp_path, 9, 6, 1)
    run = tartan.allpairs(Microscopy(), path, tmp_path / "run", quiet=True)
    for share, n_kept in (("1", 15), ("0.4", 6)):
        words = [
            "microscopy",
            "fuse",
            str(run.path),
            "-o",
            str(tmp_path / "out"),
            "--keep",
            share,
            "--overwrite",
            "--json",
        ]
        assert main(words) == 0
        assert json.loads(capsys.readouterr().out)["n_fitting"] == n_kept
    fits = [row.rpartition(",")[2] for row in listed(tmp_path, "particles.csv")]
    assert "yes" not in fits[9:]
    for share in ("0", "1.5", "nan"):
        said = refusal(capsys, run.path, "-o", tmp_path / "o", "--keep", share)
        assert "a share of the particles, above 0 to 1" in said
    assert not (tmp_path / "o").exists()


def test_numbers_of_two_kinds_are_split_and_those_of_one_are_not() -> None:
    rng = np.random.default_rng(6)
    for n_high, n_low in ((20, 15), (30, 1), (5, 25), (3, 3)):
        values = np.concatenate([rng.normal(0.78, 0.04, n_high), rng.normal(0.32, 0.04, n_low)])
        assert split_kinds(-np.sort(-values)) == n_high
    for n in (1, 3, 4, 5, 10, 100):
        for _ in range(50):
            assert split_kinds(-np.sort(-rng.normal(0.65, 0.07, n))) == n
            assert split_kinds(-np.sort(-rng.normal(0.45, 0.05, n))) == n


def test_arrays_in_memory_are_given_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As a list, and with the names that a dict gives; without them the message says where."""
    shapes, *_ = truth(3)
    particles = [one[:8] for one in shapes]
    path = tmp_path / "run"
    for given in (particles, dict(zip("abc", particles, strict=True))):
        tartan.allpairs(Microscopy(), given, path, quiet=True, workers=1, overwrite=True)
        assert len(tartan.fuse(path, previous=given).keys) == 3
        assert len(tartan.fuse(path, previous=particles).keys) == 3
    for refused in (refusal(capsys, path, "-o", tmp_path / "o"), _refusal_in_python(path)):
        assert "give them again, in Python as `previous=`" in refused
    with pytest.raises(StoreError, match="content of items has changed"):
        tartan.fuse(path, previous=[one + 1 for one in particles])


def _refusal_in_python(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        tartan.fuse(path)
    return str(caught.value)


@pytest.mark.slow
def test_python_finds_what_the_command_line_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    simulate(tmp_path, 6, 1, localisations=2, density=0.9)
    run = tartan.allpairs(Microscopy(), tmp_path / "particles.json", tmp_path / "run", quiet=True)
    assert main(["microscopy", "fuse", str(run.path), "-o", str(tmp_path / "cli"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    fused = tartan.fuse(run.path, tmp_path / "python")
    assert (len(fused.points), len(fused.keys), len(fused.apart)) == (
        said["n_points"],
        said["n_particles"],
        said["n_apart"],
    )
    names = ["apart.csv", "frc.csv", "fused.parquet", "particles.csv"]
    assert {path.name for path in (tmp_path / "cli").iterdir()} >= {*names, "fused.png"}
    for name in names:
        assert (tmp_path / "python" / name).read_bytes() == (tmp_path / "cli" / name).read_bytes(), name
    with pytest.raises(ConfigError, match="lies in the run"):
        tartan.fuse(run.path, run.path)
