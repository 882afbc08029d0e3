from __future__ import annotations

import numpy as np
import pytest

from tartan.base.palette import colours, value_limits
from tartan.errors import ConfigError


@pytest.mark.parametrize("palette", ["viridis", "magma", "grey"])
def test_lightness_only_grows(palette):
    rgb = colours(np.linspace(0, 1, 64), palette).astype(float)
    luma = rgb @ [0.2126, 0.7152, 0.0722]
    assert (np.diff(luma) > 0).all()


def test_ends_are_clipped():
    low, below, above, high = colours(np.array([0.0, -5.0, 7.0, 1.0]))
    assert (low == below).all()
    assert (high == above).all()
    assert tuple(low) == (0x44, 0x01, 0x54)


def test_unknown_palette_names_the_known_ones():
    with pytest.raises(ConfigError, match="viridis, magma, grey"):
        colours(np.zeros(1), "jet")  # type: ignore[arg-type]


def test_limits_ignore_an_outlier_and_gaps():
    values = np.append(np.linspace(0, 1, 1000), [1e9, np.nan, np.inf])
    low, high = value_limits(values)
    assert 0 <= low < 0.05
    assert 0.95 < high < 1.05


@pytest.mark.parametrize("values", [[], [np.nan], [3.0, 3.0], [0.0]])
def test_limits_are_never_empty(values):
    low, high = value_limits(np.array(values))
    assert low < high


def test_limits_of_mostly_equal_values_reach_the_rest():
    values = np.zeros(1000)
    values[0] = 2.0
    assert value_limits(values) == (0.0, 2.0)


def test_limits_are_those_of_the_pairs_not_of_items_with_themselves():
    values = np.array([[0.0, 0.4, np.nan], [0.4, 0.0, 0.6], [np.nan, 0.6, 0.0]])
    assert value_limits(values, cut=0) == (0.4, 0.6)
    assert value_limits(np.diag([1.0, 2.0]) + np.array([[0, np.nan], [np.nan, 0]]), cut=0) == (1.0, 2.0)
    assert value_limits(values[:2], cut=0) == (0.0, 0.6)  # two sets of items: nothing meets itself
