"""Formulas, transforms and similarities do what they say, on floats and on int16."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import gammaincc
from scipy.stats import ks_2samp

from tartan.analytics.matrix import as_dissimilarities
from tartan.analytics.matrix.convert import to_four_dimensions
from tartan.analytics.matrix.formula import Formula
from tartan.errors import ConfigError

N = 30


def similarities() -> np.ndarray:
    """Return cosines of directions, some of them a hair above 1 by rounding."""
    x = np.random.default_rng(4).normal(size=(N, 4))
    x[7] = x[3]
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    S = np.abs(x @ x.T)
    S[3, 7] = S[7, 3] = 1 + 3e-7
    return S


def distances() -> np.ndarray:
    D = 1 - np.minimum(similarities(), 1)
    np.fill_diagonal(D, 0)
    return D


def whole(D) -> np.ndarray:
    return D.values(slice(0, N), slice(0, N))


@pytest.mark.parametrize(
    ("formula", "function"),
    [
        ("1-s", lambda s: 1 - s),
        ("sqrt(2-2s)", lambda s: np.sqrt(2 - 2 * s)),
        ("sqrt(1 - s^2)", lambda s: np.sqrt(1 - s**2)),
        ("-log(s)", lambda s: -np.log(s)),
        ("arccos(s)", np.arccos),
        ("max-s", lambda s: s.max() - s),
        ("1/s-1", lambda s: 1 / s - 1),
        ("exp(-s)", lambda s: np.exp(-s)),
        ("2(1-s)(1+s)", lambda s: 2 * (1 - s) * (1 + s)),
        (lambda s: 1 - s, lambda s: 1 - s),
    ],
)
def test_similarities_become_dissimilarities(formula, function) -> None:
    S = np.minimum(similarities(), 1.0)
    expected = function(S)
    np.fill_diagonal(expected, 0)
    D = as_dissimilarities(similarities(), distance=formula)
    np.testing.assert_allclose(whole(D), expected, atol=1e-6)
    assert D.check().n_valid == N * (N - 1) // 2
    assert D.array is None
    small = as_dissimilarities(similarities().astype(np.float32), distance=formula)
    assert small.dtype == np.float32
    np.testing.assert_allclose(whole(small), expected, atol=1e-3)


@pytest.mark.parametrize(
    ("transform", "function"),
    [
        ("sqrt", np.sqrt),
        ("square", np.square),
        (0.7, lambda d: d**0.7),
        ("min(1,d)^0.125", lambda d: np.minimum(1, d) ** 0.125),
        ("1-(1-d)^0.125", lambda d: 1 - (1 - d) ** 0.125),
        ("log(1-d^0.125)/log(1-0.975^0.125)", lambda d: np.log(1 - d**0.125) / np.log(1 - 0.975**0.125)),
        ("-log(1-.5d)", lambda d: -np.log(1 - 0.5 * d)),
        ("d/mean", lambda d: d / d[np.triu_indices(N, 1)].mean()),
        (np.tanh, np.tanh),
    ],
)
@pytest.mark.parametrize("dtype", ["float64", "int16"])
def test_dissimilarities_are_transformed(transform, function, dtype) -> None:
    D = distances()
    D[3, 7] = D[7, 3] = 0.5
    if dtype == "int16":
        D = np.rint(D * 32767).astype(np.int16)
        expected = function(D / 32767)
    else:
        expected = function(D)
    np.fill_diagonal(expected, 0)
    found = as_dissimilarities(D, transform=transform)
    assert found.dtype == (np.float32 if dtype == "int16" else np.float64)
    np.testing.assert_allclose(whole(found), expected, rtol=3e-7, atol=1e-7)


def test_missing_pairs_stay_missing() -> None:
    D = distances()
    D[1, 2] = D[2, 1] = np.nan
    found = as_dissimilarities(D, missing="nan", transform="sqrt")
    assert found.check().n_missing == 1
    stored = np.rint(distances() * 32767).astype(">i2")
    stored[1, 2] = stored[2, 1] = -1
    found = as_dissimilarities(stored, transform="sqrt")
    assert found.check().n_missing == 1
    assert np.isnan(found.block(1, 2)[0, 2])


def test_similarities_may_be_missing() -> None:
    S = similarities()
    S[1, 2] = S[2, 1] = 0.0
    with pytest.raises(
        ConfigError, match=r"`distance='-log\(s\)'` is not defined for the value 0 of 1 and 2.*missing=0"
    ):
        as_dissimilarities(S, distance="-log(s)").check()
    found = as_dissimilarities(S, distance="-log(s)", missing=0)
    assert found.check().n_missing == 1


def test_what_means_missing_leaves_the_diagonal_in_the_largest_similarity() -> None:
    S = similarities()
    given = S.copy()
    given[0, 5] = given[5, 0] = -9.0
    np.fill_diagonal(given, 2.0)
    found = whole(as_dissimilarities(given, distance="max-s", missing=-9.0))
    away = ~np.eye(len(S), dtype=bool) & (given != -9.0)
    np.testing.assert_allclose(found[away], 2.0 - S[away], atol=1e-12)
    with pytest.raises(ConfigError, match="of 0 and itself is 2, not 0"):
        as_dissimilarities(given + 3.0 * away, missing=-9.0).check()


def test_a_condensed_matrix_of_similarities() -> None:
    S = similarities()
    found = as_dissimilarities(S[np.triu_indices(N, 1)], distance="max-s")
    largest = S[np.triu_indices(N, 1)].max()
    expected = largest - S
    np.fill_diagonal(expected, 0)
    np.testing.assert_allclose(whole(found), expected, atol=1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"distance": "1-d"}, "'1-d' is not a formula of s: 'd' means nothing in it"),
        ({"distance": "2"}, "s does not occur in it"),
        ({"distance": "1-"}, "cannot be read"),
        ({"distance": "s.real"}, "'s.real' is nothing that it may use"),
        ({"distance": "__import__('os')"}, "not a function that it may use"),
        ({"distance": "sqrt(s, s)"}, "not a function that it may use"),
        ({"distance": "s if s else 1"}, "nothing that it may use"),
        ({"distance": "s*True"}, "True is not a number"),
        ({"distance": "s+'a'"}, "'a' is not a number"),
        ({"transform": 0}, "`transform=0`: an exponent is a number above 0"),
        ({"transform": True}, "an exponent is a number above 0"),
        ({"transform": "4e"}, "'e' means nothing"),
        ({"missing": "zero"}, "missing is 'zero'; it must be 'nan', 'negative', 'error' or a number"),
        ({"triangle": "left"}, "triangle is 'left'"),
    ],
)
def test_options_that_mean_nothing_are_refused(options, message) -> None:
    with pytest.raises(ConfigError, match=message):
        as_dissimilarities(distances(), **options)


@pytest.mark.parametrize("dtype", ["float64", "int16"])
def test_functions_that_keep_no_shape_are_refused(dtype) -> None:
    D = distances() if dtype == "float64" else np.rint(distances() * 100).astype(np.int16)
    with pytest.raises(ConfigError, match="`transform=sum` made"):
        as_dissimilarities(D, transform=np.sum).check()


def test_a_function_that_gives_negative_values_is_refused() -> None:
    with pytest.raises(ConfigError, match="of 0 and 1 is negative: -0"):
        as_dissimilarities(distances(), transform="d/1-1").check()


def test_numbers_before_letters_are_products_but_exponents_are_not() -> None:
    d = np.array([2.0])
    assert Formula("1e-3d", "d")(d) == pytest.approx(0.002)
    assert Formula("2.5d^2", "d")(d) == 10
    assert Formula(".5 d + 3(d)", "d")(d) == 7
    assert Formula("max(d, 1)-d", "d")(d) == 0
    assert Formula("max - min(d, 1)", "d")(d, max=5.0) == 4


def test_the_four_dimensional_transform_matches_tails() -> None:
    rng = np.random.default_rng(5)
    d = rng.gamma(9.0, 0.3, 20_000)
    four = to_four_dimensions(d.mean(), d.std(), d.max())
    found = four(d)
    assert found.max() == 1.0
    assert ks_2samp(found / found.mean(), rng.gamma(2.0, 0.5, 20_000)).statistic < 0.02
    assert np.all(np.diff(four(np.sort(d))) >= 0)


def test_the_four_dimensional_transform_solves_its_equation() -> None:
    mean, std, largest = 3.0, 1.0, 8.0
    shape, scale = (mean / std) ** 2, std**2 / mean
    d = np.linspace(0.01, largest, 50)
    E = to_four_dimensions(mean, std, largest)(d)
    top = E[-1]
    for tail, e in zip(gammaincc(shape, d / scale), E / top):
        e = e * _solved(gammaincc(shape, largest / scale))
        assert np.exp(-e) * (1 + e) == pytest.approx(tail, rel=1e-9)


def _solved(tail: float) -> float:
    """Solve E = -ln Q + ln(1 + E) by repetition."""
    E = -np.log(tail)
    for _ in range(200):
        E = -np.log(tail) + np.log1p(E)
    return float(E)


def test_far_tails_stay_finite() -> None:
    four = to_four_dimensions(1.0, 0.5, 1000.0)
    found = four(np.array([1.0, 150.0, 160.0, 170.0, 1000.0]))
    assert np.all(np.isfinite(found))
    assert np.all(np.diff(found) > 0)
    steps = np.diff(four(np.linspace(140.0, 160.0, 201)))
    np.testing.assert_allclose(steps, steps.mean(), rtol=1e-3)


@pytest.mark.parametrize("form", ["float64", "int16"])
def test_four_dimensions_of_a_matrix(form) -> None:
    D = distances()
    D[3, 7] = D[7, 3] = 0.5
    given = D if form == "float64" else np.rint(D * 32767).astype(np.int16)
    four = as_dissimilarities(given, transform="4D").check()
    assert four.largest == pytest.approx(1.0, rel=1e-6)
    root = as_dissimilarities(given, transform="sqrt(4D)")
    np.testing.assert_allclose(whole(root) ** 2, whole(as_dissimilarities(given, transform="4d")), atol=1e-6)
    with pytest.raises(ConfigError, match="needs dissimilarities that differ"):
        as_dissimilarities(np.ones((5, 5)) - np.eye(5), transform="4D")
