"""The estimators keep scikit-learn's conventions: its own checks, clones, pickles."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.validation import check_is_fitted

from tartan.analytics import DAMDS, DAPWC, DAVS, LMMDS

FAST = {"cooling": (0.6, 0.9), "cooling_below": (0.8, 0.95)}
ESTIMATORS = (
    DAMDS(1, max_temperatures=1, max_iter=5, random_state=0),
    DAPWC(2, random_state=0),
    DAVS(temperature_ratio=10.0, **FAST),
    LMMDS(1, max_iter=5, random_state=0),
)

OTHER_WORDS = "asks for scikit-learn's own words; the reader of matrices names the pair or the type in its own"
POINTS = "gives points where dissimilarities are needed, and the shape is what is refused"
ONE_ERROR = "wants a TypeError for what is not a number; here all bad input is a ConfigError, which is a ValueError"
OLD_POINTS = "places the items anew and wants the map itself; each is placed alone, against the others where they are"
OF_MATRICES = {
    "check_complex_data": OTHER_WORDS,
    "check_positive_only_tag_during_fit": OTHER_WORDS,
    "check_estimators_empty_data_messages": OTHER_WORDS,
    "check_estimators_nan_inf": POINTS,
    "check_dtype_object": ONE_ERROR,
}
#: Checks that an estimator need not pass, and why.
REASONS: dict[str, dict[str, str]] = {
    "DAMDS": {
        **OF_MATRICES,
        "check_n_features_in_after_fitting": OTHER_WORDS,
        "check_fit2d_predict1d": OTHER_WORDS,
        "check_transformer_data_not_an_array": OLD_POINTS,
        "check_transformer_general": OLD_POINTS,
    },
    "DAPWC": {**OF_MATRICES, "check_clustering": POINTS},
    "DAVS": {},
    "LMMDS": OF_MATRICES,
}


def expected_failures(estimator: Any) -> dict[str, str]:
    """Return the checks that an estimator need not pass; one that passes nevertheless is an error (xfail_strict)."""
    return REASONS[type(estimator).__name__]


with warnings.catch_warnings():
    # It warns of estimators without its base class, whose import takes longer than most analyses, and checks them.
    warnings.filterwarnings("ignore", message=".* does not inherit from `sklearn.base.BaseEstimator`")
    check_conventions = parametrize_with_checks(list(ESTIMATORS), expected_failed_checks=expected_failures)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@check_conventions
def test_scikit_learn_conventions(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


_PLACES = np.random.default_rng(0).normal(size=(20, 2))
_DISTANCES = np.linalg.norm(_PLACES[:, None] - _PLACES, axis=2)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda one: type(one).__name__)
def test_clones_and_pickles(estimator: Any) -> None:
    given = _PLACES if isinstance(estimator, DAVS) else _DISTANCES
    fitted = clone(estimator).fit(given)
    assert clone(fitted).get_params() == estimator.get_params()
    again = pickle.loads(pickle.dumps(fitted))
    check_is_fitted(again)
    for name, value in vars(fitted).items():
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(getattr(again, name), value)
    assert again.n_features_in_ == given.shape[1]
    attribute = "labels_" if hasattr(fitted, "labels_") else "embedding_"
    refitted = again.set_params(**estimator.get_params()).fit(given.tolist())
    np.testing.assert_array_equal(getattr(refitted, attribute), getattr(fitted, attribute))


@pytest.mark.parametrize("estimator", [ESTIMATORS[0], ESTIMATORS[1], ESTIMATORS[3]], ids=lambda one: type(one).__name__)
def test_those_of_pairs_say_so(estimator: Any) -> None:
    tags = estimator.__sklearn_tags__().input_tags
    assert (tags.pairwise, tags.positive_only, estimator.metric) == (True, True, "precomputed")


@pytest.mark.parametrize("estimator", [ESTIMATORS[0], ESTIMATORS[1], ESTIMATORS[3]], ids=lambda one: type(one).__name__)
def test_the_metric_is_given_as_scikit_learn_spells_it(estimator: Any) -> None:
    plain = clone(estimator).fit(_DISTANCES)
    given = type(estimator)(**{**estimator.get_params(), "metric": "precomputed"}).fit(_DISTANCES)
    attribute = "labels_" if hasattr(plain, "labels_") else "embedding_"
    np.testing.assert_array_equal(getattr(given, attribute), getattr(plain, attribute))
    with pytest.raises(ValueError, match="metric is 'euclidean'; only 'precomputed' is possible"):
        clone(estimator).set_params(metric="euclidean").fit(_DISTANCES)


@pytest.mark.parametrize("make", ["csr_array", "csr_matrix"])
def test_a_sparse_matrix_is_refused_by_name(make: str) -> None:
    from scipy import sparse

    for estimator in (ESTIMATORS[0], ESTIMATORS[1], ESTIMATORS[3]):
        with pytest.raises(ValueError, match=r"D is sparse.*toarray"):
            clone(estimator).fit(getattr(sparse, make)(_DISTANCES))


def test_objects_that_are_numbers_are_numbers() -> None:
    fitted = clone(ESTIMATORS[0]).fit(_DISTANCES.astype(object))
    np.testing.assert_array_equal(fitted.embedding_, clone(ESTIMATORS[0]).fit(_DISTANCES).embedding_)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda one: type(one).__name__)
def test_an_unknown_option_is_an_error(estimator: Any) -> None:
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'speed'"):
        type(estimator)(speed=3)
    with pytest.raises(ValueError, match="has no parameter 'speed'"):
        estimator.set_params(speed=3)


def test_estimators_work_in_a_pipeline() -> None:
    points = np.random.default_rng(0).normal(size=(20, 2))
    pipeline = make_pipeline(DAVS(min_temperature=5.0, **FAST))
    pipeline.set_params(davs__sigma=2.0)
    assert clone(pipeline).fit(points)[0].sigma == 2.0
