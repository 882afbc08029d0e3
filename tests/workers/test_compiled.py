"""Compiled functions are found by the module that holds them, sent by that name, and told apart by it."""

from __future__ import annotations

import functools
import math
import operator
import sys
import types
from collections.abc import Callable
from typing import Any

import cloudpickle
import numpy as np
import pytest

from tartan.application import Application, as_application
from tartan.errors import ConfigError
from tartan.workers import shipping
from tartan.workers.shipping import compute_fingerprint_of, is_compiled, place_of


def lying(function: Callable[..., Any], name: str) -> Any:
    """Return a function that is not Python code, and gives itself a name that leads nowhere, as those of Cython do."""
    wrapped: Any = functools.lru_cache(maxsize=0)(function)
    wrapped.__qualname__ = wrapped.__name__ = name
    wrapped.__module__ = "strings.impl_avx2"
    del wrapped.__wrapped__
    return wrapped


@pytest.fixture
def strings(monkeypatch: pytest.MonkeyPatch) -> types.SimpleNamespace:
    """Modules of a package with two functions that say the same of themselves."""
    edits, swaps = lying(operator.sub, "distance"), lying(operator.add, "distance")
    for name, members in {
        "strings": {},
        "strings.impl_avx2": {"edit_distance": edits, "swap_distance": swaps},
        "strings.Edits": {"distance": edits},
        "strings._hidden": {"distance": edits},
        "strings.Swaps": {"distance": swaps},
        "another": {"distance": edits},
    }.items():
        module = types.ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
    return types.SimpleNamespace(edits=edits, swaps=swaps)


def test_place_is_the_one_that_users_see(strings: types.SimpleNamespace) -> None:
    assert place_of(strings.edits) == ("strings.Edits", "distance")
    assert place_of(strings.swaps) == ("strings.Swaps", "distance")
    assert place_of(lying(operator.sub, "distance")) is None


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        (math.dist, True),
        (np.dot, True),
        (np.subtract, True),
        (len, True),
        (lambda a, b: 0, False),
        (functools.partial(math.dist), False),
        (Application(), False),
        (Application, False),
        (3, False),
    ],
)
def test_what_is_compiled(subject: Any, expected: bool) -> None:
    assert is_compiled(subject) is expected


def test_function_without_a_name_of_its_own_travels(strings: types.SimpleNamespace) -> None:
    with pytest.raises(Exception, match="strings"):
        cloudpickle.dumps(strings.edits)
    given = [strings.edits, functools.partial(strings.edits), lambda a, b: strings.edits(a, b)]
    for function in given:
        assert shipping.load(shipping.dump(as_application(function))).compare_pair(5, 3) == 2


def test_function_is_described_by_its_place(strings: types.SimpleNamespace) -> None:
    described = shipping.describe_application(as_application(strings.edits))
    assert (described["kind"], described["source"]) == ("module", "strings.Edits:distance")
    assert described["name"] == "distance"


def test_functions_of_one_name_are_told_apart(strings: types.SimpleNamespace) -> None:
    edits, swaps = functools.partial(strings.edits), functools.partial(strings.swaps)
    assert compute_fingerprint_of(edits) != compute_fingerprint_of(swaps)
    assert compute_fingerprint_of(edits) == compute_fingerprint_of(functools.partial(strings.edits))


@pytest.mark.slow
def test_what_cannot_travel_is_named_with_the_way_out() -> None:
    nowhere = lying(operator.mul, "distance")
    with pytest.raises(
        ConfigError, match=r"^distance cannot be sent .* wrap it in a tartan\.Application whose"
    ) as caught:
        shipping.dump(as_application(nowhere))
    assert caught.value.code == "not-picklable"

    class Wrapped(Application):
        releases_gil = True

        def compare_pair(self, a: Any, b: Any) -> Any:
            return nowhere(a, b)

    import tartan

    assert tartan.allpairs(Wrapped(), [5, 3], workers=1).condensed().tolist() == [15.0]
