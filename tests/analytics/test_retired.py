"""Options that go are accepted for one more version, and count; checkpoints of the version before resume."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from tartan.analytics import DAMDS, DAPWC, DAVS, LMMDS, Monitor
from tartan.comm.loopback import run_ranks
from tartan.errors import ConfigError, RunCancelledError

POINTS = np.random.default_rng(0).normal(size=(20, 2))
D = np.linalg.norm(POINTS[:, None] - POINTS, axis=2)
FAST = {"min_temperature": 5.0, "cooling": (0.6, 0.9), "cooling_below": (0.8, 0.95)}
ESTIMATORS: dict[type[Any], dict[str, Any]] = {
    DAMDS: {"n_components": 1, "max_temperatures": 2, "max_iter": 5, "random_state": 0},
    DAPWC: {"n_clusters": 2, "random_state": 0},
    DAVS: FAST,
    LMMDS: {"n_components": 1, "max_iter": 3, "random_state": 0},
}
RETIRED = [(kind, name) for kind in ESTIMATORS for name in kind.retired]
#: What a checkpoint of the version before is compared with, by name.
CHECKPOINT = {
    DAMDS: """accelerate alpha annealing cg_max_iter cg_tol device distance_transform fixed init max_iter
        max_temperatures n_components precision random_state sammon t_min_factor tol weights zeros""",
    DAPWC: """continuous_prior cooling final_cooling final_steps freezing_limit initial_cooling intermediate level
        max_failed_splits max_iter metric min_cluster_size min_split_size min_temperature n_clusters random_state
        split_threshold split_wait tol""",
    DAVS: """centers_per_point closeness closeness_temperature cooling cooling_below cooling_switch cuts
        final_max_iter final_sigma_temperature final_tol init initial_sigma max_clusters max_iter max_splits min_count
        min_count_with_sponge min_points min_split_count min_split_width min_temperature priors refresh
        restart_temperature sample scaling sigma sponge sponge_factors sponge_prior sponge_temperatures sponge_width
        temperature_ratio tol wait wait_after_removal""",
    LMMDS: """accept_ratio bins calculate_fixed cg_max_iter cg_tol damping damping_floor distance_cut
        distance_transform fixed formula gauge init labels link_cut max_iter max_left_out max_rejected
        minimum_distance missing missing_value multiplier n_components n_init n_steepest random_state sample_weight
        second_derivatives tol varied weighting""",
}


def given(kind: type[Any]) -> np.ndarray:
    return POINTS if kind is DAVS else D


@pytest.mark.parametrize(("kind", "name"), RETIRED, ids=lambda one: getattr(one, "__name__", one))
def test_a_retired_option_is_taken_with_a_warning_that_names_the_way_out(kind: type[Any], name: str) -> None:
    default, way_out = kind.retired[name]
    with pytest.warns(DeprecationWarning, match=f"{kind.__name__}: the option {name} goes in the next version") as said:
        estimator = kind(**{name: default})
    assert way_out in str(said[0].message)
    assert estimator.get_params() == {**kind().get_params(), name: default}
    with pytest.warns(DeprecationWarning, match=name):
        assert clone(estimator).get_params() == estimator.get_params()
    with pytest.warns(DeprecationWarning, match=name):
        assert kind().set_params(**{name: default}).get_params() == estimator.get_params()
    assert pickle.loads(pickle.dumps(estimator)).get_params() == estimator.get_params()
    assert name not in kind().get_params()
    assert kind().all_options()[name] is default


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (DAMDS, {"t_min_factor": 0.9}),
        (DAPWC, {"initial_cooling": 0.5}),
        (DAVS, {"final_max_iter": 1, "final_tol": 0.0}),
        (LMMDS, {"damping": 1e3}),
    ],
)
def test_a_retired_option_counts(kind: type[Any], options: Mapping[str, Any]) -> None:
    usual = dict(ESTIMATORS[kind], max_temperatures=None) if kind is DAMDS else ESTIMATORS[kind]
    plain = kind(**usual).fit(given(kind))
    with pytest.warns(DeprecationWarning, match="goes in the next version"):
        found = kind(**usual, **options).fit(given(kind))
    assert found.n_iter_ != plain.n_iter_ or not np.array_equal(found.embedding_, plain.embedding_)


@pytest.mark.parametrize(
    ("kind", "options", "says"),
    [
        (DAMDS, {"t_min_factor": 0}, "t_min_factor is 0; it must be a finite number above 0"),
        (DAPWC, {"final_steps": 0}, "final_steps is 0"),
        (DAVS, {"refresh": 0}, "refresh is 0"),
        (LMMDS, {"damping": "x"}, "damping is 'x'; it must be a finite number above 0"),
    ],
)
def test_a_retired_option_is_checked(kind: type[Any], options: Mapping[str, Any], says: str) -> None:
    with pytest.warns(DeprecationWarning, match="goes in"), pytest.raises(ConfigError, match=says):
        kind(**ESTIMATORS[kind], **options).fit(given(kind))


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_an_unknown_option_is_an_error(kind: type[Any]) -> None:
    with pytest.raises(TypeError, match=rf"{kind.__name__}.* unexpected keyword argument 'speed'"):
        kind(speed=3)
    with pytest.raises(ValueError, match="Invalid parameter 'speed'"):
        kind().set_params(speed=3)


@pytest.mark.parametrize("kind", [DAMDS, DAVS])
def test_the_communicator_of_the_constructor_counts(kind: type[Any]) -> None:
    attribute = "embedding_" if kind is DAMDS else "cluster_centers_"

    def by_fit(ranks: Any) -> np.ndarray:
        return getattr(kind(**ESTIMATORS[kind]).fit(given(kind), communicator=ranks), attribute)

    def by_constructor(ranks: Any) -> np.ndarray:
        seen.append(ranks.size)
        return getattr(kind(**ESTIMATORS[kind], communicator=ranks).fit(given(kind)), attribute)

    seen: list[int] = []
    with pytest.warns(DeprecationWarning, match="communicator goes in the next version; give it to fit"):
        found = run_ranks(2, by_constructor)
    assert seen == [2, 2]
    np.testing.assert_array_equal(found[0], run_ranks(2, by_fit)[0])


def test_the_monitor_of_the_constructor_counts() -> None:
    monitor = Monitor()
    monitor.cancel()
    with pytest.warns(DeprecationWarning, match="monitor"), pytest.raises(RunCancelledError):
        DAVS(**FAST, monitor=monitor).fit(POINTS)


class _Noting(Monitor):
    """Notes what a checkpoint would be compared with, and ends the call."""

    def identify(
        self, algorithm: str, fingerprint: Callable[[], str], parameters: Callable[[], Mapping[str, Any]]
    ) -> None:
        self.found = parameters()
        self.cancel()
        self.check()


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_a_checkpoint_of_the_version_before_is_of_the_same_call(kind: type[Any]) -> None:
    monitor = _Noting()
    with pytest.raises(RunCancelledError):
        kind(**ESTIMATORS[kind]).fit(given(kind), monitor=monitor)
    assert sorted(monitor.found) == CHECKPOINT[kind].split()
    retired = set(kind.retired) & set(monitor.found)
    known = {name: value for name, value in monitor.found.items() if name in retired and name != "max_splits"}
    assert known == {name: kind.retired[name].default for name in known}


def test_estimators_work_in_a_pipeline() -> None:
    pipeline = make_pipeline(DAVS(**FAST))
    pipeline.set_params(davs__sigma=2.0)
    assert clone(pipeline).fit(POINTS)[0].sigma == 2.0
