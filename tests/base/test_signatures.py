"""Options that functions share: shown in their signatures and documentation, and no others taken."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypedDict, Unpack

import numpy as np
import pytest

import tartan
from tartan import analytics
from tartan.base.signatures import takes_options
from tartan.blocks import Session
from tartan.cli.main import build_parser
from tartan.cli.shared.wording import commands_of, destinations
from tartan.errors import ConfigError
from tartan.options import ExecutionOptions, PairOptions, RunOptions


class Speeds(TypedDict, total=False):
    """How fast.

    Attributes
    ----------
    limit : float
        Per second.
        And no more.
    """

    limit: float
    unit: str | None


@takes_options(Speeds, defaults={"limit": 3.0})
def drive(where: str, *, back: bool = False, **options: Unpack[Speeds]) -> dict[str, Any]:
    """Drive.

    Parameters
    ----------
    where : str
    **options
        How fast.

    Returns
    -------
    dict
    """
    return {"where": where, "back": back, **options}


def test_the_function_shows_the_options() -> None:
    shown = inspect.signature(drive).parameters
    assert list(shown) == ["where", "back", "limit", "unit"]
    assert (shown["limit"].default, shown["limit"].annotation, shown["unit"].default) == (3.0, "float", None)
    assert drive.__doc__ is not None
    lines = drive.__doc__.splitlines()
    assert lines[5:10] == ["limit : float", "    Per second.", "    And no more.", "", "Returns"]
    assert "**options" not in drive.__doc__


def test_the_function_is_called_with_them() -> None:
    assert drive("home", unit="km") == {"where": "home", "back": False, "unit": "km"}
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'where'"):
        drive()  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("name", "said"),
    [("limits", "'limits'; did you mean 'limit'"), ("xyz", "'xyz'$")],
)
def test_other_names_are_refused(name: str, said: str) -> None:
    with pytest.raises(TypeError, match=rf"drive\(\) got an unexpected keyword argument .*{said}"):
        drive("home", **{name: 1})


@pytest.mark.parametrize(
    ("function", "groups"),
    [
        (tartan.allpairs, [ExecutionOptions, PairOptions]),
        (tartan.resume, [ExecutionOptions, PairOptions]),
        (tartan.add, [ExecutionOptions, PairOptions]),
        (tartan.alltuples, [ExecutionOptions]),
    ],
)
def test_every_option_of_a_run_is_shown_and_described(function: Callable[..., Any], groups: list[type]) -> None:
    shown = inspect.signature(function).parameters
    described = inspect.getdoc(function) or ""
    for name in {name for group in groups for name in group.__annotations__}:
        assert name in shown
        assert f"\n{name} : " in described
    assert shown["on_error"].default == "skip"
    with pytest.raises(TypeError, match="'workrs'; did you mean 'workers'"):
        function("x", "y", workrs=1)


def test_options_have_one_name() -> None:
    understood = {one.name for one in fields(RunOptions)} - {"tile"}
    assert understood <= set(PairOptions.__annotations__)
    assert set(PairOptions.__annotations__) - understood == {
        "on",
        "insecure",
        "rank_timeout",
        "wait",
        "stages",
        "parse_at",
    }
    for command in ("run", "resume", "add"):
        assert set(PairOptions.__annotations__) <= destinations(commands_of(build_parser(command))[command])


def test_an_option_names_the_one_that_it_became() -> None:
    with pytest.raises(TypeError, match="'cluster'; it is now 'on'"):
        tartan.allpairs(abs, [1, 2], cluster="local:2")  # type: ignore[call-arg]


D = abs(np.arange(6.0)[:, None] - np.arange(6.0))


@pytest.mark.parametrize(
    "analyse",
    [
        analytics.cluster,
        analytics.embed,
        analytics.linkage,
        analytics.neighbor_joining,
        analytics.neighbors,
        analytics.outliers,
        analytics.read_matrix,
        analytics.upgma,
    ],
)
@pytest.mark.parametrize(
    ("name", "said"),
    [("similarity", "; it is now 'distance'$"), ("transfrom", "; did you mean 'transform'"), ("xyz", "$")],
)
def test_analyses_name_options_that_they_do_not_have(analyse: Callable[..., Any], name: str, said: str) -> None:
    with pytest.raises(TypeError, match=rf"^[a-z]\w+\(\) got an unexpected keyword argument '{name}'{said}"):
        analyse(D, **{name: 1})


def test_a_clustering_ignores_no_option() -> None:
    with pytest.raises(TypeError, match="'thresold'; did you mean 'threshold'"):
        analytics.cluster(D, thresold=2)
    with pytest.raises(ConfigError, match="single has no option level"):
        analytics.cluster(D, threshold=2, level=0.0)


@pytest.mark.slow
def test_triples_name_options_that_no_run_has() -> None:
    run = tartan.alltuples(lambda a, b, c: a + b + c, [1.0, 2.0, 3.0], keep=tartan.top(1), workers=1, quiet=True)
    with pytest.raises(TypeError, match=r"export\(\) got .*'overwite'; did you mean 'overwrite'"):
        run.export("x.csv", overwite=True)
    with pytest.raises(ConfigError, match="distance is for runs of pairs"):
        run.export("x.csv", distance="1-s")


@pytest.mark.parametrize(
    ("function", "old", "said"),
    [
        (tartan.Run.export, "similarity", r"export\(\) .*'similarity'; it is now 'distance'"),
        (tartan.Run.neighbors, "larges", r"neighbors\(\) .*'larges'; did you mean 'largest'"),
        (analytics.as_dissimilarities, "similarity", r"as_dissimilarities\(\) .*; it is now 'distance'"),
        (Session, "cluster", r"Session\(\) .*'cluster'; it is now 'on'"),
    ],
)
def test_functions_without_shared_options_say_the_new_name(function: Callable[..., Any], old: str, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        function(**{old: 1})
