"""Groups of options are checked as their annotations say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import pytest

from tartan.base.checks import check_one_of, pair, whole
from tartan.base.signatures import Checked, Flag, FromZero, NotNegative, Positive, group_options
from tartan.errors import ConfigError


def _truth(name: str, value: object) -> bool:
    return bool(value)


@dataclass(frozen=True)
class Inner:
    """A group within a group."""

    tol: NotNegative
    most: Annotated[int | None, Checked(whole, 1)]


@dataclass(frozen=True)
class Outer:
    """A group."""

    scale: Positive
    kind: Annotated[str, Checked(check_one_of, ("round", "square"))]
    ends: Annotated[tuple[float, float], Checked(pair, ("a number below 9", lambda value: value < 9))]
    exact: Annotated[bool, Checked(_truth, option="second")]
    start: Any
    inner: Inner
    wait: FromZero = 3
    quick: Flag = False


GIVEN: dict[str, Any] = {
    "scale": 2, "kind": "round", "ends": [1, 2], "second": 1, "start": None, "tol": 0, "most": None, "wait": 4,
    "quick": 1, "others": "are allowed",
}  # fmt: skip


def test_options_are_put_into_groups() -> None:
    found = group_options(Outer, GIVEN)
    assert found == Outer(2.0, "round", (1.0, 2.0), True, None, Inner(0.0, None), 4, True)
    assert type(found.scale) is float
    assert type(found.quick) is bool
    assert group_options(Inner, {"tol": 0.5, "most": 7}) == Inner(0.5, 7)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("scale", 0, "scale is 0; it must be a finite number above 0"),
        ("kind", "oval", "kind: 'oval' is unknown; choose round or square"),
        ("ends", [1], r"ends is \[1\]; it must be two numbers"),
        ("ends", [1, 9], "ends is 9; it must be a number below 9"),
        ("most", 0, "most is 0; it must be a whole number, 1 or more"),
        ("tol", None, "tol is None; it must be a finite number, 0 or more"),
        ("wait", 1.5, "wait is 1.5; it must be a whole number, 0 or more"),
        ("quick", "no", "quick is 'no'; it must be True or False"),
    ],
)
def test_a_wrong_option_is_named(name: str, value: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{message}$") as caught:
        group_options(Outer, GIVEN | {name: value})
    assert caught.value.context["option"] == name
