"""Checks of parameters: what passes, what the error says and which option it names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tartan.base.checks import FINITE, FRACTION, NOT_NEGATIVE, POSITIVE, check_one_of, flag, number, path_of, whole
from tartan.errors import ConfigError


@pytest.mark.parametrize(
    ("check", "value"),
    [
        (lambda: whole("k", np.int64(3), 1), 3),
        (lambda: whole("k", 2**70), 2**70),
        (lambda: number("t", np.float32(0.5), FRACTION), 0.5),
        (lambda: number("t", 0, NOT_NEGATIVE), 0.0),
        (lambda: number("t", -3, FINITE), -3.0),
        (lambda: flag("keep", np.True_), True),
        (lambda: check_one_of("order", "panel", ("panel", "quadrant")), "panel"),
    ],
)
def test_what_fits_is_returned(check: Callable[[], Any], value: object) -> None:
    found = check()
    assert (found, type(found)) == (value, type(value))


def test_an_empty_path_is_not_the_current_folder() -> None:
    assert path_of("out", ".") == path_of("out", Path()) == Path()
    with pytest.raises(ConfigError, match=r"^out is ''; it must be the name of a file or folder") as error:
        path_of("out", "", option="--out")
    assert error.value.context["option"] == "--out"


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (lambda: whole("k", 0, 1), "k is 0; it must be a whole number, 1 or more"),
        (lambda: whole("k", 9, 1, 8), "k is 9; it must be a whole number, 1 to 8"),
        (lambda: whole("k", True), "k is True; it must be a whole number, 0 or more"),
        (lambda: whole("k", 2.0), "k is 2.0; it must be a whole number, 0 or more"),
        (lambda: number("t", 0, POSITIVE), "t is 0; it must be a finite number above 0"),
        (lambda: number("t", "5", FINITE), "t is '5'; it must be a finite number"),
        (lambda: number("t", float("nan"), FINITE), "t is nan; it must be a finite number"),
        (lambda: flag("keep", 2), "keep is 2; it must be True or False"),
        (lambda: check_one_of("order", "x", ("panel", "quadrant")), "order: 'x' is unknown; choose panel or quadrant"),
        (lambda: check_one_of("pack", "x", ("a", "b", "c")), "pack: 'x' is unknown; choose from a, b, c"),
    ],
)
def test_what_does_not_fit_is_refused(check: Callable[[], Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check()
    assert str(caught.value) == message


def test_the_error_names_the_option() -> None:
    with pytest.raises(ConfigError) as caught:
        whole("tile", 0, 1, option="--tile")
    assert caught.value.context == {"option": "--tile"}
