"""Registration of particles: known values, known motions, directions, and every kind of bad particle."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import tartan
from tartan import _native
from tartan.apps.microscopy import Microscopy, transform
from tartan.apps.microscopy.app import inverse, read_motions
from tartan.apps.microscopy.files import read_particle, split_file
from tartan.apps.microscopy.simulate import simulate
from tartan.apps.vectors import Vectors
from tartan.errors import CompareError, ConfigError, ItemError

Array = NDArray[np.float64]

AT = np.array([[0.01, -0.02, 0.3]])
# Pair, F at AT for s = 0.01 and 0.1, gradient of F at 0.1 (about the origin), B at AT, best B, its motion.
KNOWN: list[tuple[Any, ...]] = [
    (0, 1, 0.001293020863, 0.1368441236, (-0.072769498, 0.3052213, 0.011256414), 4925576.512, 18152959.5,
     (-0.16867, 0.14957, -2.10873)),
    (0, 2, 0.002435064543, 0.1199123176, (-0.034353424, -0.20481193, 0.0020873414), 8267216.634, 16624586.7,
     (-0.04093, -0.07601, -0.46905)),
    (5, 17, 0.001889675375, 0.1340774522, (-0.0082099042, 0.12001869, -0.0030113076), 9262474.76, 15346127.0,
     (0.05416, 0.01672, 0.38310)),
    (100, 200, 0.0005296747582, 0.06966337618, (-0.24047749, -0.16037306, 0.042904924), 2064207.612, 13455060.3,
     (0.01965, 0.02808, 1.41087)),
    (300, 548, 0.0007908514959, 0.1493173693, (0.06861778, 0.21543463, -0.06041457), 1939309.784, 12936843.8,
     (-0.06887, -0.00576, -2.87618)),
]  # fmt: skip


def levels() -> list[str]:
    points = np.array([[0.0, 0, 1], [1, 0, 1], [0, 1, 1]])
    found = []
    for level in ("plain", "avx2", "avx512"):
        try:
            _native.microscopy_evaluate(points, points, AT, level=level)
        except ValueError:
            continue
        found.append(level)
    return found


def plainly(a: Array, b: Array, motion: Array, scale: float | None) -> float:
    """Return F, or B without a scale, as the formulas say."""
    cos, sin = np.cos(motion[2]), np.sin(motion[2])
    moved = a[:, :2] @ np.array([[cos, sin], [-sin, cos]]) + motion[:2]
    square = np.square(moved[:, None, :] - b[None, :, :2]).sum(axis=2)
    if scale is not None:
        return float(np.exp(-square / scale**2).mean())
    v = a[:, 2, None] ** 2 + b[None, :, 2] ** 2
    return float((np.exp(-square / (2 * v)) / v).sum())


def about_origin(gradient: Array, a: Array, theta: float) -> Array:
    """Turn a gradient by the angle about the centroid into one by the angle about the origin."""
    x, y = a[:, :2].mean(axis=0)
    cos, sin = np.cos(theta), np.sin(theta)
    turn = gradient[0] * (-sin * x - cos * y) + gradient[1] * (cos * x - sin * y)
    return np.array([gradient[0], gradient[1], gradient[2] + turn])


@pytest.fixture(scope="module")
def particles(shared_data: Path) -> list[Array]:
    app = Microscopy()
    parts = app.split("tud_dol30.mat", (shared_data / "particles" / "tud_dol30.mat").read_bytes())
    assert parts is not None
    assert len(parts) == 549
    return [app.parse(str(k), part)[0] for k, part in enumerate(parts)]


@pytest.mark.slow
@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("known", KNOWN, ids=lambda known: f"{known[0]}-{known[1]}")
def test_known_values_of_real_particles(known: tuple[Any, ...], level: str, particles: list[Array]) -> None:
    i, j, fine, coarse, gradient, score, best, motion = known
    a, b = particles[i], particles[j]
    sums = _native.microscopy_evaluate(a, b, AT, scale=0.1, level=level)[0]
    assert _native.microscopy_evaluate(a, b, AT, scale=0.01, level=level)[0, 0] == pytest.approx(fine, rel=1e-5)
    assert sums[0] == pytest.approx(coarse, rel=1e-5)
    error = np.linalg.norm(about_origin(sums[1:4], a, 0.3) - gradient) / np.linalg.norm(gradient)
    assert error < 1e-5
    assert _native.microscopy_evaluate(a, b, AT, level=level)[0, 0] == pytest.approx(score, rel=1e-5)
    found = _native.microscopy_register([a], [b], level=level)[0, 0]
    assert found[0] > 0.999 * best
    np.testing.assert_allclose(found[1:4], motion, atol=1e-3)


@pytest.mark.parametrize("level", levels())
def test_sums_are_those_of_the_formulas(level: str) -> None:
    rng = np.random.default_rng(3)
    a, b = (np.column_stack([rng.normal(size=(n, 2)), rng.uniform(0.02, 0.3, n)]) for n in (45, 71))
    for motion in rng.normal(size=(5, 3)):
        for scale in (None, 0.05, 0.7):
            sums = _native.microscopy_evaluate(a, b, motion[None, :], scale=scale, level=level)[0]
            assert sums[0] == pytest.approx(plainly(a, b, motion, scale), rel=1e-5)
            h = 1e-5
            slopes = [
                (plainly(a, b, motion + h * axis, scale) - plainly(a, b, motion - h * axis, scale)) / (2 * h)
                for axis in np.eye(3)
            ]
            gradient = about_origin(sums[1:4], a, motion[2])
            assert np.linalg.norm(gradient - slopes) < 1e-5 * np.linalg.norm(slopes)


def read_all(folder: Path) -> tuple[list[Array], Array]:
    """Return simulated particles and their angles."""
    app = Microscopy()
    parts = app.split("particles.json", (folder / "particles.json").read_bytes())
    assert parts is not None
    truth = json.loads((folder / "truth.json").read_text())
    return [app.parse(str(k), part)[0] for k, part in enumerate(parts)], np.array(
        [one["angle"] for one in truth["particles"]]
    )


def test_the_similarity_is_the_cosine_of_both_pictures(tmp_path: Path) -> None:
    simulate(tmp_path / "in", 4, 1, localisations=3)
    points, _ = read_all(tmp_path / "in")
    run = tartan.allpairs(Microscopy(), tmp_path / "in", tmp_path / "run", quiet=True)
    assert run.manifest.analysed == "similarity"
    own = [plainly(one, one, np.zeros(3), None) for one in points]
    scores, found = run.matrix("scores"), run.matrix("similarity")
    above = np.triu_indices(4, 1)
    np.testing.assert_allclose(found[above], (scores / np.sqrt(np.outer(own, own)))[above], rtol=1e-4)
    np.testing.assert_array_equal(found[above], found.T[above])
    assert (found[above] > 0).all()
    assert (found[above] < 1).all()
    one = Microscopy().parse("a", points[0])
    assert Microscopy().compare([one], [one], np)["similarity"][0, 0] == pytest.approx(1.0, abs=1e-6)


def two_structures(seed: int, counts: Sequence[int]) -> tuple[list[Array], Array]:
    """Return 40 particles of two rings of 8 and 6 sites, by turns, with these numbers of points a site, and which."""
    rng, which = np.random.default_rng(seed), np.arange(40) % 2
    found = []
    for at, n_sites in enumerate(np.where(which, 6, 8)):
        angles = 2 * np.pi * np.arange(n_sites) / n_sites
        pairs = np.concatenate([angles, angles + np.pi / 2 / n_sites])
        sites = 0.25 * np.column_stack([np.cos(pairs), np.sin(pairs)])
        sites = sites[rng.random(len(sites)) < 0.8]
        each = np.maximum(1, rng.poisson(counts[at // 2 % len(counts)], len(sites)))
        sigma = rng.uniform(0.006, 0.012, each.sum())
        spread = np.repeat(sites, each, axis=0) + rng.normal(size=(each.sum(), 2)) * sigma[:, None]
        cos, sin = np.cos(turn := rng.uniform(-np.pi, np.pi)), np.sin(turn)
        found.append(np.column_stack([spread @ [[cos, sin], [-sin, cos]] + rng.normal(0, 0.02, 2), sigma]))
    return found, which


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("counts", [(12, 3), (4, 7, 20)])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_groups_are_structures_whatever_the_numbers_of_points(seed: int, counts: tuple[int, ...]) -> None:
    particles, which = two_structures(seed, counts)
    run = tartan.allpairs(Microscopy(), particles, quiet=True)
    for method in ("pwc", "average"):
        labels = run.cluster(2, method)
        assert max(np.mean(labels == which), np.mean(labels != which)) == 1.0
    assert (which[run.neighbors(3)[0]] == which[:, None]).all()
    labels = run.cluster(2, output="scores")
    if counts == (12, 3):  # by B groups are numbers of points
        assert max(np.mean(labels == which), np.mean(labels != which)) < 0.9
    points = run.embed("smacof", 2, random_state=0).points
    centres = np.array([points[which == side].mean(axis=0) for side in (0, 1)])
    nearer = np.linalg.norm(points[:, None] - centres, axis=2).argmin(axis=1)
    assert (nearer == which).all()


@pytest.mark.slow
def test_kept_pairs_are_chosen_by_similarity() -> None:
    particles, which = two_structures(4, (12, 3))
    few = np.flatnonzero(np.arange(40) // 2 % 2 == 1)[:8]
    many = np.flatnonzero(np.arange(40) // 2 % 2 == 0)[:8]
    chosen = np.sort(np.concatenate([few, many]))
    kept = tartan.allpairs(Microscopy(), [particles[k] for k in chosen], reduce={"kind": "top-k", "k": 2}, quiet=True)
    assert kept.manifest.reduce is not None
    assert kept.manifest.reduce["output"] == "similarity"
    side = which[chosen]
    assert (side[kept.neighbors(2)[0]] == side[:, None]).all()


def test_a_simulated_folder_is_a_run_of_its_particles(tmp_path: Path) -> None:
    simulate(tmp_path / "in", 3, 1, localisations=1, density=0.3)
    run = tartan.allpairs(Microscopy(), tmp_path / "in", tmp_path / "run", quiet=True)
    assert list(run.keys) == [f"particles.json#{k}" for k in range(3)]
    with pytest.raises(ConfigError, match=r"no items: .*truth.json holds none"):
        tartan.allpairs(Microscopy(), tmp_path / "in/truth.json", quiet=True)


@pytest.mark.slow
def test_known_angles_are_found(tmp_path: Path) -> None:
    simulate(tmp_path, 60, 1)
    points, angles = read_all(tmp_path)
    found = _native.microscopy_register(points[:1], points[1:])[0, :, 3]
    errors = np.abs(np.angle(np.exp(1j * (found - (angles[0] - angles[1:])))))
    assert (errors < 0.1).mean() >= 0.98
    assert np.median(errors) <= 0.01


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("microscopy")
    simulate(folder, 7, 2, localisations=5)
    return tartan.allpairs(Microscopy(), folder / "particles.json", folder / "run", quiet=True, tile=3)


def test_motions_below_the_diagonal_are_inverses(run: Any) -> None:
    scores = run.matrix()
    np.testing.assert_array_equal(scores, scores.T)
    for i in range(7):
        np.testing.assert_array_equal(transform(run, i, i), np.eye(2, 3))
        for j in range(i):
            there, back = transform(run, j, i), transform(run, i, j)
            np.testing.assert_allclose(back[:, :2] @ there[:, :2], np.eye(2), atol=1e-12)
            np.testing.assert_allclose(back[:, :2] @ there[:, 2] + back[:, 2], 0, atol=1e-12)
            assert run.matrix(output="theta")[i, j] == pytest.approx(-run.matrix(output="theta")[j, i])


def test_items_of_one_file_have_numbers(run: Any) -> None:
    assert list(run.keys) == [f"particles.json#{k}" for k in range(7)]
    np.testing.assert_array_equal(transform(run, "particles.json#2", 5), transform(run, 2, "particles.json#5"))


def test_scores_become_distances_and_motions_do_not(run: Any) -> None:
    assert run.dissimilarities(distance="max-s").n == 7
    with pytest.raises(ConfigError, match="not symmetric"):
        run.dissimilarities("theta", distance="4-s")
    assert run.manifest.meaning("scores")["distance"] == "max-s"
    assert run.manifest.meaning("theta") == {}


@pytest.mark.slow
def test_results_depend_on_no_tile_and_no_order(run: Any, tmp_path: Path) -> None:
    source = Path(run.path).parent / "particles.json"
    whole = tartan.allpairs(Microscopy(), source, tmp_path / "whole", quiet=True)
    for name in run.outputs:
        np.testing.assert_array_equal(np.triu(whole.matrix(output=name), 1), np.triu(run.matrix(output=name), 1))
    points = json.loads(source.read_text())["particles"][::-1]
    turned = tmp_path / "turned.json"
    turned.write_text(json.dumps({"particles": points}))
    other = tartan.allpairs(Microscopy(), turned, tmp_path / "turned", quiet=True)
    np.testing.assert_array_equal(other.matrix()[::-1, ::-1], run.matrix())
    for name in ("tx", "ty", "theta"):
        np.testing.assert_allclose(other.matrix(output=name)[::-1, ::-1], run.matrix(output=name), atol=1e-12)


@pytest.mark.slow
def test_top_k_and_two_sets_keep_directions(run: Any, tmp_path: Path) -> None:
    source = Path(run.path).parent / "particles.json"
    rule = {"kind": "top-k", "k": 6, "largest": True}
    best = tartan.allpairs(Microscopy(), source, tmp_path / "best", quiet=True, reduce=rule)
    np.testing.assert_allclose(transform(best, 5, 1), transform(run, 5, 1), atol=1e-12)
    few = tmp_path / "few.json"
    few.write_text(json.dumps({"particles": json.loads(source.read_text())["particles"][:2]}))
    two = tartan.allpairs(Microscopy(), source, tmp_path / "two", quiet=True, against=few)
    np.testing.assert_allclose(transform(two, 4, 7), transform(run, 4, 0), atol=1e-12)
    np.testing.assert_allclose(transform(two, 7, 4), transform(run, 0, 4), atol=1e-12)
    with pytest.raises(CompareError, match="no motion"):
        transform(two, 1, 2)


def test_motions_that_are_not_there_are_named(run: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no item 'x'"):
        transform(run, "x", 1)
    with pytest.raises(ConfigError, match="items 0 to 6; 7 is none"):
        transform(run, 7, 1)
    vectors = tartan.allpairs(Vectors(), np.eye(3, dtype=np.float32), tmp_path / "v", quiet=True)
    with pytest.raises(ConfigError, match="not a run of microscopy"):
        transform(vectors, 0, 1)


@pytest.mark.slow
def test_given_motions_are_scored(run: Any, tmp_path: Path) -> None:
    source = Path(run.path).parent / "particles.json"
    lines = ["i,j,tx,ty,theta"]
    for i in range(7):
        for j in range(i + 1, 7):
            a, b = (i, j) if (i + j) % 2 else (j, i)
            m = transform(run, a, b)
            theta = float(np.arctan2(m[1, 0], m[0, 0]))
            lines.append(f"particles.json#{a},particles.json#{b},{float(m[0, 2])!r},{float(m[1, 2])!r},{theta!r}")
    motions = tmp_path / "motions.csv"
    motions.write_text("\n".join(lines))
    scored = tartan.allpairs(Microscopy(score_only=str(motions)), source, tmp_path / "scored", quiet=True)
    np.testing.assert_allclose(scored.matrix(), run.matrix(), rtol=1e-5)
    np.testing.assert_allclose(transform(scored, 5, 2), transform(run, 5, 2), atol=1e-9)
    again = Microscopy(score_only=scored.manifest.application["parameters"]["score_only"])
    assert again.parameters() == Microscopy(score_only=str(motions)).parameters()
    motions.write_text("\n".join(lines[:-1]))
    with pytest.raises(ConfigError, match="has changed since the run began"):
        Microscopy(score_only=scored.manifest.application["parameters"]["score_only"])
    lacking = tartan.allpairs(Microscopy(score_only=str(motions)), source, tmp_path / "lacking", quiet=True)
    (failure,) = lacking.failures
    assert (failure.i, failure.j) == (5, 6)
    assert "has no motion of particles.json#5 onto particles.json#6; add a line" in failure.reason


def test_angles_of_any_number_of_turns_have_inverses() -> None:
    theta = np.array([0.3, -np.pi, np.pi, 4.0, -4.0, 9.5])
    x, y, back = inverse(np.ones(6), np.zeros(6), theta)
    np.testing.assert_allclose(np.exp(1j * (theta + back)), 1, atol=1e-12)
    assert ((back >= -np.pi) & (back < np.pi)).all()
    assert back[0] == -0.3
    np.testing.assert_allclose(x, -np.cos(theta), atol=1e-12)
    np.testing.assert_allclose(y, np.sin(theta), atol=1e-12)


def test_given_angles_are_brought_to_half_a_turn(tmp_path: Path) -> None:
    path = tmp_path / "motions.csv"
    path.write_text("i,j,tx,ty,theta\na,b,1,2,4\nb,c,1,2,-0.5\n")
    _, motions = read_motions(str(path))
    assert motions["a", "b"] == (1.0, 2.0, pytest.approx(4 - 2 * np.pi))
    assert motions["b", "c"] == (1.0, 2.0, -0.5)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no column 'i'"),
        ("i,j,tx,ty\na,b,1,2", "no column 'theta'"),
        ("i,j,tx,ty,theta\na,b,1,x,3", "line 2: a number is missing"),
        ("i,j,tx,ty,theta\na,b,1,2", "line 2: a number is missing"),
        ("i,j,tx,ty,theta\na,b,1,nan,3", "are not finite"),
    ],
)
def test_files_of_motions_are_checked(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "motions.csv"
    path.write_text(text)
    with pytest.raises(ConfigError, match=says):
        Microscopy(score_only=str(path))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"symmetry": 0}, "symmetry: 0 is not a whole number from 1"),
        ({"symmetry": 2.5}, "symmetry: 2.5"),
        ({"max_points": 1}, "max_points: 1 is not a whole number from 10"),
        ({"score_only": 3}, "score_only: 3 is not a file"),
        ({"score_only": "absent.csv"}, "cannot be read: No such file"),
    ],
)
def test_settings_out_of_range_are_named(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Microscopy(**settings)


GOOD = np.array([[0, 0, 0.01], [0, 1, 0.01], [0, 2, 0.01], [1, 2, 0.02]])


def changed(row: int, column: int, value: float) -> Array:
    points = GOOD.copy()
    points[row, column] = value
    return points


@pytest.mark.parametrize(
    ("points", "says"),
    [
        (GOOD[:0], "it has 0 points; a motion needs at least 3"),
        (GOOD[:1], "it has 1 point;"),
        (GOOD[:2], "it has 2 points"),
        (changed(1, 0, np.nan), "x of point 1 is nan"),
        (changed(2, 1, np.inf), "y of point 2 is inf"),
        (changed(2, 1, 1e200), r"y of point 2 is 1e\+200, no length up to"),
        (changed(3, 2, 0.0), "uncertainty of point 3 is 0.0; it must be above zero"),
        (changed(3, 2, -0.1), "uncertainty of point 3 is -0.1; it must be above zero"),
        (GOOD[:3] * [1, 1, np.nan], "without 3 of 3 points of unknown uncertainty, it has 0 points"),
        (changed(3, 2, 1e300), r"uncertainty of point 3 is 1e\+300"),
        (GOOD * [0, 0, 1] + [5, 6, 0], r"all 4 points are equal \(5, 6\): .* leave the particle out"),
        (GOOD * [1, 1, 1000], "exceeds its radius .* same unit"),
        (GOOD * [1e5, 1e5, 1], "is more than 5,000 median uncertainties .* same unit"),
        (np.zeros((4, 5)), r"its shape is \(4, 5\); .* or four: x, y, z, uncertainty"),
        (np.eye(4), "its z varies from 0 to 1, .* --set dims=2 takes x and y only"),
        (np.zeros(4), r"its shape is \(4,\)"),
        (np.array([["a", "b", "c"]]), "something else than real numbers"),
        ({"points": [], "sigma": []}, "it has 0 points; .* leave the particle out"),
        ({"points": np.eye(3), "sigma": np.ones(3)}, "its z varies from 0 to 1, .* --set dims=2"),
        ({"x": [1, 2], "y": [1, 2], "z": [1, 2], "sigma": [1, 2]}, "its z varies from 1 to 2, .* --set dims=2"),
        ({"points": np.zeros((4, 2))}, "sigma, the uncertainty of each point, is missing"),
        ({"points": np.zeros((4, 2)), "sigma": np.ones(3)}, "4 points and 3 uncertainties"),
    ],
)
def test_bad_particles_are_named(points: Any, says: str) -> None:
    with pytest.raises(ItemError, match=says):
        Microscopy().parse("bad", points)


def test_units_that_differ_between_particles_are_named() -> None:
    app = Microscopy()
    a, b = app.parse("a", GOOD), app.parse("b", GOOD * 100)
    with pytest.raises(CompareError, match=r"width 2 and 200 .* same unit"):
        app.compare([a], [b], np)


def test_one_large_uncertainty_is_no_matter() -> None:
    rng = np.random.default_rng(5)
    points = np.column_stack([rng.normal(size=(60, 2)), np.full(60, 0.02)])
    turned = points @ np.array([[0.0, 1, 0], [-1, 0, 0], [0, 0, 1]])
    wild = np.vstack([turned, [[0.3, 0.1, 50.0]]])
    app = Microscopy()
    found = app.compare([app.parse("a", points)], [app.parse("b", wild)], np)
    assert found["theta"][0, 0] == pytest.approx(np.pi / 2, abs=1e-3)


def test_many_points_are_thinned_and_it_is_said() -> None:
    rng = np.random.default_rng(6)
    points = np.column_stack([rng.normal(size=(100_000, 2)), np.full(100_000, 0.01)])
    item, _ = Microscopy().parse("large", points)
    assert item.shape == (5000, 3)
    assert {"points": 100_000, "points compared": 5000}.items() <= Microscopy().describe_item("large", points).items()
    again, _ = Microscopy().parse("large", points)
    np.testing.assert_array_equal(item, again)
    assert Microscopy(max_points=10).parse("large", points)[0].shape == (10, 3)


@pytest.mark.parametrize("symmetry", [2, 4, 8])
def test_symmetric_structures_are_registered_within_one_turn(tmp_path: Path, symmetry: int) -> None:
    simulate(tmp_path, 4, 3, structure="ring", density=1.0)
    points, angles = read_all(tmp_path)
    for a, b in ((0, 1), (1, 2), (2, 3)):
        plain, folded = (_native.microscopy_register([points[a]], [points[b]], symmetry=n)[0, 0] for n in (1, symmetry))
        assert folded[0] > 0.95 * plain[0]
        assert abs(np.angle(np.exp(8j * (folded[3] - (angles[a] - angles[b]))))) < 0.2


@pytest.mark.slow
def test_items_on_a_device_are_registered_too(run: Any, tmp_path: Path) -> None:
    source = Path(run.path).parent / "particles.json"
    found = tartan.allpairs(Microscopy(), source, tmp_path / "run", quiet=True, device="sim")
    for name in run.outputs:
        np.testing.assert_allclose(found.matrix(output=name), run.matrix(output=name), atol=1e-12)


def test_the_edge_refuses_what_is_no_particle() -> None:
    with pytest.raises(ValueError, match="rows of x, y and uncertainty"):
        _native.microscopy_register([np.zeros((3, 2))], [GOOD])
    with pytest.raises(ValueError, match="uncertainties above zero"):
        _native.microscopy_register([GOOD * 0], [GOOD])
    with pytest.raises(ValueError, match="symmetry=0"):
        _native.microscopy_register([GOOD], [GOOD], symmetry=0)
    with pytest.raises(ValueError, match="none of plain, avx2, avx512"):
        _native.microscopy_register([GOOD], [GOOD], level="mmx")
    with pytest.raises(ValueError, match="another shape"):
        _native.microscopy_register([GOOD], [GOOD], np.ones((2, 2), bool))


def test_line_of_millions_of_cells_is_refused_unsplit() -> None:
    with pytest.raises(ItemError, match="line 2 has 200,002 characters, above 65,536"):
        split_file("a.csv", b"x,y,sigma\n" + b"1," * 100_000 + b"1\n")


def test_array_whose_header_says_more_than_there_is_is_refused() -> None:
    stream = io.BytesIO()
    np.save(stream, np.zeros((4, 3)))
    with pytest.raises(ItemError, match="its header says shape"):
        read_particle("a", stream.getvalue()[:-8])
