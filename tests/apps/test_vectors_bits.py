"""Jaccard and Hamming distances of packed bits: those that SciPy has of booleans; pairs are ruled out exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import pdist, squareform

import tartan
from tartan import _native
from tartan.apps.vectors import Vectors
from tartan.errors import ConfigError
from tartan.store import keeper
from tartan.store.keeper import Keeper

WIDTHS = (1, 8, 60, 64, 166, 2048)


def booleans(n: int, d: int, density: float = 0.2, seed: int = 1) -> np.ndarray:
    """Return rows of bits, of which two are empty."""
    rows = np.random.default_rng(seed).random((n, d)) < density
    rows[[0, n // 2]] = False
    return rows


def pack(rows: np.ndarray, dtype: str = "u1", order: Any = "big") -> np.ndarray:
    """Return packed rows, zeros behind the end."""
    packed = np.packbits(rows, axis=1, bitorder=order)
    return np.pad(packed, ((0, 0), (0, -packed.shape[1] % np.dtype(dtype).itemsize))).view(dtype)


def matrix(metric: str, rows: np.ndarray, **parameters: Any) -> np.ndarray:
    scores: np.ndarray = tartan.allpairs(Vectors(metric=metric, **parameters), rows, workers=1, quiet=True).matrix()
    return scores


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["u1", "u2", "u4", "u8"])
@pytest.mark.parametrize("d", WIDTHS)
def test_packed_bits_have_the_distances_of_booleans(d: int, dtype: str) -> None:
    rows = booleans(20, d)
    packed = pack(rows, dtype)
    n_bits = packed.shape[1] * packed.itemsize * 8
    np.testing.assert_allclose(matrix("jaccard", packed, bits="packed"), squareform(pdist(rows, "jaccard")), atol=1e-7)
    hamming = squareform(pdist(rows, "hamming")) * d / n_bits
    np.testing.assert_allclose(matrix("hamming", packed, bits="packed"), hamming, atol=1e-7)


def test_the_order_of_bits_does_not_matter() -> None:
    rows = booleans(20, 100)
    np.testing.assert_array_equal(
        matrix("jaccard", pack(rows), bits="packed"), matrix("jaccard", pack(rows, order="little"), bits="packed")
    )


def test_bytes_that_may_be_bits_are_asked_about() -> None:
    packed = pack(booleans(20, 100))
    with pytest.raises(ConfigError, match=r"holds \d+, which may be .* --set bits=packed .* --set bits=values"):
        matrix("jaccard", packed)
    np.testing.assert_array_equal(matrix("jaccard", packed, bits="values"), matrix("jaccard", packed != 0))


@pytest.mark.parametrize("dtype", ["u1", "i1", "i8", "f4", "?"])
def test_nothing_is_asked_where_no_byte_can_be_bits(dtype: str) -> None:
    rows = booleans(20, 100)
    expected = squareform(pdist(rows, "jaccard"))
    np.testing.assert_allclose(matrix("jaccard", rows.astype(dtype)), expected, atol=1e-7)


def test_booleans_are_bits_in_any_case() -> None:
    rows = booleans(20, 100)
    for metric in ("jaccard", "hamming"):
        np.testing.assert_array_equal(matrix(metric, rows, bits="packed"), matrix(metric, rows))


@pytest.mark.parametrize("dtype", ["i1", "i8", "f4"])
def test_what_is_not_packed_is_refused(dtype: str) -> None:
    with pytest.raises(ConfigError, match=r"bits=packed is for rows of uint8 .* these are .*; leave bits out"):
        matrix("jaccard", booleans(20, 100).astype(dtype), bits="packed")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"metric": "cosine", "bits": "packed"}, "bits=packed is for jaccard and hamming, not cosine"),
        ({"metric": "jaccard", "bits": "raw"}, "bits: 'raw' is unknown; choose from packed, values"),
    ],
)
def test_parameters_that_do_not_fit_are_refused(parameters: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Vectors(**parameters)


RULES: dict[str, dict[str, Any]] = {
    "below a threshold": {"kind": "threshold", "threshold": 0.3},
    "equal ones": {"kind": "threshold", "threshold": 0.0},
    "best": {"kind": "top-k", "k": 3},
    "more than there are": {"kind": "top-k", "k": 1000},
    "worst": {"kind": "top-k", "k": 3, "largest": True},
}


def fingerprints(n: int = 400, d: int = 1024, seed: int = 1) -> np.ndarray:
    """Return packed rows around some centres, of 2 to 40 per cent of the bits, three of them empty, and some equal."""
    rng = np.random.default_rng(seed)
    centres = rng.random((n // 10, d)) < rng.uniform(0.02, 0.4, (n // 10, 1))
    rows = centres[rng.integers(len(centres), size=n)] ^ (rng.random((n, d)) < 0.005)
    rows[[0, 5, n - 1]] = False
    rows[n // 2 : n // 2 + 20] = rows[:20]
    return pack(rows)


def kept(run: Any) -> list[np.ndarray]:
    table = run.pairs().read_all()
    order = np.lexsort((table["j"].to_numpy(), table["i"].to_numpy()))
    return [table[name].to_numpy()[order] for name in ("i", "j", "score")]


def unscreened(monkeypatch: pytest.MonkeyPatch, *args: Any, **options: Any) -> list[np.ndarray]:
    """Return the pairs of a run that computes every pair."""
    with monkeypatch.context() as patch:
        whole = Keeper.__init__
        patch.setattr(Keeper, "__init__", lambda *given, **named: whole(*given, **named, trust=None))
        run = tartan.allpairs(*args, **options)
    assert "screened" not in run.stats
    return kept(run)


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("metric", ["jaccard", "hamming"])
@pytest.mark.parametrize("rule", RULES)
def test_runs_that_rule_pairs_out_keep_what_others_keep(
    monkeypatch: pytest.MonkeyPatch, rule: str, metric: str, dtype: str
) -> None:
    app, rows = Vectors(metric=metric, dtype=dtype, bits="packed"), fingerprints()
    options = {"reduce": RULES[rule], "workers": 2, "tile": 96, "quiet": True}
    run = tartan.allpairs(app, rows, **options)
    for one, other in zip(kept(run), unscreened(monkeypatch, app, rows, **options), strict=True):
        np.testing.assert_array_equal(one, other)
    if rule == "below a threshold":
        assert run.stats["screened"]["by_bound"] > 1_000
    assert ("screened" in run.stats) == (rule != "worst")


def test_pairs_within_a_threshold_are_those_of_scipy() -> None:
    rows = fingerprints(300)
    exact = squareform(pdist(np.unpackbits(rows, axis=1).astype(bool), "jaccard"))
    run = tartan.allpairs(Vectors(metric="jaccard", bits="packed"), rows, reduce=RULES["below a threshold"], quiet=True)
    i, j, score = kept(run)
    expected = np.argwhere(np.triu(exact <= 0.3, 1))
    np.testing.assert_array_equal(np.column_stack([i, j]), expected)
    np.testing.assert_allclose(score, exact[i, j], atol=1e-7)


@pytest.mark.slow
def test_the_result_says_what_decided_its_pairs(tmp_path: Path) -> None:
    rows, app = fingerprints(500), Vectors(metric="jaccard", bits="packed")
    run = tartan.allpairs(app, rows, tmp_path / "run", reduce=RULES["below a threshold"], tile=100, quiet=True)
    said = run.stats["screened"]
    assert said["by_bound"] + said["exactly"] == 500 * 499 // 2
    assert said["by_bound"] > said["exactly"] > 0
    assert said["unscreened"] == said["largest_bound"] == 0
    more = fingerprints(100, seed=2)
    grown = tartan.add(tmp_path / "run", more, app=app, previous=rows)
    expected = tartan.allpairs(app, np.concatenate([rows, more]), reduce=RULES["below a threshold"], quiet=True)
    for one, other in zip(kept(grown), kept(expected), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("rule", ["below a threshold", "best"])
def test_one_set_against_another(monkeypatch: pytest.MonkeyPatch, rule: str) -> None:
    app, options = Vectors(metric="jaccard", bits="packed"), {"reduce": RULES[rule], "tile": 96, "quiet": True}
    left, right = fingerprints()[:133], fingerprints()[133:]
    run = tartan.allpairs(app, left, against=right, **options)
    for one, other in zip(kept(run), unscreened(monkeypatch, app, left, against=right, **options), strict=True):
        np.testing.assert_array_equal(one, other)
    assert run.stats["screened"]["by_bound"] > 0


def test_numbers_of_bits_that_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    app, rows = Vectors(metric="jaccard", bits="packed"), fingerprints()
    options = {"reduce": RULES["best"], "tile": 96, "quiet": True}
    expected = kept(tartan.allpairs(app, rows, **options))
    monkeypatch.setattr(keeper, "COPY_BYTES", 0)
    for one, other in zip(kept(tartan.allpairs(app, rows, **options)), expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("metric", ["jaccard", "hamming"])
def test_a_wrong_bound_loses_pairs(monkeypatch: pytest.MonkeyPatch, metric: str) -> None:
    """What the tests above would say of a bound that is wrong."""
    app, rows = Vectors(metric=metric, bits="packed"), fingerprints()
    options = {"reduce": {"kind": "threshold", "threshold": 0.05}, "tile": 96, "quiet": True}
    expected = kept(tartan.allpairs(app, rows, **options))[0]
    whole = Keeper.__init__
    monkeypatch.setattr(Keeper, "__init__", lambda *args, **named: whole(*args, **named, trust=0.5))
    assert len(kept(tartan.allpairs(app, rows, **options))[0]) < len(expected)


def test_a_subclass_that_scores_otherwise_is_asked() -> None:
    class Halved(Vectors):
        def compare(self, left: Any, right: Any, xp: Any, out: Any = None) -> Any:
            return super().compare(left, right, xp) / 2

    rows = fingerprints(50)
    options = {"reduce": RULES["best"], "quiet": True}
    halved = tartan.allpairs(Halved(metric="jaccard", bits="packed"), rows, **options)
    whole = tartan.allpairs(Vectors(metric="jaccard", bits="packed"), rows, **options)
    np.testing.assert_array_equal(kept(halved)[2], kept(whole)[2] / 2)


def test_a_level_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match="level: not on this machine"):
        _native.BitScreen(10, 0, level="avx1024")
